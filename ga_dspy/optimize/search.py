"""Running a recipe within its budget, and choosing the program that is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dspy

from ga_dspy.errors import GaDspyError
from ga_dspy.optimize.budget import BudgetExceeded, Gate
from ga_dspy.optimize.demos import sanitise
from ga_dspy.optimize.recipes import Context, Recipe
from ga_dspy.programs import MultiHopProgram

Examples = Sequence[dspy.Example]

_CLEANINGS = 4


class LMStopped(GaDspyError):
    """The LM stopped answering in the middle of a compilation."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"the LM stopped answering: {cause}; expected answers; see that the endpoint is up and "
            "its key valid, then start the same compilation again: finished calls are kept"
        )


class Found(NamedTuple):
    """What a recipe came to: a program or None, and the cap that stopped it, if one did."""

    program: MultiHopProgram | None
    stopped: str = ""


class Chosen(NamedTuple):
    """The program that is kept, and the demos taken off the ones considered."""

    program: MultiHopProgram
    dropped: tuple[str, ...]


def search(
    recipe: Recipe,
    program: MultiHopProgram,
    train: Examples,
    validation: Examples,
    context: Context,
    gate: Gate,
) -> Found:
    """Score the program as it is given, then let the recipe work until it ends or a cap is reached.

    Raises:
        LMStopped: Call after call failed.
    """
    try:
        score(program, validation, context)
        found = Found(recipe.fit(program, train, validation, context=context))
    except BudgetExceeded as stop:
        found = Found(None, stop.reason)
    if gate.down:
        # Questions scored 0 while it was down: nothing chosen by them is worth keeping.
        raise LMStopped(gate.down)
    return found


def choose(
    found: Found,
    given: MultiHopProgram,
    train: Examples,
    validation: Examples,
    context: Context,
    rebound: Callable[[MultiHopProgram], MultiHopProgram],
) -> Chosen:
    """The best program on the validation questions whose demos teach no fault.

    The program as it is given is one of the candidates, so a recipe that makes things worse
    changes nothing. Where a recipe was stopped, the candidate that looked best on part of the
    questions is scored on all of them first; `rebound` gives LMs that may still be called.
    """
    dropped: list[str] = []
    try:
        candidate = found.program or context.trials.promising()
        if candidate is not None:
            score(rebound(candidate), validation, context)
        for _ in range(_CLEANINGS):
            best = context.trials.best()
            if best is None:
                break
            clean = sanitise(best.program, train, context.metric.threshold)
            if not clean.dropped:
                return Chosen(best.program, tuple(dict.fromkeys(dropped)))
            dropped += clean.dropped
            context.trials.discard(best.program)
            score(rebound(clean.program), validation, context)
    except BudgetExceeded:
        pass
    return Chosen(given, tuple(dict.fromkeys(dropped)))


def score(program: Any, validation: Examples, context: Context) -> None:
    """Score a program on all validation questions; the trials take note of it."""
    dspy.Evaluate(devset=list(validation), metric=context.metric, num_threads=context.threads)(
        program
    )
