"""The tree of commands, in the order in which they are looked for; how an error ends one."""

from __future__ import annotations

import inspect
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
from ga_dspy.cli import artifact, ask, look, runs
from ga_dspy.cli import compile as compiling
from ga_dspy.cli import graph as graphs
from ga_dspy.cli import index as indexes
from ga_dspy.cli import serve as serving
from ga_dspy.cli.choices import with_patience, with_program
from ga_dspy.errors import GaDspyError, RunAborted
from ga_dspy.secrets import CleanStream, withheld
from ga_dspy.storage import leave, refused_by_disk
from ga_dspy.text import visible

START, DOCUMENTS, MEASURE, TUNE = _PANELS = ("Start", "Documents", "Measure", "Tune")


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


_EXAMPLES: Final = "\n\nExamples:\n"
_NAMES: Final = {"evaluate": "eval", "compile_program": "compile"}


def _add(to: typer.Typer, command: Callable[..., None], panel: str | None = None) -> None:
    """Put a command into the tree; the examples of its docstring stand below its options."""
    told, _, examples = inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)
    lines = "\n\n".join(" ".join(part.split()) for part in told.split("\n\n"))
    epilog = escape(f"Examples:\n\n{examples}") if examples else None
    name = _NAMES.get(command.__name__, command.__name__)
    to.command(name, rich_help_panel=panel, help=escape(lines), epilog=epilog)(command)


def _answering(command: Callable[..., None]) -> Callable[..., None]:
    """A command that is handed what answers, and somebody waits for it."""
    return with_patience(with_program(command), "30s", spreads=False)


_add(app, ask.demo, START)
for answers in (ask.ask, ask.chat, serving.serve, serving.mcp):
    _add(app, _answering(answers), START)
for measures in (with_patience(runs.evaluate), with_patience(runs.arena), runs.report, runs.view):
    _add(app, measures, MEASURE)
_add(app, with_patience(compiling.compile_program), TUNE)

for called, panel, about, commands in (
    ("index", DOCUMENTS, "Make your documents searchable.",
     (indexes.build, indexes.sync, indexes.add, indexes.delete, indexes.info, indexes.search,
      indexes.verify)),
    ("graph", DOCUMENTS, "Read a whole corpus into a graph ahead of time (GraphRAG).",
     (with_patience(graphs.build), with_patience(graphs.update), look.stats, look.show, look.paths,
      look.communities, look.export, look.merges)),
    ("artifact", TUNE, "Look at compiled programs.",
     (artifact.show, artifact.diff, artifact.verify)),
):  # fmt: skip
    group = typer.Typer(help=about, **_TYPER)
    for each in commands:
        _add(group, cast(Any, each))
    app.add_typer(group, name=called, rich_help_panel=panel)


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
