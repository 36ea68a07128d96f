"""Recipes that find instructions, some with demos beside them, by proposing and scoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import dspy

from ga_dspy.errors import InputError
from ga_dspy.optimize.recipes.base import (
    Context,
    Examples,
    Needs,
    Recipe,
    Work,
    need_package,
    need_positive,
    need_questions,
)
from ga_dspy.optimize.trials import transplanted
from ga_dspy.programs import MultiHopProgram


@dataclass(frozen=True)
class COPRO(Recipe):
    """Instructions proposed from the best ones before, scored on the validation questions.

    Its proposals see no question, so the train questions are not used.

    Attributes:
        breadth: Instructions a predictor and round, the one before among them.
        depth: Rounds.
        temperature: Of the proposals.
    """

    breadth: int = 4
    depth: int = 2
    temperature: float = 1.0
    name: ClassVar[str] = "copro"

    def check(self, needs: Needs) -> None:
        """At least two instructions a round."""
        need_positive(self.name, {"depth": self.depth})
        if self.breadth < 2:
            raise InputError(
                f"breadth of recipe {self.name} is {self.breadth}",
                expected="2 or more: the instruction before is one of them",
                remedy="leave it out for the default",
            )

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """All instructions of a predictor, again in every round, on all validation questions."""
        tried = sum(self.breadth * (1 + depth) for depth in range(self.depth)) * predictors
        return Work(tried * validation, predictors * self.breadth * self.depth)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Propose and score, predictor by predictor."""
        return copro(self, context).compile(  # type: ignore[no-any-return]
            program, trainset=list(validation), eval_kwargs={"num_threads": context.threads}
        )


@dataclass(frozen=True)
class MIPROv2(Recipe):
    """Instructions and demo sets, combined by Bayesian search (Optuna).

    Attributes:
        candidates: Instructions, and demo sets, to choose from.
        trials: Combinations to score.
        demos: The most for a predictor; 0 for instructions alone.
        minibatch: Validation questions a trial, where there are more; every fifth trial the best
            combination is scored on all.
    """

    candidates: int = 4
    trials: int = 8
    demos: int = 3
    minibatch: int = 35
    name: ClassVar[str] = "miprov2"

    def check(self, needs: Needs) -> None:
        """Optuna, and two train questions."""
        need_package("optuna", "optimize")
        settings = {"candidates": self.candidates, "trials": self.trials}
        need_positive(self.name, {**settings, "minibatch": self.minibatch})
        need_questions(self.name, "train", needs.train, max(2, self.demos))

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Demo sets, then trials with full evaluations between them."""
        some = min(self.minibatch, validation)
        full = 0 if some == validation else 2 + self.trials // 5
        sets = self.candidates * min(train, 3 * self.demos)
        asked = sets + self.trials * some + (full + 1) * validation
        return Work(asked, 3 + predictors * (self.candidates + 3))

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Bootstrap, propose, search."""
        return mipro(self, context).compile(  # type: ignore[no-any-return]
            program,
            trainset=list(train),
            valset=list(validation),
            **mipro_arguments(self, len(validation)),
        )


@dataclass(frozen=True)
class InferRules(Recipe):
    """Rules read off well-answered train questions, added to the instructions.

    Attributes:
        candidates: Sets of rules to try.
        rules: Rules in a set.
        demos: The most for a predictor.
    """

    candidates: int = 4
    rules: int = 6
    demos: int = 3
    name: ClassVar[str] = "infer-rules"

    def check(self, needs: Needs) -> None:
        """As many train questions as demos."""
        settings = {"candidates": self.candidates, "rules": self.rules, "demos": self.demos}
        need_positive(self.name, settings)
        need_questions(self.name, "train", needs.train, self.demos)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """One bootstrap, then every set on all validation questions."""
        asked = min(train, 3 * self.demos) + self.candidates * validation
        return Work(asked, self.candidates * predictors)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Bootstrap, infer, score.

        DSPy's InferRules writes into signature classes, which its candidates share with each
        other and with the program: it gets classes of its own, and the best candidate is taken
        from the trials, where each was copied when it was scored.
        """
        rows = [dspy.Example(e).with_inputs("question") for e in _bare(train)]
        optimizer = dspy.InferRules(
            metric=context.metric,
            metric_threshold=context.metric.threshold,
            max_bootstrapped_demos=self.demos,
            max_labeled_demos=0,
            num_candidates=self.candidates,
            num_rules=self.rules,
            num_threads=context.threads,
            teacher_settings={"lm": context.prompt_lm} if context.prompt_lm else None,
        )
        own = transplanted(program, program)
        last = optimizer.compile(own, trainset=rows, valset=list(validation))
        best = context.trials.best()
        return best.program if best else transplanted(program, last)


def copro(recipe: COPRO, context: Context) -> Any:
    """DSPy's optimizer for a recipe."""
    return dspy.COPRO(
        prompt_model=context.proposer,
        metric=context.metric,
        breadth=recipe.breadth,
        depth=recipe.depth,
        init_temperature=recipe.temperature,
    )


def mipro(recipe: MIPROv2, context: Context) -> Any:
    """DSPy's optimizer for a recipe."""
    return dspy.MIPROv2(
        metric=context.metric,
        metric_threshold=context.metric.threshold,
        prompt_model=context.proposer,
        task_model=context.lm,
        auto=None,
        num_candidates=recipe.candidates,
        max_bootstrapped_demos=recipe.demos,
        max_labeled_demos=0,
        num_threads=context.threads,
        seed=context.seed,
    )


def mipro_arguments(recipe: MIPROv2, validation: int) -> dict[str, Any]:
    """What MIPROv2 takes when it compiles."""
    return {
        "num_trials": recipe.trials,
        "minibatch": recipe.minibatch < validation,
        "minibatch_size": min(recipe.minibatch, validation),
    }


def _bare(train: Examples) -> list[dict[str, Any]]:
    """Question and answers: what InferRules shows its LM, and what the metric needs."""
    kept = ("id", "question", "answer", "answers", "gold_titles")
    return [{name: e[name] for name in kept if name in e} for e in train]
