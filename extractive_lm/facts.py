"""What passages state: their subjects, relations, and which of them to add to a graph.

Everything is copied: the ends of a relation stand in the passage as they are spelt here, and the
relation is made of the words between them. A pronoun, a surname or "the film" at the beginning of
a sentence stands for the passage's title.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from extractive_lm.prompt import Doc, Fact, KnownGraph
from extractive_lm.question import Question
from extractive_lm.spans import Mention, bare_title, mentions
from extractive_lm.text import content_stem, date_spans, normalize, parse
from extractive_lm.words import (
    ADVERBS,
    ARTICLES,
    BE,
    COPULAS,
    COUNTRIES_AND_STATES,
    DETERMINERS,
    NATIONALITIES,
    PREPOSITIONS,
    PRONOUNS,
    RELATIVES,
    SUBJECT_TYPES,
    is_predicate,
    is_verb,
    noun_type,
    relation_phrase,
)

_PAREN = re.compile(r"\(([^()]{4,120})\)")
_DASH = re.compile(r"\s*[–—-]\s*|\s+to\s+|;\s*died\s+")
_OPENING = 60
_SENTENCES = 8


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

    >>> text = "Red Lodge is a city in and the county seat of Carbon County."
    >>> found = statements("Red Lodge", text)
    >>> found.types["Red Lodge"], [(t.relation, t.tail) for t in found.triples]
    ('city', [('is the county seat of', 'Carbon County')])
    """
    about = About(title, text)
    if about.subject and about.parsed.tokens:
        _read_life(about)
        for number in range(min(len(about.parsed.bounds), _SENTENCES)):
            clause = Clause(about, number)
            for mention in clause.mentions:
                clause.step(mention)
                if mention.kind == "name" and " " in mention.text:
                    about.seen.append(mention.text)
    return Statements(about.subject, about.types, tuple(about.triples.values()))


def _read_life(about: About) -> None:
    """Birth and death from the parentheses behind a person's name, each by its longest date."""
    end = about.parsed.tokens[min(len(about.low), _OPENING) - 1].end
    found = _PAREN.search(about.parsed.text[:end]) if about.is_person else None
    for word, part in zip(("born", "died"), _DASH.split(found[1]) if found else (), strict=False):
        parsed = parse(part)
        dates = [s for s in date_spans(parsed) if s.kind in ("date", "year")]
        if dates:
            longest = max(dates, key=lambda s: s.end - s.start)
            date = parsed.slice(longest.start, longest.end)
            triple = Triple(about.subject, word, date, "date", 0)
            about.triples.setdefault((about.subject, date), triple)


# --- Who a passage is about: its subject, the other names it has there, and the types of names

_TYPE_ENDS = RELATIVES | PREPOSITIONS | ADVERBS | frozenset(
    "best currently set starring featuring , . ; : ( ) – —".split()
)  # fmt: skip
_ORDINAL = re.compile(r"(?:first|second|third|last|only|one|\w+th|\d+(?:st|nd|rd|th))")
_LONGEST_TYPE = 8


class About:
    """A passage with what is known of its subject and its names while it is read.

    Attributes:
        parsed: The text, parsed.
        mentions: What it mentions, in order.
        subject: The title without its qualifier; the first name where there is no title.
        types: The type of each name that the text gives one, in its words.
        triples: The relations found so far, by their ends.
        seen: Names of several words met so far, for the surnames that follow.
        is_person: Whether the passage is about a person.
        aliases: Other ways in which the passage writes its subject's name.
    """

    def __init__(self, title: str, text: str) -> None:
        self.parsed = parse(text)
        self.low = self.parsed.lower
        self.mentions = mentions(self.parsed)
        named = [m for m in self.mentions if m.kind in ("name", "quote")]
        self.subject = bare_title(title) or (named[0].text if named else "")
        self.types: dict[str, str] = {}
        self.triples: dict[tuple[str, str], Triple] = {}
        self.seen: list[str] = []
        for i in range(min(len(self.low) - 2, _OPENING)):
            if self.low[i] in COPULAS and self.low[i + 1] in ARTICLES:
                self.describe(self.subject, self.noun_phrase(i + 2))
                break
        words = self.types.get(self.subject, "").lower().split()
        self.is_person = any(noun_type(word) == "person" for word in words[-3:]) or (
            not words and ("born" in self.low[:12] or not {"he", "she"}.isdisjoint(self.low))
        )
        names = {self.subject, self.subject.split(",")[0]}
        if named and named[0] is self.mentions[0] and named[0].start <= 2:
            names.add(named[0].text)
        if self.is_person:
            names |= {name.split()[at] for name in names if name.split() for at in (0, -1)}
        self.aliases = {name for name in names if len(name) > 1 and not name.isdigit()}

    def noun_phrase(self, start: int) -> str:
        """The words from a token on that read like one noun phrase, at most eight."""
        i, limit = start, min(len(self.low), start + _LONGEST_TYPE)
        while i < limit and self.low[i] not in _TYPE_ENDS:
            ahead = self.low[i + 1 : i + 4]
            goes_on = any(map(noun_type, ahead)) and ahead[0] not in DETERMINERS
            if self.low[i] == "and" and not goes_on:
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
        text = mention.text
        if text in self.aliases or (" " in text and self.subject.endswith(" " + text)):
            return self.subject
        longer = [name for name in self.seen if name.split()[-1] == text]
        return longer[-1] if mention.kind == "name" and longer else text

    def describe_mention(self, mention: Mention) -> None:
        """Note the type of a name from the words before it ("American director …") or after it."""
        name = self.name(mention)
        if mention.kind != "name" or name in self.types:
            return
        i, after = mention.start, self.low[mention.end : mention.end + 2]
        while i > 0 and mention.start - i < 3 and self._describes(i - 1):
            i -= 1
        before = self.parsed.slice(i, mention.start) if i < mention.start else ""
        if before and noun_type(before.split()[-1]) in SUBJECT_TYPES:
            self.describe(name, " ".join(before.split()))
        elif after[:1] == (",",) and after[1:2] and after[1] in ARTICLES:
            kind = self.noun_phrase(mention.end + 2)
            if kind and noun_type(kind.split()[-1]):
                self.describe(name, kind)
        if name.split(", ")[-1].lower() in COUNTRIES_AND_STATES:
            self.describe(name, "place")

    def _describes(self, i: int) -> bool:
        word, low = self.parsed.tokens[i].text, self.low[i]
        plural = low.endswith("s") and not low.endswith("ss")
        plain = word.islower() and word.isalpha() and not plural and not is_verb(low)
        return low in NATIONALITIES or (plain and noun_type(low) in SUBJECT_TYPES)


# --- A walk along one sentence: from mention to mention, by the words in between

_LIST = frozenset([(",",), ("and",), (",", "and"), ("&",), ("or",), ("as", "well", "as")])
_POSSESSIVE = ("'s", "’s")
_NAMES = ("name", "quote")
_DATES = ("date", "year")
_GOES_ON = PREPOSITIONS | RELATIVES | DETERMINERS | {"and", "or", "but", "while", "also"}
_LONGEST_RELATION = 6


class Clause:
    """A walk along one sentence: who it speaks of, by which verb, and what was reached."""

    def __init__(self, about: About, number: int) -> None:
        self.about, self.number, self.low = about, number, about.low
        self.mentions: list[Mention] = []
        start, end = about.parsed.bounds[number]
        inside = {m.start: m for m in about.mentions if start <= m.start < end}
        depth = 0
        for i in range(start, end):
            depth += (self.low[i] == "(") - (self.low[i] == ")")
            if i in inside and depth <= 0:
                self.mentions.append(inside[i])
        self.verb: tuple[str, ...] = ()
        self.last: Triple | None = None
        self.previous: Mention | None = None
        self.when = ""
        self.owned = False
        self.head, self.at = self._opening(start)

    def _opening(self, start: int) -> tuple[str, int]:
        """The subject of the sentence and the token after it; "" where none is seen."""
        i, about = start, self.about
        while i < start + 2 and self.low[i : i + 1] in (("the",), ('"',), ("“",), ("a",), ("an",)):
            i += 1
        names = [m for m in self.mentions[:2] if m.kind in _NAMES]
        if names and names[0].start <= i:
            first = names[0]
            role = self.low[first.end : names[1].start] if len(names) > 1 else ()
            if 0 < len(role) <= 2 and noun_type(role[-1]) == "person":
                first = names[1]
            self.previous = first
            return about.name(first), first.end
        word = self.low[i] if i < len(self.low) else ""
        kind = about.types.get(about.subject, "").lower().split()
        self.owned = word in ("his", "her", "its", "their")
        if word in PRONOUNS or (word and word in kind) or (i > start and noun_type(word)):
            return about.subject, i + 1
        verbs = [j for j in range(start, min(start + 40, len(self.low))) if self.low[j] in BE]
        return (about.subject, verbs[0]) if verbs and self.number == 0 else ("", start)

    def step(self, mention: Mention) -> None:
        """Relate the next mention to what came before, by the words in between."""
        if mention.start < self.at:
            return
        # The words since the last mention, bracketed ones left out.
        words, depth = [], 0
        for word in self.low[self.at : mention.start]:
            depth += (word == "(") - (word == ")")
            if depth <= 0 and word not in ('"', "“", "”", ")"):
                words.append(word)
        gap = tuple(words)
        owned, self.owned = self.owned, False
        if owned:
            self._relate_owned(mention, gap)
        elif not self.head:
            self._find_subject(mention, gap)
        elif gap[:1] and gap[0] in (*_POSSESSIVE, "'", "’"):
            noun = [w for w in gap[1:] if w[-1].isalnum()]
            if self.previous and 0 < len(noun) <= 3 and noun_type(noun[-1]):
                self._note(self.about.name(self.previous), " ".join(noun), mention)
            else:
                self._relate(mention, gap)
        else:
            self._relate(mention, self._follow_relative(gap))
        self.previous, self.at = mention, mention.end

    def _relate_owned(self, mention: Mention, gap: tuple[str, ...]) -> None:
        """What is hers in "Her first album X was …"; the sentence goes on about X."""
        words = [word for word in gap if word[-1].isalnum()]
        verbs = [word for word in words if is_verb(word)]
        is_noun = 0 < len(words) <= 4 and any(map(noun_type, words))
        if is_noun and (not verbs or verbs == words[-1:]):
            self._note(self.head, " ".join(words), mention)
            if mention.kind in _NAMES and not verbs:
                self.head = self.about.name(mention)
        else:
            self._relate(mention, gap)

    def _find_subject(self, mention: Mention, gap: tuple[str, ...]) -> None:
        """The subject follows an opening phrase: "In 1999, he married …"."""
        if mention.kind in _DATES and set(gap) <= PREPOSITIONS | DETERMINERS:
            self.when = mention.text
        pronouns = [i for i, word in enumerate(gap) if word in PRONOUNS]
        if pronouns:
            self.head = self.about.subject
            self._relate(mention, gap[pronouns[0] + 1 :])
        elif self.when and "," in gap and mention.kind == "name":
            self.head = self.about.name(mention)

    def _follow_relative(self, gap: tuple[str, ...]) -> tuple[str, ...]:
        """From ", who directed" or ", a film by" on, the sentence speaks of the name before it."""
        named = self.previous and self.previous.kind in _NAMES
        before = self.about.name(self.previous) if self.previous and named else None
        for i, word in enumerate(gap[:2]):
            if word in ("who", "which", "whose"):
                if before is not None:
                    self.head, self.verb = before, ()
                return gap[i + 1 :]
        apposed = before is not None and gap[:1] == (",",) and not ARTICLES.isdisjoint(gap[1:2])
        apposed = apposed and not self._is_kin(gap[1:])
        if before is not None and apposed and (gap[-1] in PREPOSITIONS or any(map(is_verb, gap))):
            self.head, self.verb = before, ("is",)
        return gap

    def _is_kin(self, words: tuple[str, ...]) -> bool:
        """Whether "born in X, a son of" goes on about who was born there."""
        last = self.last.relation.split()[-1] if self.last else ""
        is_person = noun_type("".join(words[1:2])) == "person" and words[2:3] == ("of",)
        return is_person and self.about.is_person and last in PREPOSITIONS

    def _relate(self, mention: Mention, gap: tuple[str, ...]) -> None:
        if gap[:1] == ("-",):
            return
        if self.last is not None and gap in _LIST:
            if mention.kind == self.last.kind or {mention.kind, self.last.kind} == set(_NAMES):
                self._note(self.last.head, self.last.relation, mention, self.last.time)
            return
        # The words after the last comma or colon, unless they are too few to mean anything.
        parts: list[tuple[str, ...]] = [()]
        for word in gap:
            if word[-1].isalnum():
                parts[-1] += (word,)
            elif parts[-1]:
                parts.append(())
        parts = [part for part in parts if part]
        words = parts[-1] if parts else ()
        if len(parts) > 1 and len(words) <= 2 and set(words) <= PREPOSITIONS | {"and"}:
            words = (*parts[-2], *words)
        if any(is_predicate(words, i) for i in range(len(words))):
            self.verb = words
            self._note(self.head, relation_phrase(words), mention)
        elif gap[:1] == (",",) and self._is_kin(words):
            self._note(self.head, relation_phrase(("is", *words)), mention)
        elif words and words[-1] in PREPOSITIONS | DETERMINERS and len(words) <= 6:
            self._relate_further(mention, [w for w in words if w not in ("and", "or")])

    def _relate_further(self, mention: Mention, gap: list[str]) -> None:
        """A further "in", "on" or "of" after the verb's first object."""
        while gap and gap[-1] in DETERMINERS:
            gap = gap[:-1]
        if not gap or not self.verb or gap[-1] not in PREPOSITIONS:
            return
        verb = next((w for w in reversed(self.verb) if is_verb(w)), "")
        further = " ".join([verb, *gap])
        if verb in BE:
            if len(gap) > 1 and gap[0] not in PREPOSITIONS:
                self._note(self.head, further, mention)
            elif gap == ["in"] and self.previous and self.previous.kind == mention.kind == "name":
                self._note(self.about.name(self.previous), "in", mention)
        elif self.last is None:
            return
        elif self.last.relation.split()[-1] in PREPOSITIONS and len(gap) <= 4:
            if gap[0] in PREPOSITIONS:
                self._note(self.head, further, mention)
        elif mention.kind in _DATES:
            if not self.last.time:
                self.last = self.last._replace(time=mention.text)
                self.about.triples[self.last.head, self.last.tail] = self.last
        elif gap[0] in ("for", "with", "from", "against", "to") and len(gap) == 1:
            words = [verb, *self.last.tail.split(), *gap]
            if len(words) <= _LONGEST_RELATION and self.last.kind == "name":
                self._note(self.head, " ".join(words), mention)

    def _note(self, head: str, relation: str, mention: Mention, time: str = "") -> None:
        tail = self.about.name(mention)
        if not relation or self._only_qualifies(relation, mention) or head == tail:
            return
        found = Triple(head, relation, tail, mention.kind, self.number, time or self.when)
        if (head, tail) not in self.about.triples:
            self.last = self.about.triples[head, tail] = found
        self.about.describe_mention(mention)

    def _only_qualifies(self, relation: str, mention: Mention) -> bool:
        """Whether the name stands before a noun: "was a Supreme Court case", "is 7 km"."""
        after = self.low[mention.end] if mention.end < len(self.low) else ""
        if after in _POSSESSIVE:
            return relation in BE or relation.endswith(" as")
        noun_follows = after[:1].isalpha() and not is_verb(after) and after not in _GOES_ON
        return relation in BE and noun_follows and mention.kind != "quantity"


# --- The additions to a graph: a budget goes to what is close to the question, to the graph so far
# and to the other passages.

_PER_PASSAGE = 5
_UNLINKED = 3
_LEAST = 1.6
_CHAINED = 3.0
_UNSAFE = ("->", "--", "→", "**", "`", "[", "]", ";", "|", "\\", "<", ">", "«", "»", "\n")
_LONGEST_NAME = 90


_MOST_ENTITIES = 12
_MOST_RELATIONS = 14


class Node(NamedTuple):
    """An entity as a passage presents it; `type` is empty where the passage gives none."""

    name: str
    type: str
    label: int


class Additions(NamedTuple):
    """Entities and relations to add, each with the label of its passage."""

    nodes: tuple[Node, ...]
    facts: tuple[Fact, ...]

    def __str__(self) -> str:
        """The lines of the compact form; "(empty)" where there is nothing to add."""
        if not self.nodes and not self.facts:
            return "(empty)"
        lines = ["Entities:"]
        for name, kind, label in self.nodes:
            details = f" ({kind})" if kind else " ()" if name.endswith(")") else ""
            lines.append(f"- {name}{details} [{label}]")
        lines.append("Relations:")
        for number, (head, relation, tail, labels, time) in enumerate(self.facts, 1):
            when = f" (time: {time})" if time else ""
            lines.append(f"{number}. {head} -> {relation} -> {tail}{when} [{labels[0]}]")
        return "\n".join(lines)


class _Scored(NamedTuple):
    score: float
    place: int
    triple: Triple
    label: int


def additions(
    question: Question,
    docs: Sequence[Doc],
    graph: KnownGraph,
    *,
    candidate: str = "",
    walked: Collection[tuple[str, ...]] = (),
) -> Additions:
    """What the passages add to the graph.

    Both ends of every relation, and every entity, stand in the passage whose label they carry,
    spelt as there; nothing that the graph holds already is repeated.

    Args:
        question: The analysed question.
        docs: The new passages.
        graph: What is known.
        candidate: An answer that was seen: relations that reach it are wanted.
        walked: Chains of normalised names: their relations are wanted too.
    """
    known = {(f.head.lower(), f.tail.lower()) for f in graph.facts}
    chained = {frozenset(pair) for path in walked for pair in pairwise(path)}
    fresh = [s for s in _scored(question, docs, graph, normalize(candidate), chained)
             if _writable(s.triple, s.label, docs)
             and (s.triple.head.lower(), s.triple.tail.lower()) not in known]  # fmt: skip
    # Where nobody asks, everything is worth keeping, in whichever passage.
    asked = bool(question.text.strip())
    least, cap = (_LEAST, _UNLINKED) if asked else (float("-inf"), _MOST_RELATIONS)
    chosen = _chosen(fresh, least, cap)
    nodes = _nodes(question, docs, graph, chosen)
    return Additions(
        nodes=tuple(nodes[:_MOST_ENTITIES]),
        facts=tuple(
            Fact(t.head, t.relation, t.tail, (label,), t.time) for _, _, t, label in chosen
        ),
    )


def _scored(
    question: Question,
    docs: Sequence[Doc],
    graph: KnownGraph,
    candidate: str,
    chained: Collection[frozenset[str]],
) -> list[_Scored]:
    """Every relation that the passages state, with its worth."""
    readings = [statements(doc.title, doc.text) for doc in docs]
    subjects = [normalize(s.subject) for s in readings]
    known = {normalize(name) for name in graph.names}
    found: list[_Scored] = []
    for place, (doc, (name, types, triples)) in enumerate(zip(docs, readings, strict=True)):
        # How near the passage is to what is asked and known: its subject, and who mentions it.
        subject = subjects[place]
        mentioned = bool(subject) and any(name in d.text for d in docs if d is not doc)
        base = 1.5 * (bool(subject) and question.holds(subject)) + 0.8 * (subject in known)
        base += 0.6 * mentioned - 0.15 * place
        for triple in triples:
            worth = base + _worth(triple, question, subjects, known, candidate)
            kind = types.get(triple.tail, "")
            worth += 0.7 * any(content_stem(word) in question.focus for word in kind.split())
            ends = frozenset((normalize(triple.head), normalize(triple.tail)))
            worth += _CHAINED if ends in chained else 0.0
            found.append(_Scored(worth, place, triple, doc.label))
    return found


def _worth(
    triple: Triple, question: Question, subjects: list[str], known: set[str], candidate: str
) -> float:
    ends = normalize(triple.head), normalize(triple.tail)
    score = sum(1.2 for end in ends if end and question.holds(end))
    score += sum(0.8 for end in ends if end and end in subjects)
    score += sum(0.5 for end in ends if end in known)
    score += 1.5 if candidate and candidate in ends else 0.0
    words = {content_stem(word) for word in triple.relation.split()} & question.focus.keys()
    score += sum(0.6 + 0.6 * question.focus[word] for word in words)
    dated = question.wants in _DATES and triple.kind in _DATES
    counted = question.wants == "number" and triple.kind == "quantity"
    score += 0.8 if dated or counted else 0.0
    return (
        score - 0.15 * triple.sentence - (0.3 if triple.kind == "quantity" and not counted else 0)
    )


def _writable(triple: Triple, label: int, docs: Sequence[Doc]) -> bool:
    """Whether a relation fits on a line and has its ends in its passage."""
    parts = (triple.head, triple.relation, triple.tail)
    if not all(map(_safe, parts)) or len(triple.relation.split()) > _LONGEST_RELATION:
        return False
    content = next(f"{doc.title}\n{doc.text}" for doc in docs if doc.label == label)
    return triple.head in content and triple.tail in content


def _safe(text: str) -> bool:
    unsafe = any(mark in text for mark in _UNSAFE) or text.count("(") != text.count(")")
    return 0 < len(text) <= _LONGEST_NAME and not unsafe


def _chosen(scored: list[_Scored], least: float, cap: int) -> list[_Scored]:
    """The best within the budget, in the order in which they are read."""
    by_label: Counter[int] = Counter()
    by_relation: Counter[tuple[str, str]] = Counter()
    chosen: list[_Scored] = []
    for item in sorted(scored, key=lambda s: (-s.score, s.place, s.triple.sentence)):
        room = max(cap, _PER_PASSAGE) if item.score >= 2 * _LEAST else cap
        same = (item.triple.head, item.triple.relation)
        if item.score < least or by_label[item.label] >= room or by_relation[same] >= 3:
            continue
        by_label[item.label] += 1
        by_relation[same] += 1
        chosen.append(item)
        if len(chosen) == _MOST_RELATIONS:
            break
    return sorted(chosen, key=lambda s: (s.place, s.triple.sentence))


def _nodes(
    question: Question, docs: Sequence[Doc], graph: KnownGraph, chosen: list[_Scored]
) -> list[Node]:
    """The ends of the relations and the subjects the question names; typed ones come first."""
    found: dict[str, Node] = {}
    for doc in docs:
        subject, types, _ = statements(doc.title, doc.text)
        own = [item.triple for item in chosen if item.label == doc.label]
        names = [subject] if own or question.holds(normalize(subject)) else []
        for name in (*names, *(end for t in own for end in (t.head, t.tail))):
            if name not in found and _safe(name) and name in f"{doc.title}\n{doc.text}":
                kind = types.get(name, "")
                found[name] = Node(name, kind if _safe(kind) and ":" not in kind else "", doc.label)
    dates = {item.triple.tail for item in chosen if item.triple.kind not in _NAMES}
    known = graph.names
    fresh = [n for n in found.values() if n.name.lower() not in known and n.name not in dates]
    return sorted(fresh, key=lambda node: not node.type)
