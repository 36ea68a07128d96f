"""`ga-dspy compile`, `data`, `artifact`: compile programs; make question sets; show artifacts."""

from __future__ import annotations

import json
import sys
from dataclasses import KW_ONLY, dataclass, field
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
from ga_dspy.errors import InputError, install, need_package
from ga_dspy.eval import load
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.lm.store import NOTHING, Spent
from ga_dspy.optimize import RECIPES, Candidate, Caps, Estimate, Outcome, compile, recipe
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.settings import read_pairs
from ga_dspy.storage import write_whole

# --- compile

_VALIDATION = "A file, or how many questions to take from the end of --train."
_RECIPE = f"{', '.join(RECIPES)}; by default gepa with --reflection-lm, else bootstrap-rs."
_SETTINGS = "A setting of the recipe or the program: demos=4, k=10."
_REFLECTION = "LM that rewrites instructions from feedback (gepa)."
_PROMPT = "LM that proposes instructions; --lm by default."
_TEACHER = "LM whose traces become demos; recorded:FILE replays recorded ones."
_TRACK = "MLflow store; by default MLFLOW_TRACKING_URI, else mlflow.db beside the artifact."
_PACK = "Store a copy of the index with the MLflow model."
_KEEP = "Write the compiled program even if it is no better."


def compile_program(
    models: Annotated[LMs, BatchOptions],
    dataset: choices.Dataset,
    train: Annotated[Path, Option(help="Questions to learn from.")],
    validation: Annotated[str, Option(help=_VALIDATION)],
    index: choices.IndexDir,
    out: Annotated[Path, Option(help="Output folder for the artifact.")],
    test: Annotated[Path | None, Option(help="Held-out questions to measure on.")] = None,
    recipe_name: Annotated[str | None, Option("--recipe", help=_RECIPE)] = None,
    settings: Annotated[list[str] | None, Option("--set", help=_SETTINGS)] = None,
    program: choices.Program = "graph-anchor",
    graph: choices.Graph = None,
    where: choices.Wanted = None,
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
    # Its own stream: optimizers' output goes to a log, and these lines must still be visible.
    console = Console(file=sys.stdout)
    questions = read_questions(dataset, train, validation, test)
    others = zip(choices.COMPILING, (reflection_lm, prompt_lm, teacher_lm), strict=True)
    reflection, prompt, teacher = (models.named(n, role) if n else None for role, n in others)
    with dspy.context(lm=models.lm):
        corpus = choices.choose_corpus(index, graph, program, wanted=where)
    kind = choices.program_class(program)
    own = [pair for pair in settings or () if pair.partition("=")[0].strip() in kind.declared()]
    rest = [pair for pair in settings or () if pair not in own]
    chosen = recipe(recipe_name, reflection=reflection is not None, **read_pairs(rest))
    of_program = choices.choose_settings(own, kind)
    given = choices.choose_program(program, None, corpus, models, **of_program)
    caps, asked = Caps(max_calls, max_tokens, max_money), (*models.all, reflection, prompt, teacher)
    is_agreed = yes or all(lm is None or lm.model == EMBEDDED for lm in asked)
    if track:
        need_package("mlflow", "optimize")
    with show_progress(console) as advance:
        lines = Lines(console, agreed=is_agreed, caps=caps, bar=advance)
        outcome = compile(
            given, chosen, questions.train, questions.validation, test=questions.test, out=out,
            lm=models.lm, reflection_lm=reflection, prompt_lm=prompt, teacher_lm=teacher,
            caps=caps, threads=threads, seed=seed, names=questions.names,
            progress=lines.show, spending=lines.count, confirm=lines.confirm, keep=keep,
        )  # fmt: skip
    _summarise(console, outcome)
    console.note_embedded_lm(*models.all)
    if not no_track:
        packed = {"index": index, "graph": graph} if pack_index else {}
        with dspy.context(lm=models.lm):
            made = artifacts.load(outcome.artifact, retriever=corpus, lms=models.steps)
        measured = questions.test or questions.validation
        _track(console, outcome, made, measured, models.lm, uri=track, **packed)


class Questions(NamedTuple):
    """The question sets, and a name for each."""

    train: list[dspy.Example]
    validation: list[dspy.Example]
    test: list[dspy.Example] | None
    names: dict[str, str]


def read_questions(dataset: str, train: Path, validation: str, test: Path | None) -> Questions:
    """Read the question files; the names of the sets include the rows.

    Raises:
        InputError: `validation` is neither a file nor a number that leaves train questions.
    """
    learned, tested = load(dataset, train), load(dataset, test) if test else None
    names = {"train": train.name, "validation": Path(validation).name}
    names |= {"test": test.name} if test else {}
    if not validation.isdigit():
        return Questions(learned, load(dataset, Path(validation)), tested, names)
    kept = len(learned) - int(validation)
    if not 0 < kept < len(learned):
        wrong = f"--validation {validation} of {len(learned)} train questions"
        raise InputError(wrong, expected=f"a file, or a number from 1 to {len(learned) - 1}")
    names |= {"train": f"{train.name}[:{kept}]", "validation": f"{train.name}[{kept}:]"}
    return Questions(learned[:kept], learned[kept:], tested, names)


@dataclass
class Lines:
    """The lines of a compilation: the estimate and its confirmation, then one per candidate.

    Attributes:
        console: Where to print.
        agreed: Whether the cost is confirmed already.
        caps: The caps; without a terminal, a cap stands for a confirmation.
        bar: Shows how many calls were made between two candidates.
        expected: How many calls are expected; known once the cost is confirmed.
    """

    console: Console
    _: KW_ONLY
    agreed: bool = False
    caps: Caps = field(default_factory=Caps)
    bar: Advance | None = None
    expected: int = 0

    def count(self, spent: Spent = NOTHING) -> None:
        """Show the calls so far, including those of an earlier run."""
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
        self.count()  # starts the bar before `compile` redirects what is printed
        return True

    def show(self, c: Candidate) -> None:
        """Print one line: score, best so far, calls, tokens, time, and the most time left."""
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
    """Log a compilation to MLflow, with traces of the program's worst questions."""
    if find_spec("mlflow") is None:
        console.print(f"not tracked: mlflow is not installed; run: {install('optimize')}")
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
    if (lost := outcome.rejected) is not None:
        before = outcome.before.summary()
        console.warn(
            f"the compiled program gained nothing: F1 {lost['f1']:.1f} at {lost['tokens']:,.0f} "
            f"tokens per question, before {before['f1']:.1f} at {before['tokens_mean']:,.0f}; the "
            "program as given was written (--keep writes the compiled one)",
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
    track: Annotated[str, Option(help="MLflow store with live traces.")],
    out: Annotated[Path, Option(help="Question file to write, a .jsonl.")],
    experiment: Annotated[str, Option(help="MLflow experiment of the traces.")] = "ga-dspy",
    only: Annotated[Literal["right", "wrong", "all"], Option(help="Kind of answers.")] = "all",
) -> None:
    """Make a question set of live traces with feedback, for compile, eval and arena.

    The answer is the expected one if the feedback names it, else the answer marked right.

    Examples:
        ga-dspy data from-traces --track sqlite:///mlflow.db --out questions.jsonl
    """
    from ga_dspy.tracing import rated_questions

    found = rated_questions(track, experiment, only)
    told = ", ".join(f"{number:,} {why}" for why, number in found.skipped.items()) or "none"
    if not found.rows:
        remedy = "POST /runs/{id}/feedback, or assess traces in MLflow as `right`"
        raise InputError(f"no usable question in {experiment} (skipped: {told})", remedy=remedy)
    rows = (json.dumps(row, ensure_ascii=False) for row in found.rows)
    write_whole(out, "".join(f"{row}\n" for row in rows))
    asked = number(len(found.rows), "question")
    Console().print(f"{out}: {asked}; traces skipped: {told}")


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
