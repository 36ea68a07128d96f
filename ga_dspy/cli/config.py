"""The settings file `ga-dspy.toml`: read it, write it, show where each setting comes from.

Command-line options override environment variables such as `GA_DSPY_LM`, and these override the
file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import dspy
from dotenv import load_dotenv
from pydantic import BaseModel, BeforeValidator, ValidationError
from rich.prompt import Prompt
from typer import Option
from typer.core import TyperCommand

from ga_dspy.artifact import nothing
from ga_dspy.cli import choices
from ga_dspy.cli.console import Console, columns, relative
from ga_dspy.errors import InputError, unknown
from ga_dspy.eval.methods import method
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.settings import read_pairs
from ga_dspy.secrets import secrets_in, secrets_of
from ga_dspy.storage import write_atomically

FILE: Final = "ga-dspy.toml"


# --- Read


def _as_texts(value: Any) -> Any:
    """Return a table as `name=value` texts, and a text as its words."""
    if isinstance(value, Mapping):
        return [
            f"{name}={item if isinstance(item, str) else json.dumps(item, default=str)}"
            for name, item in value.items()
        ]
    return value.split() if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_as_texts)]


class Config(BaseModel, extra="forbid"):
    """The settings that a file or the environment may set; each has the name of its option.

    Attributes:
        lm: DSPy model names: one for all steps, and `step=name` for single steps.
        api_base: Addresses of endpoints: one for all LMs, and `step=address` for single steps.
        index: Folder of the index.
        graph: Folder of the index's graph.
        program: Name of the program.
        artifact: Compiled program; a command that accepts both uses it instead of `program`.
        settings: Settings of the program: a table in the file, `name=value` in the environment.
    """

    lm: Texts = [EMBEDDED]
    api_base: Texts = []
    index: Path | None = None
    graph: Path | None = None
    program: str = "graph-anchor"
    artifact: str | None = None
    settings: Texts = []


_NAMES: Final = tuple(Config.model_fields)
_PATHS: Final = ("index", "graph", "artifact")
_OWNERS: Final = {"api_base": {"lm"}, "graph": {"index"}, "artifact": {"program"},
                  "settings": {"program", "artifact"}}  # fmt: skip
"""A setting is ignored if a source of higher precedence sets one of these, which it was for."""
_COMMAND_LINE: Final = "command line"


class Setting(NamedTuple):
    """A value and its source: the command line, the environment or a file."""

    value: Any
    source: str


def find_config() -> Path | None:
    """Return the nearest settings file in the working directory or a folder above it.

    The search ends at the root of a git repository or the home folder. Outside of both, only the
    working directory is searched, because a file in `/tmp` may be a stranger's.
    """
    folders = [Path.cwd(), *Path.cwd().parents]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() fails where there is none
    is_end = [folder == home or (folder / ".git").exists() for folder in folders]
    searched = folders[: is_end.index(True) + 1] if any(is_end) else folders[:1]
    return next((each / FILE for each in searched if (each / FILE).is_file()), None)


def read_config(path: Path | None, given: Collection[str] = ()) -> dict[str, Setting]:
    """Return the settings from the environment and a file, by name.

    The variables of the `.env` beside the file are added to the environment.

    Args:
        path: The file; None for the environment alone.
        given: Names of the settings that the command line sets; they are left out.

    Raises:
        InputError: The file cannot be read, a name is unknown, or a value is invalid or a key.
    """
    of_file: dict[str, Any] = {}
    if path is not None:
        try:
            of_file = tomllib.loads(path.read_text("utf-8-sig"))
            load_dotenv(path.with_name(".env"))
        except (OSError, ValueError) as error:
            expected = "TOML, and .env beside it, in UTF-8"
            raise InputError(f"{relative(path)}: {error}", expected=expected) from error
        tables: dict[tuple[str, ...], Any] = {_PATHS: of_file, ("schema",): of_file.get("settings")}
        for names, table in tables.items():
            for name in names if isinstance(table, dict) else ():
                value = table.get(name)
                if isinstance(value, str) and ":/" not in value:  # models:/NAME is no path
                    table[name] = str(relative(path.absolute().parent / Path(value).expanduser()))
    variables = {name: os.environ.get(f"GA_DSPY_{name.upper()}") for name in _NAMES}
    found = dict.fromkeys(given, Setting(None, _COMMAND_LINE))
    _add(found, {name: text for name, text in variables.items() if text}, "environment")
    _add(found, of_file, str(path and relative(path)))
    _check_program(found)
    return {name: setting for name, setting in found.items() if name not in given}


def _add(found: dict[str, Setting], values: Mapping[str, Any], source: str) -> None:
    """Check the values of a source, and add those that no earlier source sets or makes obsolete.

    Raises:
        InputError: A name is unknown, or a value is invalid or a key.
    """
    for name, value in values.items():
        text = str(value) if name in _NAMES else f"{name} = {value}"
        for secret in secrets_in(text, name, secrets_of(), digests=name in _PATHS):
            remedy = f"put keys into the environment, or into .env beside {FILE}"
            raise InputError(f"{source}: {name} holds {secret.kind}", remedy=remedy)
        if name not in _NAMES:
            raise unknown(f"{source}: setting", name, _NAMES)
    try:
        checked = Config.model_validate(values).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors()[0]
        expected = first["msg"].lower().removeprefix("input should be ")
        wrong = f"{source}: {first['loc'][0]} has the wrong type"
        raise InputError(wrong, expected=expected) from error
    obsolete = {name for name, owners in _OWNERS.items() if owners & found.keys()}
    for name in checked.keys() - found.keys() - obsolete:
        found[name] = Setting(checked[name], source)


def _check_program(found: Mapping[str, Setting]) -> None:
    """Check the program and its settings, unless the command line or an artifact checks them.

    Raises:
        InputError: There is no such program, or it has no such settings.
    """
    program = found.get("program", Setting(Config().program, _COMMAND_LINE))
    settings = found.get("settings", Setting(None, program.source))
    if settings.source == _COMMAND_LINE or "artifact" in found:
        return
    try:
        chosen = method(program.value)
        chosen.make(nothing, **choices.choose_settings(settings.value, chosen.program))
    except InputError as error:
        wrong = f"{settings.source}: {error.found}"
        raise InputError(wrong, expected=error.expected, remedy=error.remedy) from error


class ConfiguredCommand(TyperCommand):
    """A command whose options default to the environment and the settings file.

    Its help shows the built-in defaults.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; options that are missing come from the settings."""
        options = {str(each.name): each for each in self.params if each.name in _NAMES}
        parsed, *_ = self.make_parser(ctx).parse_args(args=[*args])
        if options and not parsed.get("help"):
            given = [name for name in options if parsed.get(name) is not None]
            found = read_config(find_config(), given)
            ctx.default_map = {name: setting.value for name, setting in found.items()}
            for name in found.keys() & _PATHS:  # `arena` takes several
                if getattr(options.get(name), "multiple", False):
                    ctx.default_map[name] = [found[name].value]
        return super().parse_args(ctx, args)


def from_config(path: Path | str | None = None) -> MultiHopProgram:
    """Return the program of a settings file, ready to answer; the LM is set on its predictors.

    Environment variables override the file. The variables of the `.env` beside it are added to
    `os.environ`. DSPy's settings do not change.

    Args:
        path: The file; by default `ga-dspy.toml` in the working directory or a folder above it, up
            to the root of a git repository or the home folder.

    Raises:
        InputError: There is no index, a name is unknown, or a value is invalid.
    """
    file = Path(path) if path else find_config()
    values = {name: setting.value for name, setting in read_config(file).items()}
    if "index" not in values:
        found = f"no index in {file or FILE}, and GA_DSPY_INDEX is not set"
        raise InputError(found, expected="its folder", remedy="run: ga-dspy init --index DIR")
    options = choices.AskingOptions(**values)
    models = choices.choose_lms(options.lm, options.api_base)
    with dspy.context(lm=models.lm):
        program = options.asking(models).program
    without_lm = [step for step, predictor in program.named_predictors() if predictor.lm is None]
    program.set_step_lms(dict.fromkeys(without_lm, models.lm))
    return program


# --- Write and show

_HEAD: Final = """\
# Defaults of the ga-dspy commands in this folder and below, and of ga_dspy.from_config().
# Environment variables (GA_DSPY_LM, …) override them, options override both.
# Names: lm, api_base, index, graph, program, artifact, and a table [settings] of the program.
# Paths are relative to this file. Keys belong in .env, never here.
"""
_QUESTIONS: Final = {
    "lm": "LM, such as openai/gpt-4.1-mini (empty: the embedded LM)",
    "api_base": "Address of its server (empty: the provider's own)",
    "index": "Folder of the index (empty: none)",
    "graph": "Folder of the index's graph, for graph-rag (empty: none)",
    "program": "Program (empty: graph-anchor)",
}


def init(
    lm: choices.Models = None,
    api_base: choices.Addresses = None,
    index: Annotated[Path | None, Option(help="Folder of the index.")] = None,
    graph: choices.Graph = None,
    program: Annotated[str | None, Option(help="Program; by default graph-anchor.")] = None,
    artifact: choices.Artifact = None,
    settings: choices.Settings = None,
    force: Annotated[bool, Option("--force", help="Overwrite an existing ga-dspy.toml.")] = False,
) -> None:
    """Write ga-dspy.toml: the LM, index and program that other commands use by default.

    In a terminal, it asks for the values that you do not pass.

    Examples:
        ga-dspy init
        ga-dspy init --lm openai/gpt-4.1-mini --index my-index --set k=10
    """
    console, path = Console(), Path(FILE)
    if path.exists() and not force:
        raise InputError(f"{FILE} exists", remedy="edit it, or add --force to overwrite it")
    given: dict[str, Any] = {
        "lm": lm, "api_base": api_base, "index": index, "graph": graph, "program": program,
        "artifact": artifact,
    }  # fmt: skip
    for name, question in _QUESTIONS.items() if console.can_ask else ():
        if not given[name] and (name != "api_base" or given["lm"]):
            given[name] = Prompt.ask(question, console=console, default="", show_default=False)
    choices.choose_lms(_as_texts(given["lm"]), _as_texts(given["api_base"]))
    pairs, checked = read_pairs(settings or ()), dict[str, Setting]()
    values = {
        name: " ".join(value) if isinstance(value, list) else str(value)
        for name, value in given.items()
        if value
    }
    _add(checked, {**values, "settings": pairs}, FILE)
    _check_program(checked)
    write_atomically(path, "\n".join([_HEAD, *_toml(values), "", "[settings]", *_toml(pairs), ""]))
    console.print(f"wrote {FILE}; ga-dspy config show prints the settings in effect")
    console.print("put keys into .env beside it, or into the environment: OPENAI_API_KEY=…")
    if _ignore_keys():
        console.print("added .env to .gitignore")
    if "index" in values and not Path(values["index"]).exists():
        console.print(f"next: ga-dspy index build FILES --out {values['index']}", soft_wrap=True)


def _toml(values: Mapping[str, Any]) -> list[str]:
    values = {name: "none" if value is None else value for name, value in values.items()}
    return [f"{name} = {json.dumps(each, ensure_ascii=False)}" for name, each in values.items()]


def _ignore_keys() -> bool:
    """Add .env to .gitignore if this is a git repository that does not ignore it yet."""
    check = ("git", "check-ignore", "-q", ".env")  # 0: ignored, 1: not ignored, 128: no repository
    if not shutil.which("git") or subprocess.run(check, capture_output=True).returncode != 1:
        return False
    rules = Path(".gitignore")
    lines = rules.read_text("utf-8").splitlines() if rules.exists() else []
    write_atomically(rules, "\n".join([*lines, ".env", ""]))
    return True


def show() -> None:
    """Print each setting, its value and its source; the value of a key is never printed.

    Examples:
        ga-dspy config show
    """
    console, path, before = Console(), find_config(), {*os.environ}
    found, table = read_config(path), columns("setting", "value", "from")
    for name, default in Config():
        value, source = found.get(name) or Setting(default, "default")
        text = ", ".join(value) if isinstance(value, list) else str(value or "")
        table.add_row(name, text, source)
    for name in sorted(os.environ):
        if name not in before or name.endswith("_API_KEY"):
            table.add_row(name, "set", "environment" if name in before else ".env")
    console.print(table)
    if path is None:
        console.print(f"no {FILE} here or above; ga-dspy init writes one", style="dim")
