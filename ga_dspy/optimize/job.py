"""The arguments of a compilation, checked before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from ga_dspy.errors import InputError
from ga_dspy.optimize.budget import Caps
from ga_dspy.optimize.estimate import Estimate, check_prices, estimate
from ga_dspy.optimize.feedback import AnswerMetric
from ga_dspy.optimize.held_out import HeldOut
from ga_dspy.optimize.recipes import Needs, Recipe
from ga_dspy.optimize.recipes.base import need_package
from ga_dspy.optimize.search import Examples
from ga_dspy.optimize.splits import check_sets, fingerprints, without_context
from ga_dspy.programs import MultiHopProgram

RUN = "run"
"""The folder, in the output folder, of all that is not the artifact."""


@dataclass(frozen=True)
class Job:
    """The arguments of a compilation, checked."""

    program: MultiHopProgram
    recipe: Recipe
    train: Examples
    validation: Examples
    test: Examples | None
    out: Path
    lms: Mapping[str, dspy.BaseLM]
    caps: Caps
    metric: AnswerMetric
    threads: int
    seed: int
    names: Mapping[str, str]

    @classmethod
    def checked(
        cls,
        program: MultiHopProgram,
        recipe: Recipe,
        train: Examples,
        validation: Examples,
        test: Examples | None,
        out: Path,
        lm: dspy.BaseLM | None,
        reflection_lm: dspy.BaseLM | None,
        prompt_lm: dspy.BaseLM | None,
        caps: Caps,
        metric: AnswerMetric,
        threads: int,
        seed: int,
        names: Mapping[str, str],
    ) -> Job:
        """Check everything that can be checked before an LM is called."""
        roles = {"task": lm or dspy.settings.lm, "reflection": reflection_lm, "prompt": prompt_lm}
        lms = {role: given for role, given in roles.items() if given is not None}
        _check_program(program, lms)
        taught = (without_context(train), without_context(validation))
        job = cls(program, recipe, *taught, test, out, lms, caps, metric, threads, seed, names)
        check_sets(job.sets)
        need_package("scipy", "retrieval")
        recipe.check(
            Needs(lms["task"], len(train), len(validation), reflection=reflection_lm is not None)
        )
        check_prices(lms, caps)
        return job

    @property
    def sets(self) -> dict[str, Examples]:
        """The question sets by role."""
        sets = {"train": self.train, "validation": self.validation}
        return {**sets, "test": self.test} if self.test is not None else sets

    @property
    def held_out(self) -> HeldOut:
        """The questions that are measured on."""
        name = "validation" if self.test is None else "test"
        return HeldOut(
            examples=self.sets[name],
            name=name,
            source=self.names.get(name, name),
            lm=self.lms["task"].model,
            folder=self.out / RUN,
            threads=self.threads,
        )

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """What is known of each question set."""
        return fingerprints(self.sets, self.names)

    def estimated(self) -> Estimate:
        """What it will cost, about."""
        sizes = {
            "train": len(self.train),
            "validation": len(self.validation),
            "held out": len(self.held_out.examples),
        }
        return estimate(self.program, self.recipe, sizes, self.train, self.lms)


def _check_program(program: MultiHopProgram, lms: Mapping[str, dspy.BaseLM]) -> None:
    if "task" not in lms:
        raise InputError(
            "there is no task LM",
            expected="the LM that the program is compiled for",
            remedy="pass lm=…, or configure one (dspy.configure(lm=…))",
        )
    if own := [name for name, p in program.named_predictors() if p.lm is not None]:
        raise InputError(
            f"predictor {own[0]!r} has an LM of its own",
            expected="a program that is compiled for one task LM",
            remedy="call program.set_lm(None), and pass the LM as lm=…",
        )
