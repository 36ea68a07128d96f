"""The tree of commands, in the order in which they are looked for; how an error ends one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Annotated, Any, Final, cast

import dspy
import typer
from rich.markup import escape
from typer.core import TyperGroup

import extractive_lm
import ga_dspy
from ga_dspy.cli import artifact, ask, bench, develop, look, runs
from ga_dspy.cli import compile as compiling
from ga_dspy.cli import graph as graphs
from ga_dspy.cli import index as indexes
from ga_dspy.cli import serve as serving
from ga_dspy.cli.choices import with_patience, with_program
from ga_dspy.errors import GaDspyError, RunAborted
from ga_dspy.secrets import CleanStream, withheld
from ga_dspy.storage import leave, refused_by_disk
from ga_dspy.text import visible

START, DOCUMENTS, MEASURE, TUNE, DEVELOP = _PANELS = (
    "Start", "Documents", "Measure", "Tune", "Develop",
)  # fmt: skip


class _Tree(TyperGroup):
    """Commands and groups in the order of their panels; Typer would put groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        panels = {name: getattr(one, "rich_help_panel", "") for name, one in self.commands.items()}
        return sorted(panels, key=lambda name: _PANELS.index(panels[name]))


_TYPER: Final[dict[str, Any]] = {"no_args_is_help": True, "rich_markup_mode": "rich"}
app = typer.Typer(
    name="ga-dspy",
    cls=_Tree,
    add_completion=False,
    pretty_exceptions_enable=False,
    **_TYPER,
)


def _examples(*lines: str, more: str = "") -> str:
    """What stands below a command's options: examples of its use, and more."""
    shown = "\n".join(f"  {line}" for line in lines)
    return escape("\n\n".join(filter(None, (f"Examples:\n\n{shown}", more))))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ga-dspy {ga_dspy.__version__}")  # noqa: T201 - the output itself
        raise typer.Exit


@app.callback()
def _describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and end.")
    ] = False,
) -> None:
    """Multi-hop question answering over an evolving, grounded knowledge graph."""


def _add(
    panel: str | None,
    name: str,
    command: Callable[..., None],
    *examples: str,
    to: typer.Typer = app,
    more: str = "",
) -> None:
    """Put a command into the tree, with examples of its use below its options."""
    told = "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))
    epilog = _examples(*examples, more=more)
    to.command(name, rich_help_panel=panel, help=escape(told), epilog=epilog)(command)


def _group(panel: str, name: str, help: str, *examples: str) -> typer.Typer:
    group = typer.Typer(help=help, epilog=_examples(*examples), **_TYPER)
    app.add_typer(group, name=name, rich_help_panel=panel)
    return group


_add(START, "demo", ask.demo, "ga-dspy demo")
_add(
    START, "ask", with_patience(with_program(ask.ask), "30s", spreads=False),
    'ga-dspy ask "Who designed the bridge?" --index my-index --lm openai/gpt-4.1-mini',
    'ga-dspy ask "…" --index my-index --lm openai/qwen3 --api-base http://localhost:8000/v1',
    'ga-dspy ask "…" --index my-index --set k=10 --set style=report --adapter json',
    "ga-dspy ask --questions questions.txt --index my-index --artifact artifacts/mine --json",
)  # fmt: skip
_add(
    START, "chat", with_patience(with_program(ask.chat), "30s", spreads=False),
    "ga-dspy chat --index my-index --lm openai/gpt-4.1-mini",
)  # fmt: skip
for serves, example in (
    (serving.serve, "serve --index my-index --lm openai/gpt-4.1-mini"),
    (serving.mcp, "mcp --index my-index --lm openai/gpt-4.1-mini"),
):
    answering = with_patience(with_program(serves), "30s", spreads=False)
    _add(START, serves.__name__, answering, f"ga-dspy {example}")

index = _group(
    DOCUMENTS, "index", "Make your documents searchable.",
    "ga-dspy index build docs --out my-index",
    "ga-dspy index sync --index my-index",
)  # fmt: skip
for of_index, example in (
    (indexes.build, "build docs minutes.jsonl --out my-index"),
    (indexes.sync, "sync --index my-index"),
    (indexes.add, "add more-docs --index my-index"),
    (indexes.delete, "delete old.md --index my-index"),
    (indexes.info, "info --index my-index"),
    (indexes.search, 'search "bridges of steel" --index my-index --where lang=en'),
    (indexes.verify, "verify --index my-index"),
):
    _add(None, of_index.__name__, of_index, f"ga-dspy index {example}", to=index)

graph = _group(
    DOCUMENTS, "graph", "Read a whole corpus into a graph ahead of time (GraphRAG).",
    "ga-dspy graph build --index my-index --out my-graph --lm openai/gpt-4.1-mini",
    'ga-dspy graph show my-graph "Isambard Brunel"',
)  # fmt: skip
for of_graph, example in (
    (with_patience(graphs.build), "build --index my-index --out my-graph --rules rules.json"),
    (with_patience(graphs.update), "update --index my-index --graph my-graph"),
    (look.stats, "stats my-graph"),
    (look.show, 'show my-graph "Isambard Brunel"'),
    (look.paths, 'paths my-graph "Isambard Brunel" "River Avon"'),
    (look.communities, "communities my-graph"),
    (look.export, "export my-graph --out my-graph.graphml"),
    (look.merges, "merges my-graph"),
):
    called = of_graph.__name__
    more = graphs.RULES if called == "build" else ""
    _add(None, called, of_graph, f"ga-dspy graph {example}", to=graph, more=more)

_add(
    MEASURE, "eval", with_patience(runs.evaluate),
    "ga-dspy eval --dataset hotpotqa --data hotpot_dev_distractor_v1.json --index my-index "
    "--out runs/mine --lm openai/gpt-4.1-mini",
)  # fmt: skip
_add(
    MEASURE, "arena", with_patience(runs.arena),
    "ga-dspy arena --dataset hotpotqa --data dev.json --index my-index --out runs "
    "--programs methods",
)  # fmt: skip
_add(MEASURE, "report", runs.report, "ga-dspy report runs --out runs/report")
_add(
    MEASURE, "view", runs.view,
    "ga-dspy view answer.json --out page.html",
    "ga-dspy view runs/graph-anchor --beside runs/vanilla-rag --out compared.html",
)  # fmt: skip

_add(
    TUNE, "compile", with_patience(compiling.compile_program),
    "ga-dspy compile --dataset hotpotqa --train train.json --validation 50 --index my-index "
    "--out artifacts/mine --max-calls 2000",
)  # fmt: skip
artifacts = _group(
    TUNE, "artifact", "Look at compiled programs.",
    "ga-dspy artifact show artifacts/mine",
    "ga-dspy artifact diff artifacts/mine artifacts/other",
)  # fmt: skip
for of_artifact, example in (
    (artifact.show, "show artifacts/mine"),
    (artifact.diff, "diff artifacts/mine artifacts/other"),
    (artifact.verify, "verify artifacts/mine"),
):
    _add(None, of_artifact.__name__, of_artifact, f"ga-dspy artifact {example}", to=artifacts)

benches = _group(
    DEVELOP, "bench", "Measure parts of the library.", "ga-dspy bench scale --passages 20000"
)
for measure, example in (
    (bench.retrieval, "retrieval --dataset hotpotqa --data dev.json --index my-index"),
    (bench.scale, "scale --passages 100000"),
    (bench.faults, "faults"),
):
    _add(None, example.split()[0], measure, f"ga-dspy bench {example}", to=benches)
renaming = "ga-dspy data rename dev.json --out renamed.json"
data = _group(DEVELOP, "data", "Prepare datasets.", renaming)
_add(None, "rename", develop.rename_data, renaming, to=data)


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
