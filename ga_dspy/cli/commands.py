"""The command line: every command by its name, the smaller ones, and how an error ends them."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast

import dspy
import typer
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

import extractive_lm
from extractive_lm import Doc
from extractive_lm.fit import Row, fit, save
from ga_dspy.artifact import Manifest, PredictorState, diff, show, verify
from ga_dspy.cli import bench, look, runs
from ga_dspy.cli import graph as graphs
from ga_dspy.cli import index as indexes
from ga_dspy.cli.choices import (
    ApiBase,
    Artifact,
    Graph,
    IndexDir,
    Model,
    Program,
    Timeout,
    Wanted,
    choose_corpus,
    choose_lm,
    choose_program,
    choose_where,
    with_patience,
)
from ga_dspy.cli.compile import compile_program
from ga_dspy.cli.console import Console, building, facts, say_embedded, show_prediction
from ga_dspy.demo import DEMO_QUESTION, corpus, questions
from ga_dspy.errors import GaDspyError, InputError, RunAborted
from ga_dspy.eval import load
from ga_dspy.eval.renaming import rename_file
from ga_dspy.graphrag import Access, called_by
from ga_dspy.passage import sound
from ga_dspy.programs.program import as_json
from ga_dspy.retrieval import Index, only_where
from ga_dspy.secrets import CleanStream, withheld
from ga_dspy.storage import leave, refused_by_disk
from ga_dspy.text import visible

ArtifactDir = Annotated[Path, typer.Argument(help="Folder of an artifact.")]


def demo(
    keep: Annotated[
        Path, typer.Option(help="Folder for the index and the runs of the demo.")
    ] = Path(".demo"),
) -> None:
    """Index the shipped corpus, ask a question step by step, compare two programs."""
    console = Console()
    begun = time.perf_counter()
    console.print(Rule("1. Index the shipped corpus", align="left"))
    with building(console) as progress:
        index = Index.build(corpus(), keep / "index", progress=progress)
    console.print(f"{keep / 'index'}: {index.description}\n", markup=False)

    console.print(Rule("2. Ask a question that needs several documents", align="left"))
    lm = choose_lm(None, None, 0)
    with dspy.context(lm=lm):
        prediction = choose_program("graph-anchor", None, index)(question=DEMO_QUESTION)
    show_prediction(console, DEMO_QUESTION, prediction)

    console.print()
    console.print(Rule("3. Compare two programs on the shipped dev questions", align="left"))
    shutil.rmtree(keep / "runs", ignore_errors=True)
    reports = {
        name: runs.run_program(
            console, choose_program(name, None, index), name, "hotpotqa", questions("dev"),
            keep / "runs" / name, lm,
        )
        for name in ("vanilla-rag", "graph-anchor")
    }  # fmt: skip
    say_embedded(console, lm)
    console.print(runs.summary_table(reports))
    console.print()
    _compile(console, keep)
    console.print(f"\nDone in {time.perf_counter() - begun:.0f} s. Ask your own question:")
    asking = f'  {_own_command()} ask "…" --index {keep / "index"}'
    console.print(asking, style="bold", markup=False)


def _own_command() -> str:
    """How this program was called, short where it lies below the working directory."""
    path = Path(sys.argv[0]).absolute()
    below = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if below else path.name


def _compile(console: Console, keep: Path) -> None:
    """Tune demos on the shipped train questions."""
    console.print(Rule("4. Compile: tune demos on the shipped train questions", align="left"))
    shutil.rmtree(keep / "artifacts", ignore_errors=True)
    compile_program(
        "hotpotqa", questions("train"), "10", keep / "index", keep / "artifacts" / "demo",
        test=questions("dev"), settings=["candidates=3"], yes=True,
        track=find_spec("mlflow") is not None,
    )  # fmt: skip


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    index: IndexDir,
    program: Program = "graph-anchor",
    artifact: Artifact = None,
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    graph: Graph = None,
    label: Annotated[
        list[str] | None, typer.Option(help="An access label of yours; repeatable.")
    ] = None,
    where: Wanted = None,
    json_only: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Answer one question and show how the answer was found."""
    question, model = sound(question), choose_lm(lm, api_base, timeout)
    seen, allowed = (
        called_by(Access(labels=frozenset(label or ()))),
        only_where(choose_where(where)),
    )
    with dspy.context(lm=model), seen, allowed:
        corpus = choose_corpus(index, graph, program, artifact)
        prediction = choose_program(program, artifact, corpus)(question=question)
    if json_only:
        record = {"question": question, "lm": model.model, **as_json(prediction)}
        print(json.dumps(record, ensure_ascii=False, indent=2))  # noqa: T201 - the output itself
        return
    console = Console()
    show_prediction(console, question, prediction)
    say_embedded(console, model)


def show_artifact(path: ArtifactDir) -> None:
    """What an artifact is: program, provenance, scores, prompts."""
    info = show(path)
    console = Console()
    console.print(Panel(_about(info.manifest), title=Text(str(path)), title_align="left"))
    for name, state in info.predictors.items():
        console.print(_prompt(name, state))


def _about(manifest: Manifest) -> Table:
    rows = [
        ("program", manifest.program),
        ("settings", ", ".join(f"{name}={value}" for name, value in manifest.settings.items())),
        ("recipe", manifest.recipe.name if manifest.recipe else ""),
        *((f"{role} LM", name) for role, name in manifest.lms.items()),
    ]
    if scores := manifest.scores:
        rows += [
            (metric, f"{scores.before.get(metric, '?')} → {after}")
            for metric, after in scores.after.items()
        ]
        rows.append(("compared", f"{scores.verdict}, p = {scores.p_value:.3f}, n = {scores.n}"))
    if cost := manifest.cost:
        rows.append(("cost", f"{cost.calls:,} LM calls, {cost.tokens:,} tokens"))
    versions = manifest.versions.model_dump().items()
    rows += [
        ("written by", ", ".join(f"{name} {version}" for name, version in versions)),
        ("created", manifest.created.isoformat()),
        ("sha256", manifest.sha256),
    ]
    return facts(rows)


def _prompt(name: str, state: PredictorState) -> RenderableType:
    table = Table(title=f"demos of {name}", box=box.SIMPLE_HEAD, title_justify="left")
    for field in ("question", "answer"):
        table.add_column(field, overflow="fold")
    for demo in state.demos:
        table.add_row(*(Text(str(demo.get(field, ""))) for field in ("question", "answer")))
    # Paragraphs without the line breaks of the source file.
    parts: list[RenderableType] = [
        Text(re.sub(r"(?<!\n)\n(?!\n)", " ", state.signature.instructions))
    ]
    if state.demos:
        parts.append(table)
    return Panel(Group(*parts), title=name, title_align="left")


def diff_artifacts(
    one: ArtifactDir,
    other: Annotated[Path, typer.Argument(help="Folder of another.")],
) -> None:
    """How two artifacts differ, in instructions, demos, settings and scores."""
    difference = diff(one, other)
    console = Console()
    if not difference:
        console.print("no difference")
    for line in difference.splitlines():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line, style=style))


def verify_artifact(path: ArtifactDir) -> None:
    """Whether an artifact is intact; exit code 1 where it is not."""
    problems = verify(path)
    console = Console()
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if problems:
        raise typer.Exit(1)
    console.print(f"{path} is intact", markup=False)


def rename_data(
    file: Annotated[Path, typer.Argument(help="A file of questions with their paragraphs.")],
    out: Annotated[Path, typer.Option(help="The renamed copy.")],
    seed: Annotated[int, typer.Option(help="Another seed, other names.")] = 0,
    dataset: Annotated[str | None, typer.Option(help="Told from its fields if left out.")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="A CSV of old and new names, to look at.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Name questions that got lost and answers that stayed.")
    ] = False,
) -> None:
    """Copy a dataset under invented names, so that only reading helps."""
    console = Console()
    report = rename_file(file, out, seed, dataset=dataset, mapping=mapping)
    before, after = 100 * report.derivable_in_source, 100 * report.derivable_in_copy
    rows = [
        ("questions", f"{report.questions:,} of {report.dataset}, seed {report.seed}"),
        ("renamed", _counts(report.renamed) or "none"),
        ("answers left as they are", _counts(report.unchanged) or "none"),
        (
            "answers that can be read",
            f"{after:.1f} % of the questions, {before:.1f} % in the source",
        ),
        (
            "questions that can be followed",
            f"{100 * report.followed_in_copy:.1f} %, {100 * report.followed_in_source:.1f} % in "
            f"the source; lost {len(report.lost)}",
        ),
        ("rows that still show an old name", str(report.leaks)),
        ("words left alone for an answer's sake", str(report.kept)),
    ]
    console.print(facts(rows))
    for name in report.lost if listed else ():
        console.print(f"  lost  {name}", markup=False)
    for reason, answers in report.stayed.items() if listed else ():
        for name, answer in answers:
            console.print(f"  {reason}  {name}  {answer}", markup=False)
    console.print(f"\nwrote {out}; index its passages anew:", markup=False)
    console.print(f"  ga-dspy index build {out} --out …", style="bold", markup=False)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)


def fit_extractive(
    hotpotqa: Annotated[Path, typer.Option(help="HotpotQA train file.")],
    hotpotqa_index: Annotated[Path, typer.Option(help="Index over its passages.")],
    musique: Annotated[Path, typer.Option(help="MuSiQue train file.")],
    musique_index: Annotated[Path, typer.Option(help="Index over its passages.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights.")],
) -> None:
    """Fit the embedded LM's answer ranker on train files."""
    console = Console()
    rows: list[Row] = []
    for dataset, data, folder in (
        ("hotpotqa", hotpotqa, hotpotqa_index),
        ("musique", musique, musique_index),
    ):
        rows += rows_of(dataset, data, Index.open(folder))
        console.print(f"{data.name}: {len(rows)} rows so far", markup=False)
    out.mkdir(parents=True, exist_ok=True)
    for path in save(fit(rows), out):
        console.print(f"wrote {path}", markup=False)


DEPTHS = (5, 10)


def rows_of(dataset: str, data: Path, index: Index) -> Iterator[Row]:
    """Each question with its top passages at each depth, then its sub-questions where it has any.

    Passages are taken exactly as retrieved: a ranker that is shown appended gold passages learns
    where they were put.
    """
    for example in load(dataset, data):
        answers = tuple(example.answers)
        if {answer.lower() for answer in answers} & {"yes", "no"}:
            continue
        for depth in DEPTHS:
            yield Row(example.question, _docs(index, example.question, depth), answers)
        for question, answer in _parts(example.id, data) if dataset == "musique" else ():
            yield Row(question, _docs(index, question, DEPTHS[0]), (answer,))


def _docs(index: Index, question: str, depth: int) -> tuple[Doc, ...]:
    found = index(question, depth)
    return tuple(Doc(i, passage.title, passage.text) for i, passage in enumerate(found, 1))


def _parts(id: str, data: Path) -> Iterator[tuple[str, str]]:
    """MuSiQue's own single-hop parts of a question, "#1" replaced by the first part's answer."""
    answers: list[str] = []
    for part in _decompositions(data)[id]:
        question = re.sub(r"#(\d+)", lambda m: answers[int(m.group(1)) - 1], part["question"])
        answers.append(part["answer"])
        yield question, part["answer"]


def _decompositions(data: Path) -> dict[str, list[dict[str, Any]]]:
    lines = data.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    if not all("question_decomposition" in row for row in rows):
        raise InputError(
            f"{data} has rows without question_decomposition",
            expected="MuSiQue's official train file",
            remedy="pass --musique musique_ans_v1.0_train.jsonl",
        )
    return {row["id"]: row["question_decomposition"] for row in rows}


_TYPER: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
app = typer.Typer(
    name="ga-dspy",
    help="Multi-hop question answering over an evolving, grounded knowledge graph.",
    add_completion=False,
    pretty_exceptions_enable=False,
    **_TYPER,
)
app.command()(demo)
app.command()(with_patience(ask, "30s", spreads=False))
app.command("eval")(with_patience(runs.evaluate))
app.command()(with_patience(runs.arena))
app.command()(runs.report)
app.command("compile")(with_patience(compile_program))
app.command("fit-extractive")(fit_extractive)

data_app = typer.Typer(help="Prepare data.", **_TYPER)
data_app.command("rename")(rename_data)
app.add_typer(data_app, name="data")

index_app = typer.Typer(help="Indexes over your documents.", **_TYPER)
for of_index in (indexes.build, indexes.sync, indexes.add, indexes.delete, indexes.info,
                 indexes.search, indexes.verify):  # fmt: skip
    index_app.command()(of_index)
app.add_typer(index_app, name="index")

artifact_app = typer.Typer(help="Look at compiled programs.", **_TYPER)
artifact_app.command("show")(show_artifact)
artifact_app.command("diff")(diff_artifacts)
artifact_app.command("verify")(verify_artifact)
app.add_typer(artifact_app, name="artifact")

bench_app = typer.Typer(help="Measure.", **_TYPER)
for measure in (bench.retrieval, bench.prompts, bench.grounding, bench.replies, bench.kills,
                bench.faults, bench.fuzz, bench.scale):  # fmt: skip
    bench_app.command()(measure)
bench_app.command("load")(bench.pressure)
app.add_typer(bench_app, name="bench")

graph_app = typer.Typer(
    help="Extract a knowledge graph from a whole corpus, and look into it.", **_TYPER
)
graph_app.command("build", epilog=graphs.RULES)(with_patience(graphs.build))
graph_app.command("update")(with_patience(graphs.update))
for command in (look.stats, look.show, look.paths, look.communities, look.picture, look.export,
                look.merges):  # fmt: skip
    graph_app.command()(command)
app.add_typer(graph_app, name="graph")


def main() -> None:
    """Run the command line; a known error is one line on stderr and exit code 2.

    Ctrl-C ends it with exit code 130.
    """
    there = threading.enumerate()
    out, err = (cast(Any, CleanStream(stream)) for stream in (sys.stdout, sys.stderr))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            app()
        return
    except SystemExit as end:
        if end.code != _INTERRUPTED:
            raise
        code, told, goes_on = _INTERRUPTED, "stopped", sys.argv[1:2] in _RESUMABLE
    except (GaDspyError, extractive_lm.ExtractiveError, dspy.LMError, OSError) as error:
        if isinstance(error, OSError):
            error = refused_by_disk(error.filename or "a file", error)
        code, told = 2, " ".join(str(error).split())
        goes_on = isinstance(error, RunAborted) and " again" not in told
    if goes_on:
        told += "; what was finished is kept: run the same command again to go on"
    print(f"ga-dspy: {visible(withheld(told))}", file=sys.stderr)  # noqa: T201
    leave(code, there)


_INTERRUPTED = 130
_RESUMABLE = (["eval"], ["arena"], ["compile"], ["graph"], ["index"])
