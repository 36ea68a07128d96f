"""Statements: the sentences that state a relation, and what in them denies or hedges it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ga_dspy.graph.identity import says_same, split_qualifier
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.paths import meanings_in, meanings_of, names_class, word_table
from ga_dspy.graph.records import Relation
from ga_dspy.passage import Passage
from ga_dspy.terms import STOPWORDS, fold_words, remembered, sentences, words
from ga_dspy.text import mentions, supports_phrase

Span = tuple[int, int]


# --- What denies or hedges

_NEGATED: Final = re.compile(r"n['’]t\b")
_TO_COME: Final = re.compile(r"\b(?:was|were|is|are) to (?:be|have)\b")
_TAKEN_BACK: Final = frozenset(("doubt", "undone", "accuse"))
"""What denies a statement even behind it: "which was disproved", "and was acquitted"."""


@remembered(most=4096, longest=2000)
def denials(text: str) -> frozenset[str]:
    """In which ways a text denies or hedges; words with a capital are parts of names.

    >>> denials("He was to be replaced") == {"plan", "undone"}, denials("a Never Again record")
    (True, frozenset())
    """
    known, found = word_table("denials"), set[str]()
    for i, word in enumerate(words(text)):
        if word.text.islower() or i == 0:
            found |= known.get(word.folded, frozenset())
    if _NEGATED.search(text):
        found.add("not")
    if _TO_COME.search(text):
        found.add("plan")
    return frozenset(found)


# --- Sentences that state a relation


class Statement(NamedTuple):
    """A sentence that states a relation.

    Attributes:
        passage: The id of its passage.
        text: The sentence.
        part: What of it states the relation, with a few words before.
        behind: A few words behind that.
        meanings: Those of the relation's words that the sentence has.
    """

    passage: str
    text: str
    part: str
    behind: str
    meanings: frozenset[str]

    @property
    def denials(self) -> frozenset[str]:
        """How the sentence denies or hedges the relation."""
        return denials(self.part) | denials(f"… {self.behind}") & _TAKEN_BACK


def statements(
    graph: KnowledgeGraph, relation: Relation, passages: Mapping[str, Passage]
) -> Iterator[Statement]:
    """The sentences of a relation's passages that state it, denied or not.

    A sentence does where it mentions both ends, or one where its passage is about the other, and
    has at least half of the relation's own words. Where it has none, as in "is in", its small
    words stand just before the tail.
    """
    for id in dict.fromkeys(each.passage for each in relation.evidence):
        if passage := passages.get(id):
            for start, end in sentences(passage.text):
                sentence = passage.text[start:end]
                if found := _stated(graph, relation, sentence, _subject(passage)):
                    part, behind, meanings = found
                    yield Statement(id, sentence, part, behind, meanings)


def _subject(passage: Passage) -> str:
    """What names what a passage is about: its title, and the words with which it begins."""
    opening = words(passage.text[:200])[:6]
    return f"{passage.title}\n{passage.text[: opening[-1].end] if opening else ''}"


_Found = tuple[str, str, frozenset[str]]


def _stated(
    graph: KnowledgeGraph, relation: Relation, sentence: str, subject: str
) -> _Found | None:
    heads, tails = _names(graph, relation.head), _names(graph, relation.tail)
    head, tail = _mention(heads, sentence), _mention(tails, sentence)
    is_about_head = head is not None or _mention(heads, subject) is not None
    if relation.relation == "described as":
        return _described(relation, sentence, tail) if is_about_head else None
    is_about_tail = tail is not None or _mention(tails, subject) is not None
    ends = [span for span in (head, tail) if span]
    if not (ends and is_about_head and is_about_tail):
        return None
    own = {word for end in (*heads, *tails) for word in fold_words(end).split()}
    content = [word for word in fold_words(relation.relation).split() if _says(word, own)]
    if says_same(relation.relation):
        return *_part(sentence, ends, ()), frozenset()
    if not content:
        is_joined = tail is not None and _is_joined(relation.relation, sentence[: tail[0]])
        meanings = meanings_in(relation.tail) if names_class(relation) else frozenset[str]()
        return (*_part(sentence, ends, ()), meanings) if is_joined else None
    there = _meanings_with_life(sentence)
    carried = [word for word in content if not there.isdisjoint(*meanings_of([word]))]
    if 2 * len(carried) < len(content):
        return None
    meanings = frozenset[str]().union(*meanings_of(carried))
    return *_part(sentence, ends, carried), meanings | _makes(relation.relation)


def _names(graph: KnowledgeGraph, node: str) -> tuple[str, ...]:
    """What a node is called; a namesake's qualifier stands in no passage."""
    names = graph.names.get(node, (node,))
    return tuple(dict.fromkeys((*names, *(split_qualifier(name).base for name in names))))


def _described(relation: Relation, sentence: str, tail: Span | None) -> _Found | None:
    meanings = meanings_in(relation.tail)
    if tail:
        return *_part(sentence, [tail], ()), meanings
    is_said = supports_phrase(relation.tail, sentence, relation.head)
    return (sentence, "", meanings) if is_said else None


def _says(word: str, own: set[str]) -> bool:
    return word not in own and (word not in STOPWORDS or word in word_table("meanings"))


def _mention(names: Sequence[str], text: str) -> Span | None:
    for name in names:
        for each in mentions(name, text):
            return each.start, each.end
    return None


_LIFE: Final = re.compile(r"\([^()]*\d{3,4}(?:[^()]*[-–—][^()]*|\d{1,2} \w+ )\d{3,4}[^()]*\)")


@remembered(most=1024, longest=4000)
def _meanings_with_life(sentence: str) -> frozenset[str]:
    """The meanings of a sentence; two dates in brackets are a birth and a death."""
    life = ("birth", "death") if _LIFE.search(sentence) else ()
    return meanings_in(sentence).union(life)


def _is_joined(relation: str, before: str) -> bool:
    """Whether one of these small words, or a comma, stands just before the end of a text.

    >>> _is_joined("is in", "Karsten is a town in "), _is_joined("is in", "It buys water from ")
    (True, False)
    """
    small = "|".join(map(re.escape, fold_words(relation).split()))
    return re.search(rf"(?:\b(?:{small})\b(?:\W+\w+){{0,3}}|[,(])\W*\Z", before, re.I) is not None


def _makes(relation: str) -> frozenset[str]:
    """What a maker did, where a relation names a work and "by": "is a song by"."""
    found = fold_words(relation).split()
    if {"by", "from", "of"}.isdisjoint(found):
        return frozenset()
    table = word_table("makers")
    return frozenset[str]().union(*(table.get(word, frozenset()) for word in found))


_BEFORE, _BEHIND = 5, 6
"""How many words beside a statement are looked at."""


def _part(sentence: str, ends: Sequence[Span], carried: Sequence[str]) -> tuple[str, str]:
    """What of a sentence lies between the ends and words of a relation, and what follows."""
    found = words(sentence)
    at = [i for i, word in enumerate(found) if any(a <= word.start < b for a, b in ends)]
    every = list(at)
    for meaning in meanings_of(carried):
        near = [i for i, word in enumerate(found) if meaning & meanings_in(word.text)]
        if near:
            every.append(min(near, key=lambda i: min(abs(i - j) for j in at)))
    first, last = min(every), max(every)
    semicolon = sentence.rfind(";", 0, found[first].start) + 1
    start = max(found[max(0, first - _BEFORE)].start, semicolon)
    end, stop = found[last].end, found[min(len(found) - 1, last + _BEHIND)].end
    return sentence[start:end], sentence[end:stop].partition(";")[0]
