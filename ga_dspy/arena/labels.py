"""What runs are called in tables and figures."""

from __future__ import annotations

from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.lm.engine import MODEL as EMBEDDED

DATASETS = {
    "musique": "MuSiQue",
    "hotpotqa": "HotpotQA",
    "2wikimultihopqa": "2WikiMultiHopQA",
    "bamboogle": "Bamboogle",
}
"""Names as commands take them to names as their authors write them, in the paper's order."""

_RENAMED = " (renamed)"


def dataset_label(name: str) -> str:
    """A dataset's name as its authors write it.

    >>> dataset_label("musique (renamed)")
    'MuSiQue (renamed)'
    """
    base = name.removesuffix(_RENAMED)
    return DATASETS.get(base, base) + name[len(base) :]


def lm_label(name: str) -> str:
    """An LM's name; of the embedded one, what it is.

    >>> lm_label("ga-dspy/extractive")
    'embedded extractive LM (no LLM)'
    """
    return "embedded extractive LM (no LLM)" if name == EMBEDDED else name


def method_label(name: str) -> str:
    """A method's name as the paper has it; any other program's own name."""
    return METHODS[name].label if name in METHODS else name


def run_label(run: Run) -> str:
    """The method of a run, with the tokens a question was allowed."""
    label = method_label(run.method)
    return f"{label} within {run.budget:,} tokens" if run.budget else label


def ordered(runs: Runs) -> list[Run]:
    """Runs in the order of the paper's tables: by LM, dataset and method."""
    methods = list(METHODS)

    def place(run: Run) -> tuple[int, int, bool, int, int, str]:
        known = run.method in METHODS
        return (
            runs.lms.index(run.lm),
            runs.datasets.index(run.dataset),
            run.budget is not None,
            run.budget or 0,
            methods.index(run.method) if known else len(methods),
            run.method,
        )

    return sorted(runs, key=place)


def held_up(runs: Runs) -> list[Run]:
    """The runs that are held against one another, in order: all but the points of Figure 3."""
    return [run for run in ordered(runs) if not is_point(run)]


def is_point(run: Run) -> bool:
    """Whether a run is one of a method's earlier steps, made for a point of Figure 3."""
    return run.method in METHODS and METHODS[run.method].group == "steps"
