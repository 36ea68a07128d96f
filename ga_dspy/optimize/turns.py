"""Turns of a search that no demonstration may show: they lead nowhere, or lean on nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import dspy

from ga_dspy.mentions import fold, mentions
from ga_dspy.optimize.faults import cited_in
from ga_dspy.signatures.prompt import said

_LABEL = re.compile(r"^\[(\d+)\] ", re.MULTILINE)
_TRIED = re.compile(r"^\d+\. (.*) => ", re.MULTILINE)
_SEARCHED = re.compile(r"^Search: (.*)$", re.MULTILINE)


def searches(demo: Mapping[str, Any]) -> bool:
    """Whether a turn that may search or answer searches."""
    return "transcript" in demo and bool(demo.get("query")) and not demo.get("answer")


def aimless(demo: Mapping[str, Any], signature: type[dspy.Signature]) -> Iterator[str]:
    """What a turn would teach that it must not.

    Repeating a thought or a query, neither thinking nor searching nor answering, answering
    without having read the answer, notes that cite what was not shown.
    """
    said_now = {name: said(str(demo.get(name) or "")) for name in signature.output_fields}
    query = said_now.get("next_query") or said_now.get("query")
    if query and fold(query) in _queries(demo):
        yield f"it repeats the query {query!r}"
    if "thoughts" in demo and "thought" in demo:
        if not said_now["thought"]:
            yield "it has no thought"
        elif said_now["thought"] in str(demo["thoughts"]).splitlines():
            yield "it repeats a thought"
    if "transcript" in demo and "answer" in demo and not searches(demo):
        yield from _unread(said_now["answer"], str(demo["transcript"]))
    if "notes" in said_now:
        yield from _uncited(said_now["notes"], demo)


def _queries(demo: Mapping[str, Any]) -> set[str]:
    tried = _TRIED.findall(str(demo.get("tried", "")))
    return {fold(query) for query in (*tried, *_SEARCHED.findall(str(demo.get("transcript", ""))))}


def _unread(answer: str, transcript: str) -> Iterator[str]:
    if not answer:
        yield "it neither searches nor answers"
    elif fold(answer) not in ("yes", "no") and not mentions(answer, transcript):
        yield f"its transcript does not hold the answer {answer!r}"
    elif not _LABEL.search(transcript):
        yield "it answers without having read a passage"


def _uncited(notes: str, demo: Mapping[str, Any]) -> Iterator[str]:
    shown = {int(label) for label in _LABEL.findall(str(demo.get("passages", "")))}
    shown |= {*cited_in(str(demo.get("notes_so_far", "")))}
    unknown = [str(label) for label in cited_in(notes) if label not in shown]
    if unknown:
        yield f"its notes cite passages that it does not show: {', '.join(unknown)}"
