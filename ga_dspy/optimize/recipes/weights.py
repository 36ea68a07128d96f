"""Recipes that train the LM itself, where its provider can: alone, or between prompt steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import dspy

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.optimize.feedback import threshold_of
from ga_dspy.optimize.recipes.base import (
    Context,
    Examples,
    Needs,
    Recipe,
    Work,
    need_questions,
)
from ga_dspy.optimize.recipes.few_shot import BootstrapRandomSearch, random_search
from ga_dspy.optimize.recipes.instructions import COPRO, copro
from ga_dspy.optimize.recipes.reflective import GEPA, gepa
from ga_dspy.programs import MultiHopProgram


class CannotFinetune(GaDspyError):
    """The task LM's provider does not train models."""

    def __init__(self, recipe: str, model: str) -> None:
        super().__init__(
            f"the provider of {model} cannot fine-tune; recipe {recipe} expected a task LM whose "
            "provider does; pass dspy.LM(…, provider=…) with a provider that is finetunable "
            "(dspy.OpenAIProvider(), a local one), or choose a recipe for prompts"
        )
        self.recipe, self.model = recipe, model


@dataclass(frozen=True)
class BootstrapFinetune(Recipe):
    """The LM is trained on the program's own traces of train questions that it answered well.

    The compiled program answers with the trained model. An artifact keeps the prompts and the
    model's name; the app that loads it configures that model.

    Attributes:
        multitask: One model for all predictors, or one for each.
        settings: What the provider takes for training, as `(name, value)` pairs.
    """

    multitask: bool = True
    settings: tuple[tuple[str, str | int | float], ...] = ()
    name: ClassVar[str] = "finetune"

    def check(self, needs: Needs) -> None:
        """A provider that trains."""
        need_questions(self.name, "train", needs.train, 1)
        if not finetunable(needs.lm):
            raise CannotFinetune(self.name, needs.lm.model)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """All train questions for traces, all validation questions with the trained model."""
        return Work(train + validation)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Collect traces, train, put the trained model in."""
        student = program.deepcopy()
        student.set_lm(context.lm)
        return finetune(self, context).compile(  # type: ignore[no-any-return]
            student, trainset=list(train)
        )

    def parameters(self) -> dict[str, Any]:
        """The settings, with those of the provider as a mapping."""
        return {"multitask": self.multitask, "settings": dict(self.settings)}


@dataclass(frozen=True)
class BetterTogether(Recipe):
    """Several optimizers one after another; the best program on the way is kept.

    Attributes:
        strategy: Steps joined by " -> ": "demos" (bootstrap random search), "instructions" (GEPA
            where a reflection LM is given, else COPRO), "weights" (fine-tuning). Empty for all
            that the LMs allow: demos, then weights or instructions, then demos.
        candidates: Demo sets in a "demos" step.
        evaluations: The most program runs of GEPA in an "instructions" step.
    """

    strategy: str = ""
    candidates: int = 4
    evaluations: int | None = None
    name: ClassVar[str] = "better-together"

    def check(self, needs: Needs) -> None:
        """Steps that are known, and what each of them needs."""
        steps = self._steps(needs.lm)
        known = ("demos", "instructions", "weights")
        if unknown := [step for step in steps if step not in known]:
            raise InputError(
                f"step {unknown[0]!r} in the strategy of recipe {self.name}",
                expected=f"steps among {', '.join(known)}, joined by ' -> '",
                remedy="leave the strategy out for the default",
            )
        self._demos().check(needs)
        if "weights" in steps:
            BootstrapFinetune().check(needs)
        if "instructions" in steps:
            (self._gepa() if needs.reflection else COPRO()).check(needs)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """The sum of the steps, as if instructions came from GEPA."""
        parts = [self._demos(), self._gepa(), self._demos()]
        each = [part.work(train, validation, predictors) for part in parts]
        asked = sum(work.questions for work in each) + 4 * validation
        return Work(asked, sum(work.proposals for work in each))

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Run the steps."""
        steps = self._steps(context.lm)
        together = dspy.BetterTogether(
            metric=context.metric,
            **{step: self._optimizer(step, context, len(validation)) for step in set(steps)},
        )
        student = program.deepcopy()
        student.set_lm(context.lm)
        best = together.compile(
            student,
            trainset=list(train),
            valset=list(validation),
            num_threads=context.threads,
            seed=context.seed,
            strategy=" -> ".join(steps),
            optimizer_compile_args=self._arguments(steps, context, validation),
        )
        if best.flag_compilation_error_occurred and len(best.candidate_programs) == 1:
            raise StepsFailed(self.name, " -> ".join(steps))
        return best  # type: ignore[no-any-return]

    def _steps(self, lm: dspy.BaseLM) -> list[str]:
        middle = "weights" if finetunable(lm) else "instructions"
        return (self.strategy or f"demos -> {middle} -> demos").split(" -> ")

    def _demos(self) -> BootstrapRandomSearch:
        return BootstrapRandomSearch(candidates=self.candidates)

    def _gepa(self) -> GEPA:
        return GEPA(evaluations=self.evaluations)

    def _arguments(
        self, steps: list[str], context: Context, validation: Examples
    ) -> dict[str, dict[str, Any]]:
        # COPRO scores on what it calls the train set, and looks at no question otherwise.
        if "instructions" in steps and context.reflection_lm is None:
            return {"instructions": {"trainset": list(validation)}}
        return {}

    def _optimizer(self, step: str, context: Context, validation: int) -> Any:
        if step == "demos":
            return random_search(self._demos(), context)
        if step == "weights":
            return finetune(BootstrapFinetune(), context)
        if context.reflection_lm is not None:
            return gepa(self._gepa(), context, validation)
        return copro(COPRO(), context)


class StepsFailed(GaDspyError):
    """The first step of a combination failed, so there is nothing to keep."""

    def __init__(self, recipe: str, strategy: str) -> None:
        super().__init__(
            f"recipe {recipe} failed in the first step of {strategy!r}; expected a program from "
            "it; see run/optimizer.log in the output directory, or run that step's own recipe"
        )


def finetunable(lm: dspy.BaseLM) -> bool:
    """Whether the LM's provider can train it."""
    return bool(getattr(getattr(lm, "provider", None), "finetunable", False))


def finetune(recipe: BootstrapFinetune, context: Context) -> Any:
    """DSPy's optimizer for a recipe."""
    return dspy.BootstrapFinetune(
        metric=threshold_of(context.metric),
        multitask=recipe.multitask,
        train_kwargs=dict(recipe.settings) or None,
        num_threads=context.threads,
    )
