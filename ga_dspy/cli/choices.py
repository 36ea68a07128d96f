"""Options that several commands share, and what they stand for: LMs, a corpus, a program."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from functools import partial, update_wrapper
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import dspy
from typer import Option

import ga_dspy
from ga_dspy import artifact as artifacts
from ga_dspy.cluster import on_ray
from ga_dspy.errors import InputError
from ga_dspy.eval.methods import method
from ga_dspy.graphrag import Access, GraphIndex, Schema
from ga_dspy.lm.adapters import ADAPTERS, AdapterName
from ga_dspy.lm.endpoints import EMBEDDED, default_timeout, is_local, server_address
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.settings import read_pairs, typed_settings
from ga_dspy.retrieval import Index, Where
from ga_dspy.secrets import check_addresses, without_password
from ga_dspy.testing import recorded_lm

VERBOSE: Final = "--verbose"
"""The option of all commands after which an error is printed in full."""
COMPILING: Final[tuple[str, ...]] = ("reflection", "prompt", "teacher")
"""The roles of the LMs that `compile` uses besides those of the program."""
Corpus = TypeVar("Corpus", Index, GraphIndex)
_of_lm = partial(Option, rich_help_panel="LM")
_of_program = partial(Option, rich_help_panel="Program")
_of_corpus = partial(Option, rich_help_panel="Documents")

_LM = (
    "Any DSPy model name; by default the embedded extractive LM. STEP=NAME sets the LM of one "
    "step, such as answer=openai/gpt-4.1; repeatable."
)
_ADDRESS = (
    "Base URL of an OpenAI-compatible endpoint, for all LMs. STEP=URL sets that of one step; "
    "judge=URL that of --judge; reflection=, prompt= and teacher=URL those of compile. Repeatable."
)
_JUDGE = "LM that also judges each answer; its cost is reported separately."
_TIMEOUT = "Timeout of one LM call in seconds; by default 600 at a local address, else 120."
_LM_SETTING = "LM setting: max_tokens=2000, temperature=0.7; repeatable."
_LABEL = "Access label to read with; repeatable."
_RETRIES = "Retries of a failed LM call; 0 also disables waiting for an endpoint."
_SETTING = "Setting, such as k=10; `ga-dspy programs NAME` lists them; repeatable."
_WHERE = (
    "Condition on metadata, or with --graph on relations: lang=en, 'date>=2020', "
    "relation.time=2015; repeatable."
)
_DATASET = "hotpotqa, musique, 2wikimultihopqa, bamboogle, or qa for your own questions."

Dataset = Annotated[str, Option(help=_DATASET)]
Limit = Annotated[int | None, Option(help="Ask only the first N questions.")]
Threads = Annotated[int, Option(help="Questions to ask in parallel.")]
Yes = Annotated[bool, Option("--yes", help="Do not ask for confirmation.")]
Verbose = Annotated[bool, Option(VERBOSE, help="Print all details of an error.")]
Json = Annotated[bool, Option("--json", help="Print JSON only.")]
Ray = Annotated[str | None, Option("--ray", help="Address of a Ray cluster to run on, or auto.")]
Models = Annotated[list[str] | None, _of_lm("--lm", help=_LM)]
Addresses = Annotated[list[str] | None, _of_lm("--api-base", help=_ADDRESS)]
Timeout = Annotated[float | None, _of_lm(help=_TIMEOUT)]
Patience = Annotated[str, _of_lm(help="Time to wait for an endpoint that is down: 90, 10m, 2h.")]
IndexDir = Annotated[Path, _of_corpus("--index", help="Folder of the index.")]
Graph = Annotated[Path | None, _of_corpus(help="Folder of the index's graph, for graph-rag.")]
Wanted = Annotated[list[str] | None, _of_corpus("--where", help=_WHERE)]
Program = Annotated[str, _of_program(help="Program; `ga-dspy programs` lists them.")]
Artifact = Annotated[
    str | None, _of_program(help="Compiled program: a folder, models:/NAME@ALIAS or runs:/…")
]
Settings = Annotated[list[str] | None, _of_program("--set", help=_SETTING)]


# --- Groups of options


class Asking(NamedTuple):
    """A program over a corpus, its name or artifact, and the LMs of the command line."""

    program: MultiHopProgram
    name: str
    models: LMs
    corpus: Index | GraphIndex


@dataclass(frozen=True, kw_only=True)
class LMOptions:
    """The options for LMs and their calls.

    Somebody waits for the answer, so an endpoint that is down is not waited for as long.
    """

    lm: Models = None
    api_base: Addresses = None
    timeout: Timeout = None
    lm_set: Annotated[list[str] | None, _of_lm(help=_LM_SETTING)] = None
    adapter: Annotated[AdapterName | None, _of_lm(help="Prompt format.")] = None
    patience: Patience = "30s"
    retries: Annotated[int, _of_lm(help=_RETRIES)] = 10
    no_cache: Annotated[bool, _of_lm("--no-cache", help="Bypass DSPy's cache.")] = False

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the LMs; messages about retries of their calls go to stderr."""
        if self.no_cache:
            dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
        lm_set = read_pairs(self.lm_set or (), "--lm-set")
        if isinstance(heat := lm_set.get("temperature"), str):  # DSPy compares it
            raise InputError(f"--lm-set temperature={heat}", expected="a number")
        models = self.lms(lm_set)
        log, handler = logging.getLogger("ga_dspy"), logging.StreamHandler(sys.stderr)
        log.addHandler(handler)
        adapted = dspy.context(adapter=ADAPTERS[self.adapter]()) if self.adapter else nullcontext()
        try:
            with ga_dspy.patient(outage=_seconds(self.patience), retries=self.retries), adapted:
                yield models
        finally:
            log.removeHandler(handler)

    def lms(self, settings: Mapping[str, Any]) -> LMs:
        """Return the LMs with these settings."""
        return choose_lms(self.lm, self.api_base, self.timeout, settings)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(LMOptions):
    """The options for the LMs of a command that may take hours, alone or on a cluster."""

    patience: Patience = "1h"
    ray: Ray = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield as without a cluster."""
        with on_ray(self.ray) if self.ray else nullcontext(), super().opened() as made:
            yield made


@dataclass(frozen=True, kw_only=True)
class AskingOptions(LMOptions):
    """The options that choose a program, with those for its LMs.

    Labels and conditions restrict what the program reads.
    """

    index: IndexDir
    graph: Graph = None
    label: Annotated[list[str] | None, _of_corpus(help=_LABEL)] = None
    where: Wanted = None
    program: Program = "graph-anchor"
    artifact: Artifact = None
    settings: Settings = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the program and its corpus; the LM is configured."""
        with super().opened() as models, dspy.context(lm=models.lm):
            yield self.asking(models)

    def asking(self, models: LMs) -> Asking:
        """Open the corpus and make the program; the configured LM must be that of `models`.

        Raises:
            InputError: An option is invalid, or does not fit the others.
        """
        kind = program_class(self.program, self.artifact)
        chosen = choose_settings(self.settings, kind)
        corpus = choose_corpus(
            self.index, self.graph, self.program, self.artifact, self.where, self.label or ()
        )
        made = choose_program(self.program, self.artifact, corpus, models, **chosen)
        return Asking(made, self.artifact or self.program, models, corpus)


@dataclass(frozen=True, kw_only=True)
class JudgedOptions(BatchOptions):
    """The options for the LMs of a command whose answers an LM may judge."""

    judge: Annotated[str | None, _of_lm(help=_JUDGE)] = None

    def lms(self, settings: Mapping[str, Any]) -> LMs:
        """Return the LMs with these settings, and the judge."""
        return choose_lms(self.lm, self.api_base, self.timeout, settings, judge=self.judge)


@dataclass(frozen=True, kw_only=True)
class EvaluatingOptions(JudgedOptions, AskingOptions):
    """The options that choose a program for a command that may take hours."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the option groups among a command's parameters by options, and add `--verbose`.

    A group is a dataclass, of which the command receives an instance. As `Annotated[T, group]`, the
    command receives what the group's `opened()` yields, a T, and runs inside it.
    """
    given = signature(command, eval_str=True)
    options, shared, groups = list[Parameter](), list[Parameter](), dict[str, Any]()
    for name, parameter in given.parameters.items():
        kind = parameter.annotation
        group = getattr(kind, "__metadata__", (kind,))[0]
        if is_dataclass(group):
            groups[name] = group
            fields = signature(groups[name], eval_str=True).parameters.values()
            (options if group is kind else shared).extend(fields)
        else:
            options.append(parameter)
    verbose = Parameter("verbose", Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)

    def run(verbose: bool, **arguments: Any) -> None:
        with ExitStack() as stack:
            for name, group in groups.items():
                own = {option: arguments.pop(option) for option in signature(group).parameters}
                made = group(**own)
                if hasattr(made, "opened"):
                    made = stack.enter_context(made.opened())
                arguments[name] = made
            command(**arguments)

    options += [*shared, verbose]
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
    vars(update_wrapper(run, command))["__signature__"] = given.replace(parameters=parameters)
    return run


def _seconds(text: str) -> float:
    """Parse a duration such as 10m into seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h|)", text.strip())
    if found is None:
        raise InputError(f"--patience {text}", expected="a time", remedy="pass 90, 90s, 10m or 2h")
    return float(found[1]) * {"h": 3600, "m": 60, "min": 60}.get(found[2], 1)


# --- What the options stand for


def choose_where(wanted: Sequence[str] | None) -> list[Where]:
    """Parse the `--where` options into conditions on metadata, all of which must hold.

    A search converts the values to the types of the field. A second comparison of a field with the
    same operator goes into another mapping.

    Raises:
        InputError: A condition is malformed.

    >>> choose_where(["lang=en", "page!=3", "page!=4"])
    [{'lang': {'=': 'en'}, 'page': {'!=': '3'}}, {'page': {'!=': '4'}}]
    """
    found = list[dict[str, Any]]()
    for text in wanted or ():
        parts = re.fullmatch(r"\s*([\w.-]+)\s*(>=|<=|!=|=|>|<)\s*(.+)", text)
        if parts is None:
            expected, remedy = "a field, a comparison and a value", "pass lang=en or 'date>=2020'"
            raise InputError(f"--where {text}", expected=expected, remedy=remedy)
        key, sign, value = parts.groups()
        free = next((one for one in found if sign not in one.get(key, {})), None)
        if free is None:
            found.append(free := {})
        free.setdefault(key, {})[sign] = value.strip()
    return list(found)


def only(corpus: Corpus, wanted: Sequence[str] | None) -> Corpus:
    """Return an index or a graph, restricted by the `--where` conditions."""
    for where in choose_where(wanted):
        corpus = corpus.only(where)
    return corpus


def choose_lm(
    name: str | None, api_base: str | None, timeout: float | None, settings: Mapping[str, Any] = {}
) -> dspy.LM:
    """Return the LM of that name, or the embedded one; a local LM gets 600 s per call, others 120.

    The name recorded:FILE stands for an LM that replays the replies in a file.

    Raises:
        InputError: There is an address without a model name, or the address has a password.
    """
    if name and name.startswith("recorded:"):
        return recorded_lm(name.removeprefix("recorded:"))
    if name is None or name == EMBEDDED:
        if api_base:
            found = f"--api-base {without_password(api_base)} without --lm"
            remedy = "add --lm openai/MODEL (any OpenAI-compatible server)"
            raise InputError(found, expected="the name of the model served there", remedy=remedy)
        return ga_dspy.extractive_lm(**settings)
    if is_local(server_address(name, api_base)):
        # DSPy would fetch LiteLLM's list of prices, where nothing has a price or may leave.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    given = {"timeout": timeout or default_timeout(name, api_base), **settings}
    if api_base:
        # Local servers ignore the key, but OpenAI-compatible clients require one.
        given |= {"api_base": api_base, "api_key": os.environ.get("OPENAI_API_KEY") or "none"}
    lm = dspy.LM(name, **given)
    check_addresses(lm)
    return lm


class LMs(NamedTuple):
    """The LMs named on the command line.

    Attributes:
        lm: The LM for steps that have none of their own, and for calls outside a program.
        steps: LMs by step name.
        is_for_all: Whether steps that have no LM of their own may call `lm`.
        named: Returns the LM of a role by its name, at the address of the role, else of all LMs.
        judge: The LM that judges answers.
    """

    lm: dspy.LM
    steps: dict[str, dspy.LM]
    is_for_all: bool
    named: Callable[[str, str], dspy.LM]
    judge: dspy.LM | None = None

    @property
    def all(self) -> tuple[dspy.LM, ...]:
        """The default LM, then those of single steps."""
        return self.lm, *self.steps.values()

    def check(self, *programs: MultiHopProgram) -> None:
        """Check that each step of the programs has an LM.

        Raises:
            InputError: A step has none, because `--lm` names LMs for other steps only.
        """
        steps = dict.fromkeys(name for one in programs for name, _ in one.named_predictors())
        lacking = [step for step in steps if step not in self.steps]
        if lacking and not self.is_for_all:
            remedy = f"add --lm NAME, or --lm {lacking[0]}=NAME"
            raise InputError(f"--lm names no LM for the step {lacking[0]}", remedy=remedy)


def choose_lms(
    names: Sequence[str] | None = None,
    addresses: Sequence[str] | None = None,
    timeout: float | None = None,
    settings: Mapping[str, Any] = {},
    judge: str | None = None,
) -> LMs:
    """Return the LM for all steps and the LMs of single steps; by default the embedded LM.

    If `--lm` names single steps only, calls outside a program go to the LM of the answer step. An
    empty address is the provider's own.

    Args:
        names: Model names: one for all steps, and `step=name` for single steps.
        addresses: Base URLs: one for all LMs, and `step=url` for single steps. The roles of
            `COMPILING` count as steps here; with a judge, so does "judge", which then is not the
            step of that name.
        timeout: Timeout per call in seconds.
        settings: Settings of all LMs.
        judge: Model name of the judge.

    Raises:
        InputError: As `choose_lm`; a step has two LMs or two addresses; or the judge is the
            embedded LM, which cannot compare meanings.
    """
    if judge == EMBEDDED:
        remedy = "pass --judge openai/gpt-4.1-mini"
        raise InputError(f"--judge {judge}", expected="an LLM", remedy=remedy)
    named, at = _by_step(names, "--lm"), _by_step(addresses, "--api-base")
    default, everywhere = named.pop("", None), at.pop("", None)
    reserved = (*COMPILING, "judge") if judge else COMPILING
    roles = {role: at.pop(role) for role in reserved if role in at}

    def make(name: str | None, address: str | None = everywhere) -> dspy.LM:
        return choose_lm(name, address or None, timeout, settings)

    def make_for(name: str, role: str) -> dspy.LM:
        return make(name, roles.get(role, everywhere))

    steps = dict[str, dspy.LM]()
    for step in named | at:
        name = named.get(step, default)
        steps[step] = make(name, at.get(step, None if name == EMBEDDED else everywhere))
    is_for_all = default is not None or not named
    lm = make(default) if is_for_all else steps.get("answer", [*steps.values()][-1])
    return LMs(lm, steps, is_for_all, make_for, make_for(judge, "judge") if judge else None)


def _by_step(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return values of the form `step=value` by step, and a plain value under the empty name.

    >>> _by_step(["openai/small", "answer=openai/big"], "--lm")
    {'': 'openai/small', 'answer': 'openai/big'}
    """
    found: dict[str, str] = {}
    for text in values or ():
        step, sign, value = text.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_][\w.]*", step):
            step, value = "", text  # an address may hold a "=" too
        if step in found:
            twice = f"two {option} for {step or 'all steps'}: {found[step]} and {value}"
            raise InputError(twice, expected="one", remedy="remove one, or name another step")
        found[step] = value
    return found


def choose_corpus(
    index: Path, graph: Path | None, program: str, artifact: str | None = None,
    wanted: Sequence[str] | None = None, labels: Sequence[str] = (),
) -> Index | GraphIndex:  # fmt: skip
    """Open the index, or the index with its graph, restricted by the `--where` conditions.

    The configured LM summarises communities if the program needs summaries that do not exist yet.

    Raises:
        InputError: There are labels without a graph; only graphs have labels.
    """
    if graph is None:
        if labels:
            remedy = "add --graph, or pass --where for conditions on metadata"
            raise InputError("--label without --graph", expected="a graph", remedy=remedy)
        return only(Index.open(index), wanted)
    summarised = program in ("graph-rag-hybrid", "graph-rag-global") or artifact is not None
    opened = GraphIndex.open(index, graph, summaries=summarised)
    return only(opened.for_caller(Access(labels=frozenset(labels))), wanted)


def choose_settings(
    pairs: Sequence[str] | None, *programs: type[MultiHopProgram]
) -> dict[str, Any]:
    """Parse the `--set` options into settings of the programs; `schema=FILE` is read.

    Raises:
        InputError: None of the programs has such a setting, or the value is invalid.
    """
    given = read_pairs(pairs or ())
    if isinstance(file := given.get("schema"), str):
        given["schema"] = Schema.read(file)
    return typed_settings(given, *programs)


def program_class(program: str, artifact: str | None = None) -> type[MultiHopProgram]:
    """Return the class of the program of that name, or of an artifact.

    Raises:
        InputError: There is no such program.
    """
    if artifact:
        return artifacts.PROGRAMS[artifacts.show(artifact).manifest.program]
    return method(program).program


def choose_program(
    program: str, artifact: str | None, retriever: Any, lms: LMs | None = None, **settings: Any
) -> MultiHopProgram:
    """Load the program of an artifact, or make the program of that name.

    Raises:
        InputError: There is no such program, or it has no such setting or step.
    """
    steps = lms.steps if lms else {}
    if artifact:
        made = artifacts.load(artifact, retriever=retriever, lms=steps, **settings)
    else:
        made = method(program).make(retriever, **settings)
        made.set_step_lms(steps)
    if lms:
        lms.check(made)
    return made
