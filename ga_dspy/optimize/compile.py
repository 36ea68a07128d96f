"""Compiling a program: measure it, let a recipe work on it, measure again, say what it bought."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import dspy

from ga_dspy.errors import GaDspyError
from ga_dspy.optimize.budget import Caps
from ga_dspy.optimize.estimate import Estimate
from ga_dspy.optimize.feedback import AnswerMetric
from ga_dspy.optimize.job import Job
from ga_dspy.optimize.phases import carried_out
from ga_dspy.optimize.recipes import Recipe
from ga_dspy.optimize.record import Candidate, Outcome, Tracker
from ga_dspy.optimize.search import Examples
from ga_dspy.programs import MultiHopProgram

_NO_CAPS = Caps()


class Declined(GaDspyError):
    """The estimate was not agreed to."""

    def __init__(self, cost: Estimate) -> None:
        super().__init__(
            f"compiling would take {cost}; expected a yes; nothing was spent: agree, choose a "
            "smaller recipe or fewer questions, or set a cap"
        )
        self.cost = cost


def compile(
    program: MultiHopProgram,
    recipe: Recipe,
    train: Examples,
    validation: Examples,
    *,
    test: Examples | None = None,
    out: Path | str,
    lm: dspy.BaseLM | None = None,
    reflection_lm: dspy.BaseLM | None = None,
    prompt_lm: dspy.BaseLM | None = None,
    caps: Caps = _NO_CAPS,
    metric: AnswerMetric | None = None,
    threads: int = 2,
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    tracker: Tracker | None = None,
    progress: Callable[[Candidate], None] | None = None,
    confirm: Callable[[Estimate], bool] | None = None,
) -> Outcome:
    """Compile a program and write it to `out` as an artifact, with summary.json beside it.

    The program is measured on the held-out questions before and after. Every finished LM call is
    in `out`/run/ledger.sqlite: started again after a kill, with the same arguments, the
    compilation repeats itself from there and pays only for what is missing. What DSPy's
    optimizers print goes to `out`/run/optimizer.log.

    Args:
        program: The program; left as it is.
        recipe: How to compile; see `ga_dspy.optimize.recipe`.
        train: Questions to learn from.
        validation: Questions to choose by.
        test: Questions to measure on; without them the validation questions, which the recipe
            has seen, and the outcome says so.
        out: The folder of the artifact.
        lm: The task LM; by default the configured one.
        reflection_lm: Reads feedback and rewrites instructions (GEPA).
        prompt_lm: Proposes instructions; by default the task LM.
        caps: The most that may be spent, both measurements and earlier runs among it.
        metric: Score and feedback; by default F1 alone.
        threads: Questions asked at once.
        seed: Of what is drawn, where an optimizer takes one.
        names: A name for each question set ("train", "validation", "test"), such as its file.
        tracker: Follows the compilation.
        progress: Called with each program that was tried.
        confirm: Asked with the estimate before anything is spent; by default not asked.

    Raises:
        SetsOverlap, InputError, MissingExtra, MissingRole, TooFewQuestions, PriceUnknown: Found
            before anything is spent.
        Declined: `confirm` said no.
        BaselineFails: The program fails on more than a tenth of the held-out questions.
        CapTooSmall: The caps do not even pay for measuring.
        LMStopped: The LM stopped answering.
        LedgerBusy: Another compilation works in `out`.
    """
    job = Job.checked(
        program, recipe, train, validation, test, Path(out), lm, reflection_lm, prompt_lm,
        caps.checked(), metric or AnswerMetric.of(program), threads, seed, names or {},
    )  # fmt: skip
    cost = job.estimated()
    if confirm is not None and not confirm(cost):
        raise Declined(cost)
    if tracker is not None:
        tracker.start(recipe.name, recipe.parameters(), job.fingerprints())
    try:
        outcome = carried_out(job, _teller(tracker, progress))
    except BaseException as error:
        if tracker is not None:
            tracker.fail(error)
        raise
    if tracker is not None:
        tracker.finish(outcome)
    return outcome


def _teller(
    tracker: Tracker | None, progress: Callable[[Candidate], None] | None
) -> Callable[[Candidate], None]:
    def tell(candidate: Candidate) -> None:
        if tracker is not None:
            tracker.candidate(candidate)
        if progress is not None:
            progress(candidate)

    return tell
