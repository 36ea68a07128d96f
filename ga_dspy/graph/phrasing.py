"""Phrasing: what a sentence states or denies, and what a question asks, read shallowly.

Both are read with the same tables of words, so that `ga_dspy.graph.checks` can compare them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, Literal, NamedTuple

from ga_dspy import lexicon
from ga_dspy.graph.identity import says_same, split_qualifier
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.paths import entries_in, is_class, meanings_in, meanings_of, named_in, word_table
from ga_dspy.graph.records import Relation
from ga_dspy.graph.traits import broad_kind, kind_of
from ga_dspy.passage import Passage
from ga_dspy.terms import STOPWORDS, cached_short, fold_words, sentences, words
from ga_dspy.text import mentions, places, supports_phrase

Span = tuple[int, int]


# --- Negations and hedges

_TAKEN_BACK: Final = frozenset(("doubt", "undone", "accuse"))
"""Negates a statement from behind: "which was disproved", "and was acquitted"."""


@cached_short(maxsize=4096, max_length=2000)
def denials(text: str) -> frozenset[str]:
    """Return how a text denies or hedges; capitalised words are parts of names.

    >>> denials("He was to be replaced") == {"plan", "undone"}, denials("a Never Again record")
    (True, frozenset())
    """
    known, found = word_table("denials"), set[str]()
    for i, word in enumerate(words(text)):
        if word.text.islower() or i == 0:
            found |= known.get(word.folded, frozenset())
    if re.search(r"n['’]t\b", text):
        found.add("not")
    if re.search(r"\b(?:was|were|is|are) to (?:be|have)\b", text):
        found.add("plan")
    return frozenset(found)


# --- Sentences that state a relation


class Statement(NamedTuple):
    """A sentence that states a relation.

    Attributes:
        passage: The id of its passage.
        text: The sentence.
        part: The part that states the relation, with a few words before it.
        behind: A few words behind that part.
        meanings: The meanings of the relation's words that the sentence has.
    """

    passage: str
    text: str
    part: str
    behind: str
    meanings: frozenset[str]

    @property
    def denials(self) -> frozenset[str]:
        """Return how the sentence denies or hedges the relation."""
        return denials(self.part) | denials(f"… {self.behind}") & _TAKEN_BACK


def statements(
    graph: KnowledgeGraph, relation: Relation, passages: Mapping[str, Passage]
) -> Iterator[Statement]:
    """Yield the sentences of a relation's passages that state it, denied or not.

    A sentence states a relation if it mentions both ends, or one end while its passage is about
    the other, and has at least half of the relation's content words. If the relation has none, as
    in "is in", its small words must be just before the tail.
    """
    ends = _names(graph, relation.head), _names(graph, relation.tail)
    for id in dict.fromkeys(each.passage for each in relation.evidence):
        if passage := passages.get(id):
            for start, end in sentences(passage.text):
                sentence = passage.text[start:end]
                if found := _stated(relation, *ends, sentence, _subject(passage)):
                    yield Statement(id, sentence, *found)


def _subject(passage: Passage) -> str:
    """Return the text that names the subject of a passage: its title and its first words."""
    opening = words(passage.text[:200])[:6]
    return f"{passage.title}\n{passage.text[: opening[-1].end] if opening else ''}"


_Found = tuple[str, str, frozenset[str]]
"""The last three attributes of a statement."""


def _stated(
    relation: Relation, heads: Sequence[str], tails: Sequence[str], sentence: str, subject: str
) -> _Found | None:
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
        meanings = meanings_in(relation.tail) if is_class(relation) else frozenset[str]()
        return (*_part(sentence, ends, ()), meanings) if is_joined else None
    there = _meanings_with_life(sentence)
    carried = [word for word in content if not there.isdisjoint(*meanings_of([word]))]
    if 2 * len(carried) < len(content):
        return None
    meanings = frozenset[str]().union(*meanings_of(carried))
    return *_part(sentence, ends, carried), meanings | _makes(relation.relation)


def _names(graph: KnowledgeGraph, node: str) -> tuple[str, ...]:
    """Return the names of a node; a qualifier of a namesake is in no passage."""
    names = graph.names.get(node, (node,))
    return tuple(dict.fromkeys((*names, *(split_qualifier(name).base for name in names))))


def _described(relation: Relation, sentence: str, tail: Span | None) -> _Found | None:
    if tail:
        return *_part(sentence, [tail], ()), meanings_in(relation.tail)
    is_supported = supports_phrase(relation.tail, sentence, relation.head)
    return (sentence, "", meanings_in(relation.tail)) if is_supported else None


def _says(word: str, own: set[str]) -> bool:
    return word not in own and (word not in STOPWORDS or word in word_table("meanings"))


def _mention(names: Sequence[str], text: str) -> Span | None:
    found = (each for name in names for each in mentions(name, text))
    return next(found, None)


_LIFE: Final = re.compile(r"\([^()]*\d{3,4}(?:[^()]*[-–—][^()]*|\d{1,2} \w+ )\d{3,4}[^()]*\)")


def _meanings_with_life(sentence: str) -> frozenset[str]:
    """Return the meanings of a sentence; two dates in brackets are a birth and a death."""
    life = ("birth", "death") if _LIFE.search(sentence) else ()
    return meanings_in(sentence).union(life)


def _is_joined(relation: str, before: str) -> bool:
    """Return whether a text ends with one of a relation's small words or a comma.

    >>> _is_joined("is in", "Karsten is a town in "), _is_joined("is in", "It buys water from ")
    (True, False)
    """
    small = "|".join(map(re.escape, fold_words(relation).split()))
    return re.search(rf"(?:\b(?:{small})\b(?:\W+\w+){{0,3}}|[,(])\W*\Z", before, re.I) is not None


def _makes(relation: str) -> frozenset[str]:
    """Return the role of a maker if a relation names a work and "by": "is a song by"."""
    if {"by", "from", "of"}.isdisjoint(fold_words(relation).split()):
        return frozenset()
    return entries_in("makers", relation)


_BEFORE, _BEHIND = 5, 6
"""How many words before and behind a statement are included."""


def _part(sentence: str, ends: Sequence[Span], carried: Sequence[str]) -> tuple[str, str]:
    """Return the part of a sentence with the ends and words of a relation, and what follows."""
    found = words(sentence)
    at = [i for i, word in enumerate(found) if any(a <= word.start < b for a, b in ends)]
    every = list(at)
    for meaning in meanings_of(carried):
        same = (i for i, word in enumerate(found) if meaning & meanings_in(word.text))
        every += sorted(same, key=lambda i: min(abs(i - j) for j in at))[:1]
    first, last = min(every), max(every)
    semicolon = sentence.rfind(";", 0, found[first].start) + 1
    start = max(found[max(0, first - _BEFORE)].start, semicolon)
    end, stop = found[last].end, found[min(len(found) - 1, last + _BEHIND)].end
    return sentence[start:end], sentence[end:stop].partition(";")[0]


# --- Questions: their words, and who does what to whom in them

NAME: Final = "\0"
"""The mask of a name among the words of a question."""

_YEAR: Final = re.compile(r"1\d{3}|20\d{2}")
_TYPES: Final = frozenset(("date", "number", "place", "country"))
"""Meanings that state the kind of an answer."""
_IDLE: Final = frozenset("s type kind sort name called named past along across among near".split())
"""Words without a meaning of their own in a question."""


class Asked(NamedTuple):
    """A content word of a question: its position and meanings."""

    place: int
    word: str
    meanings: frozenset[str]

    @property
    def is_kind(self) -> bool:
        """Return whether it asks for a kind of answer, such as a date."""
        return self.meanings <= _TYPES


class Question(NamedTuple):
    """A question with masked names.

    Attributes:
        text: The question itself.
        words: Its words, folded; a name, or a run of capitalised words, is `NAME`.
        names: The names, in order.
        denials: How it denies or hedges.
    """

    text: str
    words: tuple[str, ...]
    names: tuple[str, ...]
    denials: frozenset[str]

    @property
    def years(self) -> tuple[str, ...]:
        """Return the years outside names."""
        return tuple(word for word in self.words if _YEAR.fullmatch(word))

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Return the content words that are neither names nor years."""
        return tuple(
            Asked(i, word, meaning)
            for i, word in enumerate(self.words)
            if word not in _IDLE | {NAME} and not _YEAR.fullmatch(word)
            for meaning in meanings_of([word])
        )

    @property
    def telling(self) -> frozenset[int]:
        """Return the positions of words that a relation must have: verbs, roles, properties.

        "Who is the mayor of X?" is answered by a relation about a mayor, not by a sentence with
        that word.
        """
        found = set[int]()
        for i, word, _ in (each for each in self.asked if not each.is_kind):
            before, behind = self.words[i - 1] if i else "", self.words[i + 1 : i + 2]
            is_held = before in ("s", NAME) or behind in (("of",), ("for",))
            is_action = word in word_table("meanings") or is_verb(word) or is_agent(word)
            is_property = is_action or (is_held and not is_sort(self.words, i))
            if is_property and word not in word_table("order") and not word.isdecimal():
                found.add(i)
        return frozenset(found)


def read_question(graph: KnowledgeGraph, question: str) -> Question:
    r"""Read a question, with the names that a graph knows masked.

    >>> read_question(KnowledgeGraph(), "Which firm did Otto's Works buy?").words
    ('which', 'firm', 'did', '\x00', 's', '\x00', 'buy')
    """
    found = words(question)
    folded = [word.folded for word in found]
    sources = set(named_in(graph, question))
    forms = {name for source in sources for name in graph.names[source]}
    forms |= {name for name, nodes in graph.nodes_by_name.items() if not sources.isdisjoint(nodes)}
    masked, is_plain = set[int](), question == question.lower()
    for parts in (fold_words(form).split() for form in forms):
        for start in places(parts, folded):
            span = range(start, start + len(parts))
            if is_plain or any(found[i].proper for i in span):
                masked.update(span)
    if not is_plain:
        capitals = (i for i, word in enumerate(found) if i and word.text[0].isupper())
        masked |= {i for i in capitals if folded[i] not in lexicon.ADJECTIVES}
    plain, names = list[str](), list[str]()
    for is_name, run in groupby(range(len(found)), masked.__contains__):
        together = [found[i] for i in run]
        plain += [NAME] if is_name else [word.folded for word in together]
        names += [" ".join(word.text for word in together)] if is_name else []
    denied = denials(" ".join(word.text for i, word in enumerate(found) if i not in masked))
    return Question(question, tuple(plain), tuple(names), denied)


# --- Kinds of words


def is_verb(word: str) -> bool:
    """Return whether a word is a verb, by its form or a list.

    >>> is_verb("acquired"), is_verb("won"), is_verb("mayor")
    (True, True, False)
    """
    return word.endswith(("ed", "ing")) or word in word_table("verbs")


def is_agent(word: str) -> bool:
    """Return whether a word is an agent noun: "owner", "director"."""
    return word.endswith(("er", "or"))


def is_sort(tokens: Sequence[str], i: int) -> bool:
    r"""Return whether a word is the class of the thing asked for or named, not a property.

    >>> [is_sort("which drug treats the king of \0".split(), i) for i in (1, 4)]
    [True, False]
    """
    before, behind = tokens[i - 1] if i else "", tokens[i + 1] if i + 1 < len(tokens) else ""
    kind = kind_of(tokens[i].removesuffix("s"))
    if behind == "of":
        return tuple(tokens[i + 2 : i + 3]) == (NAME,) and broad_kind(kind) == "place"
    is_held = before == "s" or (before == NAME and kind == "person")
    return before in ("which", "what") or (bool(kind) and not is_held)


# --- Who does what to whom

Role = Literal["doer", "done to", "other", ""]
"""The role of the end that leads to the answer; "other" is neither, empty is unknown."""

_BE: Final = frozenset("is are was were be been being".split())
_DO: Final = frozenset("do does did has have had".split())
_SMALL: Final = frozenset("of to for at in on from with as by after over against than".split())


def role_asked(tokens: Sequence[str], i: int) -> Role:
    r"""Return the role that a question asks for at a word.

    >>> role_asked("which company acquired \0".split(), 2)
    'doer'
    >>> role_asked("which company did \0 acquire".split(), 4)
    'done to'
    >>> role_asked("who is the father of \0".split(), 3)
    'doer'
    >>> role_asked("who was defeated by \0".split(), 2)
    'done to'
    """
    word, before = tokens[i], tokens[i - 1] if i else ""
    two, behind = tokens[i - 2] if i > 1 else "", tokens[i + 1] if i + 1 < len(tokens) else ""
    is_noun = not is_verb(word) and behind in ("of", "for", "to")
    if behind == "than" or (is_noun and _DO.isdisjoint(tokens[:i])):
        return "doer"
    if before == "s" or (before in ("the", "a", "an", "first") and not is_verb(word)):
        return "" if behind in _BE else "doer"
    if before in _BE:
        return "" if two == NAME else "done to"
    if before == NAME:
        passive: Role = "doer" if behind == "by" else "other"
        return passive if two in _BE else "done to"
    if behind == "by":
        is_open = tuple(tokens[i + 2 :]) in ((), ("who",), ("whom",), ("what",))
        return "doer" if is_open else "done to"
    is_third_person = word.endswith("s") and _DO.isdisjoint(tokens[:i])
    return "doer" if behind and (is_verb(word) or is_third_person) else ""


def roles_stated(relation: str, word: str) -> tuple[Role, Role]:
    """Return the roles of head and tail that a relation states at one of its words.

    >>> roles_stated("was acquired by", "acquired"), roles_stated("acquired", "acquired")
    (('done to', 'doer'), ('doer', 'done to'))
    >>> roles_stated("father of", "father"), roles_stated("father", "father")
    (('doer', 'done to'), ('done to', 'doer'))
    """
    tokens = fold_words(relation).split()
    i = tokens.index(word)
    before, behind = tokens[:i], tokens[i + 1 :]
    if "by" in behind:
        return "done to", "doer"
    is_third_person = word.endswith("s") and not before
    if not is_verb(word) and not is_third_person:
        ends_small = bool(behind) and behind[-1] in _SMALL
        is_object = not ends_small and not _SMALL.isdisjoint(before)
        return ("", "") if is_object else ("doer", "done to") if ends_small else ("done to", "doer")
    if word in word_table("states") or (before and before[-1] in _BE):
        return "done to", ""
    if behind and behind[-1] in ("in", "at", "on", "from", "with", "as"):
        return "", ""
    return "doer", "done to"
