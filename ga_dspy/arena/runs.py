"""Finished runs that may stand side by side, their order, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase

from ga_dspy.arena.methods import METHODS
from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import Report, load_report
from ga_dspy.eval.report import JOURNAL, usage_by_step
from ga_dspy.lm.endpoints import EMBEDDED

DATASETS = {
    "musique": "MuSiQue",
    "hotpotqa": "HotpotQA",
    "2wikimultihopqa": "2WikiMultiHopQA",
    "bamboogle": "Bamboogle",
}
"""Datasets by the names that commands use, as their authors write them, in the paper's order."""

_IDS = {
    "musique": r"\dhop\d?__\d+(_\d+)+",
    "hotpotqa": "[0-9a-f]{24}",
    "2wikimultihopqa": "[0-9a-f]{32}.*",
    "bamboogle": "bamboogle-[0-9a-f]+",
}


class UnlikeProtocols(GaDspyError):
    """Runs of one dataset were measured on other questions, passages or scores: mark them."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        report: Its results under its protocol.
        path: Its folder.
        mark: "" where it was measured like the others of its dataset, else the letter of the note
            that says how it differs.
        lms: Names of the LMs, where other runs of the same LMs have steps that this one has not.
    """

    report: Report
    path: Path
    mark: str = ""
    lms: str = ""

    @property
    def method(self) -> str:
        """The method's name, as in `ga_dspy.arena.methods`."""
        return self.report.protocol.program

    @property
    def dataset(self) -> str:
        """The dataset's name; the file's for questions of one's own."""
        protocol = self.report.protocol
        return Path(protocol.source).stem if protocol.dataset == "qa" else protocol.dataset

    @property
    def is_official(self) -> bool:
        """Whether its questions have the ids of the dataset that it names."""
        form = _IDS.get(self.report.protocol.dataset)
        ids = (result.id for result in self.report.results)
        return form is not None and all(re.fullmatch(rf"{form}(#\d+)?", id) for id in ids)

    @property
    def lm(self) -> str:
        """The LM's name, with those of steps that had another."""
        return self.lms or self.report.protocol.lm_names

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
        notes: By letter, how marked runs differ from the others of their dataset.
        printed: Datasets beside whose runs the paper's own figures stand.
    """

    runs: tuple[Run, ...]
    notes: dict[str, str]
    printed: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets, in the paper's order."""
        found = dict.fromkeys(run.dataset for run in self.runs)
        known = [name for name in DATASETS if name in found]
        return (*known, *(name for name in found if name not in known))

    @property
    def lms(self) -> tuple[str, ...]:
        """The LMs, in the order found."""
        return tuple(dict.fromkeys(run.lm for run in self.runs))

    def get(self, method: str, dataset: str, lm: str, budget: int | None = None) -> Run | None:
        """The run of a cell; None where it was not made."""
        cell = (method, dataset, lm, budget)
        return next((run for run in self.runs if _cell(run) == cell), None)

    def in_order(self, *, points: bool = False) -> list[Run]:
        """Runs in the order of the paper's tables: by LM, dataset and method.

        Args:
            points: Whether those that only end a method earlier are among them.
        """
        places = {method: place for place, method in enumerate(METHODS)}

        def place(run: Run) -> tuple[object, ...]:
            return (
                self.lms.index(run.lm),
                self.datasets.index(run.dataset),
                run.budget or 0,
                places.get(run.method, len(places)),
                run.method,
            )

        return sorted((run for run in self if points or not is_point(run)), key=place)


def is_point(run: Run) -> bool:
    """Whether a run only ends a method earlier: a point of the paper's Figure 3."""
    return run.method in METHODS and METHODS[run.method].group == "steps"


def collect(folders: Iterable[Path], *, unlike: bool = False, paper: bool = False) -> Runs:
    """Every finished run in or below some folders.

    Args:
        folders: Run folders, or folders that hold some.
        unlike: Mark runs that were measured otherwise instead of refusing them.
        paper: Show the paper's figures beside every dataset of its name; else only beside runs on
            the dataset's own questions.

    Raises:
        InputError: A folder holds no run, a run has not come to its end, or two runs are of the
            same method, dataset, LM and token budget.
        UnlikeProtocols: Runs of one dataset differ in questions, corpus, retriever or score.
    """
    # A folder may be named beside one that holds it.
    paths = {path.resolve(): path for folder in folders for path in _run_folders(folder)}
    found = [Run(load_report(path), path) for path in paths.values()]
    runs = _mark(_with_lms(found), paper)
    if runs.notes and not unlike:
        first = {run.mark: run.path for run in reversed(runs.runs)}
        differences = "; ".join(f"{text} in {first[mark]}" for mark, text in runs.notes.items())
        raise UnlikeProtocols(
            f"these runs cannot stand in one table: {differences}",
            expected="the same questions, corpus, retriever and score within a dataset",
            remedy="report them apart, or pass --unlike to have them marked instead",
        )
    cells: dict[tuple[object, ...], Run] = {}
    for run in runs:
        other = cells.setdefault(_cell(run), run)
        if other is not run:
            raise InputError(
                f"{other.path} and {run.path} are both {run.method} on {run.dataset} with {run.lm}",
                expected="one run a cell",
                remedy="leave one of the folders out",
            )
    return runs


def _run_folders(folder: Path) -> list[Path]:
    journals = sorted(folder.rglob(JOURNAL)) if folder.is_dir() else []
    if not journals:
        raise InputError(
            f"{folder} holds no run",
            expected=f"a folder with a {JOURNAL} in or below it, as eval and arena write them",
            remedy="check the path, or run `ga-dspy arena` first",
        )
    return [journal.parent for journal in journals]


def _with_lms(runs: Sequence[Run]) -> list[Run]:
    """Runs with one name for LMs that agree on the steps that two runs share.

    Methods have other steps: with an LM for "read" and one for "think" each run has one of both.
    """
    groups: list[tuple[dict[str, str], list[Run]]] = []
    for run in runs:
        protocol = run.report.protocol
        asked = {step: protocol.lm_of(step) for step in usage_by_step(run.report.results)}
        for steps, members in groups:
            agree = all(steps.get(step, lm) == lm for step, lm in asked.items())
            if agree and members[0].report.protocol.lm == protocol.lm:
                members.append(run)
                steps |= asked
                break
        else:
            groups.append((asked, [run]))
    named = dict[int, str]()
    for steps, members in groups:
        first = members[0].report.protocol
        own = {step: lm for step, lm in steps.items() if lm != first.lm}
        name = first.model_copy(update={"lms": own}).lm_names
        named |= {id(run): name for run in members}
    return [replace(run, lms=named[id(run)]) for run in runs]


def _mark(runs: Sequence[Run], paper: bool) -> Runs:
    """Runs with a letter where they differ from the first run of their dataset."""
    first: dict[str, Run] = {}
    letters: dict[str, str] = {}
    marked = []
    for run in runs:
        difference = _difference(first.setdefault(run.dataset, run), run)
        if difference and difference not in letters:
            rounds, letter = divmod(len(letters), len(ascii_lowercase))
            letters[difference] = ascii_lowercase[letter] * (rounds + 1)
        marked.append(replace(run, mark=letters.get(difference, "")))
    notes = {letter: text for text, letter in letters.items()}
    printed = {run.dataset for run in marked if paper or run.is_official}
    return Runs(tuple(marked), notes, frozenset(printed))


def _difference(base: Run, run: Run) -> str:
    one, other = (
        {**r.report.protocol.basis, "retriever": r.report.protocol.retriever} for r in (base, run)
    )
    parts = [f"{name} {other[name]} (not {one[name]})" for name in one if one[name] != other[name]]
    return f"{run.dataset}: {', '.join(parts)}" if parts else ""


def _cell(run: Run) -> tuple[object, ...]:
    return run.method, run.dataset, run.lm, run.budget


# --- What runs are called in tables and figures.


def dataset_label(name: str) -> str:
    """A dataset's name as its authors write it.

    >>> dataset_label("musique")
    'MuSiQue'
    """
    return DATASETS.get(name, name)


def lm_label(name: str) -> str:
    """An LM's name; of the embedded one, what it is, so that nobody takes it for an LLM.

    >>> lm_label("ga-dspy/extractive")
    'embedded extractive LM (no LLM)'
    """
    return "embedded extractive LM (no LLM)" if name == EMBEDDED else name


def method_label(name: str) -> str:
    """A method's name as the paper has it; any other program's own name."""
    return METHODS[name].label if name in METHODS else name


def marked(text: str, mark: str) -> str:
    """A text with the letter of a note, where there is one."""
    return f"{text} ({mark})" if mark else text


def mark_notes(runs: Runs, shown: Iterable[Run]) -> list[str]:
    """The footnotes of the marked ones among the runs shown."""
    return [f"({mark}) {runs.notes[mark]}." for mark in sorted({r.mark for r in shown} - {""})]
