"""The runs that one picture is of, and what every picture says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ga_dspy.arena.cells import marked
from ga_dspy.arena.labels import dataset_label, held_up, lm_label, method_label
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.errors import GaDspyError


class NothingToDraw(GaDspyError):
    """None of the runs of a picture was made."""

    def __init__(self, needs: Sequence[str]) -> None:
        super().__init__(
            f"there is no run to draw; expected one of {', '.join(needs)}; make it with "
            "`ga-dspy arena --programs`"
        )
        self.needs = tuple(needs)


@dataclass(frozen=True)
class Scene:
    """The runs of one dataset with one LM.

    Where there are runs at equal k, those; else those of the smallest token budget.

    Attributes:
        runs: All runs there are.
        dataset: A name of `runs.datasets`.
        lm: A name of `runs.lms`.
    """

    runs: Runs
    dataset: str
    lm: str

    @property
    def all(self) -> list[Run]:
        """Its runs of every budget, in the paper's order, without the points of Figure 3."""
        return [r for r in held_up(self.runs) if (r.dataset, r.lm) == (self.dataset, self.lm)]

    @property
    def budget(self) -> int | None:
        """Tokens a question was allowed; None at equal k."""
        found = {
            run.budget for run in self.runs if (run.dataset, run.lm) == (self.dataset, self.lm)
        }
        return None if None in found or not found else min(b for b in found if b is not None)

    @property
    def held_up(self) -> list[Run]:
        """Its runs of that budget, in the paper's order, without the points of Figure 3."""
        return [run for run in self.all if run.budget == self.budget]

    def get(self, method: str) -> Run | None:
        """The run of a method; None where it was not made."""
        return self.runs.get(method, self.dataset, self.lm, self.budget)

    def some(self, methods: Iterable[str]) -> list[Run]:
        """Those runs of some methods that were made, in the order asked."""
        return [run for run in map(self.get, methods) if run is not None]

    def missing(self, methods: Iterable[str]) -> tuple[str, ...]:
        """Those of some methods that have no run."""
        return tuple(method for method in methods if self.get(method) is None)

    def absent(self, methods: Iterable[str]) -> str:
        """A sentence that names those of some methods that have no run; empty if all have."""
        missing = self.missing(methods)
        return f"No run of {', '.join(missing)}." if missing else ""

    @property
    def ground(self) -> str:
        """The dataset, how many questions, and who answered."""
        n = next(len(r.report.results) for r in self.runs if r.dataset == self.dataset)
        return f"{dataset_label(self.dataset)}, {n:,} questions; {answered_by(self.lm)}"

    @property
    def subtitle(self) -> str:
        """Its ground, and what a question was allowed."""
        return self.ground + allowed(self.budget)


def answered_by(lm: str) -> str:
    """Who answered, so that nobody takes the embedded LM for an LLM."""
    return f"answered by: {lm_label(lm)}"


def allowed(budget: int | None) -> str:
    """What a question was allowed, to go on a subtitle with; nothing at equal k."""
    return f"; at most {budget:,} tokens a question" if budget else ""


def run_name(run: Run) -> str:
    """A run's method, with the letter of its note."""
    return marked(method_label(run.method), run.mark)


def captioned(runs: Runs, shown: Sequence[Run], *sentences: str) -> str:
    """The caption under a picture: its own sentences, failures, and what the letters mean.

    Args:
        runs: All runs there are.
        shown: Those in the picture.
        sentences: What the picture itself has to say; empty ones are left out.
    """
    failed = [
        f"{len(run.report.failed):,} of {run_name(run)}" for run in shown if run.report.failed
    ]
    marks = sorted({run.mark for run in shown} - {""})
    return " ".join(
        (
            *filter(None, sentences),
            *(
                [f"Failed questions count as 0: {', '.join(dict.fromkeys(failed))}."]
                if failed
                else ()
            ),
            *(f"({mark}) {runs.notes.get(mark, 'on other ground')}." for mark in marks),
        )
    )
