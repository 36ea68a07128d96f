"""What a recipe is, what it is given, and how it checks what it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import dspy

from ga_dspy.errors import GaDspyError, InputError, MissingExtra
from ga_dspy.optimize.feedback import AnswerMetric
from ga_dspy.optimize.trials import Trials
from ga_dspy.programs import MultiHopProgram

Examples = Sequence[dspy.Example]


class MissingRole(GaDspyError):
    """A recipe needs an LM for something, and none was given."""

    def __init__(self, recipe: str, role: str, what: str) -> None:
        super().__init__(
            f"recipe {recipe} has no {role} LM; expected one that {what}; "
            f"pass {role}_lm=… (on the command line --{role}-lm MODEL)"
        )
        self.recipe, self.role = recipe, role


class TooFewQuestions(GaDspyError):
    """A question set is too small for a recipe."""

    def __init__(self, recipe: str, which: str, found: int, least: int) -> None:
        super().__init__(
            f"recipe {recipe} was given {found} {which} questions; expected at least {least}; "
            "pass more questions, or settings of the recipe that need fewer"
        )
        self.recipe, self.which, self.found, self.least = recipe, which, found, least


class Work(NamedTuple):
    """About how much a recipe does: questions asked of the program, prompts asked of a proposer."""

    questions: int
    proposals: int = 0


@dataclass(frozen=True)
class Context:
    """What a recipe works with.

    Attributes:
        lm: The task LM; also the default LM while a recipe runs.
        metric: Score and feedback.
        trials: Where scored programs are noted.
        reflection_lm: Reads feedback and rewrites instructions.
        prompt_lm: Proposes instructions; the task LM where None is given.
        threads: Threads for evaluations.
        seed: Of what is drawn, where an optimizer takes one.
    """

    lm: dspy.BaseLM
    metric: AnswerMetric
    trials: Trials
    reflection_lm: dspy.BaseLM | None = None
    prompt_lm: dspy.BaseLM | None = None
    threads: int = 2
    seed: int = 0

    @property
    def proposer(self) -> dspy.BaseLM:
        """The LM that proposes instructions."""
        return self.prompt_lm or self.lm


class Needs(NamedTuple):
    """What `Recipe.check` may look at before anything is spent."""

    lm: dspy.BaseLM
    train: int
    validation: int
    reflection: bool


@dataclass(frozen=True)
class Recipe:
    """A way to compile a program: a small value with its settings.

    A subclass implements `fit`, and says what it needs in `check` and what it does in `work`.
    """

    name: ClassVar[str] = ""

    def check(self, needs: Needs) -> None:
        """Check what the recipe needs: packages, LMs, question sets.

        Raises:
            MissingExtra, MissingRole, TooFewQuestions, InputError: It is not there.
        """
        need_questions(self.name, "train", needs.train, 1)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """About how much the recipe does."""
        raise TypeError(f"{type(self).__name__} must implement work(train, validation, predictors)")

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Compile; the given program is left as it is.

        Args:
            program: The program as it is given.
            train: Questions to learn from.
            validation: Questions to choose by.
            context: LMs, metric and where to note what was tried.
        """
        raise TypeError(f"{type(self).__name__} must implement fit(program, train, validation)")

    def parameters(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        return dataclasses.asdict(self)


def need_questions(recipe: str, which: str, found: int, least: int) -> None:
    """Check that a question set is large enough.

    Raises:
        TooFewQuestions: It is not.
    """
    if found < least:
        raise TooFewQuestions(recipe, which, found, least)


def need_package(package: str, extra: str) -> None:
    """Check that an optional package is installed, without importing it.

    Raises:
        MissingExtra: It is not.
    """
    if find_spec(package) is None:
        raise MissingExtra(package, extra)


def need_positive(recipe: str, settings: Mapping[str, int]) -> None:
    """Check that settings of a recipe are whole numbers from 1.

    Raises:
        InputError: One of them is not.
    """
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"{name} of recipe {recipe} is {value!r}",
                expected="a whole number from 1",
                remedy="leave it out for the default",
            )
