"""Finished runs that can be compared, and their names in a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
"""Labels of the datasets, in the paper's order."""

_OFFICIAL_IDS = {
    "musique": r"\dhop\d?__\d+(_\d+)+",
    "hotpotqa": "[0-9a-f]{24}",
    "2wikimultihopqa": "[0-9a-f]{32}.*",
    "bamboogle": "bamboogle-[0-9a-f]+",
}


class UnlikeProtocols(GaDspyError):
    """Runs of one dataset have different questions, passages or scores; `unlike` marks them."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        report: Its results and protocol.
        path: Its folder.
        difference: How its protocol differs from that of the first run of its dataset, or empty.
        lms: The LMs of all runs that it is compared with, if some have steps that it has not.
    """

    report: Report
    path: Path
    difference: str = ""
    lms: str = ""

    @property
    def method(self) -> str:
        """The method's name, as in `ga_dspy.arena.methods`, or the program's."""
        return self.report.protocol.program

    @property
    def dataset(self) -> str:
        """The dataset's name; the name of the file for your own questions."""
        protocol = self.report.protocol
        return Path(protocol.source).stem if protocol.dataset == "qa" else protocol.dataset

    @property
    def lm(self) -> str:
        """The LM's name, with those of steps that have another LM."""
        return self.lms or self.report.protocol.lm_names

    @property
    def budget(self) -> int | None:
        """The token budget per question; None at equal k."""
        budget = self.report.protocol.settings.get("token_budget")
        return budget if isinstance(budget, int) else None

    @property
    def is_official(self) -> bool:
        """Whether its questions have ids of the dataset that it names."""
        form = _OFFICIAL_IDS.get(self.report.protocol.dataset)
        ids = [result.id for result in self.report.results]
        return form is not None and all(re.fullmatch(rf"{form}(#\d+)?", id) for id in ids)

    @property
    def is_shorter(self) -> bool:
        """Whether it only limits another method's steps: a point of the paper's Figure 3."""
        return self.method in METHODS and METHODS[self.method].group == "steps"

    @property
    def label(self) -> str:
        """The method's label in tables and figures, with its token budget."""
        label = METHODS[self.method].label if self.method in METHODS else self.method
        return f"{label} within {self.budget:,} tokens" if self.budget else label

    @property
    def group_label(self) -> str:
        """The dataset and LM, as a heading; the embedded LM is said to be no LLM."""
        lm = "embedded extractive LM (no LLM)" if self.lm == EMBEDDED else self.lm
        return f"{DATASETS.get(self.dataset, self.dataset)}, {lm}"


@dataclass(frozen=True)
class Runs:
    """Finished runs, in the order of the paper's tables: by LM, dataset, token budget and method.

    Attributes:
        runs: The runs, in any order.
        paper: Whether to show the paper's scores for every dataset of that name; otherwise only
            for runs on the dataset's own questions.
    """

    runs: tuple[Run, ...]
    paper: bool = False

    def __iter__(self) -> Iterator[Run]:
        lms = list(dict.fromkeys(run.lm for run in self.runs))
        datasets, methods = list(DATASETS), list(METHODS)

        def place(run: Run) -> tuple[object, ...]:
            dataset, method = _place(run.dataset, datasets), _place(run.method, methods)
            return lms.index(run.lm), dataset, run.budget or 0, method

        return iter(sorted(self.runs, key=place))

    @property
    def differences(self) -> list[str]:
        """The distinct differences between protocols; a run's mark is a place in this list."""
        return list(dict.fromkeys(run.difference for run in self if run.difference))

    def mark(self, run: Run) -> str:
        """Return the number of a run's footnote, with a space before it; empty without one."""
        return f" ({self.differences.index(run.difference) + 1})" if run.difference else ""

    @property
    def paper_datasets(self) -> list[str]:
        """The datasets for which the paper's scores are shown."""
        shown = {run.dataset for run in self if self.paper or run.is_official}
        return [name for name in DATASETS if name in shown]


def _place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order)), name


def collect(folders: Iterable[Path], *, unlike: bool = False, paper: bool = False) -> Runs:
    """Return every finished run in or below the folders.

    Args:
        folders: Folders of runs, or folders that contain some.
        unlike: Mark runs under other protocols instead of refusing them.
        paper: Show the paper's scores for every dataset of that name.

    Raises:
        InputError: A folder has no run, a run is not finished, or two runs have the same method,
            dataset, LM and token budget.
        UnlikeProtocols: Runs of one dataset differ in questions, corpus, retriever or score.
    """
    # A folder may be named beside one that contains it.
    paths = {path.resolve(): path for folder in folders for path in _run_folders(folder)}
    found = _with_differences(_with_lms([Run(load_report(path), path) for path in paths.values()]))
    unlike_runs = {run.difference: run.path for run in reversed(found) if run.difference}
    if unlike_runs and not unlike:
        differences = "; ".join(f"{text} in {path}" for text, path in unlike_runs.items())
        raise UnlikeProtocols(
            f"these runs cannot share a table: {differences}",
            expected="the same questions, corpus, retriever and score within a dataset",
            remedy="report them apart, or pass --unlike to mark them instead",
        )
    cells: dict[tuple[object, ...], Run] = {}
    for run in found:
        other = cells.setdefault((run.method, run.dataset, run.lm, run.budget), run)
        if other is not run:
            raise InputError(
                f"{other.path} and {run.path} are both {run.method} on {run.dataset} with {run.lm}",
                expected="one run per method, dataset, LM and token budget",
                remedy="leave one of the folders out",
            )
    return Runs(tuple(found), paper)


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
    """Give one name to the LMs of runs that agree on their common steps.

    Methods have different steps: with LMs for "read" and "think", each run uses one of them.
    """
    groups: list[tuple[dict[str, str], list[Run]]] = []
    for run in runs:
        protocol = run.report.protocol
        asked = {step: protocol.lm_of(step) for step in usage_by_step(run.report.results)}
        for lms, members in groups:
            agree = all(lms.get(step, lm) == lm for step, lm in asked.items())
            if agree and members[0].report.protocol.lm == protocol.lm:
                members.append(run)
                lms.update(asked)
                break
        else:
            groups.append((asked, [run]))
    named = dict[int, str]()
    for lms, members in groups:
        protocol = members[0].report.protocol
        own = {step: lm for step, lm in lms.items() if lm != protocol.lm}
        name = protocol.model_copy(update={"lms": own}).lm_names
        named |= {id(run): name for run in members}
    return [replace(run, lms=named[id(run)]) for run in runs]


def _with_differences(runs: Sequence[Run]) -> list[Run]:
    """Say of each run how its protocol differs from that of the first run of its dataset."""
    first: dict[str, dict[str, object]] = {}
    compared = []
    for run in runs:
        basis: dict[str, object] = {
            **run.report.protocol.basis,
            "retriever": run.report.protocol.retriever,
        }
        usual = first.setdefault(run.dataset, basis)
        parts = [f"{name} {basis[name]} (not {usual[name]})" for name in basis
                 if basis[name] != usual[name]]  # fmt: skip
        difference = f"{run.dataset}: {', '.join(parts)}" if parts else ""
        compared.append(replace(run, difference=difference))
    return compared
