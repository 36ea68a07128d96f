"""Points: what an LM collected from summaries, read from its lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ga_dspy.mentions import mentions
from ga_dspy.passage import Passage
from ga_dspy.signatures.prompt import cited_labels, said
from ga_dspy.tokens import TokenCounter

UNRATED: Final = 50
"""The helpfulness of a point that the LM did not rate."""

_BULLET: Final = re.compile(r"^\s*(?:[-*•–]|\d+[.)])\s+")
_RATED: Final = re.compile(r"\s*\((?:helpfulness:?\s*)?(\d{1,3})(?:\s*/\s*100|\s*%)?\)\s*[.;]?\s*$")
_CITED: Final = re.compile(r"\s*\[((?:\s*\d+\s*[,;]?)+)\]\s*[.;]?\s*$")


class Point(NamedTuple):
    """Something that summaries state.

    Attributes:
        text: What they state.
        labels: The numbers of the summaries; never empty.
        rating: How much it helps to answer the question, from 0 to 100.
    """

    text: str
    labels: tuple[int, ...]
    rating: int

    def __str__(self) -> str:
        """One line of a prompt."""
        return f"- {self.text} [{','.join(map(str, self.labels))}]"


def read_points(text: str, shown: Mapping[int, Passage]) -> tuple[Point, ...]:
    r"""The points that an LM wrote, whatever order their marks are in.

    A point without a number, or with one that was not shown, belongs to the first summary that
    mentions it; one that none mentions, or that is rated 0, is left out.

    >>> shown = {3: Passage(id="c", title="Rivers", text="The Gilão is short.")}
    >>> read_points("- The Gilão is short [3] (80)\n- It is deep [9] (70)", shown)
    (Point(text='The Gilão is short', labels=(3,), rating=80),)
    """
    points = (_point(line, shown) for line in said(text).splitlines())
    return tuple(point for point in points if point and point.labels and point.rating)


def _point(line: str, shown: Mapping[int, Passage]) -> Point | None:
    text, rating, labels = _BULLET.sub("", line).strip(), UNRATED, ""
    while mark := _RATED.search(text) or _CITED.search(text):
        text = text[: mark.start()]
        if mark.re is _RATED:
            rating = min(int(mark[1]), 100)
        else:
            labels = f"{labels} {mark[1]}"
    text = said(text)
    if not text:
        return None
    known = tuple(label for label in cited_labels(labels) if label in shown)
    holding = (label for label, summary in shown.items() if mentions(text, summary.content))
    return Point(text, known or tuple(holding)[:1], rating)


def best_points(points: Iterable[Point], budget: int, count: TokenCounter) -> str:
    """The points as notes, the most helpful first, as many as a budget holds; each text once."""
    lines: dict[str, str] = {}
    for point in sorted(points, key=lambda point: -point.rating):
        line = str(point)
        if count("\n".join([*lines.values(), line])) > budget and lines:
            break
        lines.setdefault(point.text, line)
    return "\n".join(lines.values())
