"""What went wrong with one question, in words, by the step that could have done better.

Gold titles and answers are known here and nowhere else in a program: they reach the LM that
rewrites instructions, never a demonstration or a prompt of the program itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ga_dspy.eval import f1, normalise
from ga_dspy.mentions import mentions
from ga_dspy.passage import Passage
from ga_dspy.programs import Step
from ga_dspy.signatures.prompt import cited_labels

_MOST_DROPPED = 5
_NUMBER = re.compile(r"\b\d")
_CLOSED = frozenset({"yes", "no"})
_IN_BRACKETS = re.compile(r"\[([\d,;\s]+)\]")
_ENDED = {
    True: ('"sufficient" was said too early', '"sufficient" came too late'),
    False: ("the search was ended too early", "the search was ended too late"),
}


@dataclass(frozen=True)
class Case:
    """One question with its gold and what the program made of it.

    Attributes:
        answers: All accepted answers.
        gold_titles: Titles of the passages needed; empty where the data does not name them.
        answer: What the program answered.
        supported: Whether a passage carries it, as the program says.
        passages: All passages read, in order.
        steps: The rounds, in order.
        indexed: Ids of the passages that the graph has evidence in.
    """

    answers: tuple[str, ...]
    gold_titles: tuple[str, ...]
    answer: str
    supported: bool
    passages: tuple[Passage, ...]
    steps: tuple[Step, ...]
    indexed: frozenset[str]

    @classmethod
    def of(cls, gold: Any, pred: Any) -> Case:
        """Read an example and the prediction for it."""
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
        )

    @cached_property
    def titles(self) -> dict[str, str]:
        """The title of each passage read, by id."""
        return {passage.id: passage.title for passage in self.passages}

    @property
    def unfailed(self) -> tuple[Step, ...]:
        """The steps in which the LM was asked and gave a usable reply."""
        return tuple(step for step in self.steps if not step.failure)

    @property
    def read(self) -> tuple[Step, ...]:
        """Those among them that brought passages to index."""
        return tuple(step for step in self.unfailed if step.passage_ids)

    def returned(self, step: Step) -> tuple[Passage, ...]:
        """The passages that a step's search returned, new or old."""
        return tuple(passage for passage in self.passages if passage.id in step.retrieved)

    def unread_after(self, step: Step) -> tuple[str, ...]:
        """Gold titles that were not read by the end of a step."""
        read = {
            self.titles.get(passage_id, "")
            for earlier in self.steps
            if earlier.number <= step.number
            for passage_id in earlier.passage_ids
        }
        return tuple(title for title in self.gold_titles if title not in read)


def index_faults(case: Case, steps: Sequence[Step]) -> Iterator[str]:
    """Gold passages of which nothing was kept, and items that no passage supports."""
    for step in steps:
        for passage_id in step.passage_ids:
            title = case.titles.get(passage_id, "")
            if title in case.gold_titles and passage_id not in case.indexed:
                yield (
                    f'Step {step.number}: the needed passage "{title}" was read, and nothing of '
                    "it is in the graph."
                )
        if step.dropped:
            named = "; ".join(str(dropped) for dropped in step.dropped[:_MOST_DROPPED])
            yield f"Step {step.number}: proposed, and not supported by the passages: {named}."


def note_faults(case: Case, steps: Sequence[Step]) -> Iterator[str]:
    """Gold passages that the notes kept after a round do not cite."""
    labels = {passage.id: label for label, passage in enumerate(case.passages, 1)}
    for step in steps:
        cited = cited_in(step.notes)
        for passage_id in step.passage_ids:
            title = case.titles.get(passage_id, "")
            if title in case.gold_titles and labels[passage_id] not in cited:
                yield (
                    f'Step {step.number}: the needed passage "{title}" was read, and the notes '
                    "kept after it cite nothing of it."
                )


def cited_in(notes: str) -> tuple[int, ...]:
    """The passage numbers in notes, which stand in square brackets.

    >>> cited_in("Born in 1961 in Tavira [1, 4].")
    (1, 4)
    """
    return cited_labels(" ".join(_IN_BRACKETS.findall(notes)))


def opening_faults(case: Case) -> Iterator[str]:
    """What an LM that chooses the first query itself made of it, before anything was read."""
    if not case.gold_titles:
        return
    needed = ", ".join(f'"{title}"' for title in case.gold_titles)
    if not case.steps:
        yield f"It was answered without a search: the needed passage {needed} had not been read."
    elif len(case.unread_after(case.steps[0])) == len(case.gold_titles):
        first = _searched(case.steps[0])
        yield f'The first query "{first}" did not bring the needed passage {needed}.'


def search_faults(case: Case, steps: Sequence[Step], *, judged: bool = True) -> Iterator[str]:
    """Searches ended too early or too late, and queries that missed what was needed.

    Args:
        case: The question.
        steps: The rounds to look at.
        judged: Whether an LM says "sufficient" to end the search, or shows it in another way.
    """
    early, late = _ENDED[judged]
    for step in steps:
        unread = case.unread_after(step)
        needed = ", ".join(f'"{title}"' for title in unread)
        if step.judgement == "sufficient" and unread:
            yield (
                f"Step {step.number}: {early}: the needed passage {needed} "
                f'had not been read; the query before was "{_searched(step)}".'
            )
        elif unread and step is not case.steps[-1]:
            yield from _missed(case, step, unread)
        elif unread:
            yield (
                f"Step {step.number}: the search ended and the needed passage {needed} was never "
                f'retrieved; the last query was "{_searched(step)}".'
            )
        elif step.judgement == "insufficient" and case.gold_titles:
            yield (
                f"Step {step.number}: {late}: every needed passage had been "
                "read by the end of this step."
            )


def _missed(case: Case, step: Step, unread: tuple[str, ...]) -> Iterator[str]:
    after = case.steps[case.steps.index(step) + 1]
    still = case.unread_after(after)
    if len(still) == len(unread):
        needed = ", ".join(f'"{title}"' for title in still)
        yield (
            f'Step {step.number}: the next query "{_searched(after)}" did not bring the needed '
            f"passage {needed}."
        )


def answer_faults(case: Case) -> Iterator[str]:
    """An answer that was there and missed, too long, too short, or of the wrong kind."""
    score, gold = f1(case.answer, case.answers), case.answers[0]
    if score == 1.0:
        if case.steps and not case.supported:
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
    else:
        yield (
            f'The answer "{gold}" stands in the passage "{where}" and was missed; '
            f'"{case.answer}" was answered.'
            if where
            else f'The answer is "{gold}"; "{case.answer}" was answered.'
        )


def _wrong_kind(gold: str, given: str) -> str:
    if normalise(gold) in _CLOSED and normalise(given) not in _CLOSED:
        return "yes or no"
    if normalise(given) in _CLOSED and normalise(gold) not in _CLOSED:
        return "a span of the passages"
    if _NUMBER.search(gold) and not _NUMBER.search(given):
        return "a number or a date"
    return ""


def _searched(step: Step) -> str:
    return step.reformulated or step.query
