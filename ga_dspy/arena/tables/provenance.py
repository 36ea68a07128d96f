"""Under which protocol every number was measured, and every question that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ga_dspy.arena.labels import ordered
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Runs
from ga_dspy.arena.tables.table import Column, Missing, Table, Value, mark_notes, row
from ga_dspy.eval import Protocol
from ga_dspy.passage import Passage

_DIGITS = 12
_OWN_COLUMNS = ("k", "max_steps", "token_budget")


def protocols(runs: Runs) -> Table:
    """The protocol of every run."""
    found = ordered(runs)
    names = (
        *("Protocol", "Split", "Questions", "File", "Corpus", "Retriever", "Encoder"),
        *("k", "Steps", "Score", "Sampling", "Settings", "Versions"),
    )
    return Table(
        name="protocols",
        title="Protocols",
        about="What decides the numbers of each run. Digests are SHA-256, cut short: of the "
        "questions asked, of their file and of the passages searched. Settings are those that "
        "differ from the program's defaults. protocol.json has all of it, uncut.",
        columns=tuple(Column(name, "text") for name in names),
        rows=tuple(row(run, *_told(run.report.protocol)) for run in found),
        notes=mark_notes(runs, found),
    )


def failures(runs: Runs) -> Table | Missing:
    """Every question that failed, of every run."""
    title = "Failed questions"
    found = [run for run in ordered(runs) if run.report.failed]
    if not found:
        return Missing("failures", title, "a question that fails; none did")
    return Table(
        name="failures",
        title=title,
        about="All of them. Each scores 0 in every mean of its run.",
        columns=(Column("Question", "text"), Column("Error", "text")),
        rows=tuple(
            replace(row(run, result.id, result.error), n=None, failed=None)
            for run in found
            for result in run.report.failed
        ),
        notes=mark_notes(runs, found),
    )


def unusual_settings(protocol: Protocol) -> dict[str, Any]:
    """The settings of a run that differ from its program's defaults; all of an unknown program's.

    Those that the protocol names beside its settings are left out.
    """
    defaults = _defaults(protocol)
    return {
        name: value
        for name, value in protocol.settings.items()
        if name not in _OWN_COLUMNS and (name not in defaults or defaults[name] != value)
    }


def _told(protocol: Protocol) -> list[Value]:
    return [
        protocol.hash,
        protocol.split or None,
        protocol.questions_sha256[:_DIGITS],
        _cut(protocol.sha256),
        _cut(protocol.corpus),
        protocol.retriever or None,
        protocol.encoder or None,
        None if protocol.k is None else str(protocol.k),
        None if protocol.steps is None else str(protocol.steps),
        protocol.score,
        _words(protocol.sampling),
        _words({**unusual_settings(protocol), **_budget(protocol)}),
        _words(protocol.versions),
    ]


def _budget(protocol: Protocol) -> dict[str, Any]:
    budget = protocol.settings.get("token_budget")
    return {} if budget is None else {"token_budget": budget}


def _cut(digest: str | None) -> str | None:
    return digest and digest[:_DIGITS]


def _words(settings: Mapping[str, Any]) -> str | None:
    told = (
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in sorted(settings.items())
    )
    return ", ".join(told) or None


def _defaults(protocol: Protocol) -> dict[str, Any]:
    if protocol.program in METHODS:
        return METHODS[protocol.program].program(_nothing).settings()
    # A compiled program has a name of its own; its settings tell what it is.
    for method in METHODS.values():
        defaults = method.program(_nothing).settings()
        if defaults.keys() == protocol.settings.keys():
            return defaults
    return {}


def _nothing(query: str, k: int) -> list[Passage]:
    """A retriever for programs that are made only to be asked their settings."""
    return []
