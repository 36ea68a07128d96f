"""What one passage states: its subject, and relations between what it mentions.

Everything is copied: the ends of a relation stand in the passage as they are spelt here, and the
relation is made of the words between them. A pronoun, a surname or "the film" at the beginning
of a sentence stands for the passage's title.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ga_dspy.lm.candidates import bare_title
from ga_dspy.lm.grammar import (
    BE,
    DETERMINERS,
    PREPOSITIONS,
    PRONOUNS,
    RELATIVES,
    is_predicate,
    is_verb,
    relation_phrase,
)
from ga_dspy.lm.lexicon import COUNTRIES, NATIONALITIES, US_STATES, noun_type
from ga_dspy.lm.mention import Mention, mentions
from ga_dspy.lm.text import Parsed, date_spans, parse

_TYPE_ENDS = RELATIVES | PREPOSITIONS | frozenset("best currently set starring featuring , . ; : ( ) – —".split())
_KINDS = ("person", "group", "work", "place")
_LIST = frozenset([(",",), ("and",), (",", "and"), ("&",), ("or",), ("as", "well", "as")])
_PAREN = re.compile(r"\(([^()]{4,120})\)")
_DASH = re.compile(r"\s*[–—-]\s*|\s+to\s+|;\s*died\s+")
_OBJECT_PREPOSITIONS = frozenset("for with from against to".split())
_IS = frozenset("is was are were".split())
_ORDINAL = re.compile(r"(?:first|second|third|last|only|one|\w+th|\d+(?:st|nd|rd|th))")
_OWNERS = frozenset("his her its their".split())
_SENTENCES = 8
_LONGEST_RELATION = 6


class Triple(NamedTuple):
    """A relation with the sentence (counted from 0) that states it, and when, if it says so.

    `kind` is the kind of the tail: name, date, year, quote or quantity.
    """

    head: str
    relation: str
    tail: str
    kind: str
    sentence: int
    time: str = ""


class Statements(NamedTuple):
    """What a passage says: what it is about, the types of what it names, and its relations."""

    subject: str
    types: dict[str, str]
    triples: tuple[Triple, ...]


@lru_cache(maxsize=2048)
def statements(title: str, text: str) -> Statements:
    """Read one passage.

    >>> said = statements("Red Lodge", "Red Lodge is a city in and the county seat of Carbon County.")
    >>> said.types["Red Lodge"], [(t.relation, t.tail) for t in said.triples]
    ('city', [('is the county seat of', 'Carbon County')])
    """
    return _Reader(title, text).read()


class _Reader:
    """What is known of one passage while its sentences are read."""

    def __init__(self, title: str, text: str) -> None:
        self.parsed: Parsed = parse(text)
        self.low = self.parsed.lower
        self.mentions = mentions(self.parsed)
        first = next((m.text for m in self.mentions if m.kind in ("name", "quote")), "")
        self.subject = bare_title(title) or first
        self.types: dict[str, str] = {}
        self.triples: dict[tuple[str, str], Triple] = {}
        self.aliases: frozenset[str] = frozenset()
        self.seen: list[str] = []

    def read(self) -> Statements:
        if self.subject and self.parsed.tokens:
            self._introduce()
            for number, (start, end) in enumerate(self.parsed.bounds[:_SENTENCES]):
                self._sentence(number, start, end)
        return Statements(self.subject, self.types, tuple(self.triples.values()))

    @property
    def person(self) -> bool:
        """Whether the passage is about a person."""
        words = self.types.get(self.subject, "").lower().split()
        if any(noun_type(word) == "person" for word in words[-3:]):
            return True
        return not words and bool({"he", "she"} & set(self.low))

    def _introduce(self) -> None:
        """The type in "X is a …", other spellings of X, birth and death in the parentheses."""
        for i in range(min(len(self.low) - 2, 60)):
            if self.low[i] in _IS and self.low[i + 1] in ("a", "an", "the"):
                self.describe(self.subject, self.noun_phrase(i + 2))
                break
        names = {self.subject, self.subject.split(",")[0]}
        first = self.mentions[0] if self.mentions else None
        if first and first.start <= 2 and first.kind in ("name", "quote"):
            names.add(first.text)
        if self.person:
            names |= {name.split()[at] for name in names if name.split() for at in (0, -1)}
        self.aliases = frozenset(n for n in names if len(n) > 1 and not n.isdigit())
        if self.person:
            self._life()

    def _life(self) -> None:
        end = self.parsed.tokens[min(len(self.low), 60) - 1].end
        found = _PAREN.search(self.parsed.text[:end])
        parts = _DASH.split(found[1]) if found else []
        for relation, part in zip(("born", "died"), parts, strict=False):
            parsed = parse(part)
            spans = [s for s in date_spans(parsed) if s.kind in ("date", "year")]
            if spans:
                longest = max(spans, key=lambda s: s.end - s.start)
                date = parsed.slice(longest.start, longest.end)
                self.add(Triple(self.subject, relation, date, "date", 0))

    def noun_phrase(self, start: int) -> str:
        """The words from a token on that read like one noun phrase, at most eight."""
        i, limit = start, min(len(self.low), start + 8)
        while i < limit and self.low[i] not in _TYPE_ENDS:
            ahead = self.low[i + 1 : i + 4]
            if self.low[i] == "and" and not any(noun_type(word) for word in ahead):
                break
            if is_verb(self.low[i]) and ahead and ahead[0] in PREPOSITIONS | DETERMINERS | {"and"}:
                break
            i += 1
        while i > start and self.low[i - 1] in ("and", "or"):
            i -= 1
        return self.parsed.slice(start, i) if i > start else ""

    def describe(self, name: str, kind: str) -> None:
        """Note the type of a name, if it has none yet."""
        if kind.lower() in NATIONALITIES or _ORDINAL.fullmatch(kind):
            return
        if kind and not set(kind) & set(';[]|\\"'):
            self.types.setdefault(name, kind)

    def name(self, mention: Mention) -> str:
        """The name a mention stands for: the subject's, or a longer one that was seen before."""
        if mention.text in self.aliases:
            return self.subject
        if " " in mention.text and self.subject.endswith(" " + mention.text):
            return self.subject
        if mention.kind == "name" and " " not in mention.text:
            longer = [n for n in self.seen if n.split()[-1] == mention.text]
            return longer[-1] if longer else mention.text
        return mention.text

    def add(self, triple: Triple) -> None:
        """Keep a relation; the first between two names stays."""
        if triple.relation and triple.head != triple.tail:
            self.triples.setdefault((triple.head, triple.tail), triple)

    def _sentence(self, number: int, start: int, end: int) -> None:
        depth = 0
        found: list[Mention] = []
        inside = {m.start: m for m in self.mentions if start <= m.start < end}
        for i in range(start, end):
            depth += (self.low[i] == "(") - (self.low[i] == ")")
            if i in inside and depth <= 0:
                found.append(inside[i])
        clause = _Clause(self, number, start, found)
        for mention in found:
            clause.step(mention)
            if mention.kind == "name" and " " in mention.text:
                self.seen.append(mention.text)


class _Clause:
    """A walk along one sentence: who it speaks of, by which verb, and what was reached."""

    def __init__(self, reader: _Reader, number: int, start: int, found: list[Mention]) -> None:
        self.reader, self.number, self.low = reader, number, reader.low
        self.verb: list[str] = []
        self.last: Triple | None = None
        self.previous: Mention | None = None
        self.when = ""
        self.owned = False
        self.head, self.at = self._opening(start, found)

    def _opening(self, start: int, found: list[Mention]) -> tuple[str, int]:
        """The subject of the sentence and the token after it; "" where none is seen."""
        i, reader = start, self.reader
        while i < start + 2 and self.low[i : i + 1] in (("the",), ('"',), ("“",), ("a",), ("an",)):
            i += 1
        names = [m for m in found[:2] if m.kind in ("name", "quote")]
        if names and names[0].start <= i:
            first = names[0]
            role = self.low[first.end : names[1].start] if len(names) > 1 else ()
            if 0 < len(role) <= 2 and noun_type(role[-1]) == "person":
                first = names[1]
            self.previous = first
            return reader.name(first), first.end
        word = self.low[i] if i < len(self.low) else ""
        kind = reader.types.get(reader.subject, "").lower().split()
        self.owned = word in _OWNERS
        if word in PRONOUNS or (word and word in kind) or (i > start and noun_type(word)):
            return reader.subject, i + 1
        if self.number == 0:
            verbs = [j for j in range(start, min(start + 40, len(self.low))) if self.low[j] in BE]
            return (reader.subject, verbs[0]) if verbs else ("", start)
        return "", start

    def step(self, mention: Mention) -> None:
        """Take the next mention: relate it to what came before, by the words in between."""
        if mention.start < self.at:
            return
        gap = self._gap(mention)
        owned, self.owned = self.owned, False
        if owned:
            self._owned(mention, gap)
        elif not self.head:
            self._late_subject(mention, gap)
        elif gap[:1] in (("'s",), ("’s",), ("'",), ("’",)):
            self._possessive(mention, gap)
        else:
            self._relate(mention, self._relative(gap))
        self.previous, self.at = mention, mention.end

    def _gap(self, mention: Mention) -> tuple[str, ...]:
        """The words since the last mention, bracketed ones left out."""
        kept, depth = [], 0
        for word in self.low[self.at : mention.start]:
            depth += (word == "(") - (word == ")")
            if depth <= 0 and word not in ('"', "“", "”", ")"):
                kept.append(word)
        return tuple(kept)

    def _late_subject(self, mention: Mention, gap: tuple[str, ...]) -> None:
        """"In 1999, he married …": the subject follows the opening phrase."""
        if mention.kind in ("date", "year") and set(gap) <= PREPOSITIONS | DETERMINERS:
            self.when = mention.text
        pronoun = next((i for i, w in enumerate(gap) if w in PRONOUNS), None)
        if pronoun is not None:
            self.head = self.reader.subject
            self._relate(mention, gap[pronoun + 1 :])
        elif self.when and "," in gap and mention.kind == "name":
            self.head = self.reader.name(mention)

    def _possessive(self, mention: Mention, gap: tuple[str, ...]) -> None:
        noun = [w for w in gap[1:] if w[-1].isalnum()]
        if self.previous and 0 < len(noun) <= 3 and noun_type(noun[-1]):
            self._note(self.reader.name(self.previous), " ".join(noun), mention)
        else:
            self._relate(mention, gap)

    def _owned(self, mention: Mention, gap: tuple[str, ...]) -> None:
        """"Her first album X was …": X is hers, and the sentence goes on about X."""
        words = [word for word in gap if word[-1].isalnum()]
        if 0 < len(words) <= _LONGEST_RELATION and any(noun_type(word) for word in words):
            self._note(self.head, " ".join(words), mention)
            if mention.kind in ("name", "quote") and not any(map(is_verb, words)):
                self.head = self.reader.name(mention)
        else:
            self._relate(mention, gap)

    def _relative(self, gap: tuple[str, ...]) -> tuple[str, ...]:
        """", who directed": from here on the sentence speaks of the name before it."""
        before = self.previous if self.previous and self.previous.kind in ("name", "quote") else None
        for i, word in enumerate(gap[:2]):
            if word in ("who", "which", "whose"):
                if before:
                    self.head, self.verb = self.reader.name(before), []
                return gap[i + 1 :]
        if before and gap[:1] == (",",) and gap[1:2] and gap[1] in ("a", "an", "the"):
            self._appositive(before, gap)
        return gap

    def _appositive(self, before: Mention, gap: tuple[str, ...]) -> None:
        if gap[-1] in PREPOSITIONS or any(map(is_verb, gap)):
            self.head, self.verb = self.reader.name(before), ["is"]

    def _relate(self, mention: Mention, gap: tuple[str, ...]) -> None:
        if gap[:1] == ("-",):
            return
        if self.last is not None and gap in _LIST:
            if (mention.kind == self.last.kind) or {mention.kind, self.last.kind} == {"name", "quote"}:
                self._note(self.last.head, self.last.relation, mention, self.last.time)
            return
        clean = self._last_part(gap)
        if any(is_predicate(clean, i) for i in range(len(clean))):
            self.verb = list(clean)
            self._note(self.head, relation_phrase(clean), mention)
        elif clean and clean[-1] in PREPOSITIONS | DETERMINERS and len(clean) <= 6:
            self._prepositional(mention, [w for w in clean if w not in ("and", "or")])

    def _last_part(self, gap: tuple[str, ...]) -> tuple[str, ...]:
        """The words after the last comma or colon, unless they are too few to mean anything."""
        parts: list[list[str]] = [[]]
        for word in gap:
            if word[-1].isalnum():
                parts[-1].append(word)
            elif parts[-1]:
                parts.append([])
        parts = [part for part in parts if part]
        if len(parts) > 1 and len(parts[-1]) <= 2 and set(parts[-1]) <= PREPOSITIONS | {"and"}:
            return (*parts[-2], *parts[-1])
        return tuple(parts[-1]) if parts else ()

    def _prepositional(self, mention: Mention, gap: list[str]) -> None:
        """A further "in", "on" or "of" after the verb's first object."""
        while gap and gap[-1] in DETERMINERS:
            gap = gap[:-1]
        if not gap or not self.verb or gap[-1] not in PREPOSITIONS:
            return
        verb = next((w for w in reversed(self.verb) if is_verb(w)), "")
        if verb in BE:
            if len(gap) > 1 and gap[0] not in PREPOSITIONS:
                self._note(self.head, " ".join([verb, *gap]), mention)
            elif gap == ["in"] and self.previous and self.previous.kind == mention.kind == "name":
                self._note(self.reader.name(self.previous), "in", mention)
        elif self.last and self.last.relation.split()[-1] in PREPOSITIONS and len(gap) <= 4:
            if gap[0] in PREPOSITIONS:
                self._note(self.head, " ".join([verb, *gap]), mention)
        elif self.last and mention.kind in ("date", "year"):
            self._dated(mention)
        elif self.last and gap[0] in _OBJECT_PREPOSITIONS and len(gap) == 1:
            words = [verb, *self.last.tail.split(), *gap]
            if len(words) <= _LONGEST_RELATION and self.last.kind == "name":
                self._note(self.head, " ".join(words), mention)

    def _dated(self, mention: Mention) -> None:
        if self.last is not None and not self.last.time:
            self.last = self.last._replace(time=mention.text)
            self.reader.triples[self.last.head, self.last.tail] = self.last

    def _note(self, head: str, relation: str, mention: Mention, time: str = "") -> None:
        if not relation or self._only_qualifies(relation, mention):
            return
        tail = self.reader.name(mention)
        found = Triple(head, relation, tail, mention.kind, self.number, time or self.when)
        if (head, tail) not in self.reader.triples and head != tail:
            self.last = found
        self.reader.add(found)
        self._describe(mention, tail)

    def _only_qualifies(self, relation: str, mention: Mention) -> bool:
        """Whether the name stands before a noun: "was a Supreme Court case", "is 7 km"."""
        after = self.low[mention.end] if mention.end < len(self.low) else ""
        noun_follows = after[:1].isalpha() and not is_verb(after) and after not in (
            PREPOSITIONS | RELATIVES | DETERMINERS | {"and", "or", "but", "while", "also"}
        )  # fmt: skip
        if after in ("'s", "’s"):
            return relation in BE or relation.endswith(" as")
        return relation in BE and noun_follows and mention.kind != "quantity"

    def _describe(self, mention: Mention, name: str) -> None:
        """The type of a name from the words before it ("American director …") or after it."""
        if mention.kind != "name" or name in self.reader.types:
            return
        parsed, i = self.reader.parsed, mention.start
        while i > 0 and mention.start - i < 3 and _describes(parsed, i - 1):
            i -= 1
        words = parsed.slice(i, mention.start).split() if i < mention.start else []
        if words and noun_type(words[-1]) in _KINDS:
            self.reader.describe(name, " ".join(words))
        elif self.low[mention.end : mention.end + 1] == (",",) and self.low[
            mention.end + 1 : mention.end + 2
        ] in (("a",), ("an",), ("the",)):
            kind = self.reader.noun_phrase(mention.end + 2)
            if kind and noun_type(kind.split()[-1]):
                self.reader.describe(name, kind)
        last = name.split(", ")[-1].lower()
        if last in US_STATES or last in COUNTRIES:
            self.reader.describe(name, "place")


def _describes(parsed: Parsed, i: int) -> bool:
    word = parsed.lower[i]
    named = noun_type(word) in _KINDS and word.isalpha() and parsed.tokens[i].text.islower()
    return named or word in NATIONALITIES
