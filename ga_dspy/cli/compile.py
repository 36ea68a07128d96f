"""`ga-dspy compile`, `data`, `artifact`: compile programs; make question sets; read artifacts."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import dspy
from rich.padding import Padding
from rich.text import Text
from typer import Argument, Exit, Option

from ga_dspy import artifact as artifacts
from ga_dspy.cli import choices, runs
from ga_dspy.cli.choices import BatchOptions, LMs
from ga_dspy.cli.console import Advance, Console, number, show_progress
from ga_dspy.errors import InputError, check_installed, install
from ga_dspy.eval import load
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.lm.store import NOTHING, Spent
from ga_dspy.optimize import RECIPES, Candidate, Caps, Estimate, Outcome, compile, recipe
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.settings import read_pairs
from ga_dspy.storage import write_atomically

# --- compile

_VALIDATION = "Validation questions: a file, or how many to take from the end of --train."
_RECIPE = f"{', '.join(RECIPES)}; by default gepa with --reflection-lm, else bootstrap-rs."
_SETTINGS = "Setting of the recipe or the program, such as demos=4 or k=10. Repeatable."
_REFLECTION = "LM that rewrites instructions from feedback (gepa)."
_PROMPT = "LM that proposes instructions; --lm by default."
_TEACHER = "LM whose traces become demos; recorded:FILE replays recorded ones."
_TRACK = "MLflow tracking URI; by default MLFLOW_TRACKING_URI, else mlflow.db beside the artifact."
_PACK = "Store a copy of the index with the MLflow model."
_KEEP = "Save the compiled program even if it scores no better."


def compile_program(
    models: Annotated[LMs, BatchOptions],
    dataset: choices.Dataset,
    train: Annotated[Path, Option(help="File of training questions.")],
    validation: Annotated[str, Option(help=_VALIDATION)],
    index: choices.IndexDir,
    out: Annotated[Path, Option(help="Output folder for the artifact.")],
    test: Annotated[Path | None, Option(help="File of held-out questions to measure on.")] = None,
    recipe_name: Annotated[str | None, Option("--recipe", help=_RECIPE)] = None,
    settings: Annotated[list[str] | None, Option("--set", help=_SETTINGS)] = None,
    program: choices.Program = "graph-anchor",
    graph: choices.Graph = None,
    where: choices.WhereFilters = None,
    reflection_lm: Annotated[str | None, Option(help=_REFLECTION)] = None,
    prompt_lm: Annotated[str | None, Option(help=_PROMPT)] = None,
    teacher_lm: Annotated[str | None, Option(help=_TEACHER)] = None,
    max_calls: Annotated[int | None, Option(help="Maximum number of LM calls.")] = None,
    max_tokens: Annotated[int | None, Option(help="Maximum number of tokens.")] = None,
    max_money: Annotated[float | None, Option(help="Maximum cost in US dollars.")] = None,
    threads: choices.Threads = 2,
    seed: Annotated[int, Option(help="Random seed.")] = 0,
    track: Annotated[str | None, Option(help=_TRACK)] = None,
    no_track: Annotated[bool, Option("--no-track", help="Do not log to MLflow.")] = False,
    pack_index: Annotated[bool, Option("--pack-index", help=_PACK)] = False,
    keep: Annotated[bool, Option("--keep", help=_KEEP)] = False,
    yes: choices.Yes = False,
) -> None:
    r"""Tune prompts and demos for F1, and save the program as an artifact.

    Examples:
        ga-dspy compile --dataset qa --train train.csv --validation 50 --index my-index \
            --out artifacts/mine --max-calls 2000
    """
    console = Console(file=sys.stdout)  # `compile` redirects stdout, which would hide these lines
    questions = read_questions(dataset, train, validation, test)
    others = zip(choices.COMPILE_ROLES, (reflection_lm, prompt_lm, teacher_lm), strict=True)
    reflection, prompt, teacher = (models.named(n, role) if n else None for role, n in others)
    with dspy.context(lm=models.lm):
        corpus = choices.choose_corpus(index, graph, program, wanted=where)
    kind = choices.program_class(program)
    own = [pair for pair in settings or () if pair.partition("=")[0].strip() in kind.declared()]
    rest = [pair for pair in settings or () if pair not in own]
    chosen = recipe(recipe_name, reflection=reflection is not None, **read_pairs(rest))
    of_program = choices.choose_settings(own, kind)
    uncompiled = choices.choose_program(program, None, corpus, models, **of_program)
    caps, lms = Caps(max_calls, max_tokens, max_money), (*models.all, reflection, prompt, teacher)
    is_free = all(lm is None or lm.model == EMBEDDED for lm in lms)
    if track:
        check_installed("mlflow", "optimize")
    with show_progress(console) as advance:
        lines = Lines(console, agreed=yes or is_free, caps=caps, bar=advance)
        outcome = compile(
            uncompiled, chosen, questions.train, questions.validation, test=questions.test, out=out,
            lm=models.lm, reflection_lm=reflection, prompt_lm=prompt, teacher_lm=teacher,
            caps=caps, threads=threads, seed=seed, names=questions.names,
            progress=lines.show, spending=lines.count, confirm=lines.confirm, keep=keep,
        )  # fmt: skip
    _summarise(console, outcome)
    console.note_embedded_lm(*models.all)
    if not no_track:
        packed = {"index": index, "graph": graph} if pack_index else {}
        with dspy.context(lm=models.lm):
            compiled = artifacts.load(outcome.artifact, retriever=corpus, lms=models.steps)
        measured = questions.test or questions.validation
        _track(console, outcome, compiled, measured, models.lm, uri=track, **packed)


class Questions(NamedTuple):
    """The question sets of a compilation, and a name for each."""

    train: list[dspy.Example]
    validation: list[dspy.Example]
    test: list[dspy.Example] | None
    names: dict[str, str]


def read_questions(dataset: str, train: Path, validation: str, test: Path | None) -> Questions:
    """Read the question files; a name tells which rows of a file a set has.

    Raises:
        InputError: `validation` is neither a file nor a number that leaves train questions.
    """
    examples, held_out = load(dataset, train), load(dataset, test) if test else None
    names = {"train": train.name, "validation": Path(validation).name}
    names |= {"test": test.name} if test else {}
    if not validation.isdigit():
        return Questions(examples, load(dataset, Path(validation)), held_out, names)
    cut = len(examples) - int(validation)
    if not 0 < cut < len(examples):
        found = f"--validation {validation} of {len(examples)} train questions"
        raise InputError(found, expected=f"a file, or a number from 1 to {len(examples) - 1}")
    names |= {"train": f"{train.name}[:{cut}]", "validation": f"{train.name}[{cut}:]"}
    return Questions(examples[:cut], examples[cut:], held_out, names)


@dataclass
class Lines:
    """Prints a compilation: the estimate and its confirmation, then a line per candidate.

    Attributes:
        console: Where to print.
        agreed: Whether the cost is confirmed already.
        caps: The caps; without a terminal, a cap counts as confirmation.
        bar: A progress bar for the calls.
        expected: The estimated number of calls; set when the cost is confirmed.
    """

    console: Console
    agreed: bool = False
    caps: Caps = field(default_factory=Caps)
    bar: Advance | None = None
    expected: int = 0

    def count(self, spent: Spent = NOTHING) -> None:
        """Show how many calls were made, including those of an earlier run."""
        if self.bar:
            about = f"{spent.calls:,} LM calls of about {self.expected:,}"
            self.bar("compiling", spent.calls, max(spent.calls, self.expected), about)

    def confirm(self, cost: Estimate) -> bool:
        """Print the estimate, and ask for confirmation if there is a terminal and a cost.

        Raises:
            InputError: There is no terminal, and neither a cap nor `--yes` was given.
        """
        self.console.print(f"estimate: {cost}")
        for name, cap in self.caps._asdict().items():
            if cap is not None:
                reserved = getattr(cost.measuring, name)
                left = f"{cap - reserved:,} left for candidates"
                self.console.print(f"{name}: about {reserved:,} of {cap:,} for measuring, {left}")
        remedy = "add --yes, or a cap: --max-calls, --max-tokens or --max-money"
        if not (self.agreed or self.console.confirm("continue?", self.caps, remedy=remedy)):
            return False
        self.expected = cost.calls
        self.count()  # starts the bar before `compile` redirects stdout
        return True

    def show(self, c: Candidate) -> None:
        """Print a candidate: score, best so far, calls, tokens, elapsed and remaining time."""
        left = c.seconds * (self.expected / c.calls - 1) if c.calls else 0.0
        self.console.print(
            f"{c.number:>3}  {c.score:5.1f}  best {c.best:5.1f}  {c.calls:>7,} calls  "
            f"{c.tokens:>11,} tokens  {_clock(c.seconds)}  left ≤ {_clock(max(0.0, left))}  "
            f"{c.description}",
            soft_wrap=True,
        )


def _track(
    console: Console, outcome: Outcome, program: MultiHopProgram, examples: list[dspy.Example],
    lm: dspy.BaseLM, **at: Any,
) -> None:  # fmt: skip
    """Log a compilation to MLflow, with traces of the questions with the worst scores."""
    if find_spec("mlflow") is None:
        console.print(f"not logged to MLflow, which is not installed; run: {install('optimize')}")
        return
    from ga_dspy.optimize.tracking import track_compilation

    log = partial(track_compilation, outcome, root=outcome.artifact.absolute().parent, **at)
    if tracked := runs.track(console, log, program, outcome.after, examples, lm):
        console.print(f"MLflow: {tracked.place}; {tracked.how_to_open}", soft_wrap=True)


def _summarise(console: Console, outcome: Outcome) -> None:
    table = runs.summary_table({"before": outcome.before, "after": outcome.after})
    table.title = f"{outcome.recipe}: {outcome.basis}"
    console.print(table)
    if outcome.stopped:
        console.warn(f"stopped early: {outcome.stopped}")
    for dropped in outcome.dropped_demos:
        console.print(f"demo removed: {dropped}", style="dim")
    if (rejected := outcome.rejected) is not None:
        before = outcome.before.summary()
        console.warn(
            f"compiling gained nothing: F1 {rejected['f1']:.1f} at {rejected['tokens']:,.0f} "
            f"tokens per question, before {before['f1']:.1f} at {before['tokens_mean']:,.0f}; "
            "saved the unchanged program (--keep saves the compiled one)",
        )
    spent = outcome.spent
    seen = "" if outcome.held_out == "test" else ", which the recipe has seen"
    console.print(
        f"{outcome.verdict} on {outcome.basis}{seen} (p = {outcome.p_value:.3g}); "
        f"{spent.calls:,} LM calls ({spent.replayed:,} of them from an earlier run), "
        f"{spent.tokens:,} tokens, {_clock(outcome.seconds)}",
        style="bold",
    )
    console.print(f"artifact: {outcome.artifact}")
    if outcome.figure.is_file():
        console.print(f"candidates, F1 against tokens: {outcome.figure}", soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


# --- data


def from_traces(
    track: Annotated[str, Option(help="MLflow tracking URI of the traces.")],
    out: Annotated[Path, Option(help="Question file to write (.jsonl).")],
    experiment: Annotated[str, Option(help="MLflow experiment of the traces.")] = "ga-dspy",
    only: Annotated[Literal["right", "wrong", "all"], Option(help="Feedback to include.")] = "all",
) -> None:
    """Make a question set from live traces with feedback, for compile, eval and arena.

    A question's answer is the expected answer in the feedback, else the answer marked right.

    Examples:
        ga-dspy data from-traces --track sqlite:///mlflow.db --out questions.jsonl
    """
    from ga_dspy.tracing import rated_questions

    rated = rated_questions(track, experiment, only)
    skipped = ", ".join(f"{count:,} {why}" for why, count in rated.skipped.items()) or "none"
    if not rated.rows:
        remedy = "POST /runs/{id}/feedback, or assess traces in MLflow as `right`"
        raise InputError(f"no usable question in {experiment} (skipped: {skipped})", remedy=remedy)
    write_atomically(out, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rated.rows))
    Console().print(f"{out}: {number(len(rated.rows), 'question')}; traces skipped: {skipped}")


# --- artifact

ArtifactDir = Annotated[Path, Argument(help="Folder of an artifact.")]


def show(path: ArtifactDir) -> None:
    """Show an artifact: program, provenance, scores, prompts.

    Examples:
        ga-dspy artifact show artifacts/mine
    """
    console = Console()
    for line in artifacts.outline(artifacts.show(path)):
        text = line.lstrip()
        console.print(Padding(Text(text), (0, 0, 0, len(line) - len(text)), expand=False))


def diff(one: ArtifactDir, other: ArtifactDir) -> None:
    """Compare two artifacts: instructions, demos, settings and scores.

    Examples:
        ga-dspy artifact diff artifacts/mine artifacts/other
    """
    console = Console()
    for line in artifacts.diff(one, other).splitlines() or ["no difference"]:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line, style=style))


def verify(path: ArtifactDir) -> None:
    """Check that an artifact is intact; exit code 1 if it is not.

    Examples:
        ga-dspy artifact verify artifacts/mine
    """
    console = Console()
    if problem := artifacts.verify(path):
        console.print(problem, style="red")
        raise Exit(1)
    console.print(f"{path} is intact")
