"""Recipes: ways to compile a program, and an estimate of what one costs.

A recipe checks its requirements (`check`), estimates its work (`work`) and compiles a program
(`fit`), mostly with one of DSPy's optimizers. One recipe changes settings, three find demos,
MIPROv2 proposes instructions, and in SIMBA and GEPA an LM reflects on errors.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import dspy
import pydantic
from pydantic import NonNegativeInt, PositiveInt

from ga_dspy.errors import InputError, check_installed, unknown
from ga_dspy.lm.dspy_private import model_info, rate
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.lm.store import NOTHING, Caps, Gate, Spent
from ga_dspy.lm.wrapper import StepLMs, wrap_for_gate
from ga_dspy.optimize.demos import labelled, shortened
from ga_dspy.optimize.metric import DEMO_THRESHOLD, AnswerMetric
from ga_dspy.optimize.trials import Trials
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.settings import read_pairs, typed_settings
from ga_dspy.text import estimate_tokens

Examples = Sequence[dspy.Example]


class Work(NamedTuple):
    """The estimated work of a recipe: runs of the program, and calls that propose instructions."""

    questions: int
    proposals: int = 0


@dataclass(frozen=True)
class Recipe:
    """A way to compile a program; its fields are its settings.

    A subclass implements `fit`, mostly with one of DSPy's optimizers, and estimates its work in
    `work`. `least`, `check` and `check_program` state its requirements.

    Attributes:
        name: Its name on the command line.
        package: A package that it needs, and the extra that installs it; empty for none.
        roles: The roles of the LMs that it needs.
    """

    name: ClassVar[str] = ""
    package: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[tuple[str, ...]] = ("task",)

    def least(self) -> int:
        """Return the minimum number of train questions; by default one per demo."""
        return max(1, getattr(self, "demos", 1))

    def check(self, train: int, lms: Mapping[str, dspy.BaseLM]) -> None:
        """Check that the packages, LMs and train questions that the recipe needs are there.

        Args:
            train: The number of train questions.
            lms: The LMs by role.

        Raises:
            MissingExtra, InputError: Something is missing.
        """
        if self.package:
            check_installed(*self.package)
        for role in self.roles:
            if role not in lms:
                option = "lm" if role == "task" else f"{role}_lm"
                remedy = f"pass {option}=… (on the command line --{option.replace('_', '-')})"
                raise InputError(f"recipe {self.name} has no {role} LM", remedy=remedy)
        if train < self.least():
            found = f"recipe {self.name} was given {train} train questions"
            raise InputError(found, expected=f"at least {self.least()}")

    def check_program(self, program: MultiHopProgram) -> None:
        """Check that the recipe can compile a program; by default it can compile any.

        Raises:
            InputError: It cannot.
        """

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the estimated work."""
        raise TypeError(f"{type(self).__name__} must implement work(train, validation, predictors)")

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Return the compiled program; the given program is not changed."""
        raise TypeError(f"{type(self).__name__} must implement fit(job, trials)")


@dataclass(frozen=True)
class Job:
    """The arguments of a compilation, as a recipe gets them.

    The program has no LMs of single steps, because optimizers would remove or copy them; the task
    LM routes calls to them instead (`behind`).

    Attributes:
        given: The program as given; optimizers do not change it.
        step_lms: The LMs of steps that have their own.
        recipe: The recipe.
        sets: The questions: "train" to learn from, "validation" to choose by, and perhaps "test".
        data: Digest, size and name of each set.
        out: The folder of the artifact.
        lms: LMs by role: "task", the default LM while a recipe runs; "reflection", which reads
            feedback and rewrites instructions; "prompt", which proposes instructions; "teacher",
            whose runs of train questions become demos.
        caps: Limits on spending.
        metric: The metric, with feedback.
        threads: Threads for evaluations.
        seed: Random seed, for optimizers that take one.
    """

    given: MultiHopProgram
    step_lms: Mapping[str, dspy.BaseLM]
    recipe: Recipe
    sets: Mapping[str, Examples]
    data: dict[str, dict[str, Any]]
    out: Path
    lms: Mapping[str, dspy.BaseLM]
    caps: Caps
    metric: AnswerMetric
    threads: int
    seed: int

    @property
    def held_out(self) -> str:
        """The name of the set to measure on."""
        return "test" if "test" in self.sets else "validation"

    @property
    def all_lms(self) -> list[dspy.BaseLM]:
        """The LMs of roles and of steps."""
        return [*self.lms.values(), *self.step_lms.values()]

    def with_step_lms(self, program: MultiHopProgram) -> MultiHopProgram:
        """Return a copy of a program in which steps have their own LMs again."""
        copied: MultiHopProgram = program.deepcopy()
        for name, predictor in copied.named_predictors():
            predictor.lm = self.step_lms.get(name.partition(".")[0])
        return copied

    def behind(self, gate: Gate) -> Job:
        """Return the job with its LMs behind a gate; the task LM routes steps to their own LMs."""
        lms: dict[str, dspy.BaseLM] = {
            role: wrap_for_gate(lm, gate, role) for role, lm in self.lms.items()
        }
        if self.step_lms:
            steps = {step: wrap_for_gate(lm, gate, step) for step, lm in self.step_lms.items()}
            lms["task"] = StepLMs(lms["task"], steps)
        return replace(self, lms=lms)

    def compiled(self, optimizer: Any, **given: Any) -> MultiHopProgram:
        """Compile the program with one of DSPy's optimizers.

        Demos show only the passages that they cite. A predictor without new demos keeps its own.
        """
        rows = list(self.sets["train"])
        made: MultiHopProgram = optimizer.compile(self.given, **{"trainset": rows, **given})
        before = dict(self.given.named_predictors())
        for name, predictor in made.named_predictors():
            predictor.demos = [*map(shortened, predictor.demos)] or before[name].demos
        return made

    def score(self, program: MultiHopProgram) -> None:
        """Score a program on all validation questions; the trials record it."""
        rows = list(self.sets["validation"])
        dspy.Evaluate(devset=rows, metric=self.metric, num_threads=self.threads)(program)


_settings = pydantic.dataclasses.dataclass(frozen=True, config={"strict": True, "extra": "forbid"})

# --- Settings of the program


@_settings
class Settings(Recipe):
    """Settings of the program, each of which is kept if the program scores higher with it.

    Attributes:
        tries: The settings to try, in order, as `name=value`.
    """

    tries: tuple[str, ...] = ("compare_facts=true",)
    name: ClassVar[str] = "settings"

    def check_program(self, program: MultiHopProgram) -> None:
        """Check that the program has these settings, and that it accepts the values."""
        for pair in self.tries:
            _with_setting(program, pair)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: the validation questions once for each setting."""
        return Work(validation * len(self.tries))

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Change the best program so far by one setting at a time, and score it."""
        best = job.given
        for pair in self.tries:
            job.score(_with_setting(best, pair))
            best = trials.best() or best
        return best


def _with_setting(program: MultiHopProgram, pair: str) -> MultiHopProgram:
    """Return a copy of a program with the setting `name=value`."""
    changed: MultiHopProgram = program.deepcopy()
    for name, value in typed_settings(read_pairs([pair]), type(program)).items():
        setattr(changed, name, value)
    return changed


# --- Demos: labelled rows, and traces of questions answered well


@_settings
class LabeledFewShot(Recipe):
    """Train rows as demos of the predictor that answers.

    A row has a question and an answer, so the demos show the length and the form of answers. The
    predictors that read and judge get no demos, since no row has their outputs.

    Attributes:
        demos: The number of rows, sampled with the seed.
    """

    demos: PositiveInt = 8
    name: ClassVar[str] = "labeled"

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: the validation questions once."""
        return Work(validation)

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Sample the rows."""
        rows = random.Random(job.seed).sample(list(job.sets["train"]), self.demos)
        return labelled(job.given, rows)


@_settings
class BootstrapRandomSearch(Recipe):
    """Demos from the program's own traces of train questions that it answered well.

    Several demo sets are collected from shuffled questions; the one that scores best is kept.

    Attributes:
        candidates: Demo sets to try in addition to the one in the order of the questions.
        demos: The maximum per predictor; each shuffled set draws its own maximum, from 1 to this.
    """

    candidates: NonNegativeInt = 8
    demos: PositiveInt = 4
    name: ClassVar[str] = "bootstrap-rs"

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: for each set some train questions and all validation questions."""
        return Work((self.candidates + 1) * (min(train, 3 * self.demos) + validation))

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Bootstrap and score, set by set."""
        for number in range(self.candidates + 1):
            rows, most = list(job.sets["train"]), self.demos
            draw = random.Random(job.seed + number)
            if number:
                draw.shuffle(rows)
                most = draw.randint(1, self.demos)
            optimizer = dspy.BootstrapFewShot(**_demos(job, most))
            teacher = job.given.as_teacher()
            job.score(job.compiled(optimizer, teacher=teacher, trainset=rows))
        return trials.best() or job.given


@_settings
class BootstrapFewShot(BootstrapRandomSearch):
    """Demos from traces of train questions, collected once in the order of the questions."""

    candidates: NonNegativeInt = 0
    name: ClassVar[str] = "bootstrap"


def _demos(job: Job, maximum: int) -> dict[str, Any]:
    """Return DSPy's arguments for demos: from questions answered well, without labelled rows."""
    teacher = job.lms.get("teacher")
    return {
        "metric": job.metric,
        "metric_threshold": DEMO_THRESHOLD,
        "max_bootstrapped_demos": maximum,
        "max_labeled_demos": 0,
        "teacher_settings": {"lm": teacher} if teacher is not None else {},
    }


# --- Instructions with demos, proposed by an LM and scored

_MINIBATCH = 35  # validation questions per trial; every fifth trial the best one is scored on all


class _Shown(dspy.Example):
    """An example that MIPROv2 prints into its prompts without ids and gold titles."""

    def __repr__(self) -> str:
        shown = {name: self[name] for name in ("question", "answer") if name in self}
        return f"Example({shown}) (input_keys={{'question'}})"


@_settings
class MIPROv2(Recipe):
    """Instructions and demo sets, combined by Bayesian search (Optuna).

    Attributes:
        candidates: Number of instructions, and of demo sets, to choose from.
        trials: Number of combinations to score.
        demos: The maximum per predictor; 0 for instructions alone.
    """

    candidates: PositiveInt = 4
    trials: PositiveInt = 8
    demos: NonNegativeInt = 3
    name: ClassVar[str] = "miprov2"
    package: ClassVar[tuple[str, ...]] = ("optuna", "optimize")

    def least(self) -> int:
        """Return two, or one for each demo."""
        return max(2, self.demos)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: demo sets, then trials with full evaluations between them."""
        some = min(_MINIBATCH, validation)
        full = 0 if some == validation else 2 + self.trials // 5
        sets = self.candidates * min(train, 3 * self.demos)
        asked = sets + self.trials * some + (full + 1) * validation
        return Work(asked, 3 + predictors * (self.candidates + 3))

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Bootstrap, propose, search."""
        search = dspy.MIPROv2(
            **_demos(job, self.demos),
            prompt_model=job.lms.get("prompt", job.lms["task"]),
            task_model=job.lms["task"],
            auto=None,
            num_candidates=self.candidates,
            num_threads=job.threads,
            seed=job.seed,
        )
        return job.compiled(
            search,
            teacher=job.given.as_teacher(),
            trainset=[_Shown(**row).with_inputs("question") for row in job.sets["train"]],
            valset=list(job.sets["validation"]),
            num_trials=self.trials,
            minibatch=len(job.sets["validation"]) > _MINIBATCH,
            minibatch_size=min(_MINIBATCH, len(job.sets["validation"])),
        )


# --- Reflection: an LM reads errors and writes better instructions


@_settings
class SIMBA(Recipe):
    """Minibatches answered several times; where the results differ, a demo or a rule is added.

    Attributes:
        batch: Train questions per step.
        candidates: Samples of each question, and new programs, per step.
        steps: Number of steps.
        demos: The maximum per predictor.
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

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Sample, compare, improve."""
        simba = dspy.SIMBA(
            metric=job.metric,
            bsize=self.batch,
            num_candidates=self.candidates,
            max_steps=self.steps,
            max_demos=self.demos,
            prompt_model=job.lms.get("prompt", job.lms["task"]),
            num_threads=job.threads,
        )
        return job.compiled(simba, seed=job.seed)


@_settings
class GEPA(Recipe):
    """Instructions rewritten by a reflection LM that reads feedback on one predictor at a time.

    Attributes:
        evaluations: The maximum of program runs; None for twelve times the validation questions.
        minibatch: Train questions per reflection.
    """

    evaluations: PositiveInt | None = None
    minibatch: PositiveInt = 3
    name: ClassVar[str] = "gepa"
    package: ClassVar[tuple[str, ...]] = ("gepa", "optimize")
    roles: ClassVar[tuple[str, ...]] = ("task", "reflection")

    def least(self) -> int:
        """Return the size of a minibatch."""
        return self.minibatch

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Return the work: all runs allowed, and a reflection for about every two minibatches."""
        runs = self._runs(validation)
        return Work(runs, max(1, runs // (4 * self.minibatch)))

    def fit(self, job: Job, trials: Trials) -> MultiHopProgram:
        """Run, reflect, keep what helps.

        GEPA gets no `log_dir`, where it would pickle its state. A second run replays the finished
        calls from the ledger instead.
        """
        gepa = dspy.GEPA(
            metric=job.metric,
            max_metric_calls=self._runs(len(job.sets["validation"])),
            reflection_minibatch_size=self.minibatch,
            reflection_lm=job.lms["reflection"],
            num_threads=job.threads,
            warn_on_score_mismatch=False,
            seed=job.seed,
        )
        return job.compiled(gepa, valset=list(job.sets["validation"]))

    def _runs(self, validation: int) -> int:
        return 12 * validation if self.evaluations is None else self.evaluations


# --- All recipes, by their names on the command line

_ALL = Settings, LabeledFewShot, BootstrapFewShot, BootstrapRandomSearch, MIPROv2, SIMBA, GEPA
RECIPES: dict[str, type[Recipe]] = {kind.name: kind for kind in _ALL}


def recipe(name: str | None = None, *, reflection: bool = False, **settings: Any) -> Recipe:
    """Return the recipe with a name, with the given settings.

    Args:
        name: One of `RECIPES`; None for GEPA if there is a reflection LM, else bootstrap-rs.
        reflection: Whether there is a reflection LM.
        settings: Settings of the recipe.

    Raises:
        InputError: There is no such recipe, it has no such setting, or a value is invalid.

    >>> recipe("bootstrap", demos=2)
    BootstrapFewShot(candidates=0, demos=2)
    """
    chosen = name or (GEPA.name if reflection else BootstrapRandomSearch.name)
    if chosen not in RECIPES:
        raise unknown("recipe", chosen, RECIPES)
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


# --- The expected cost of a compilation, before anything is spent

MARGIN = 1.5
"""Safety factor of estimates: demos make prompts longer, and an answer may take more steps."""

_SAMPLES = 3
_FRAME = 400  # tokens of field names and descriptions, the graph, and the completion
_COMPLETION = 150
_PROPOSAL = 3_000


class Estimate(NamedTuple):
    """The estimated cost of a compilation, including repeated calls, which are free.

    Attributes:
        questions: Runs of the program, including both runs on the held-out questions.
        calls: LM calls.
        tokens: Prompt and completion tokens.
        money: US dollars; None if an LM has no known price.
        measuring: The part reserved for measuring before and after.
        least: The smallest caps under which a candidate can be tried.
    """

    questions: int
    calls: int
    tokens: int
    money: float | None
    measuring: Spent = NOTHING
    least: Spent = NOTHING

    def __str__(self) -> str:
        """Return one line for a person."""
        price = "price unknown" if self.money is None else f"${self.money:,.2f}"
        runs = f"{self.questions:,} runs of the program"
        return f"about {self.calls:,} LM calls, {self.tokens:,} tokens, {price} ({runs})"


def estimate(
    program: MultiHopProgram,
    recipe: Recipe,
    sets: Mapping[str, Examples],
    lms: Mapping[str, dspy.BaseLM],
) -> Estimate:
    """Estimate the cost from the recipe's work and the passages of a few questions.

    Args:
        program: The program that is compiled.
        recipe: The recipe.
        sets: The question sets: "train", "validation", and "test" if there is one. A few train
            questions are searched for passages; no LM is called.
        lms: The LMs by role, including "task". All predictors are assumed to make as many calls,
            also those that have their own LMs.
    """
    train, validation = len(sets["train"]), len(sets["validation"])
    held_out = len(sets.get("test", sets["validation"]))
    work = recipe.work(train, validation, len(program.predictors()))
    # A typical question needs half of the steps it may have, then the answer.
    settings = program.settings()
    each = 2 if settings.get("as_published") and settings.get("index") else 1
    asked = (int(settings.get("max_steps", 0)) + 1) // 2 * each + 1
    tried, measured = (work.questions + validation) * asked, 2 * held_out * asked
    demos, prompt = 1 + getattr(recipe, "demos", 0) / 2, _prompt_tokens(program, sets["train"])
    tokens = int(tried * prompt * demos + measured * prompt * (1 + demos) / 2)
    answering = [predictor.lm or lms["task"] for predictor in program.predictors()]
    completion = (tried + measured) * _COMPLETION
    proposed = work.proposals * _PROPOSAL / 2
    running = _cost(answering, tokens - completion, completion)
    proposer = lms.get("reflection") or lms.get("prompt") or lms["task"]
    proposing = _cost([proposer], proposed, proposed)
    one = _cost(answering, asked * (prompt - _COMPLETION), asked * _COMPLETION)
    question = Spent(asked, asked * prompt, one)
    return Estimate(
        questions=work.questions + validation + 2 * held_out,
        calls=tried + measured + work.proposals,
        tokens=tokens + work.proposals * _PROPOSAL,
        money=None if running is None or proposing is None else running + proposing,
        measuring=question.times(held_out + MARGIN * (held_out + validation)),
        least=question.times(needed(held_out, validation, recipe)),
    )


def needed(held_out: int, validation: int, recipe: Recipe) -> float:
    """Return how many answers must be paid for to try and measure a first candidate.

    The program as given is scored on both sets; then the recipe asks its minimum of questions and
    scores a candidate. The cost of scoring one more program on both sets is reserved.
    """
    return (1 + MARGIN) * (held_out + validation) + recipe.least() + MARGIN * validation


def _prompt_tokens(program: MultiHopProgram, samples: Sequence[dspy.Example]) -> int:
    """Return the tokens of a typical call without demos."""
    asked, predictors = samples[:_SAMPLES], program.predictors()
    passages = sum(
        estimate_tokens(passage.content)
        for example in asked
        for passage in program.retriever(example.question, program.k)
    )
    instructions = sum(estimate_tokens(p.signature.instructions) for p in predictors)
    return passages // max(1, len(asked)) + instructions // len(predictors) + _FRAME


def _cost(lms: Sequence[dspy.BaseLM], prompt: float, completion: float) -> float | None:
    """Return the mean cost of these tokens over LMs; None if an LM has no known price."""
    prices = [price_of(lm) for lm in lms]
    costs = [price[0] * prompt + price[1] * completion for price in prices if price is not None]
    return fmean(costs) if len(costs) == len(prices) else None


def price_of(lm: Any) -> tuple[float, float] | None:
    """Return US dollars per prompt and completion token, from DSPy's list; None if unknown.

    A model with a custom address or engine has no known price; the embedded LM costs nothing.
    """
    if lm.model == EMBEDDED:
        return 0.0, 0.0
    if not isinstance(getattr(lm, "engine", None), str) or lm.kwargs.get("api_base"):
        return None
    provider, _, model = lm.model.partition("/")
    info = model_info(provider, model)
    prompt, completion = rate(info, "input_cost_per_token"), rate(info, "output_cost_per_token")
    return None if prompt is None or completion is None else (prompt, completion)


def check_prices(lms: Iterable[dspy.BaseLM], caps: Caps) -> None:
    """Check that a cap of money can be enforced.

    Raises:
        InputError: There is a cap of money, and an LM has no known price.
    """
    if caps.money is None:
        return
    for lm in lms:
        if price_of(lm) is None:
            found = f"{lm.model} has no known price, so a cap of money could not be enforced"
            raise InputError(found, remedy="cap calls or tokens (--max-calls, --max-tokens)")
