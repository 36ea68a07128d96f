"""Options that several commands share, and the LMs, corpora and programs that they choose."""

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
from itertools import chain
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
"""The option of every command that prints all details of an error."""
COMPILE_ROLES: Final[tuple[str, ...]] = ("reflection", "prompt", "teacher")
"""The roles of the LMs that `compile` uses besides those of the program."""
Corpus = TypeVar("Corpus", Index, GraphIndex)
_of_lm = partial(Option, rich_help_panel="LM")
_of_program = partial(Option, rich_help_panel="Program")
_of_corpus = partial(Option, rich_help_panel="Documents")

_LM = (
    "DSPy model name; by default the embedded extractive LM. STEP=NAME sets the LM of one step, "
    "such as answer=openai/gpt-4.1. Repeatable."
)
_ADDRESS = (
    "Base URL of an OpenAI-compatible endpoint, for all LMs. STEP=URL sets that of one step; "
    "judge=URL that of --judge; reflection=, prompt= and teacher=URL those of compile. Repeatable."
)
_JUDGE = "LM that also judges each answer; its cost is reported separately."
_TIMEOUT = "Timeout of one LM call in seconds; by default 600 at a local address, else 120."
_LM_SETTING = "LM setting, such as max_tokens=2000 or temperature=0.7. Repeatable."
_LABEL = "Access label of the caller, for graphs with access labels. Repeatable."
_PATIENCE = "Time to wait for an endpoint that is down: 90 (seconds), 10m or 2h."
_RETRIES = "Retries of a failed LM call; 0 also disables waiting for an endpoint that is down."
_SETTING = "Program setting, such as k=10; `ga-dspy programs NAME` lists them. Repeatable."
_WHERE = (
    "Filter on metadata: lang=en, 'date>=2020'; with --graph also on relations: "
    "relation.time=2015. Repeatable."
)
_DATASET = "hotpotqa, musique, 2wikimultihopqa, bamboogle, or qa for your own questions."

Dataset = Annotated[str, Option(help=_DATASET)]
Limit = Annotated[int | None, Option(help="Ask only the first N questions.")]
Threads = Annotated[int, Option(help="Number of questions to ask in parallel.")]
Yes = Annotated[bool, Option("--yes", help="Do not ask for confirmation.")]
Verbose = Annotated[bool, Option(VERBOSE, help="Print all details of an error.")]
Json = Annotated[bool, Option("--json", help="Print JSON only.")]
Ray = Annotated[str | None, Option("--ray", help="Address of the Ray cluster to use, or auto.")]
Models = Annotated[list[str] | None, _of_lm("--lm", help=_LM)]
Addresses = Annotated[list[str] | None, _of_lm("--api-base", help=_ADDRESS)]
Timeout = Annotated[float | None, _of_lm(help=_TIMEOUT)]
Patience = Annotated[str, _of_lm(help=_PATIENCE)]
IndexDir = Annotated[Path, _of_corpus("--index", help="Folder of the index.")]
Graph = Annotated[Path | None, _of_corpus(help="Folder of the graph (GraphRAG programs).")]
WhereFilters = Annotated[list[str] | None, _of_corpus("--where", help=_WHERE)]
Program = Annotated[str, _of_program(help="Name of the program; `ga-dspy programs` lists them.")]
Artifact = Annotated[
    str | None, _of_program(help="Compiled program: a folder, models:/NAME@ALIAS or runs:/….")
]
Settings = Annotated[list[str] | None, _of_program("--set", help=_SETTING)]


# --- Option groups


class Asking(NamedTuple):
    """A program over a corpus, its name or artifact, and the LMs of the command line."""

    program: MultiHopProgram
    name: str
    models: LMs
    corpus: Index | GraphIndex


@dataclass(frozen=True, kw_only=True)
class LMOptions:
    """The options for LMs and LM calls; the patience is short, because a user is waiting."""

    lm: Models = None
    api_base: Addresses = None
    timeout: Timeout = None
    lm_set: Annotated[list[str] | None, _of_lm(help=_LM_SETTING)] = None
    adapter: Annotated[AdapterName | None, _of_lm(help="DSPy adapter (prompt format).")] = None
    patience: Patience = "30s"
    retries: Annotated[int, _of_lm(help=_RETRIES)] = 10
    no_cache: Annotated[bool, _of_lm("--no-cache", help="Bypass DSPy's cache.")] = False

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the LMs; log messages about retries go to stderr."""
        if self.no_cache:
            dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
        lm_set = read_pairs(self.lm_set or (), "--lm-set")
        temperature = lm_set.get("temperature")
        if isinstance(temperature, str):  # DSPy would fail to compare it with a number
            raise InputError(f"--lm-set temperature={temperature}", expected="a number")
        judge = getattr(self, "judge", None)
        models = choose_lms(self.lm, self.api_base, self.timeout, lm_set, judge=judge)
        log, handler = logging.getLogger("ga_dspy"), logging.StreamHandler(sys.stderr)
        log.addHandler(handler)
        adapted = dspy.context(adapter=ADAPTERS[self.adapter]()) if self.adapter else nullcontext()
        try:
            with ga_dspy.patient(outage=_seconds(self.patience), retries=self.retries), adapted:
                yield models
        finally:
            log.removeHandler(handler)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(LMOptions):
    """The options for the LMs of a command that may take hours, on this machine or a cluster."""

    patience: Patience = "1h"
    ray: Ray = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield what the base class yields, connected to the cluster."""
        with on_ray(self.ray) if self.ray else nullcontext(), super().opened() as yielded:
            yield yielded


@dataclass(frozen=True, kw_only=True)
class AskingOptions(LMOptions):
    """The options that choose a program, its LMs, and the part of a corpus that it may read."""

    index: IndexDir
    graph: Graph = None
    label: Annotated[list[str] | None, _of_corpus(help=_LABEL)] = None
    where: WhereFilters = None
    program: Program = "graph-anchor"
    artifact: Artifact = None
    settings: Settings = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the program and its corpus, with the LM configured in DSPy."""
        with super().opened() as models, dspy.context(lm=models.lm):
            yield self.asking(models)

    def asking(self, models: LMs) -> Asking:
        """Open the corpus and create the program; `models.lm` must be configured in DSPy.

        Raises:
            InputError: An option is invalid, or contradicts another.
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


@dataclass(frozen=True, kw_only=True)
class EvaluatingOptions(JudgedOptions, AskingOptions):
    """The options that choose a program for a command that may take hours."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Expand a command's option groups into single options, and add `--verbose`.

    An option group is a dataclass. A parameter of that type receives an instance. A parameter of
    type `Annotated[T, group]` receives the T that the context manager `group(…).opened()` yields,
    and the command runs inside that context.
    """
    declared = signature(command, eval_str=True)
    options, shared, groups = list[Parameter](), list[Parameter](), dict[str, Any]()
    for name, parameter in declared.parameters.items():
        annotation = parameter.annotation
        group = getattr(annotation, "__metadata__", (annotation,))[0]
        if is_dataclass(group):
            groups[name] = group
            fields = signature(groups[name], eval_str=True).parameters.values()
            (options if group is annotation else shared).extend(fields)
        else:
            options.append(parameter)
    verbose = Parameter("verbose", Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)

    def run(verbose: bool, **arguments: Any) -> None:
        with ExitStack() as stack:
            for name, group in groups.items():
                values = {field: arguments.pop(field) for field in signature(group).parameters}
                arguments[name] = group(**values)
                if hasattr(group, "opened"):
                    arguments[name] = stack.enter_context(arguments[name].opened())
            command(**arguments)

    options += [*shared, verbose]
    parameters = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
    vars(update_wrapper(run, command))["__signature__"] = declared.replace(parameters=parameters)
    return run


def _seconds(text: str) -> float:
    """Parse a duration such as 10m into seconds."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h|)", text.strip())
    if parts is None:
        raise InputError(f"--patience {text}", expected="a time", remedy="pass 90, 90s, 10m or 2h")
    return float(parts[1]) * {"h": 3600, "m": 60, "min": 60}.get(parts[2], 1)


# --- LMs, corpora and programs from the options


def choose_where(wanted: Sequence[str] | None) -> list[Where]:
    """Parse the `--where` options into conditions on metadata, all of which must hold.

    The values stay texts; a search converts them to the type of the field. If a field is compared
    twice with one operator, the second comparison goes into another mapping.

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
        field, operator, value = parts.groups()
        free = next((where for where in found if operator not in where.get(field, {})), None)
        if free is None:
            found.append(free := {})
        free.setdefault(field, {})[operator] = value.strip()
    return list(found)


def only(corpus: Corpus, wanted: Sequence[str] | None) -> Corpus:
    """Return an index or a graph restricted by the `--where` conditions."""
    for where in choose_where(wanted):
        corpus = corpus.only(where)
    return corpus


def choose_lm(
    name: str | None, api_base: str | None, timeout: float | None, settings: Mapping[str, Any] = {}
) -> dspy.LM:
    """Return the named LM, by default the embedded one.

    The default timeout is 600 seconds at a local address, else 120. The name `recorded:FILE` means
    an LM that replays the replies in a file.

    Raises:
        InputError: An address has no model name, or contains a password.
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
        # Otherwise DSPy downloads LiteLLM's price list, although a local LM has no price.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    options = {"timeout": timeout or default_timeout(name, api_base), **settings}
    if api_base:
        # Local servers ignore the key, but OpenAI-compatible clients require one.
        options |= {"api_base": api_base, "api_key": os.environ.get("OPENAI_API_KEY") or "none"}
    lm = dspy.LM(name, **options)
    check_addresses(lm)
    return lm


class LMs(NamedTuple):
    """The LMs named on the command line.

    Attributes:
        lm: The LM for steps that `steps` does not name, and for calls outside a program.
        steps: LMs by step name.
        is_for_all: Whether steps that `steps` does not name may call `lm`.
        named: Returns an LM by model name and role, at the address of the role, else of all LMs.
        judge: The LM that judges answers.
    """

    lm: dspy.LM
    steps: dict[str, dspy.LM]
    is_for_all: bool
    named: Callable[[str, str], dspy.LM]
    judge: dspy.LM | None = None

    @property
    def all(self) -> tuple[dspy.LM, ...]:
        """The default LM, then the LMs of single steps."""
        return self.lm, *self.steps.values()

    def check(self, *programs: MultiHopProgram) -> None:
        """Check that each step of the programs has an LM.

        Raises:
            InputError: A step has none, because `--lm` names LMs for other steps only.
        """
        for step, _ in chain.from_iterable(program.named_predictors() for program in programs):
            if not self.is_for_all and step not in self.steps:
                remedy = f"add --lm NAME, or --lm {step}=NAME"
                raise InputError(f"--lm names no LM for the step {step}", remedy=remedy)


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
            `COMPILE_ROLES` count as steps here. With a judge, so does "judge", instead of the step
            of that name.
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
    name_of, address_of = _by_step(names, "--lm"), _by_step(addresses, "--api-base")
    default, everywhere = name_of.pop("", None), address_of.pop("", None)
    roles = (*COMPILE_ROLES, "judge") if judge else COMPILE_ROLES
    role_address = {role: address_of.pop(role) for role in roles if role in address_of}

    def make(name: str | None, address: str | None = everywhere) -> dspy.LM:
        return choose_lm(name, address or None, timeout, settings)

    def make_for(name: str, role: str) -> dspy.LM:
        return make(name, role_address.get(role, everywhere))

    steps = dict[str, dspy.LM]()
    for step in name_of | address_of:
        name = name_of.get(step, default)
        steps[step] = make(name, address_of.get(step, None if name == EMBEDDED else everywhere))
    is_for_all = default is not None or not name_of
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
            step, value = "", text  # an address may contain "=", too
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
    settings = read_pairs(pairs or ())
    if isinstance(file := settings.get("schema"), str):
        settings["schema"] = Schema.read(file)
    return typed_settings(settings, *programs)


def program_class(program: str, artifact: str | None = None) -> type[MultiHopProgram]:
    """Return the program class of a name or an artifact.

    Raises:
        InputError: There is no such program.
    """
    if artifact:
        return artifacts.PROGRAMS[artifacts.show(artifact).manifest.program]
    return method(program).program


def choose_program(
    program: str, artifact: str | None, retriever: Any, lms: LMs | None = None, **settings: Any
) -> MultiHopProgram:
    """Load the program of an artifact, or create the named program.

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
