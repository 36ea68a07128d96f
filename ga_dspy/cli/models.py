"""Which LM and which program a command line names."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import dspy

from ga_dspy.arena.methods import METHODS, method
from ga_dspy.errors import InputError
from ga_dspy.eval import ScoreVariant
from ga_dspy.graphrag import GraphIndex
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval import Index

EMBEDDED = "ga-dspy/extractive"


@dataclass(frozen=True)
class Choice:
    """What a command line says about who answers."""

    program: str = "graph-anchor"
    artifact: str | None = None
    lm: str | None = None
    api_base: str | None = None
    timeout: float = 120.0
    graph: Path | None = None
    labels: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The program as reports name it."""
        return f"{self.artifact}" if self.artifact else self.program


class ChosenLM(NamedTuple):
    """An LM with the name it goes by in reports."""

    lm: dspy.LM
    name: str

    @property
    def is_embedded(self) -> bool:
        """Whether it is the extractive LM that ships with the library."""
        return self.name == EMBEDDED


def choose_lm(choice: Choice) -> ChosenLM:
    """The LM that a command line names, or the embedded one.

    Raises:
        InputError: An address without a model name.
    """
    name, api_base = choice.lm, choice.api_base
    if name is None or name == EMBEDDED:
        if api_base:
            raise InputError(
                f"--api-base {api_base} without --lm",
                expected="the name of the model served there",
                remedy="add --lm openai/MODEL (any OpenAI-compatible server)",
            )
        from ga_dspy.lm import extractive_lm

        return ChosenLM(extractive_lm(), EMBEDDED)
    settings: dict[str, Any] = {"timeout": choice.timeout}
    if api_base:
        settings |= {"api_base": api_base, "api_key": _key()}
    return ChosenLM(dspy.LM(name, **settings), name)


def _key() -> str:
    # Local servers ignore the key, but OpenAI-compatible clients insist on one.
    return os.environ.get("OPENAI_API_KEY") or "none"


def choose_corpus(index: Path, choice: Choice) -> Index | GraphIndex:
    """The index, with the graph of its passages where the command line names one.

    Communities are summarised by the LM in use, unless they are already or nothing needs them.
    """
    if choice.graph is None:
        return Index.open(index)
    summarised = choice.program in ("graph-rag-hybrid", "graph-rag-global") or bool(choice.artifact)
    return GraphIndex.open(index, choice.graph, summaries=summarised)


def choose_program(choice: Choice, retriever: Any) -> MultiHopProgram:
    """The compiled program that a command line names, else the program by its name.

    Raises:
        InputError: There is no such program, or it has no such setting.
    """
    if choice.artifact:
        from ga_dspy.artifact import load

        return load(choice.artifact, retriever=retriever, **choice.settings)
    if choice.program not in METHODS:
        raise InputError(
            f"--program {choice.program}",
            expected=f"one of {', '.join(METHODS)}",
            remedy="pass --program graph-anchor",
        )
    return method(choice.program).make(retriever, **choice.settings)


def score_variant(name: str) -> ScoreVariant:
    """The F1 that a command line names.

    Raises:
        InputError: There is no such score.
    """
    if name in get_args(ScoreVariant):
        return cast(ScoreVariant, name)
    raise InputError(
        f"--score {name}",
        expected=f"one of {', '.join(get_args(ScoreVariant))}",
        remedy="leave it out: HotpotQA's official rule counts",
    )
