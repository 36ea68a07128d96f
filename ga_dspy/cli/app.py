"""The commands, their arguments, and how an error ends them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ga_dspy.cli.graph.commands import graph_app
from ga_dspy.cli.options import (
    ApiBase,
    Artifact,
    Graph,
    IndexDir,
    Model,
    Program,
    Score,
    Timeout,
    Yes,
)
from ga_dspy.errors import GaDspyError

app = typer.Typer(
    name="ga-dspy",
    help="Multi-hop question answering over an evolving, grounded knowledge graph.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
index_app = typer.Typer(help="Build and inspect retrieval indexes.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure.", no_args_is_help=True)
artifact_app = typer.Typer(help="Look at compiled programs.", no_args_is_help=True)
data_app = typer.Typer(help="Prepare data.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(index_app, name="index")
app.add_typer(artifact_app, name="artifact")
app.add_typer(bench_app, name="bench")
app.add_typer(graph_app, name="graph")


@app.command()
def demo(
    keep: Annotated[
        Path, typer.Option(help="Folder for the index and the runs of the demo.")
    ] = Path(".demo"),
) -> None:
    """Index the shipped corpus, ask a question step by step, compare two programs."""
    from ga_dspy.cli.demo import run_demo

    run_demo(keep)


@app.command()
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
    json_only: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Answer one question and show how the answer was found."""
    from ga_dspy.cli.ask import run_ask
    from ga_dspy.cli.models import Choice

    asked = Choice(program, artifact, lm, api_base, timeout, graph, tuple(label or ()))
    run_ask(question, index, asked, json_only=json_only)


@app.command(name="eval")
def evaluate(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique, 2wikimultihopqa, bamboogle.")],
    data: Annotated[Path, typer.Option(help="A file in the dataset's official format.")],
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder for summary.json and predictions.jsonl.")],
    program: Program = "graph-anchor",
    artifact: Artifact = None,
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    graph: Graph = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N questions.")] = None,
    threads: Annotated[int, typer.Option(help="Questions asked at once.")] = 1,
    track: Annotated[
        str | None, typer.Option(help="Log the run to this MLflow store (an address, or sqlite).")
    ] = None,
    k: Annotated[int | None, typer.Option(help="Passages a query; 5 if left out.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Rounds of retrieval at most; 4 if left out.")
    ] = None,
    score: Score = "official",
) -> None:
    """Score a program on a dataset; run again to go on where it stopped."""
    from ga_dspy.cli.evaluate import Run, run_eval
    from ga_dspy.cli.models import Choice, score_variant

    settings = {"k": k, "max_steps": max_steps}
    given = {name: value for name, value in settings.items() if value}
    chosen = Choice(program, artifact, lm, api_base, timeout, graph, settings=given)
    scored = score_variant(score)
    run_eval(Run(dataset, data, index, out, chosen, limit, threads, track, scored))


@app.command()
def arena(
    dataset: Annotated[list[str], typer.Option(help="A dataset; once for each file.")],
    data: Annotated[list[Path], typer.Option(help="Its file, in the official format.")],
    index: Annotated[list[Path], typer.Option(help="The index over its passages.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs, one below it for each.")],
    programs: Annotated[
        str,
        typer.Option(
            help="all, methods, ablations, depths, steps, graphrag, or names; with commas."
        ),
    ] = "all",
    graph: Annotated[
        list[Path] | None, typer.Option(help="The graph of its passages, for GraphRAG.")
    ] = None,
    artifact: Annotated[
        list[str] | None, typer.Option(help="A compiled program that takes part; repeatable.")
    ] = None,
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    tokens: Annotated[
        int | None,
        typer.Option(help="Equal tokens: about so many a question for every method."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N questions.")] = None,
    threads: Annotated[int, typer.Option(help="Questions asked at once.")] = 1,
    k: Annotated[int | None, typer.Option(help="Passages a query; 5 if left out.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Rounds of retrieval at most; 4 if left out.")
    ] = None,
    score: Score = "official",
) -> None:
    """Run every method on the same ground; run again to go on where it stopped."""
    from ga_dspy.cli.arena import ArenaArgs, run_arena
    from ga_dspy.cli.models import Choice, score_variant

    settings = {name: value for name, value in {"k": k, "max_steps": max_steps}.items() if value}
    run_arena(
        ArenaArgs(
            datasets=dataset, data=data, indexes=index, out=out, graphs=graph or (),
            programs=programs,
            artifacts=artifact or (), tokens=tokens, limit=limit, threads=threads,
            score=score_variant(score),
            choice=Choice(lm=lm, api_base=api_base, timeout=timeout, settings=settings),
        )
    )  # fmt: skip


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders with finished runs.")],
    out: Annotated[Path, typer.Option(help="Folder for report.md, tables and figures.")],
    baseline: Annotated[
        str, typer.Option(help="The method that the others are tested against.")
    ] = "vanilla-rag",
    unlike: Annotated[
        bool, typer.Option("--unlike", help="Mark runs on other ground instead of refusing them.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(help="Folder of a Hugging Face causal LM: Figures 5 and 6 as well."),
    ] = None,
    attention_limit: Annotated[
        int | None, typer.Option(help="Only the first N questions that used every step.")
    ] = None,
) -> None:
    """Make the paper's tables and figures from finished runs."""
    from ga_dspy.cli.report import run_report

    run_report(
        folders, out, baseline=baseline, unlike=unlike, attention=attention, limit=attention_limit
    )


@data_app.command()
def rename(
    file: Annotated[Path, typer.Argument(help="A file of questions with their paragraphs.")],
    out: Annotated[Path, typer.Option(help="The renamed copy.")],
    seed: Annotated[int, typer.Option(help="Another seed, other names.")] = 0,
    dataset: Annotated[str | None, typer.Option(help="Told from its fields if left out.")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="A CSV of old and new names, to look at.")
    ] = None,
) -> None:
    """Copy a dataset under invented names, so that only reading helps."""
    from ga_dspy.cli.rename import run_rename

    run_rename(file, out, seed, dataset, mapping)


@app.command(name="compile")
def compile_program(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique, 2wikimultihopqa, bamboogle.")],
    train: Annotated[Path, typer.Option(help="Questions to learn from.")],
    validation: Annotated[
        str, typer.Option(help="A file, or so many questions from the end of the train file.")
    ],
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder of the artifact, such as artifacts/mine.")],
    test: Annotated[Path | None, typer.Option(help="Questions to measure on.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="bootstrap-rs, gepa, miprov2, …; gepa where there is a reflection LM."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the recipe, name=value.")
    ] = None,
    program: Program = "graph-anchor",
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    graph: Graph = None,
    reflection_lm: Annotated[str | None, typer.Option(help="LM that reflects (gepa).")] = None,
    prompt_lm: Annotated[str | None, typer.Option(help="LM that proposes prompts.")] = None,
    max_calls: Annotated[int | None, typer.Option(help="Stop after so many LM calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop after so many tokens.")] = None,
    max_money: Annotated[float | None, typer.Option(help="Stop after so many US dollars.")] = None,
    recall: Annotated[float, typer.Option(help="Weight of support recall in the score.")] = 0.0,
    cost: Annotated[float, typer.Option(help="Weight of 1,000 tokens in the score.")] = 0.0,
    threads: Annotated[int, typer.Option(help="Questions asked at once.")] = 2,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow store; mlflow.db beside the artifact if left out.")
    ] = None,
    track: Annotated[bool, typer.Option(help="Tell MLflow.")] = True,
    yes: Yes = False,
) -> None:
    """Tune prompts and demos against F1, and save the program as an artifact."""
    from ga_dspy.cli.compile import CompileArgs, run_compile
    from ga_dspy.cli.models import Choice

    run_compile(
        CompileArgs(
            dataset=dataset, train=train, validation=validation, index=index, out=out, test=test,
            recipe=recipe, settings=settings or (),
            chosen=Choice(program, None, lm, api_base, timeout, graph),
            reflection_lm=reflection_lm, prompt_lm=prompt_lm,
            max_calls=max_calls, max_tokens=max_tokens, max_money=max_money,
            recall=recall, cost=cost, threads=threads, seed=seed,
            tracking_uri=tracking_uri, track=track, yes=yes,
        )
    )  # fmt: skip


@index_app.command()
def build(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Dataset files, .jsonl/.json/.csv/.parquet with title and text, or folders."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index.")],
    kind: Annotated[str, typer.Option(help="linked, hybrid, dense or sparse.")] = "linked",
    encoder: Annotated[str, typer.Option(help="A sentence-transformers model.")] = "auto",
    factory: Annotated[str, typer.Option(help="FAISS index factory string.")] = "Flat",
) -> None:
    """Build an index; run again to go on where it stopped."""
    from ga_dspy.cli.build import run_build

    run_build(files, out, kind, encoder, factory)


@bench_app.command()
def retrieval(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique or 2wikimultihopqa.")],
    data: Annotated[Path, typer.Option(help="Questions, in the dataset's official format.")],
    index: IndexDir,
    kinds: Annotated[
        str, typer.Option(help="Comma-separated: sparse, dense, hybrid, linked.")
    ] = "sparse,dense,hybrid,linked",
    limit: Annotated[int | None, typer.Option(help="Only the first N questions.")] = None,
) -> None:
    """How many gold passages are in the top 2, 5, 10, 20, by kind of retrieval."""
    from ga_dspy.cli.bench import run_bench

    run_bench(dataset, data, index, kinds.split(","), limit)


@bench_app.command()
def prompts() -> None:
    """What a step's prompt costs by adapter, with our graph type and with a nested one."""
    from ga_dspy.cli.prompts import run_prompts

    run_prompts()


@app.command(name="fit-extractive")
def fit_extractive(
    hotpotqa: Annotated[Path, typer.Option(help="HotpotQA train file.")],
    hotpotqa_index: Annotated[Path, typer.Option(help="Index over its passages.")],
    musique: Annotated[Path, typer.Option(help="MuSiQue train file.")],
    musique_index: Annotated[Path, typer.Option(help="Index over its passages.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights.")],
) -> None:
    """Fit the embedded LM's answer ranker on train files."""
    from ga_dspy.cli.fit import run_fit

    run_fit([("hotpotqa", hotpotqa, hotpotqa_index), ("musique", musique, musique_index)], out)


@artifact_app.command(name="show")
def show_artifact(path: Annotated[Path, typer.Argument(help="Folder of an artifact.")]) -> None:
    """What an artifact is: program, provenance, scores, prompts."""
    from ga_dspy.cli.artifacts import run_show

    run_show(path)


@artifact_app.command(name="diff")
def diff_artifacts(
    one: Annotated[Path, typer.Argument(help="Folder of an artifact.")],
    other: Annotated[Path, typer.Argument(help="Folder of another.")],
) -> None:
    """How two artifacts differ, in instructions, demos, settings and scores."""
    from ga_dspy.cli.artifacts import run_diff

    run_diff(one, other)


@artifact_app.command(name="verify")
def verify_artifact(path: Annotated[Path, typer.Argument(help="Folder of an artifact.")]) -> None:
    """Whether an artifact is intact; exit code 1 where it is not."""
    from ga_dspy.cli.artifacts import run_verify

    run_verify(path)


def main() -> None:
    """Run the command line; a known error is one line on stderr and exit code 2."""
    import dspy

    try:
        app()
    except (GaDspyError, dspy.LMError) as error:
        print(f"ga-dspy: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
