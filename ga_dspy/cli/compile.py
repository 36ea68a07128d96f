"""`ga-dspy compile`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table

from ga_dspy.artifact import load as load_artifact
from ga_dspy.cli.models import EMBEDDED, Choice, choose_corpus, choose_lm, choose_program
from ga_dspy.cli.show import EXTRACTIVE_NOTE
from ga_dspy.errors import InputError
from ga_dspy.eval import load
from ga_dspy.optimize import (
    AnswerMetric,
    Candidate,
    Caps,
    Estimate,
    Outcome,
    Tracker,
    compile,
    recipe,
)
from ga_dspy.programs import MultiHopProgram

TRACED = 3


@dataclass(frozen=True)
class CompileArgs:
    """The arguments of one compilation, as on the command line.

    Attributes:
        dataset: Layout of the question files.
        train: Questions to learn from.
        validation: A file, or a whole number: so many questions from the end of the train file.
        index: Folder of the index.
        out: Folder of the artifact.
        test: Questions to measure on.
        recipe: Name of the recipe; None for gepa with a reflection LM, else bootstrap-rs.
        settings: Settings of the recipe, `name=value` each; values are JSON, or text.
        chosen: The program, and the task LM with its address.
        reflection_lm: Model name.
        prompt_lm: Model name.
        max_calls: Cap of LM calls.
        max_tokens: Cap of tokens.
        max_money: Cap of US dollars.
        recall: Weight of support recall in the score.
        cost: Weight of 1,000 tokens in the score.
        threads: Questions asked at once.
        seed: Of what is drawn.
        tracking_uri: MLflow store; by default mlflow.db beside the artifact.
        track: Whether MLflow is told at all.
        yes: Do not ask whether the estimate is agreed to.
    """

    dataset: str
    train: Path
    validation: str
    index: Path
    out: Path
    test: Path | None = None
    recipe: str | None = None
    settings: Sequence[str] = ()
    chosen: Choice = field(default_factory=Choice)
    reflection_lm: str | None = None
    prompt_lm: str | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_money: float | None = None
    recall: float = 0.0
    cost: float = 0.0
    threads: int = 2
    seed: int = 0
    tracking_uri: str | None = None
    track: bool = True
    yes: bool = False

    @property
    def caps(self) -> Caps:
        """What may be spent."""
        return Caps(self.max_calls, self.max_tokens, self.max_money)


class Questions(NamedTuple):
    """The question sets, and what each is called."""

    train: list[dspy.Example]
    validation: list[dspy.Example]
    test: list[dspy.Example] | None
    names: dict[str, str]


def run_compile(args: CompileArgs) -> None:
    """Compile, with a line for each program tried; say what it bought and where it is."""
    # A console of its own stream: while optimizers print to a log, these lines are still seen.
    console = Console()
    questions, lms = read_questions(args), _lms(args)
    with dspy.context(lm=lms["task"]):
        index = choose_corpus(args.index, args.chosen)
    program = choose_program(args.chosen, index)
    chosen = recipe(args.recipe, reflection="reflection" in lms, **recipe_settings(args.settings))
    lines = _Lines(console)
    tracker = _tracker(args, console)
    outcome = compile(
        program,
        chosen,
        questions.train,
        questions.validation,
        test=questions.test,
        out=args.out,
        lm=lms["task"],
        reflection_lm=lms.get("reflection"),
        prompt_lm=lms.get("prompt"),
        caps=args.caps,
        metric=AnswerMetric.of(program, recall=args.recall, cost=args.cost),
        threads=args.threads,
        seed=args.seed,
        names=questions.names,
        tracker=tracker,
        progress=lines.show,
        confirm=lambda cost: lines.agreed(cost, args, lms),
    )
    _tell(console, outcome, tracker, embedded=lms["task"].model == EMBEDDED)
    run_id = getattr(tracker, "run_id", None)
    if run_id:
        shown = (questions.test or questions.validation)[:TRACED]
        with dspy.context(lm=lms["task"]):
            _trace(load_artifact(outcome.artifact, retriever=index), shown, tracker, console)


def read_questions(args: CompileArgs) -> Questions:
    """Read the question files; the names say which rows were taken.

    Raises:
        InputError: `validation` is neither a file nor a number that leaves train questions.
    """
    train = load(args.dataset, args.train)
    test = load(args.dataset, args.test) if args.test else None
    names = {"test": args.test.name} if args.test else {}
    if not args.validation.isdigit():
        validation = load(args.dataset, Path(args.validation))
        named = {"train": args.train.name, "validation": Path(args.validation).name}
        return Questions(train, validation, test, names | named)
    kept = len(train) - int(args.validation)
    if not 0 < kept < len(train):
        raise InputError(
            f"--validation {args.validation} of {len(train)} train questions",
            expected=f"a file, or a number from 1 to {len(train) - 1}",
            remedy="pass --validation FILE, or hold out fewer",
        )
    file = args.train.name
    named = {"train": f"{file}[:{kept}]", "validation": f"{file}[{kept}:]"}
    return Questions(train[:kept], train[kept:], test, names | named)


def recipe_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read settings of the form `name=value`.

    Raises:
        InputError: There is no "=" in one.

    >>> recipe_settings(["demos=3", "strategy=demos -> demos"])
    {'demos': 3, 'strategy': 'demos -> demos'}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"--set {pair}", expected="name=value", remedy="such as --set demos=3")
        try:
            settings[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            settings[name.strip()] = value.strip()
    return settings


def _trace(
    program: MultiHopProgram, questions: Sequence[dspy.Example], tracker: Any, console: Console
) -> None:
    """Ask the compiled program a few questions with tracing on; the calls come on top."""
    from ga_dspy.optimize.tracking import TrackingFailed, traced_sample

    asked = [example.question for example in questions]
    try:
        traced_sample(program, asked, uri=tracker.uri, run_id=tracker.run_id)
    except TrackingFailed as failure:
        console.print(f"no traces: {failure}", style="yellow", markup=False)


def _lms(args: CompileArgs) -> dict[str, dspy.LM]:
    one = args.chosen
    lms = {"task": choose_lm(one).lm}
    for role, name in (("reflection", args.reflection_lm), ("prompt", args.prompt_lm)):
        if name:
            lms[role] = choose_lm(Choice(lm=name, api_base=one.api_base, timeout=one.timeout)).lm
    return lms


def _tracker(args: CompileArgs, console: Console) -> Tracker | None:
    if not args.track:
        return None
    if find_spec("mlflow") is None and args.tracking_uri is None:
        console.print("not tracked: mlflow is not installed (pip install 'ga-dspy[optimize]')")
        return None
    from ga_dspy.optimize.tracking import MLflowTracker

    def say(message: str) -> None:
        console.print(message, style="yellow", markup=False)

    root = args.out.absolute().parent
    return MLflowTracker(args.tracking_uri, root=root, index=args.index, say=say)


class _Lines:
    """The lines of a compilation: the estimate and the question, then one for each candidate."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._expected = 0

    def agreed(self, cost: Estimate, args: CompileArgs, lms: Mapping[str, dspy.BaseLM]) -> bool:
        """Show the estimate, and ask where there is somebody to ask and something to pay.

        Raises:
            InputError: Nobody can be asked, and neither a cap nor `--yes` was given.
        """
        self._expected = cost.calls
        self._console.print(f"this takes {cost}", markup=False)
        if args.yes or all(lm.model == EMBEDDED for lm in lms.values()):
            return True
        if self._console.is_terminal and os.isatty(0):
            return Confirm.ask("go on?", console=self._console)
        if any(cap is not None for cap in args.caps):
            return True
        raise InputError(
            "there is no terminal to ask whether to go on",
            expected="--yes, or a cap",
            remedy="add --yes, or --max-calls, --max-tokens or --max-money",
        )

    def show(self, c: Candidate) -> None:
        """One line: score, best so far, calls, tokens, time, at most how long it goes on."""
        left = c.seconds * (self._expected / c.calls - 1) if c.calls else 0.0
        self._console.print(
            f"{c.number:>3}  {c.score:5.1f}  best {c.best:5.1f}  {c.calls:>7,} calls  "
            f"{c.tokens:>11,} tokens  {_clock(c.seconds)}  left ≤ {_clock(max(0.0, left))}  "
            f"{c.description}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _tell(console: Console, outcome: Outcome, tracker: Tracker | None, *, embedded: bool) -> None:
    console.print(outcome_table(outcome))
    if outcome.stopped:
        console.print(f"stopped early: {outcome.stopped}", style="yellow", markup=False)
    for dropped in outcome.dropped_demos:
        console.print(f"demo taken off: {dropped}", style="dim", markup=False)
    seen = "" if outcome.held_out == "test" else ", which the recipe has seen"
    console.print(
        f"{outcome.verdict} on {outcome.held_out}{seen} (p = {outcome.p_value:.3g}); "
        f"{outcome.calls:,} LM calls ({outcome.replayed:,} of them from an earlier run), "
        f"{outcome.tokens:,} tokens, {_clock(outcome.seconds)}",
        style="bold",
        markup=False,
    )
    console.print(f"artifact: {outcome.artifact}", markup=False)
    how = getattr(tracker, "how_to_open", "")
    if how:
        console.print(f"MLflow: {how}", markup=False, soft_wrap=True)
    if embedded:
        console.print(EXTRACTIVE_NOTE, style="dim")


def outcome_table(outcome: Outcome) -> Table:
    """Before and after, scores in percent."""
    table = Table(
        title=f"{outcome.recipe}: {outcome.held_out}, {len(outcome.after.results)} questions",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("")
    for heading in ("F1", "95 %", "EM"):
        table.add_column(heading, justify="right")
    summary = outcome.summary()
    for when in ("before", "after"):
        low, high = summary[f"ci95_{when}"]
        table.add_row(
            when, f"{summary[f'f1_{when}']:.1f}", f"{low:.1f} – {high:.1f}",
            f"{summary[f'em_{when}']:.1f}",
        )  # fmt: skip
    return table


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
