"""What compiling did to the prompts, as a text that is read from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import unified_diff
from textwrap import wrap

_WIDTH = 100
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+")


def prompts_difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The prompts of each predictor as a unified diff, a sentence a line.

    >>> print(prompts_difference({"answer": "Be brief."}, {"answer": "Be brief. Copy a span."}))
    === answer ===
      Be brief.
    + Copy a span.
    <BLANKLINE>
    """
    names = dict.fromkeys([*before, *after])
    return "\n".join(_predictor(name, before.get(name, ""), after.get(name, "")) for name in names)


def _predictor(name: str, before: str, after: str) -> str:
    if before == after:
        return f"=== {name} === (unchanged)\n"
    diff = list(unified_diff(_lines(before), _lines(after), n=3, lineterm=""))
    hunks = diff[3:]  # without the two file names and the first position
    return "\n".join([f"=== {name} ===", *map(_marked, hunks), ""])


def _marked(line: str) -> str:
    if line.startswith("@@"):
        return "  […]"
    return f"{line[0]} {line[1:]}".rstrip()


def _lines(text: str) -> list[str]:
    sentences = (s for line in text.splitlines() for s in _SENTENCE.split(line))
    return [piece for sentence in sentences for piece in wrap(sentence, _WIDTH) or [""]]
