"""Questions, read shallowly: their words, and who does what to whom in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ga_dspy import lexicon
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.paths import meanings_of, named_in, word_table
from ga_dspy.graph.statements import denials
from ga_dspy.graph.traits import kind_of
from ga_dspy.terms import fold_words, words
from ga_dspy.text import places

NAME: Final = "\0"
"""Stands for a name among the words of a question."""

_YEAR: Final = re.compile(r"1\d{3}|20\d{2}")
_TYPES: Final = frozenset(("date", "number", "place", "country"))
"""Meanings that say of which kind an answer is, not what leads there."""
_IDLE: Final = frozenset("s type kind sort name called named past along across among near".split())
"""Words that ask for nothing by themselves."""


class Asked(NamedTuple):
    """A word of a question that says something: its place, and what it means."""

    place: int
    word: str
    meanings: frozenset[str]

    @property
    def is_kind(self) -> bool:
        """Whether it asks for a kind of answer, such as a date."""
        return self.meanings <= _TYPES


class Question(NamedTuple):
    """A question whose names are masked.

    Attributes:
        words: Its words, folded; a name, or a run of words with capitals, is `NAME`.
        names: The names, in order.
        denials: How it denies or hedges.
    """

    words: tuple[str, ...]
    names: tuple[str, ...]
    denials: frozenset[str]

    @property
    def years(self) -> tuple[str, ...]:
        """The years that are no part of a name."""
        return tuple(word for word in self.words if _YEAR.fullmatch(word))

    @property
    def asked(self) -> tuple[Asked, ...]:
        """The words that are neither names nor years, and say something."""
        return tuple(
            Asked(i, word, meaning)
            for i, word in enumerate(self.words)
            if word not in _IDLE | {NAME} and not _YEAR.fullmatch(word)
            for meaning in meanings_of([word])
        )

    @property
    def telling(self) -> frozenset[int]:
        """The places of words that a relation must have: verbs, roles, what a thing has.

        "Who is the mayor of X?" is answered by a relation about a mayor, not by a sentence with
        that word.
        """
        known = word_table("meanings")
        found = set[int]()
        for i, word, _ in (each for each in self.asked if not each.is_kind):
            before, behind = self.words[i - 1] if i else "", self.words[i + 1 : i + 2]
            is_held = before in ("s", NAME) or behind in (("of",), ("for",))
            is_action = word in known or is_verb(word) or is_agent(word)
            if (
                word not in word_table("order")
                and not word.isdecimal()
                and (is_action or (is_held and not is_sort(self.words, i)))
            ):
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
    plain: list[str] = []
    names: list[str] = []
    for i, word in enumerate(found):
        if i not in masked:
            plain.append(word.folded)
        elif i - 1 in masked:
            names[-1] += f" {word.text}"
        else:
            plain.append(NAME)
            names.append(word.text)
    denied = denials(" ".join(word.text for i, word in enumerate(found) if i not in masked))
    return Question(tuple(plain), tuple(names), denied)


# --- Kinds of words


def is_verb(word: str) -> bool:
    """Whether a word is a verb, by its form or a list.

    >>> is_verb("acquired"), is_verb("won"), is_verb("mayor")
    (True, True, False)
    """
    return word.endswith(("ed", "ing")) or word in word_table("verbs")


def is_agent(word: str) -> bool:
    """Whether a word says who does something: "owner", "director"."""
    return word.endswith(("er", "or"))


def is_sort(tokens: Sequence[str], i: int) -> bool:
    r"""Whether a word says what sort of thing is asked for or named, and not what of it.

    >>> [is_sort("which drug treats the king of \0".split(), i) for i in (1, 4)]
    [True, False]
    """
    before, behind = tokens[i - 1] if i else "", tokens[i + 1] if i + 1 < len(tokens) else ""
    kind = kind_of(tokens[i].removesuffix("s"))
    if behind == "of":
        return tuple(tokens[i + 2 : i + 3]) == (NAME,) and broad_kind(kind) == "place"
    is_held = before == "s" or (before == NAME and kind == "person")
    return before in ("which", "what") or (bool(kind) and not is_held)


_WORKS: Final = frozenset("film song album book play series painting".split())
_PLACES: Final = frozenset("settlement country subdivision water mountain island".split())


def broad_kind(kind: str) -> str:
    """A work, a place, or the kind itself."""
    return "work" if kind in _WORKS else "place" if kind in _PLACES else kind


# --- Who does what to whom

Role = Literal["doer", "done to", "other", ""]
"""Of the end that leads to the answer; "other" is neither, empty is unknown."""

_BE: Final = frozenset("is are was were be been being".split())
_DO: Final = frozenset("do does did has have had".split())
_SMALL: Final = frozenset("of to for at in on from with as by after over against than".split())


def role_asked(tokens: Sequence[str], i: int) -> Role:
    r"""The role that a question asks for at a word.

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
    if behind == "than":
        return "doer"
    if not is_verb(word) and behind in ("of", "for", "to") and _DO.isdisjoint(tokens[:i]):
        return "doer"
    if before == "s" or (before in ("the", "a", "an", "first") and not is_verb(word)):
        return "" if behind in _BE else "doer"
    if before in _BE:
        return "" if two == NAME else "done to"
    if before == NAME and two in _BE:
        return "doer" if behind == "by" else "other"
    if before == NAME:
        return "done to"
    if behind == "by":
        is_open = tuple(tokens[i + 2 :]) in ((), ("who",), ("whom",), ("what",))
        return "doer" if is_open else "done to"
    is_third_person = word.endswith("s") and _DO.isdisjoint(tokens[:i])
    return "doer" if behind and (is_verb(word) or is_third_person) else ""


def roles_stated(relation: str, word: str) -> tuple[Role, Role]:
    """The roles of head and tail that a relation states at one of its words.

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
