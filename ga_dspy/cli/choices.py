"""What several commands let you choose: the LM, the index, the program, the score."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from functools import update_wrapper
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_type_hints

import dspy
import typer
from dspy.adapters.baml_adapter import BAMLAdapter
from pydantic import TypeAdapter, ValidationError

import ga_dspy
from ga_dspy.arena.methods import method
from ga_dspy.artifact import PROGRAMS, load, show
from ga_dspy.cluster import on_ray
from ga_dspy.errors import InputError
from ga_dspy.eval import ScoreVariant
from ga_dspy.eval.protocol import EMBEDDED
from ga_dspy.graphrag import Access, GraphIndex
from ga_dspy.patience import default_timeout
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval import Index, Where
from ga_dspy.secrets import check_addresses, without_password

Dataset = Annotated[
    str, typer.Option(help="hotpotqa, musique, 2wikimultihopqa, bamboogle; qa: questions of yours.")
]
IndexDir = Annotated[Path, typer.Option("--index", help="Folder of a built index.")]
Model = Annotated[
    str | None,
    typer.Option("--lm", help="Any DSPy model name; the embedded extractive LM where left out."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--lm",
        help="Any DSPy model name; the embedded extractive LM where left out. STEP=NAME for one "
        "step, such as answer=openai/gpt-4.1; repeatable.",
    ),
]
ApiBase = Annotated[
    str | None, typer.Option("--api-base", help="Address of an OpenAI-compatible endpoint.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds to wait for one LM call.", show_default="600 for a local --api-base, else 120"
    ),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--api-base",
        help="Address of an OpenAI-compatible endpoint, for all LMs. STEP=URL for one step; "
        "repeatable.",
    ),
]
Artifact = Annotated[
    str | None,
    typer.Option(help="A compiled program: a folder, or models:/name@alias, or runs:/…"),
]
Program = Annotated[
    str, typer.Option(help="graph-anchor, vanilla-rag, ircot, iter-retgen, deep-note, …")
]
Graph = Annotated[
    Path | None, typer.Option("--graph", help="The graph of its passages, for graph-rag.")
]
Score = Annotated[
    ScoreVariant, typer.Option(help="Which F1 counts: official (HotpotQA's script) or squad.")
]
JudgeModel = Annotated[
    str | None,
    typer.Option("--judge", help="An LM that judges each answer as well; its cost is kept apart."),
]
Limit = Annotated[int | None, typer.Option(help="Only the first N questions.")]
Threads = Annotated[int, typer.Option(help="Questions asked at once.")]
AbortAfter = Annotated[
    int, typer.Option(help="Stop after N failures in a row that are no question's own; 0: never.")
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Ask also what failed for its own sake again."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A setting of the program: k=10, abstain=chained, style=report; repeatable."
    ),
]
Labels = Annotated[list[str] | None, typer.Option(help="An access label of yours; repeatable.")]
Wanted = Annotated[
    list[str] | None,
    typer.Option(
        "--where", help="Only passages with such metadata: lang=en, 'date>=2020'; repeatable."
    ),
]
Patience = Annotated[
    str, typer.Option(help="How long an endpoint that is down is waited for: 90, 10m, 2h.")
]
Retries = Annotated[
    int, typer.Option(help="Further attempts of an LM call that failed; 0 waits for nothing.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Ask anew what DSPy has cached.")]
AdapterName = Literal["plain", "schema", "chat", "json", "xml", "baml"]
Adapter = Annotated[AdapterName | None, typer.Option(help="How prompts are put.")]
LmSettings = Annotated[
    list[str] | None,
    typer.Option(help="A setting of the LM: max_tokens=2000, temperature=0.7; repeatable."),
]
Ray = Annotated[
    str | None,
    typer.Option("--ray", help="Spread the work over a Ray cluster: its address, or auto."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask about the estimate.")]


ADAPTERS: Final[dict[AdapterName, type[dspy.Adapter]]] = {
    "plain": ga_dspy.PlainAdapter,
    "schema": ga_dspy.SchemaAdapter,
    "chat": dspy.ChatAdapter,
    "json": dspy.JSONAdapter,
    "xml": dspy.XMLAdapter,
    "baml": BAMLAdapter,
}
_LM_SETTINGS: ContextVar[dict[str, Any]] = ContextVar("ga_dspy_lm_settings")


def with_patience(
    command: Callable[..., None], outage: str = "1h", *, spreads: bool = True
) -> Callable[..., None]:
    """A command with the options of how LM calls are made; what they wait for goes to stderr.

    Args:
        command: The command.
        outage: How long it waits for an endpoint that is down if nothing else is asked.
        spreads: Whether its work can be spread over a cluster.
    """

    def run(
        patience: Patience = outage, retries: Retries = 10, no_cache: NoCache = False,
        adapter: Adapter = None, lm_set: LmSettings = None, ray: Ray = None, **arguments: Any,
    ) -> None:  # fmt: skip
        if no_cache:
            dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
        _LM_SETTINGS.set(read_pairs(lm_set, "--lm-set"))
        log, handler = logging.getLogger("ga_dspy"), logging.StreamHandler(sys.stderr)
        log.addHandler(handler)
        try:
            spread = on_ray(ray) if ray else nullcontext()
            asked = dspy.context(adapter=ADAPTERS[adapter]()) if adapter else nullcontext()
            with ga_dspy.patient(outage=_seconds(patience), retries=retries), spread, asked:
                command(**arguments)
        finally:
            log.removeHandler(handler)

    return _extended(run, command, without=() if spreads else ("ray",))


def _extended(
    run: Callable[..., None], command: Callable[..., None], *, without: Collection[str]
) -> Callable[..., None]:
    """A function in a command's place: takes what the command does, and options of its own.

    Args:
        run: The function; its last parameter is what is handed on.
        command: The command.
        without: Parameters of either that are no options.
    """
    given = signature(command, eval_str=True)
    *own, _ = signature(run, eval_str=True).parameters.values()
    more = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    options = [each for each in (*given.parameters.values(), *more) if each.name not in without]
    vars(update_wrapper(run, command))["__signature__"] = given.replace(parameters=options)
    return run


def _seconds(text: str) -> float:
    """A time that the command line names, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h|)", text.strip())
    if found is None:
        raise InputError(f"--patience {text}", expected="a time", remedy="pass 90, 90s, 10m or 2h")
    return float(found[1]) * {"h": 3600, "m": 60, "min": 60}.get(found[2], 1)


class Asking(NamedTuple):
    """What a command asks: a program over an index, and the LM of steps without their own."""

    program: MultiHopProgram
    lm: dspy.LM
    corpus: Index | GraphIndex

    @property
    def lms(self) -> tuple[dspy.BaseLM, ...]:
        """All LMs."""
        return self.lm, *self.program.step_lms().values()


def with_program(command: Callable[..., None]) -> Callable[..., None]:
    """A command that is handed an `Asking`, with the options that choose it.

    It runs with the LM in force; index and program see what labels and conditions allow.
    """

    def run(
        index: IndexDir, program: Program = "graph-anchor", artifact: Artifact = None,
        lm: Models = None, api_base: Addresses = None, timeout: Timeout = None,
        graph: Graph = None,
        label: Labels = None, where: Wanted = None, settings: Settings = None, **arguments: Any,
    ) -> None:  # fmt: skip
        models = choose_lms(lm, api_base, timeout)
        chosen = choose_settings(settings, program_class(program, artifact)) if settings else {}
        with dspy.context(lm=models.lm):
            corpus = choose_corpus(index, graph, program, artifact, where)
            if label:
                corpus = for_labels(corpus, label)
            made = choose_program(program, artifact, corpus, models, **chosen)
            command(Asking(made, models.lm, corpus), **arguments)

    return _extended(run, command, without=("asking",))


def for_labels(corpus: Index | GraphIndex, labels: Sequence[str]) -> GraphIndex:
    """The corpus for a caller who holds access labels.

    Raises:
        InputError: There is no graph, to which labels belong.
    """
    if not isinstance(corpus, GraphIndex):
        raise InputError(
            f"--label {labels[0]} without --graph",
            expected="a graph, some of whose passages need labels",
            remedy="name it with --graph, or pass --where for conditions on metadata",
        )
    return corpus.for_caller(Access(labels=frozenset(labels)))


def choose_where(wanted: Sequence[str] | None) -> list[Where]:
    """The conditions on metadata that the command line names; all of them must hold.

    Values are read by the types of the field's own. Mappings are as many as it takes to compare a
    field in one way twice.

    Raises:
        InputError: One of them is malformed.

    >>> choose_where(["lang=en", "page!=3", "page!=4"])
    [{'lang': {'=': 'en'}, 'page': {'!=': '3'}}, {'page': {'!=': '4'}}]
    """
    found: list[dict[str, dict[str, str]]] = []
    for text in wanted or ():
        parts = re.fullmatch(r"\s*([\w.-]+)\s*(>=|<=|!=|=|>|<)\s*(.+)", text)
        if parts is None:
            raise InputError(
                f"--where {text}",
                expected="a field, a comparison and a value",
                remedy="pass lang=en or 'date>=2020'",
            )
        key, sign, value = parts.groups()
        free = next((one for one in found if sign not in one.get(key, {})), None)
        if free is None:
            free = {}
            found.append(free)
        free.setdefault(key, {})[sign] = value.strip()
    return list(found)


def open_only(index: Path, wanted: Sequence[str] | None) -> Index:
    """Open an index, or its passages that meet the conditions which the command line names."""
    conditions = choose_where(wanted)
    opened = Index.open(index)
    for where in conditions:
        opened = opened.only(where)
    return opened


def choose_lm(name: str | None, api_base: str | None, timeout: float | None) -> dspy.LM:
    """The LM of that name, or the embedded one; a local server has 600 s a call, another 120.

    Raises:
        InputError: An address without a model name, or with a password.
    """
    if name is None or name == EMBEDDED:
        if api_base:
            raise InputError(
                f"--api-base {without_password(api_base)} without --lm",
                expected="the name of the model served there",
                remedy="add --lm openai/MODEL (any OpenAI-compatible server)",
            )
        return ga_dspy.extractive_lm(**_LM_SETTINGS.get({}))
    settings: dict[str, Any] = {"timeout": timeout or default_timeout(name, api_base)}
    settings |= _LM_SETTINGS.get({})
    if api_base:
        # Local servers ignore the key, but OpenAI-compatible clients insist on one.
        settings |= {"api_base": api_base, "api_key": os.environ.get("OPENAI_API_KEY") or "none"}
    lm = dspy.LM(name, **settings)
    check_addresses(lm)
    return lm


class LMs(NamedTuple):
    """The LMs that the command line names.

    Attributes:
        lm: Asked by steps without an LM of their own, and outside of programs.
        steps: LMs of steps, by the step's name.
        is_for_all: Whether steps without an LM of their own may ask `lm`.
        address: Of endpoints, where no step is named.
    """

    lm: dspy.LM
    steps: dict[str, dspy.LM]
    is_for_all: bool
    address: str | None

    @property
    def all(self) -> tuple[dspy.LM, ...]:
        """All of them."""
        return self.lm, *self.steps.values()

    def check(self, *programs: MultiHopProgram) -> None:
        """Check that each step of the programs has an LM.

        Raises:
            InputError: One has none: LMs are named for other steps alone.
        """
        steps = dict.fromkeys(name for one in programs for name, _ in one.named_predictors())
        lacking = [step for step in steps if step not in self.steps]
        if lacking and not self.is_for_all:
            raise InputError(
                f"--lm names no LM for the step {lacking[0]}",
                expected=f"one for each of {', '.join(steps)}, or one for all",
                remedy=f"add --lm NAME, or --lm {lacking[0]}=NAME",
            )


def choose_lms(
    names: Sequence[str] | None, addresses: Sequence[str] | None, timeout: float | None
) -> LMs:
    """The LM for all steps, and those of single steps; the embedded one where none is named.

    Where each step is named alone, what is no step asks the LM of the answer.

    Raises:
        InputError: As of `choose_lm`; or one step has two LMs, or two addresses.
    """
    named, at = _by_step(names, "--lm"), _by_step(addresses, "--api-base")
    everywhere = at.pop("", None)
    default = named.pop("", None)
    steps = dict[str, dspy.LM]()
    for step in {**named, **at}:
        name = named.get(step, default)
        address = at.get(step, None if name == EMBEDDED else everywhere)
        steps[step] = choose_lm(name, address, timeout)
    is_for_all = default is not None or not named
    last = steps.get("answer") or next(reversed(steps.values()), None)
    lm = choose_lm(default, everywhere, timeout) if is_for_all or last is None else last
    return LMs(lm, steps, is_for_all, everywhere)


def _by_step(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """Values of the form `step=value`, by the step; of others, under the empty name.

    >>> _by_step(["openai/small", "answer=openai/big"], "--lm")
    {'': 'openai/small', 'answer': 'openai/big'}
    """
    found: dict[str, str] = {}
    for text in values or ():
        step, sign, value = text.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_][\w.]*", step):
            step, value = "", text  # an address may hold a "=" too
        if step in found:
            raise InputError(
                f"two {option} for {step or 'all steps'}: {found[step]} and {value}",
                expected="one",
                remedy="leave one out, or name another step",
            )
        found[step] = value
    return found


def choose_judge(name: str | None, api_base: str | None, timeout: float | None) -> dspy.LM | None:
    """The LM that judges answers; None for none.

    Raises:
        InputError: It is the embedded LM, which can compare no meanings.
    """
    if name == EMBEDDED:
        raise InputError(
            f"--judge {name}", expected="an LLM", remedy="such as --judge openai/gpt-4.1-mini"
        )
    return choose_lm(name, api_base, timeout) if name else None


def choose_corpus(
    index: Path,
    graph: Path | None,
    program: str,
    artifact: str | None = None,
    wanted: Sequence[str] | None = None,
) -> Index | GraphIndex:
    """The index, or its passages that meet conditions; with the graph of them where there is one.

    Communities are summarised by the LM in use, unless they are already or nothing needs them.

    Raises:
        InputError: Conditions together with a graph, which cannot keep them.
    """
    if graph is None:
        return open_only(index, wanted)
    if wanted:
        raise InputError(
            f"--where {wanted[0]} together with --graph, which cannot keep it",
            expected="one of the two",
            remedy="leave out --graph; or build a graph with labels and pass --label",
        )
    summarised = program in ("graph-rag-hybrid", "graph-rag-global") or artifact is not None
    return GraphIndex.open(index, graph, summaries=summarised)


def read_pairs(pairs: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Texts of the form `name=value`; values are read as JSON, or are texts.

    Raises:
        InputError: There is no "=" in one.

    >>> read_pairs(["demos=3", "strategy=demos -> demos"], "--set")
    {'demos': 3, 'strategy': 'demos -> demos'}
    """
    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, sign, value = (part.strip() for part in pair.partition("="))
        if not sign:
            raise InputError(f"{option} {pair}", expected="name=value", remedy="such as k=10")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def choose_settings(
    pairs: Sequence[str] | None, *programs: type[MultiHopProgram]
) -> dict[str, Any]:
    """Settings of programs that the command line names, in the types that they declare.

    Raises:
        InputError: None of the programs has such a setting, or it cannot have that value.

    >>> choose_settings(["k=10", "abstain=None", "anchored=yes"], ga_dspy.GraphAnchor)
    {'k': 10, 'abstain': None, 'anchored': True}
    """
    found: dict[str, Any] = {}
    types = {
        name: (get_type_hints(kind)[name], one.metadata["doc"])
        for kind in reversed(programs)
        for name, one in kind.declared().items()
        if one.metadata["saved"]
    }
    for name, value in read_pairs(pairs, "--set").items():
        if name not in types:
            raise InputError(
                f"--set {name}={value}",
                expected=f"one of {', '.join(sorted(types))}",
                remedy="leave it out, or choose a program that has it",
            )
        kind, doc = types[name]
        try:
            given = None if str(value).lower() in ("none", "null") else value
            found[name] = TypeAdapter(kind).validate_python(given)
        except ValidationError as error:
            raise InputError(
                f"--set {name}={value}",
                expected=error.errors()[0]["msg"].lower().removeprefix("input should be "),
                remedy=f"{name} is: {doc}",
            ) from error
    return found


def program_class(program: str, artifact: str | None = None) -> type[MultiHopProgram]:
    """The class of the program of that name, or of a compiled one.

    Raises:
        InputError: There is no such program.
    """
    if artifact:
        return PROGRAMS[show(artifact).manifest.program]
    return method(program).program


def choose_program(
    program: str, artifact: str | None, retriever: Any, lms: LMs | None = None, **settings: Any
) -> MultiHopProgram:
    """The compiled program of an artifact, else the program of that name.

    Raises:
        InputError: There is no such program, or it has no such setting or step.
    """
    steps = lms.steps if lms else {}
    if artifact:
        made = load(artifact, retriever=retriever, lms=steps, **settings)
    else:
        made = method(program).make(retriever, **settings)
        made.set_step_lms(steps)
    if lms:
        lms.check(made)
    made.check_ready()
    return made
