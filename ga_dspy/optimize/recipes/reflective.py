"""Recipes whose LM reads what went wrong and writes better instructions: SIMBA and GEPA."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy
from dspy.utils.callback import BaseCallback

from ga_dspy.optimize.recipes.base import (
    Context,
    Examples,
    MissingRole,
    Needs,
    Recipe,
    Work,
    need_package,
    need_positive,
    need_questions,
)
from ga_dspy.programs import MultiHopProgram


@dataclass(frozen=True)
class SIMBA(Recipe):
    """Minibatches sampled several times; where results differ, a demo or a rule is drawn from it.

    Attributes:
        batch: Train questions a step.
        candidates: Samples of each question, and new programs, a step.
        steps: Steps.
        demos: The most for a predictor.
    """

    batch: int = 16
    candidates: int = 4
    steps: int = 4
    demos: int = 4
    name: ClassVar[str] = "simba"

    def check(self, needs: Needs) -> None:
        """As many train questions as a batch."""
        settings = {"batch": self.batch, "candidates": self.candidates, "steps": self.steps}
        need_positive(self.name, {**settings, "demos": self.demos})
        need_questions(self.name, "train", needs.train, self.batch)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Samples and new programs on each batch, and the winners on all train questions."""
        each = self.batch * (2 * self.candidates + 1)
        asked = self.steps * each + (self.candidates + 1) * train + validation
        return Work(asked, self.steps * (self.candidates + 1) // 2)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Sample, compare, mend."""
        watch = _Watch(context, self.batch)
        simba = dspy.SIMBA(
            metric=watch.metric,
            bsize=self.batch,
            num_candidates=self.candidates,
            max_steps=self.steps,
            max_demos=self.demos,
            prompt_model=context.proposer,
            num_threads=context.threads,
        )
        # SIMBA takes any trace above the tenth percentile of its batch: an F1 of 0.1 may be.
        simba.strategies = [_gated(s, context.metric.threshold) for s in simba.strategies]
        callbacks = [*(dspy.settings.callbacks or []), watch]
        with dspy.context(callbacks=callbacks):
            return simba.compile(  # type: ignore[no-any-return]
                program, trainset=list(train), seed=context.seed
            )


@dataclass(frozen=True)
class GEPA(Recipe):
    """Instructions rewritten by a reflection LM that reads the faults of one predictor.

    Attributes:
        evaluations: The most program runs; None for twelve times the validation questions.
        minibatch: Train questions a reflection looks at.
        merge: Whether programs that are best at different questions are crossed.
    """

    evaluations: int | None = None
    minibatch: int = 3
    merge: bool = True
    name: ClassVar[str] = "gepa"

    def check(self, needs: Needs) -> None:
        """A reflection LM, and a minibatch of train questions."""
        if not needs.reflection:
            raise MissingRole(self.name, "reflection", "reads the faults and rewrites instructions")
        need_package("gepa", "optimize")
        need_positive(self.name, {"minibatch": self.minibatch})
        need_positive(self.name, {"evaluations": self.budget(needs.validation)})
        need_questions(self.name, "train", needs.train, self.minibatch)

    def budget(self, validation: int) -> int:
        """The most program runs."""
        return 12 * validation if self.evaluations is None else self.evaluations

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """As many runs as the budget allows; a reflection for about every two minibatches."""
        runs = self.budget(validation)
        return Work(runs, max(1, runs // (4 * self.minibatch)))

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Run, reflect, keep what helps.

        No `log_dir` is given: GEPA would pickle its state there. Finished calls are in the
        ledger, and a second run repeats the first one from there.
        """
        return gepa(self, context, len(validation)).compile(  # type: ignore[no-any-return]
            program, trainset=list(train), valset=list(validation)
        )


def gepa(recipe: GEPA, context: Context, validation: int) -> Any:
    """DSPy's optimizer for a recipe."""
    return dspy.GEPA(
        metric=context.metric,
        max_metric_calls=recipe.budget(validation),
        reflection_minibatch_size=recipe.minibatch,
        reflection_lm=context.reflection_lm,
        use_merge=recipe.merge,
        num_threads=context.threads,
        warn_on_score_mismatch=False,
        seed=context.seed,
    )


class _Watch(BaseCallback):
    """Tells the trials which program got which score: SIMBA itself scores without Evaluate."""

    def __init__(self, context: Context, batch: int) -> None:
        self._context, self._batch = context, batch
        self._last: dict[int, Any] = {}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note which program this thread runs."""
        if isinstance(instance, MultiHopProgram):
            self._last[threading.get_ident()] = instance

    def metric(self, gold: dspy.Example, pred: Any, trace: Any = None) -> dspy.Prediction:
        """The metric, called in the thread that ran the program, right after it."""
        result = self._context.metric(gold, pred, trace)
        program = self._last.get(threading.get_ident())
        if program is not None:
            score = 100 * float(result)
            self._context.trials.note_one(program, gold.question, score, self._batch)
        return result


def _gated(strategy: Callable[..., bool], threshold: float) -> Callable[..., bool]:
    if not strategy.__name__.startswith("append_a_demo"):
        return strategy

    @functools.wraps(strategy)
    def gated(bucket: list[dict[str, Any]], system: Any, **kwargs: Any) -> bool:
        if float(bucket[0]["score"]) < threshold:
            return False
        return strategy(bucket, system, **kwargs)

    return gated
