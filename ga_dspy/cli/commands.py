"""The tree of commands, and the handling of errors and Ctrl-C."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Annotated, Any, Final, cast

import dspy
import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

import extractive_lm
import ga_dspy
from ga_dspy.cli import ask, runs
from ga_dspy.cli import compile as compiling
from ga_dspy.cli import config as configuring
from ga_dspy.cli import graph as graphs
from ga_dspy.cli import index as indexes
from ga_dspy.cli import serve as serving
from ga_dspy.cli.choices import VERBOSE, with_option_groups
from ga_dspy.errors import GaDspyError, RunAborted
from ga_dspy.secrets import CleanStream, withheld
from ga_dspy.storage import force_exit, refused_by_disk
from ga_dspy.text import visible

START, DOCUMENTS, MEASURE, TUNE = _PANELS = ("Start", "Documents", "Measure", "Tune")


class _Tree(TyperGroup):
    """Lists commands and groups in the order of their panels; Typer would list groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        panels = {name: getattr(one, "rich_help_panel", "") for name, one in self.commands.items()}
        return sorted(panels, key=lambda name: _PANELS.index(panels[name]))


_TYPER: Final[dict[str, Any]] = {"no_args_is_help": True, "rich_markup_mode": "rich"}
app = typer.Typer(
    name="ga-dspy", cls=_Tree, add_completion=False, pretty_exceptions_enable=False, **_TYPER
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"ga-dspy {ga_dspy.__version__}")  # noqa: T201 - the output itself
        raise typer.Exit


_VERSION: Final = typer.Option(
    "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
)


@app.callback()
def _describe(version: Annotated[bool, _VERSION] = False) -> None:
    """Multi-hop question answering over an evolving, grounded knowledge graph."""


_EXAMPLES: Final = "\n\nExamples:\n"
_NAMES: Final = {"evaluate": "eval", "compile_program": "compile", "import_files": "import"}


def _add(to: typer.Typer, command: Callable[..., None], panel: str | None = None) -> None:
    """Add a command to the tree; its help shows the docstring's examples below the options.

    Options that are not passed come from the environment and the settings file, which `init` writes
    and therefore does not read.
    """
    cls = TyperCommand if command is configuring.init else configuring.ConfiguredCommand
    text, _, examples = inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)
    paragraphs = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    epilog = escape(f"Examples:\n\n{examples}") if examples else None
    name = _NAMES.get(command.__name__, command.__name__.replace("_", "-"))
    to.command(name, cls=cls, rich_help_panel=panel, help=escape(paragraphs), epilog=epilog)(
        with_option_groups(command)
    )


def _add_group(
    name: str, about: str, panel: str | None, *commands: Callable[..., None], to: typer.Typer = app
) -> typer.Typer:
    group = typer.Typer(help=about, **_TYPER)
    for command in commands:
        _add(group, command)
    to.add_typer(group, name=name, rich_help_panel=panel)
    return group


for _panel, _commands in {
    START: (
        ask.demo, configuring.init, ask.programs, ask.ask, ask.chat, serving.serve, serving.mcp,
    ),
    MEASURE: (runs.evaluate, runs.arena, runs.report, runs.view, runs.gaps),
    TUNE: (compiling.compile_program,),
}.items():  # fmt: skip
    for _command in _commands:
        _add(app, _command, _panel)
_add_group("config", "Show the settings that are in effect.", START, configuring.show)
_add_group(
    "index", "Build, update and search an index of your documents.", DOCUMENTS,
    indexes.build, indexes.sync, indexes.add, indexes.delete, indexes.info, indexes.search,
    indexes.verify,
)  # fmt: skip
_graph = _add_group(
    "graph", "Build the graph of a whole corpus in advance (GraphRAG).", DOCUMENTS,
    graphs.build, graphs.update, graphs.import_files, graphs.stats, graphs.show, graphs.paths,
    graphs.communities, graphs.merges, graphs.conflicts, graphs.view, graphs.export,
)  # fmt: skip
_add_group("schema", "Propose entity types and relations.", None, graphs.propose, to=_graph)
_add_group("data", "Make question sets from MLflow traces.", TUNE, compiling.from_traces)
_add_group(
    "artifact", "Inspect compiled programs.", TUNE, compiling.show, compiling.diff, compiling.verify
)


_INTERRUPTED = 130
_RESUMABLE = ("eval", "arena", "compile", "graph", "index")


def _as_sentences(error: BaseException) -> str:
    """Return the parts of an error (found, expected, remedy) as sentences."""
    if not isinstance(error, GaDspyError):
        return str(error)
    parts = str(error.found), error.expected and f"expected {error.expected}", error.remedy
    first, *rest = (part if part.endswith(("?", ".")) else f"{part}." for part in parts if part)
    return " ".join([first, *(f"{part[:1].upper()}{part[1:]}" for part in rest)])


def _details(error: BaseException) -> Iterator[str]:
    """Yield the type, the parts and the causes of an error, one line each."""
    yield f"type: {type(error).__name__}"
    for name, default in (("found", error), ("expected", ""), ("remedy", "")):
        if text := str(getattr(error, name, default)):
            yield f"{name}: {text}"
    cause = error.__cause__ or error.__context__
    while cause:
        yield f"cause: {type(cause).__name__}: {cause}"
        cause = cause.__cause__ or cause.__context__


def main() -> None:
    """Run the command line; a known error prints one line to stderr and exits with code 2.

    `--verbose` adds lines with the error's type, parts and causes. Ctrl-C exits with code 130.
    """
    threads, details = threading.enumerate(), list[str]()
    out, err = (cast(Any, CleanStream(stream)) for stream in (sys.stdout, sys.stderr))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            app()
        return
    except SystemExit as stop:
        if stop.code != _INTERRUPTED:
            raise
        code, text = _INTERRUPTED, "stopped."
        can_resume = any(name in sys.argv[1:2] for name in _RESUMABLE)
    except (GaDspyError, extractive_lm.ExtractiveError, dspy.LMError, OSError) as error:
        known: BaseException = error
        if isinstance(error, OSError):
            known = refused_by_disk(error.filename or "a file", error)
            known.__cause__ = error
        code, text = 2, _as_sentences(known)
        can_resume = isinstance(known, RunAborted) and " again" not in text
        if VERBOSE in sys.argv:
            details = [f"  {' '.join(line.split())}" for line in _details(known)]
    if can_resume:
        text += " Finished work is kept: run the same command again to resume."
    for line in (f"ga-dspy: {' '.join(text.split())}", *details):
        print(visible(withheld(line)), file=sys.stderr)  # noqa: T201
    force_exit(code, threads)
