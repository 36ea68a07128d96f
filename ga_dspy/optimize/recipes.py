"""The recipes: ways to compile a program, each a small value with its settings.

A recipe states what it needs (`check`) and about how much it does (`work`), and does it (`fit`),
mostly with one of DSPy's optimizers. First come those that find demos, then the one that proposes
instructions, and those whose LM reads what went wrong.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import dspy
import pydantic
from dspy.utils import BaseCallback
from pydantic import NonNegativeInt, PositiveInt

from ga_dspy.errors import InputError, need_package
from ga_dspy.optimize.demos import labelled, shortened
from ga_dspy.optimize.metric import DEMO_THRESHOLD, AnswerMetric
from ga_dspy.optimize.trials import Trials
from ga_dspy.programs import MultiHopProgram

Examples = Sequence[dspy.Example]


class Work(NamedTuple):
    """About how much a recipe does: runs of the program, and calls of an LM that proposes."""

    questions: int
    proposals: int = 0


@dataclass(frozen=True)
class Context:
    """What a recipe works with.

    Attributes:
        lms: LMs by role: "task", the default LM while a recipe runs; "reflection", which reads
            feedback and rewrites instructions; "prompt", which proposes instructions; "teacher",
            whose runs of train questions become demos.
        metric: Score and feedback.
        trials: The programs scored so far.
        train: Questions to learn from.
        validation: Questions to choose by.
        threads: Threads for evaluations.
        seed: Random seed, for optimizers that take one.
    """

    lms: Mapping[str, dspy.BaseLM]
    metric: AnswerMetric
    trials: Trials
    train: Examples
    validation: Examples
    threads: int
    seed: int

    @property
    def proposer(self) -> dspy.BaseLM:
        """The LM that proposes instructions; by default the task LM."""
        return self.lms.get("prompt", self.lms["task"])

    def compiled(self, optimizer: Any, program: MultiHopProgram, **given: Any) -> MultiHopProgram:
        """Compile a program with one of DSPy's optimizers.

        Demos show only the passages that they cite. A predictor for which it finds no demo keeps
        those that it had.
        """
        made: MultiHopProgram = optimizer.compile(
            program, **{"trainset": list(self.train), **given}
        )
        had = dict(program.named_predictors())
        for name, predictor in made.named_predictors():
            predictor.demos = [*map(shortened, predictor.demos)] or had[name].demos
        return made

    def score(self, program: MultiHopProgram) -> None:
        """Score a program on all validation questions; the trials record it."""
        questions = list(self.validation)
        dspy.Evaluate(devset=questions, metric=self.metric, num_threads=self.threads)(program)


@dataclass(frozen=True)
class Recipe:
    """A way to compile a program: a small value with its settings.

    A subclass implements `fit`, mostly with one of DSPy's optimizers. It states what it needs in
    `least` and `check`, and how much it does in `work`.

    Attributes:
        name: Its name on the command line.
        package: A package that it needs and the extra that installs it; empty for none.
    """

    name: ClassVar[str] = ""
    package: ClassVar[tuple[str, ...]] = ()

    def least(self) -> int:
        """Return the fewest train questions; by default one for each demo."""
        return max(1, getattr(self, "demos", 1))

    def check(self, train: int, *, reflection: bool) -> None:
        """Check what the recipe needs: packages, LMs, question sets.

        Args:
            train: The number of train questions.
            reflection: Whether there is a reflection LM.

        Raises:
            MissingExtra, InputError: Something is missing.
        """
        if self.package:
            need_package(*self.package)
        if train < self.least():
            raise InputError(
                f"recipe {self.name} was given {train} train questions",
                expected=f"at least {self.least()}",
                remedy="pass more questions, or settings of the recipe that need fewer",
            )

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return about how much the recipe does."""
        raise TypeError(f"{type(self).__name__} must implement work(train, validation, predictors)")

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Compile; the given program is not changed."""
        raise TypeError(f"{type(self).__name__} must implement fit(program, context)")


_settings = pydantic.dataclasses.dataclass(frozen=True, config={"strict": True, "extra": "forbid"})

# --- Demos: labelled rows, and traces of questions answered well


@_settings
class LabeledFewShot(Recipe):
    """Train rows as demos of the predictor that answers.

    A row has a question and its answer, so the demos show the length and the form of an answer; the
    predictors that read and judge get none, since no row has their outputs.

    Attributes:
        demos: How many rows, drawn with the seed.
    """

    demos: PositiveInt = 8
    name: ClassVar[str] = "labeled"

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: the validation questions once."""
        return Work(validation)

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Draw the rows."""
        rows = random.Random(context.seed).sample(list(context.train), self.demos)
        return labelled(program, rows)


@_settings
class BootstrapFewShot(Recipe):
    """Demos from the program's own traces of train questions that it answered well.

    Attributes:
        demos: The maximum for a predictor.
        rounds: Attempts at a question, the second and later ones at temperature 1.
    """

    demos: PositiveInt = 4
    rounds: PositiveInt = 1
    name: ClassVar[str] = "bootstrap"

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: train questions until there are enough demos, then validation."""
        return Work(min(train, 3 * self.demos) * self.rounds + validation)

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Collect traces in the order of the questions."""
        found = dspy.BootstrapFewShot(**_demos(context, self.demos), max_rounds=self.rounds)
        return context.compiled(found, program, teacher=program.as_teacher())


@_settings
class BootstrapRandomSearch(Recipe):
    """Several bootstraps over shuffled questions; the one that scores best is kept.

    Attributes:
        candidates: Demo sets to try, besides the one in the order of the questions.
        demos: The maximum for a predictor; each set has its own number, from 1.
        rounds: Attempts at a question.
    """

    candidates: PositiveInt = 8
    demos: PositiveInt = 4
    rounds: PositiveInt = 1
    name: ClassVar[str] = "bootstrap-rs"

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: for each set some train questions and all validation questions."""
        one = min(train, 3 * self.demos) * self.rounds + validation
        return Work((self.candidates + 1) * one)

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Bootstrap and score, set by set."""
        for number in range(self.candidates + 1):
            rows, most, draw = list(context.train), self.demos, random.Random(context.seed + number)
            if number:
                draw.shuffle(rows)
                most = draw.randint(1, self.demos)
            found = dspy.BootstrapFewShot(**_demos(context, most), max_rounds=self.rounds)
            teacher = program.as_teacher()
            context.score(context.compiled(found, program, teacher=teacher, trainset=rows))
        best = context.trials.best()
        return best.program if best else program


def _demos(context: Context, maximum: int) -> dict[str, Any]:
    """Return DSPy's settings for demos: from well-answered questions only, and no bare rows."""
    teacher = context.lms.get("teacher")
    return {
        "metric": context.metric,
        "metric_threshold": DEMO_THRESHOLD,
        "max_bootstrapped_demos": maximum,
        "max_labeled_demos": 0,
        "teacher_settings": {"lm": teacher} if teacher is not None else {},
    }


# --- Instructions, with demos, by proposing and scoring


@_settings
class MIPROv2(Recipe):
    """Instructions and demo sets, combined by Bayesian search (Optuna).

    Attributes:
        candidates: Instructions, and demo sets, to choose from.
        trials: Combinations to score.
        demos: The maximum for a predictor; 0 for instructions alone.
        minibatch: Validation questions per trial, if there are more; every fifth trial the best
            combination is scored on all.
    """

    candidates: PositiveInt = 4
    trials: PositiveInt = 8
    demos: NonNegativeInt = 3
    minibatch: PositiveInt = 35
    name: ClassVar[str] = "miprov2"
    package: ClassVar[tuple[str, ...]] = ("optuna", "optimize")

    def least(self) -> int:
        """Return two, or one for each demo."""
        return max(2, self.demos)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: demo sets, then trials with full evaluations between them."""
        some = min(self.minibatch, validation)
        full = 0 if some == validation else 2 + self.trials // 5
        sets = self.candidates * min(train, 3 * self.demos)
        asked = sets + self.trials * some + (full + 1) * validation
        return Work(asked, 3 + predictors * (self.candidates + 3))

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Bootstrap, propose, search."""
        search = dspy.MIPROv2(
            **_demos(context, self.demos),
            prompt_model=context.proposer,
            task_model=context.lms["task"],
            auto=None,
            num_candidates=self.candidates,
            num_threads=context.threads,
            seed=context.seed,
        )
        return context.compiled(
            search,
            program,
            teacher=program.as_teacher(),
            valset=list(context.validation),
            num_trials=self.trials,
            minibatch=self.minibatch < len(context.validation),
            minibatch_size=min(self.minibatch, len(context.validation)),
        )


# --- Reflection: an LM reads what went wrong and writes better instructions


@_settings
class SIMBA(Recipe):
    """Minibatches sampled several times; results that differ become a demo or a rule.

    Attributes:
        batch: Train questions per step.
        candidates: Samples of each question, and new programs, per step.
        steps: Steps.
        demos: The maximum for a predictor.
    """

    batch: PositiveInt = 16
    candidates: PositiveInt = 4
    steps: PositiveInt = 4
    demos: PositiveInt = 4
    name: ClassVar[str] = "simba"

    def least(self) -> int:
        """Return the size of a batch."""
        return self.batch

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: samples and new programs on each batch, then the winners on all."""
        each = self.batch * (2 * self.candidates + 1)
        asked = self.steps * each + (self.candidates + 1) * train + validation
        return Work(asked, self.steps * (self.candidates + 1) // 2)

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Sample, compare, improve."""
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
        simba.strategies = [_gated(s) for s in simba.strategies]
        with dspy.context(callbacks=[*(dspy.settings.callbacks or []), watch]):
            return context.compiled(simba, program, seed=context.seed)


class _Watch(BaseCallback):
    """Records which program got which score, because SIMBA scores without Evaluate."""

    def __init__(self, context: Context, batch: int) -> None:
        self._context, self._batch = context, batch
        self._last: dict[int, Any] = {}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Record which program this thread runs."""
        if isinstance(instance, MultiHopProgram):
            self._last[threading.get_ident()] = instance

    def metric(self, gold: dspy.Example, pred: Any, trace: Any = None) -> dspy.Prediction:
        """Score a prediction; called in the thread that ran the program, right after it."""
        result = self._context.metric(gold, pred, trace)
        program = self._last.get(threading.get_ident())
        if program is not None:
            self._context.trials.note(program, gold.question, 100 * float(result), self._batch)
        return result


def _gated(strategy: Callable[..., bool]) -> Callable[..., bool]:
    if not strategy.__name__.startswith("append_a_demo"):
        return strategy

    @functools.wraps(strategy)
    def gated(bucket: list[dict[str, Any]], system: Any, **kwargs: Any) -> bool:
        return float(bucket[0]["score"]) >= DEMO_THRESHOLD and strategy(bucket, system, **kwargs)

    return gated


@_settings
class GEPA(Recipe):
    """Instructions rewritten by a reflection LM that reads the faults of one predictor.

    Attributes:
        evaluations: The maximum of program runs; None for twelve times the validation questions.
        minibatch: Train questions per reflection.
        merge: Whether to merge programs that are best at different questions.
    """

    evaluations: PositiveInt | None = None
    minibatch: PositiveInt = 3
    merge: bool = True
    name: ClassVar[str] = "gepa"
    package: ClassVar[tuple[str, ...]] = ("gepa", "optimize")

    def least(self) -> int:
        """Return the size of a minibatch."""
        return self.minibatch

    def check(self, train: int, *, reflection: bool) -> None:
        """Check also for a reflection LM."""
        if not reflection:
            raise InputError(
                f"recipe {self.name} has no reflection LM",
                expected="one that reads the faults and rewrites instructions",
                remedy="pass reflection_lm=… (on the command line --reflection-lm MODEL)",
            )
        super().check(train, reflection=reflection)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: all runs allowed, and a reflection for about every two minibatches."""
        runs = self._runs(validation)
        return Work(runs, max(1, runs // (4 * self.minibatch)))

    def fit(self, program: MultiHopProgram, context: Context) -> MultiHopProgram:
        """Run, reflect, keep what helps.

        No `log_dir` is given: GEPA would pickle its state there. The ledger has the finished
        calls, and a second run repeats the first one from there.
        """
        gepa = dspy.GEPA(
            metric=context.metric,
            max_metric_calls=self._runs(len(context.validation)),
            reflection_minibatch_size=self.minibatch,
            reflection_lm=context.lms["reflection"],
            use_merge=self.merge,
            num_threads=context.threads,
            warn_on_score_mismatch=False,
            seed=context.seed,
        )
        return context.compiled(gepa, program, valset=list(context.validation))

    def _runs(self, validation: int) -> int:
        return 12 * validation if self.evaluations is None else self.evaluations


# --- All recipes, by their names on the command line

RECIPES: dict[str, type[Recipe]] = {
    kind.name: kind
    for kind in (LabeledFewShot, BootstrapFewShot, BootstrapRandomSearch, MIPROv2, SIMBA, GEPA)
}


def recipe(name: str | None = None, *, reflection: bool = False, **settings: Any) -> Recipe:
    """Return the recipe with a name, with the given settings.

    Args:
        name: One of `RECIPES`; None for GEPA if there is a reflection LM, else bootstrap-rs.
        reflection: Whether there is a reflection LM.
        settings: Settings of the recipe.

    Raises:
        InputError: There is no such recipe, it has no such setting, or a value is invalid.

    >>> recipe("bootstrap", demos=2)
    BootstrapFewShot(demos=2, rounds=1)
    """
    chosen = name or (GEPA.name if reflection else BootstrapRandomSearch.name)
    if chosen not in RECIPES:
        raise InputError(
            f"recipe {chosen!r}",
            expected=f"one of {', '.join(RECIPES)}",
            remedy="pass one of these names",
        )
    try:
        return RECIPES[chosen](**settings)
    except pydantic.ValidationError as error:
        wrong = error.errors()[0]
        raise InputError(
            f"{'.'.join(map(str, wrong['loc'])) or 'a setting'} of recipe {chosen}: "
            f"{wrong['input']!r:.100}: {wrong['msg']}",
            expected=f"settings such as those of {RECIPES[chosen]()}",
            remedy="leave it out for the default",
        ) from error
