"""What one passage states: its subject, and relations between what it mentions.

Everything is copied: the ends of a relation stand in the passage as they are spelt here, and the
relation is made of the words between them. A pronoun, a surname or "the film" at the beginning
of a sentence stands for the passage's title.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ga_dspy.lm.about import About
from ga_dspy.lm.clause import Clause
from ga_dspy.lm.clause import Triple as Triple
from ga_dspy.lm.mention import Mention
from ga_dspy.lm.text import date_spans, parse

_PAREN = re.compile(r"\(([^()]{4,120})\)")
_DASH = re.compile(r"\s*[–—-]\s*|\s+to\s+|;\s*died\s+")
_OPENING = 60
_SENTENCES = 8


class Statements(NamedTuple):
    """What a passage says: what it is about, the types of what it names, and its relations."""

    subject: str
    types: dict[str, str]
    triples: tuple[Triple, ...]


@lru_cache(maxsize=2048)
def statements(title: str, text: str) -> Statements:
    """Read one passage.

    >>> text = "Red Lodge is a city in and the county seat of Carbon County."
    >>> said = statements("Red Lodge", text)
    >>> said.types["Red Lodge"], [(t.relation, t.tail) for t in said.triples]
    ('city', [('is the county seat of', 'Carbon County')])
    """
    about = About(title, text)
    triples: dict[tuple[str, str], Triple] = {}
    if about.subject and about.parsed.tokens:
        for triple in _life(about):
            triples.setdefault((triple.head, triple.tail), triple)
        for number in range(min(len(about.parsed.bounds), _SENTENCES)):
            _read_sentence(about, number, triples)
    return Statements(about.subject, about.types, tuple(triples.values()))


def _life(about: About) -> list[Triple]:
    """Birth and death from the parentheses behind a person's name."""
    if not about.person:
        return []
    end = about.parsed.tokens[min(len(about.low), _OPENING) - 1].end
    found = _PAREN.search(about.parsed.text[:end])
    parts = _DASH.split(found[1]) if found else []
    dated = zip(("born", "died"), (_date(part) for part in parts), strict=False)
    return [Triple(about.subject, word, date, "date", 0) for word, date in dated if date]


def _date(text: str) -> str:
    """The longest date of a text; "" where there is none."""
    parsed = parse(text)
    spans = [s for s in date_spans(parsed) if s.kind in ("date", "year")]
    if not spans:
        return ""
    longest = max(spans, key=lambda s: s.end - s.start)
    return parsed.slice(longest.start, longest.end)


def _read_sentence(about: About, number: int, triples: dict[tuple[str, str], Triple]) -> None:
    start, end = about.parsed.bounds[number]
    found = _outside_brackets(about, start, end)
    clause = Clause(about, number, start, found, triples)
    for mention in found:
        clause.step(mention)
        if mention.kind == "name" and " " in mention.text:
            about.seen.append(mention.text)


def _outside_brackets(about: About, start: int, end: int) -> list[Mention]:
    inside = {m.start: m for m in about.mentions if start <= m.start < end}
    found: list[Mention] = []
    depth = 0
    for i in range(start, end):
        depth += (about.low[i] == "(") - (about.low[i] == ")")
        if i in inside and depth <= 0:
            found.append(inside[i])
    return found
