"""What each predictor of a program does, and which round of it a call belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import dspy

from ga_dspy.optimize.faults import Case
from ga_dspy.programs import Step
from ga_dspy.signatures.prompt import said

Role = Literal["index", "notes", "judge", "search", "answer"]
"""Keeps a graph; keeps notes; judges and asks; asks without a judgement; answers."""

EVERY: frozenset[Role] = frozenset(get_args(Role))
_SIGNS: Mapping[str, Role] = {
    "additions": "index",
    "notes": "notes",
    "better": "notes",
    "judgement": "judge",
    "thought": "search",
    "next_query": "search",
    "answer": "answer",
}


class Heard(NamedTuple):
    """What one call is to hear of: as what, of which case, in which rounds."""

    roles: frozenset[Role]
    case: Case
    steps: tuple[Step, ...]


def roles_of(signature: type[dspy.Signature]) -> frozenset[Role]:
    """The roles of a predictor, by its output fields.

    >>> sorted(roles_of(dspy.Signature("question -> judgement, next_query")))
    ['judge']
    """
    roles = {role for sign, role in _SIGNS.items() if sign in signature.output_fields}
    return frozenset(roles - {"search"} if "judge" in roles else roles)


def heard(roles: frozenset[Role], case: Case, trace: Any, call: Any) -> Heard:
    """What the call of a predictor is to hear of; every round where its own cannot be told.

    Args:
        roles: The roles of the predictor.
        case: The question.
        trace: All predictor calls of the run, in order.
        call: The call, in a list of one, as GEPA gives it.
    """
    calls = [*_like(trace, call[0])] if call and trace else []
    place = next((i for i, entry in enumerate(calls) if entry[1:] == call[0][1:]), None)
    if place is None:
        return Heard(roles, case, case.steps)
    if "search" in roles and not getattr(call[0][2], "answer", ""):
        roles -= {"answer"}  # it chose to search: the answer is not its own
    fields = call[0][0].signature.output_fields
    if "verdict" in fields:
        return Heard(roles, *_answered(case, place, len(calls)))
    if "query" in fields:
        # Its first turn comes before any round, and is not in the trace where it failed.
        before = place < len(calls) - len(case.unfailed)
        rounds = case.unfailed[len(case.unfailed) - len(calls) + place :]
        return Heard(roles, case, () if before else rounds[:1])
    if "better" in fields:
        return Heard(roles, case, _compared(case, calls, place))
    if "notes" in fields:
        return Heard(roles, case, _written(case, calls[place][2], place))
    return Heard(roles, case, _round(case, place, asks="search" in roles))


def _like(trace: Sequence[Any], call: Any) -> Iterator[Any]:
    return (entry for entry in trace if entry[0].signature.equals(call[0].signature))


def _round(case: Case, place: int, asks: bool) -> tuple[Step, ...]:
    """Who asks is called in every round, who keeps an index where there is something new."""
    steps = case.unfailed if asks else case.read
    return steps[place : place + 1] or case.steps


def _written(case: Case, reply: Any, place: int) -> tuple[Step, ...]:
    """The round with these notes: an update that was not kept is not in the trace."""
    kept = next((step for step in case.read if step.notes == said(reply.notes)), None)
    return (kept,) if kept else _round(case, place, asks=False)


def _compared(case: Case, calls: Sequence[Any], place: int) -> tuple[Step, ...]:
    """The round of a comparison, of which the same old notes may have seen several."""
    old = [inputs["old_notes"] for _, inputs, _ in calls]
    rounds = [
        step
        for before, step in pairwise(case.steps)
        if step in case.read and before.notes == old[place]
    ]
    nth = old[:place].count(old[place])
    return tuple(rounds[nth : nth + 1]) or case.steps


def _answered(case: Case, place: int, calls: int) -> tuple[Case, tuple[Step, ...]]:
    """The case as an answer saw it: the whole, unless every round gave an answer of its own."""
    if calls == 1 or place >= len(case.unfailed):
        return case, case.steps
    step = case.unfailed[place]
    whole = place == calls - 1
    seen = replace(
        case,
        answer=case.answer if whole else step.candidate,
        supported=case.supported or not whole,
        passages=case.returned(step),
    )
    return seen, (step,)
