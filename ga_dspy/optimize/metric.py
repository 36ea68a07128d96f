"""The metric of all recipes: F1 as the score, and feedback that describes the errors.

Each predictor gets feedback on its own errors only: its output fields, and the step that its call
belongs to, determine which those are. Only this module uses gold titles and answers. They reach the
LM that rewrites instructions, never a demo or a prompt of the program itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from ga_dspy.eval import f1, normalise
from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram, Step
from ga_dspy.text import mentions

DEMO_THRESHOLD = 0.8
"""The minimum F1 of a demo's answer; DSPy alone would accept any score above 0."""

_SEARCH = frozenset({"judgement", "thought", "next_query"})
_MOST_DROPPED = 5
_NUMBER = re.compile(r"\b\d")
_CLOSED = frozenset({"yes", "no"})


@dataclass(frozen=True)
class AnswerMetric:
    """Scores a prediction by the official F1, with feedback for each predictor on its own errors.

    It takes the five arguments of GEPA; Evaluate and the other optimizers pass two or three.

    Attributes:
        outputs: The output fields of each predictor of the program, by its name.

    >>> metric = AnswerMetric({})
    >>> gold = dspy.Example(answer="Montana", answers=("Montana",))
    >>> float(metric(gold, dspy.Prediction(answer="the state of Montana")))
    0.5
    """

    outputs: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: MultiHopProgram) -> AnswerMetric:
        """Return the metric for a program."""
        predictors = program.named_predictors()
        return cls({name: frozenset(p.signature.output_fields) for name, p in predictors})

    def __call__(
        self,
        gold: dspy.Example,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Score a prediction.

        Args:
            gold: The example, with `answer` or `answers`, and optionally `gold_titles`.
            pred: The program's prediction; one without an answer (a failed run) scores 0.
            trace: All predictor calls of the run.
            pred_name: The predictor that the feedback is for; None for all of them.
            pred_trace: The call of that predictor that the feedback is about, in a list of one.
        """
        if not isinstance(getattr(pred, "answer", None), str):
            return dspy.Prediction(score=0.0, feedback="The program failed: there is no answer.")
        case = Case.of(gold, pred)
        score = f1(case.answer, case.answers)
        every = frozenset({"answer"}).union(*self.outputs.values())
        outputs, steps = every, case.steps
        if pred_name is not None:
            outputs = self.outputs.get(pred_name, frozenset())
            if trace and pred_trace:
                outputs, steps = share_of(outputs, case, trace, pred_trace[0])
        faults = [*_faults(outputs, case, steps, every)] or ["No fault of this step was found."]
        feedback = "\n".join([f"The question was answered with F1 {score:.2f}.", *faults])
        return dspy.Prediction(score=score, feedback=feedback)


@dataclass(frozen=True)
class Case:
    """One question with its gold answers and the program's prediction.

    Attributes:
        answers: All accepted answers.
        gold_titles: Titles of the passages needed; empty if the data does not name them.
        answer: The program's answer.
        supported: Whether a passage supports it, according to the program.
        passages: All passages read, in order.
        steps: The steps, in order.
        indexed: Ids of the passages that the graph has evidence from.
        by_judge: Whether the answer is the last judge's candidate, without an answer step.
    """

    answers: tuple[str, ...]
    gold_titles: tuple[str, ...]
    answer: str
    supported: bool
    passages: tuple[Passage, ...]
    steps: tuple[Step, ...]
    indexed: frozenset[str]
    by_judge: bool = False

    @classmethod
    def of(cls, gold: Any, pred: Any) -> Case:
        """Return the case of an example and the prediction for it."""
        graph = getattr(pred, "graph", None)
        parts = (*graph.entities, *graph.relations) if graph is not None else ()
        return cls(
            answers=tuple(gold.get("answers") or (gold.answer,)),
            gold_titles=tuple(gold.get("gold_titles") or ()),
            answer=str(pred.answer),
            supported=bool(getattr(pred, "supported", True)),
            passages=tuple(getattr(pred, "passages", ()) or ()),
            steps=tuple(getattr(pred, "steps", ()) or ()),
            indexed=frozenset(e.passage for part in parts for e in part.evidence),
            by_judge="answer" not in getattr(pred, "usage", ("answer",)),
        )

    def gold_in(self, step: Step) -> Iterator[Passage]:
        """Yield the needed passages that a step read."""
        for passage in self.passages:
            if passage.id in step.passage_ids and passage.title in self.gold_titles:
                yield passage

    def unread_after(self, step: Step) -> tuple[str, ...]:
        """Return the gold titles that were not read by the end of a step."""
        earlier = [s for s in self.steps if s.number <= step.number]
        read = {passage.title for s in earlier for passage in self.gold_in(s)}
        return tuple(title for title in self.gold_titles if title not in read)


def share_of(
    outputs: frozenset[str], case: Case, trace: Sequence[Any], call: Any
) -> tuple[frozenset[str], tuple[Step, ...]]:
    """Return the outputs and the steps that one call of a predictor is responsible for.

    These are all steps, unless the predictor is called once per step, or once per step with new
    passages, and at most once before the first.
    """
    predictor, _, reply = call
    calls = [entry for entry in trace if entry[0].signature.equals(predictor.signature)]
    nth = next((i for i, entry in enumerate(calls) if entry[1:] == call[1:]), len(calls) - 1)
    if nth < len(calls) - 1 or not getattr(reply, "answer", ""):
        outputs -= {"answer"}  # it searched, or another call answered after it
    answered = tuple(step for step in case.steps if not step.failure)
    for rounds in (answered, tuple(step for step in answered if step.passage_ids)):
        before = len(calls) - len(rounds)
        if before in (0, 1) and rounds:
            return outputs, rounds[nth - before : nth - before + 1] if nth >= before else ()
    return outputs, case.steps


# --- Feedback: the errors, by the predictor that could have avoided them


def _faults(
    outputs: frozenset[str], case: Case, steps: tuple[Step, ...], every: frozenset[str]
) -> Iterator[str]:
    """Yield the feedback on a call, in a program whose predictors have the outputs `every`."""
    searches = bool(outputs & _SEARCH)
    if "additions" in outputs:
        yield from _index_faults(case, steps)
    if searches:
        yield from _search_faults(case, steps, judged="judgement" in outputs)
    if searches or not every & _SEARCH:
        yield from (f"Step {step.number}: {step.failure}" for step in case.steps if step.failure)
    by_judge = "judgement" in outputs and case.by_judge and case.steps[-1:] == steps[-1:]
    if "answer" in outputs or by_judge:
        yield from _answer_faults(case)


def _index_faults(case: Case, steps: Sequence[Step]) -> Iterator[str]:
    """Yield gold passages from which the graph has nothing, and items that no passage supports."""
    for step in steps:
        for title in (p.title for p in case.gold_in(step) if p.id not in case.indexed):
            fault = f'the needed passage "{title}" was read, and nothing of it is in the graph'
            yield f"Step {step.number}: {fault}."
        if step.dropped:
            dropped = "; ".join(map(str, step.dropped[:_MOST_DROPPED]))
            yield f"Step {step.number}: proposed, and not supported by the passages: {dropped}."


def _search_faults(case: Case, steps: Sequence[Step], *, judged: bool) -> Iterator[str]:
    """Yield searches that ended too early or too late, and queries that missed what was needed.

    Args:
        case: The question.
        steps: The steps to check.
        judged: Whether the LM ends the search with "sufficient", not in another way.
    """
    early = '"sufficient" was said too early' if judged else "the search was ended too early"
    late = '"sufficient" came too late' if judged else "the search was ended too late"
    for step in steps:
        unread, query, fault = case.unread_after(step), _query(step), ""
        needed = "the needed passage " + ", ".join(f'"{title}"' for title in unread)
        if step.judgement == "sufficient" and unread:
            fault = f'{early}: {needed} had not been read; the query before was "{query}"'
        elif unread and step is not case.steps[-1]:
            after = case.steps[case.steps.index(step) + 1]
            if case.unread_after(after) == unread:
                fault = f'the next query "{_query(after)}" did not bring {needed}'
        elif unread:
            missed = f"the search ended and {needed} was never retrieved"
            fault = f'{missed}; the last query was "{query}"'
        elif step.judgement == "insufficient" and case.gold_titles:
            fault = f"{late}: every needed passage had been read by the end of this step"
        if fault:
            yield f"Step {step.number}: {fault}."


def _answer_faults(case: Case) -> Iterator[str]:
    """Yield why an answer is wrong: of the wrong kind, too long, too short, or another one."""
    gold = case.answers[0]
    if f1(case.answer, case.answers) == 1.0:
        if case.steps and not case.supported and normalise(gold) not in _CLOSED:
            yield "The answer is right, but was not found in the passages cited."
        return
    expected, answered = set(normalise(gold).split()), set(normalise(case.answer).split())
    where = next((p.title for p in case.passages if mentions(gold, p.content)), None)
    if case.steps and where is None and normalise(gold) not in _CLOSED:
        yield "The passages read do not hold the answer: an earlier step is at fault, not this one."
    elif kind := _wrong_kind(gold, case.answer):
        yield f'The answer is of the wrong kind: expected {kind} ("{gold}"), not "{case.answer}".'
    elif expected < answered:
        yield f'The answer "{case.answer}" is too long: "{gold}" alone is asked for.'
    elif answered and answered < expected:
        yield f'The answer "{case.answer}" is too short: "{gold}" is asked for.'
    elif where:
        missed = f'The answer "{gold}" stands in the passage "{where}" and was missed'
        yield f'{missed}; "{case.answer}" was answered.'
    else:
        yield f'The answer is "{gold}"; "{case.answer}" was answered.'


def _wrong_kind(gold: str, answer: str) -> str:
    if (normalise(gold) in _CLOSED) != (normalise(answer) in _CLOSED):
        return "yes or no" if normalise(gold) in _CLOSED else "a span of the passages"
    return "a number or a date" if _NUMBER.search(gold) and not _NUMBER.search(answer) else ""


def _query(step: Step) -> str:
    return (step.reformulated or step.query).replace("\n", "; ")
