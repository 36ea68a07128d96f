"""Finished runs from several folders, and the guard against tables of unlike ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from pydantic import JsonValue

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import Report, load_report
from ga_dspy.eval.report import JOURNAL


class UnlikeProtocols(GaDspyError):
    """Runs that were measured on different ground were to stand in one table."""

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            f"these runs cannot stand in one table: {'; '.join(differences)}; expected the same "
            "questions, corpus, retriever and score within a dataset; report them apart, "
            "or pass --unlike to have them marked instead"
        )
        self.differences = tuple(differences)


class TwoRuns(GaDspyError):
    """Two runs would fill one cell of a table."""

    def __init__(self, one: Run, other: Run) -> None:
        super().__init__(
            f"{one.path} and {other.path} are both {one.method} on {one.dataset} with {one.lm}; "
            "expected one run a cell; leave one of the folders out"
        )


@dataclass(frozen=True)
class Run:
    """A finished run and where it lies.

    Attributes:
        report: Its results under its protocol.
        path: Its folder.
        mark: "" where it stands on the ground of the others in its dataset's column, else the
            letter under which the report says how it differs.
    """

    report: Report
    path: Path
    mark: str = ""

    @property
    def method(self) -> str:
        """The method's name, as in `ga_dspy.arena.methods`."""
        return self.report.protocol.program

    @property
    def dataset(self) -> str:
        """The dataset's name; that of a renamed copy says so."""
        protocol = self.report.protocol
        return f"{protocol.dataset} (renamed)" if protocol.renamed_from else protocol.dataset

    @property
    def lm(self) -> str:
        """The LM's name."""
        return self.report.protocol.lm

    @property
    def budget(self) -> int | None:
        """Tokens a question was allowed; None in an arena of equal k."""
        budget = self.report.protocol.settings.get("token_budget")
        return budget if isinstance(budget, int) else None


@dataclass(frozen=True)
class Runs:
    """Runs that may stand side by side.

    Attributes:
        runs: In the order found.
        notes: By letter, how marked runs differ from their column.
    """

    runs: tuple[Run, ...]
    notes: dict[str, str]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets, in the paper's order, renamed copies after their originals."""
        order = ("musique", "hotpotqa", "2wikimultihopqa", "bamboogle")
        found = dict.fromkeys(run.dataset for run in self.runs)
        known = [n for base in order for n in (base, f"{base} (renamed)") if n in found]
        return (*known, *(name for name in found if name not in known))

    @property
    def lms(self) -> tuple[str, ...]:
        """The LMs, in the order found."""
        return tuple(dict.fromkeys(run.lm for run in self.runs))

    @property
    def budgets(self) -> tuple[int | None, ...]:
        """The token budgets, that of equal k (None) first."""
        found = {run.budget for run in self.runs}
        return tuple(sorted(found, key=lambda budget: (budget is not None, budget or 0)))

    def get(self, method: str, dataset: str, lm: str, budget: int | None = None) -> Run | None:
        """The run of a cell; None where it was not made."""
        for run in self.runs:
            if (run.method, run.dataset, run.lm, run.budget) == (method, dataset, lm, budget):
                return run
        return None


def collect(folders: Iterable[Path], *, unlike: bool = False) -> Runs:
    """Every finished run in or below some folders.

    Args:
        folders: Run folders, or folders that hold some.
        unlike: Mark runs on another ground instead of refusing them.

    Raises:
        InputError: A folder holds no run.
        Unfinished: A run has not come to its end.
        UnlikeProtocols: Runs of one dataset differ in questions, corpus, retriever or score.
        TwoRuns: Two runs are of the same method, dataset, LM and budget.
    """
    # A folder may be named beside one that holds it.
    paths = {path.resolve(): path for folder in folders for path in _found(folder)}
    marked, notes = _marked([Run(load_report(path), path) for path in paths.values()])
    if notes and not unlike:
        first = {run.mark: run.path for run in reversed(marked)}
        raise UnlikeProtocols([f"{told} in {first[mark]}" for mark, told in notes.items()])
    cells: dict[tuple[object, ...], Run] = {}
    for run in marked:
        cell = (run.method, run.dataset, run.lm, run.budget)
        if cell in cells:
            raise TwoRuns(cells[cell], run)
        cells[cell] = run
    return Runs(tuple(marked), notes)


def _found(folder: Path) -> list[Path]:
    journals = sorted(folder.rglob(JOURNAL)) if folder.is_dir() else []
    if not journals:
        raise InputError(
            f"{folder} holds no run",
            expected=f"a folder with a {JOURNAL} in or below it, as eval and arena write them",
            remedy="check the path, or run `ga-dspy arena` first",
        )
    return [journal.parent for journal in journals]


def _marked(runs: Sequence[Run]) -> tuple[list[Run], dict[str, str]]:
    """Runs with a letter where their ground is not that of the first run of their dataset."""
    first: dict[str, Run] = {}
    letters: dict[str, str] = {}
    marked = []
    for run in runs:
        base = first.setdefault(run.dataset, run)
        told = _differs(base, run)
        letter = letters.setdefault(told, _letter(len(letters))) if told else ""
        marked.append(Run(run.report, run.path, letter))
    return marked, {letter: told for told, letter in letters.items()}


def _letter(number: int) -> str:
    """From 0: "a" to "z", then "aa" to "zz"."""
    return ascii_lowercase[number % 26] * (number // 26 + 1)


def _differs(base: Run, run: Run) -> str:
    one, other = _ground(base), _ground(run)
    parts = [f"{name} {other[name]} (not {one[name]})" for name in one if one[name] != other[name]]
    return f"{run.dataset}: {', '.join(parts)}" if parts else ""


def _ground(run: Run) -> dict[str, JsonValue]:
    protocol = run.report.protocol
    return {**protocol.ground, "retriever": protocol.retriever}
