"""What a run tells beside the scores of its answers: by step, of its judgements, of its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from statistics import median
from typing import NamedTuple

from ga_dspy.eval.result import Result
from ga_dspy.eval.scores import answer_in, support_recall
from ga_dspy.eval.sufficiency import StepVerdict, Sufficiency, sufficiency
from ga_dspy.eval.trace import StepTrace
from ga_dspy.programs import Usage


class StepPoint(NamedTuple):
    """The state after one step, over all questions (the paper's Figures 3 and 4).

    A question that ended earlier stays as it was; one that failed counts as nothing read.

    Attributes:
        step: From 1.
        reached: How many questions made this step.
        hit: Percent of the questions with an accepted answer in a passage read by then, of those
            whose answer is not yes or no; None where there are none.
        overlap: Percent of the passages this step retrieved that were read before, a mean over
            the questions that made it; None where none did.
        entities: Mean number in the graph.
        relations: Mean number in the graph.
    """

    step: int
    reached: int
    hit: float | None
    overlap: float | None
    entities: float
    relations: float


def by_step(results: Sequence[Result], most: int) -> tuple[StepPoint, ...]:
    """The state of a run after each of `most` steps."""
    return tuple(_point(results, number) for number in range(1, most + 1))


def steps_reached(results: Sequence[Result]) -> dict[str, int]:
    """How many questions ended at each step; "failed" for those that did not end."""
    ended = Counter(_ended(result) for result in results)
    return {name: ended[name] for name in sorted(ended, key=lambda name: (len(name), name))}


def judgements(results: Sequence[Result]) -> Sufficiency:
    """Sufficiency as a classifier: "sufficient" against whether all gold titles had been read."""
    return sufficiency(tuple(_verdicts(result)) for result in results)


def grounded_share(results: Sequence[Result]) -> float | None:
    """Percent of the proposed graph items that were grounded; None where none was proposed."""
    steps = [step for result in results for step in result.trace]
    gained, dropped = sum(s.gained for s in steps), sum(s.dropped for s in steps)
    return 100.0 * gained / (gained + dropped) if gained + dropped else None


def faithful_share(results: Sequence[Result]) -> float | None:
    """Percent of the cited edges that exist and are quoted rightly; None where none is cited."""
    cited, faithful = (sum(result.cited[i] for result in results) for i in (0, 1))
    return 100.0 * faithful / cited if cited else None


def timing(results: Sequence[Result]) -> dict[str, float]:
    """Median seconds of each part of a program that tells them, over the questions that had it."""
    parts = dict.fromkeys(part for result in results for part in result.timing)
    return {part: median(r.timing[part] for r in results if part in r.timing) for part in parts}


def spent(results: Sequence[Result]) -> dict[str, Usage]:
    """The token ledger of a run: what each step of the program cost, all questions together."""
    names = dict.fromkeys(name for result in results for name in result.usage)
    return {name: Usage.total(r.usage[name] for r in results if name in r.usage) for name in names}


def mean_percent(
    results: Iterable[Result], score: Callable[[Result], float | None]
) -> float | None:
    """Mean of a score in percent over the questions that can have it; None where none can."""
    told = [value for value in map(score, results) if value is not None]
    return 100.0 * fsum(told) / len(told) if told else None


def _point(results: Sequence[Result], number: int) -> StepPoint:
    made = [result.trace[number - 1] for result in results if len(result.trace) >= number]
    states = [_state(result, number) for result in results]
    overlaps = [step.overlap for step in made if step.overlap is not None]
    hits = [_hit(result, state) for result, state in zip(results, states, strict=True)]
    told = [hit for hit in hits if hit is not None]
    return StepPoint(
        number,
        len(made),
        100.0 * sum(told) / len(told) if told else None,
        100.0 * fsum(overlaps) / len(overlaps) if overlaps else None,
        sum(state.entities for state in states if state) / len(results),
        sum(state.relations for state in states if state) / len(results),
    )


def _state(result: Result, number: int) -> StepTrace | None:
    return result.trace[min(number, len(result.trace)) - 1] if result.trace else None


def _hit(result: Result, state: StepTrace | None) -> bool | None:
    if state is not None:
        return state.hit
    return answer_in("", result.gold)


def _ended(result: Result) -> str:
    if result.error is not None:
        return "failed"
    return "(none)" if result.steps is None else str(result.steps)


def _verdicts(result: Result) -> Iterable[StepVerdict]:
    titles: list[str] = []
    for step in result.trace:
        titles.extend(step.titles)
        if step.judgement:
            recall = support_recall(titles, result.gold_titles)
            sufficed = None if recall is None else recall == 1.0
            yield StepVerdict(step.judgement == "sufficient", sufficed)
