"""A growing context of thoughts, searches and what they brought, taken apart again."""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.passages import read_passages

_BLANK = re.compile(r"\n[ \t]*\n")
_LABELLED = re.compile(r"\[\d+\]")
_TURN = re.compile(r"(Thought|Search):[ \t]*")


class Transcript(NamedTuple):
    """What a transcript holds, each in its order."""

    thoughts: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    docs: tuple[Doc, ...] = ()


def read_transcript(text: str) -> Transcript:
    r"""Read blocks divided by blank lines: "Thought: ...", "Search: ...", and passages.

    A passage stands behind a search; what else has no heading goes on with the thought before it,
    and words behind a search that are no passage ("nothing new") are none of the three.

    >>> read_transcript("Search: red lodge\n\n[1] Red Lodge\nA city.\n\nThought: It is a city.")
    ... # doctest: +NORMALIZE_WHITESPACE
    Transcript(thoughts=('It is a city.',), searches=('red lodge',),
               docs=(Doc(label=1, title='Red Lodge', text='A city.'),))
    """
    thoughts: list[str] = []
    searches: list[str] = []
    brought: list[list[str]] = []
    searched = False
    for block in _BLANK.split(text.strip()):
        if turn := _TURN.match(block):
            searched = turn[1] == "Search"
            (searches if searched else thoughts).append(_line(block[turn.end() :]))
            brought += [[]] if searched else []
        elif searched:
            brought[-1].append(block)
        elif thoughts:
            thoughts[-1] = f"{thoughts[-1]} {_line(block)}"
    texts = filter(_LABELLED.match, map("\n\n".join, brought))
    docs = tuple(chain.from_iterable(map(read_passages, texts)))
    return Transcript(tuple(filter(None, thoughts)), tuple(filter(None, searches)), docs)


def _line(text: str) -> str:
    return " ".join(text.split())
