"""The one metric of every recipe: F1 as score, faults in words as feedback.

Each predictor gets feedback on its own errors only. Which those are follows from its output fields
(its roles) and from the step of the search that its call belongs to. Gold titles and answers are
known here and nowhere else in a program: they reach the LM that rewrites instructions, never a
demo or a prompt of the program itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

import dspy

from ga_dspy.eval import f1, normalise
from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram, Step
from ga_dspy.signatures.prompt import cited_labels, free_text
from ga_dspy.text import mentions

Role = Literal["index", "notes", "judge", "search", "answer"]
"""Extends a graph; takes notes; judges and searches; searches without judging; answers."""

EVERY: frozenset[Role] = frozenset(get_args(Role))

DEMO_THRESHOLD = 0.8
"""The minimum F1 of a demo's answer: DSPy accepts any truthy score, and F1 0.1 is wrong."""

_SIGNS: Mapping[str, Role] = {
    "additions": "index",
    "notes": "notes",
    "better": "notes",
    "judgement": "judge",
    "thought": "search",
    "next_query": "search",
    "answer": "answer",
}
_MOST_DROPPED = 5
_NUMBER = re.compile(r"\b\d")
_CLOSED = frozenset({"yes", "no"})
_IN_BRACKETS = re.compile(r"\[([\d,;\s]+)\]")


@dataclass(frozen=True)
class AnswerMetric:
    """Scores a prediction by the official F1, with feedback for each predictor on its own errors.

    It takes the five arguments of GEPA; Evaluate and the other optimizers pass two or three.

    Attributes:
        roles: The roles of each predictor of the program, by its name.

    >>> metric = AnswerMetric({})
    >>> gold = dspy.Example(answer="Montana", answers=("Montana",))
    >>> float(metric(gold, dspy.Prediction(answer="the state of Montana")))
    0.5
    """

    roles: Mapping[str, frozenset[Role]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: MultiHopProgram) -> AnswerMetric:
        """Return the metric for a program, by the output fields of its predictors."""
        return cls({name: roles_of(p.signature) for name, p in program.named_predictors()})

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
            pred_trace: The call of that predictor that the feedback is about.
        """
        if not isinstance(getattr(pred, "answer", None), str):
            return dspy.Prediction(score=0.0, feedback="The program failed: there is no answer.")
        case = Case.of(gold, pred)
        score = f1(case.answer, case.answers)
        if pred_name is None:
            share: Share = EVERY, case, case.steps
        else:
            roles = self.roles.get(pred_name, frozenset())
            share = share_of(roles, case, trace, pred_trace)
        there = frozenset[Role]().union(*self.roles.values())
        faults = [*_faults(*share, there)] or ["No fault of this step was found."]
        feedback = "\n".join([f"The question was answered with F1 {score:.2f}.", *faults])
        return dspy.Prediction(score=score, feedback=feedback)


def roles_of(signature: type[dspy.Signature]) -> frozenset[Role]:
    """Return the roles of a predictor, by its output fields.

    >>> sorted(roles_of(dspy.Signature("question -> judgement, next_query")))
    ['judge']
    """
    roles = {role for sign, role in _SIGNS.items() if sign in signature.output_fields}
    return frozenset(roles - {"search"} if "judge" in roles else roles)


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

    @cached_property
    def titles(self) -> dict[str, str]:
        """The title of each passage read, by id."""
        return {passage.id: passage.title for passage in self.passages}

    @property
    def answered(self) -> tuple[Step, ...]:
        """The steps in which the LM gave a usable reply."""
        return tuple(step for step in self.steps if not step.failure)

    @property
    def read(self) -> tuple[Step, ...]:
        """Those of them that brought new passages."""
        return tuple(step for step in self.answered if step.passage_ids)

    def gold_in(self, step: Step) -> Iterator[tuple[str, str]]:
        """Yield ids and titles of the needed passages that a step read."""
        for passage in step.passage_ids:
            if (title := self.titles.get(passage, "")) in self.gold_titles:
                yield passage, title

    def unread_after(self, step: Step) -> tuple[str, ...]:
        """Return the gold titles that were not read by the end of a step."""
        earlier = [s for s in self.steps if s.number <= step.number]
        read = {title for s in earlier for _, title in self.gold_in(s)}
        return tuple(title for title in self.gold_titles if title not in read)


Share = tuple[frozenset[Role], Case, tuple[Step, ...]]
"""What one call is responsible for: its roles, the case as it saw it, its steps."""


def share_of(roles: frozenset[Role], case: Case, trace: Any, call: Any) -> Share:
    """Return what the call of a predictor is responsible for; every step if its own is not clear.

    Args:
        roles: The roles of the predictor.
        case: The question.
        trace: All predictor calls of the run, in order.
        call: The call, in a list of one, as GEPA passes it.
    """
    if not call or not trace:
        return roles, case, case.steps
    predictor, _, reply = call[0]
    calls = [entry for entry in trace if entry[0].signature.equals(predictor.signature)]
    place = next((i for i, entry in enumerate(calls) if entry[1:] == call[0][1:]), None)
    if place is None:
        return roles, case, case.steps
    if "search" in roles and not getattr(reply, "answer", ""):
        roles -= {"answer"}  # it chose to search: the answer is not its own
    outputs = predictor.signature.output_fields
    if "verdict" in outputs:
        if len(calls) == 1 or place >= len(case.answered):
            return roles, case, case.steps
        # Every round gives an answer of its own: the case as this one saw it.
        step, last = case.answered[place], place == len(calls) - 1
        seen = replace(
            case,
            answer=case.answer if last else step.candidate,
            supported=case.supported or not last,
            passages=tuple(passage for passage in case.passages if passage.id in step.retrieved),
        )
        return roles, seen, (step,)
    if "query" in outputs:
        # Its first turn comes before any round, and is not in the trace where it failed.
        first = len(case.answered) - len(calls) + place
        return roles, case, case.answered[first : first + 1] if first >= 0 else ()
    # One that searches is called in every step, one that indexes if there is something new.
    rounds = (case.answered if "search" in roles else case.read)[place : place + 1]
    if "better" in outputs:
        # Of comparisons with the same old notes, each belongs to a round of its own.
        old = [inputs["old_notes"] for _, inputs, _ in calls]
        compared = [
            step
            for before, step in pairwise(case.steps)
            if step in case.read and before.notes == old[place]
        ]
        nth = old[:place].count(old[place])
        rounds = tuple(compared[nth : nth + 1])
    elif "notes" in outputs:
        # An update that was not kept is not in the trace.
        kept = [step for step in case.read if step.notes == free_text(reply.notes)]
        rounds = tuple(kept[:1]) or case.read[place : place + 1]
    return roles, case, rounds or case.steps


# --- The faults in words, by the predictor that could have done better


def _faults(
    roles: frozenset[Role], case: Case, steps: tuple[Step, ...], there: frozenset[Role]
) -> Iterator[str]:
    """Yield the feedback on a call, in a program whose predictors have the roles `there`."""
    if "index" in roles & there:
        yield from _index_faults(case, steps)
    if "notes" in roles & there:
        yield from _note_faults(case, steps)
    if "search" in roles & there and not steps:
        yield from _opening_faults(case)
    if roles & {"judge", "search"}:
        yield from _search_faults(case, steps, judged="search" not in roles & there)
    if roles & {"judge", "search"} or not there & {"judge", "search"}:
        yield from (f"Step {step.number}: {step.failure}" for step in case.steps if step.failure)
    if "answer" in roles or ("judge" in roles and case.by_judge and case.steps[-1:] == steps[-1:]):
        yield from _answer_faults(case)


def _index_faults(case: Case, steps: Sequence[Step]) -> Iterator[str]:
    """Yield gold passages from which nothing was kept, and items that no passage supports."""
    for step in steps:
        for passage, title in case.gold_in(step):
            if passage not in case.indexed:
                yield (
                    f'Step {step.number}: the needed passage "{title}" was read, and nothing of '
                    "it is in the graph."
                )
        if step.dropped:
            dropped = "; ".join(map(str, step.dropped[:_MOST_DROPPED]))
            yield f"Step {step.number}: proposed, and not supported by the passages: {dropped}."


def _note_faults(case: Case, steps: Sequence[Step]) -> Iterator[str]:
    """Yield gold passages that the notes kept after a step do not cite."""
    labels = {passage.id: label for label, passage in enumerate(case.passages, 1)}
    for step in steps:
        cited = cited_in(step.notes)
        for passage, title in case.gold_in(step):
            if labels[passage] not in cited:
                yield (
                    f'Step {step.number}: the needed passage "{title}" was read, and the notes '
                    "kept after it cite nothing of it."
                )


def cited_in(notes: str) -> tuple[int, ...]:
    """Return the passage numbers in notes, which are in square brackets.

    >>> cited_in("Born in 1961 in Tavira [1, 4].")
    (1, 4)
    """
    return cited_labels(" ".join(_IN_BRACKETS.findall(notes)))


def _opening_faults(case: Case) -> Iterator[str]:
    """Yield the faults of an LM's own first query, before anything was read."""
    needed = _quoted(case.gold_titles)
    if needed and not case.steps:
        yield f"It was answered without a search: the needed passage {needed} had not been read."
    elif needed and len(case.unread_after(case.steps[0])) == len(case.gold_titles):
        first = _query(case.steps[0])
        yield f'The first query "{first}" did not bring the needed passage {needed}.'


def _search_faults(case: Case, steps: Sequence[Step], *, judged: bool) -> Iterator[str]:
    """Yield searches ended too early or too late, and queries that missed what was needed.

    Args:
        case: The question.
        steps: The steps to check.
        judged: Whether the LM ends the search with "sufficient", or in another way.
    """
    early = '"sufficient" was said too early' if judged else "the search was ended too early"
    late = '"sufficient" came too late' if judged else "the search was ended too late"
    for step in steps:
        unread = case.unread_after(step)
        needed = _quoted(unread)
        if step.judgement == "sufficient" and unread:
            yield (
                f"Step {step.number}: {early}: the needed passage {needed} "
                f'had not been read; the query before was "{_query(step)}".'
            )
        elif unread and step is not case.steps[-1]:
            after = case.steps[case.steps.index(step) + 1]
            if case.unread_after(after) == unread:
                yield (
                    f'Step {step.number}: the next query "{_query(after)}" did not bring the '
                    f"needed passage {needed}."
                )
        elif unread:
            yield (
                f"Step {step.number}: the search ended and the needed passage {needed} was never "
                f'retrieved; the last query was "{_query(step)}".'
            )
        elif step.judgement == "insufficient" and case.gold_titles:
            yield (
                f"Step {step.number}: {late}: every needed passage had been "
                "read by the end of this step."
            )


def _answer_faults(case: Case) -> Iterator[str]:
    """Yield why an answer is wrong: missed, too long, too short, or of the wrong kind."""
    gold = case.answers[0]
    if f1(case.answer, case.answers) == 1.0:
        if case.steps and not case.supported and normalise(gold) not in _CLOSED:
            yield "The answer is right, but was not found in the passages cited."
        return
    expected, given = set(normalise(gold).split()), set(normalise(case.answer).split())
    where = next((p.title for p in case.passages if mentions(gold, p.content)), None)
    if case.steps and where is None and normalise(gold) not in _CLOSED:
        yield "The passages read do not hold the answer: an earlier step is at fault, not this one."
    elif kind := _wrong_kind(gold, case.answer):
        yield f'The answer is of the wrong kind: expected {kind} ("{gold}"), not "{case.answer}".'
    elif expected < given:
        yield f'The answer "{case.answer}" is too long: "{gold}" alone is asked for.'
    elif given and given < expected:
        yield f'The answer "{case.answer}" is too short: "{gold}" is asked for.'
    elif where:
        yield (
            f'The answer "{gold}" stands in the passage "{where}" and was missed; '
            f'"{case.answer}" was answered.'
        )
    else:
        yield f'The answer is "{gold}"; "{case.answer}" was answered.'


def _wrong_kind(gold: str, given: str) -> str:
    if (normalise(gold) in _CLOSED) != (normalise(given) in _CLOSED):
        return "yes or no" if normalise(gold) in _CLOSED else "a span of the passages"
    return "a number or a date" if _NUMBER.search(gold) and not _NUMBER.search(given) else ""


def _quoted(titles: Sequence[str]) -> str:
    return ", ".join(f'"{title}"' for title in titles)


def _query(step: Step) -> str:
    return (step.reformulated or step.query).replace("\n", "; ")
