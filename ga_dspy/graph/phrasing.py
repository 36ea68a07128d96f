"""Phrasing: what a sentence states or denies, and what a question asks, read shallowly.

Both are read with the same tables of words, so that `ga_dspy.graph.checks` can compare them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, dropwhile, groupby, pairwise
from typing import Final, Literal, NamedTuple, Self

from ga_dspy import lexicon
from ga_dspy.graph.identity import says_same, split_qualifier
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.paths import entries_in, is_class, meanings_in, meanings_of, named_in, word_table
from ga_dspy.graph.records import Relation
from ga_dspy.graph.traits import broad_kind, kind_of
from ga_dspy.passage import Passage
from ga_dspy.terms import (
    ARTICLES,
    MONTHS,
    STOPWORDS,
    Word,
    cached_short,
    fold,
    fold_words,
    sentences,
    words,
)
from ga_dspy.text import mentions, places, supports_phrase

Span = tuple[int, int]


# --- Negations and hedges

_TAKEN_BACK: Final = frozenset(("doubt", "undone", "accuse", "condition"))
"""Negates a statement from behind: "which was disproved", "if the council agrees"."""


@cached_short(maxsize=4096, max_length=2000)
def denials(text: str) -> frozenset[str]:
    """Return how a text denies or hedges; capitalised words are parts of names.

    >>> denials("He was to be replaced") == {"plan", "undone"}, denials("a Never Again record")
    (True, frozenset())
    """
    known, found = word_table("denials"), set[str]()
    for i, word in enumerate(words(re.sub(r"\bnot only\b", "", text))):
        if word.text.islower() or i == 0:
            found |= known.get(word.folded, frozenset())
    if re.search(r"n['’]t\b|(?i:\b(?:other than|apart from|all (?:\w+ ){0,2}but|yet to) )", text):
        found.add("not")
    if re.search(r"\b(?:was|were|is|are|used) to (?:be|have)\b", text):
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
            subject = _subject(passage)
            for start, end in sentences(passage.text):
                sentence = passage.text[start:end]
                is_question = sentence.rstrip("\"'”’)»").endswith("?")
                is_read = bool(words(sentence)) and not is_question
                if is_read and (found := _stated(relation, *ends, sentence, subject)):
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
    there = _meanings_of_sentence(sentence, tail)
    carried = [word for word in content if not there.isdisjoint(*meanings_of([word]))]
    if 2 * len(carried) < len(content):
        return None
    read = _Sentence.of(sentence, head, tail)
    is_about = len(ends) == 2 or read.is_about(relation.relation, subject)
    if not is_about or not read.gives_roles(relation.relation, carried):
        return None
    meanings = frozenset[str]().union(*meanings_of(carried))
    return *_part(sentence, ends, read.places(carried)), meanings | _makes(relation.relation)


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
_MADE: Final = re.compile(
    r"\b(?:is|was) (?:an?|the) (?:(?!(?:by|on|of|from|to|about)\b)[\w-]+ ){0,6}(\w+) by\b"
)


def _meanings_of_sentence(sentence: str, tail: Span | None) -> frozenset[str]:
    """Return the meanings of a sentence and what it implies.

    Two dates in brackets are a birth and a death, "is a novel by" states who wrote it, and
    "French" as the tail a nationality.
    """
    life = ("birth", "death") if _LIFE.search(sentence) else ()
    is_national = tail is not None and fold(sentence[slice(*tail)]) in lexicon.ADJECTIVES
    made = entries_in("makers", " ".join(_MADE.findall(sentence)))
    return meanings_in(sentence).union(life, made, ("country",) if is_national else ())


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
_ASIDE: Final = re.compile(
    r"\b(?:[Aa]lthough|[Tt]hough|[Dd]espite)\b[^,]*,|, (?:who|which|not)\b[^,]*(?=,)"
)
"""What denies nothing of the rest: "X, who never went to school, built Y"."""


def _within(found: Sequence[Word], span: Span) -> range:
    """Return the places of the words that a span covers, at least in part."""
    inside = [i for i, word in enumerate(found) if word.start < span[1] and word.end > span[0]]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def _part(sentence: str, ends: Sequence[Span], carried: Iterable[int]) -> tuple[str, str]:
    """Return the part of a sentence with the ends and words of a relation, and what follows."""
    found = words(sentence)
    every = [*chain.from_iterable(_within(found, end) for end in ends), *carried]
    for aside in _ASIDE.finditer(sentence):
        if not any(aside.start() <= found[i].start < aside.end() for i in every):
            blank = " " * len(aside[0])
            sentence = sentence[: aside.start()] + blank + sentence[aside.end() :]
    first, last = min(every, default=0), max(every, default=0)
    before = [word.folded for word in found[max(0, first - _BEFORE) : first]]
    semicolon = sentence.rfind(";", 0, found[first].start) + 1
    start = max(0 if "that" in before else found[first - len(before)].start, semicolon)
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
    return Question(question, tuple(plain), tuple(names), denied - {"condition"})


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

SYMMETRIC: Final = frozenset(("marriage", "brother", "sister", "play"))
"""Meanings that may be stated of either party: "X stars Y", "Y stars in X"."""
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
    >>> role_asked("which firm is \0 a subsidiary of".split(), 5)
    'done to'
    """
    word, before = tokens[i], tokens[i - 1] if i else ""
    two, behind = tokens[i - 2] if i > 1 else "", tokens[i + 1] if i + 1 < len(tokens) else ""
    is_noun = not is_verb(word) and behind in ("of", "for", "to")
    if is_noun and len(tokens) == i + 2:
        return "done to"
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


# --- Who does what to whom in a sentence

_HAVE: Final = frozenset("has had have".split())
_CLAUSES: Final = frozenset("who which whose while whereas but although though because".split())
_JOINING: Final = frozenset("and or also then later both first who which that not only".split())
_PLACING: Final = frozenset("who which that where when whom whose".split())
_PRONOUNS: Final = frozenset("he she it they".split())
_POSSESSIVES: Final = frozenset("his her its their s".split())
_EITHER_WAY: Final = SYMMETRIC | {"work", "study", "award", "place"}
"""Meanings whose words give an end different roles: "X won Y", "X was awarded Y"."""


class _Sentence(NamedTuple):
    """A sentence with the places of a relation's ends.

    Attributes:
        words: Its words; those without a capital are folded.
        apart: The places of words behind a comma or bracket.
        ends: The places of head and tail; an empty range if it only implies the end.
    """

    words: tuple[str, ...]
    apart: frozenset[int]
    ends: tuple[range, range]

    @classmethod
    def of(cls, text: str, *ends: Span | None) -> Self:
        """Return a sentence whose ends are characters."""
        found = words(text)
        plain = tuple(word.folded if word.text.islower() else word.text for word in found)
        gaps = enumerate((text[a.end : b.start] for a, b in pairwise(found)), 1)
        apart = frozenset(i for i, gap in gaps if "," in gap or "(" in gap)
        head, tail = (_within(found, end) if end else range(0) for end in ends)
        return cls(plain, apart, (head, tail))

    def places(self, carried: Iterable[str]) -> list[int]:
        """Return the place of each word of a relation: of its meanings, the nearest to the ends."""
        ends, every = list(filter(None, self.ends)), list[int]()
        for meaning in meanings_of(carried):
            same = (i for i, word in enumerate(self.words) if meaning & meanings_in(word))
            # Of several words between the ends, the last: "X (born 1966) is a poet born in Y".
            every += sorted(same, key=lambda i: (sum(abs(i - e.start) for e in ends), -i))[:1]
        return every

    def is_about(self, relation: str, subject: str) -> bool:
        """Return whether a sentence that implies one end is about the subject of its passage.

        It is not if another name is its subject, or a relative: "Her brother was born in Oslo."
        """
        first = next(filter(self._is_finite, range(len(self.words))), len(self.words))
        kin = entries_in("kin", " ".join(self.words[1 : min(first, 3)]))
        if self.words[0].lower() in _POSSESSIVES and kin - entries_in("kin", relation):
            return False
        known, own = set(fold_words(subject).split()), set(chain(*self.ends))
        names = [i for i in range(first) if i not in own and self._is_capital(i)]
        if 0 in names and 1 not in names:
            names.remove(0)  # a sentence begins with a capital
        names = [i for i in names if fold(self.words[i]) not in known and not self._is_placed(i)]
        names = [i for i in names if _POSSESSIVES.isdisjoint(self.words[:i][-1:])]
        return not names or not _PRONOUNS.isdisjoint(self.words[names[-1] : first])

    def gives_roles(self, relation: str, carried: Iterable[str]) -> bool:
        """Return whether no word of a relation has other ends here than in the relation.

        The doer of a verb is before it, or behind "by"; what is done to, behind it, not behind
        another verb; a noun with "of" is about what follows. What is unclear may be so.
        """
        tail = self.ends[1]
        is_value = bool(tail) and self.words[tail.start][0].isdigit()
        for word in carried:
            is_open = is_value or word in word_table("symmetric")
            is_open |= any(meanings & _EITHER_WAY for meanings in meanings_of([word]))
            stated: tuple[Role, Role] = ("", "") if is_open else roles_stated(relation, word)
            for i in self.places([word]):
                told = [self._role(i, end) if end else "" for end in self.ends]
                pairs = zip(told, stated, strict=True)
                if "other" in told or any("" != ours != theirs != "" for ours, theirs in pairs):
                    return False
        return True

    def _role(self, i: int, end: range) -> Role:
        """Return the role of an end at a word; "other" if another verb or name comes between."""
        word, between = self.words[i], set(self.words[end.stop : i])
        if not is_verb(word):
            return self._role_at_noun(i, end)
        if i < end.start:
            return self._role_behind(i, end)
        k = next((k for k in range(i - 1, end.stop - 1, -1) if not self._is_light(k)), end.start)
        is_placed = self._is_placed(end.start)
        is_governed = between and is_placed and between.isdisjoint(_PLACING)
        if is_governed and any(map(self._is_verb, range(end.start))):
            return "other"
        if k >= end.stop:
            return "other" if self._is_subject(k, end) else ""
        if "by" in self.words[i + 1 : i + 4] or word in word_table("states") or between & _BE:
            return "done to"
        is_aside = end.stop in self.apart and between.isdisjoint(_PLACING)
        return "" if is_placed or is_aside else "doer"

    def _role_behind(self, i: int, end: range) -> Role:
        between = self.words[i + 1 : end.start]
        if i == 0:
            return ""  # "Founded in 1911 by X, Y grew"
        start = next((k for k in range(i + 1, end.start) if not self._is_light(k)), end.start)
        later = range(start, end.start)
        if any(self.words[k] in _CLAUSES or self._is_finite(k) for k in later):
            return "other"
        following = range(end.stop, len(self.words))[:1]
        is_next = "and" in between[-2:] and end.stop not in self.apart
        if is_next and any(map(self._is_finite, following)):
            return "other"  # "X founded Y, and Z led it"
        if "by" in between:
            behind = range(i + 2 + between.index("by"), end.start)
            rest = dropwhile(lambda k: not self._is_capital(k), behind)
            is_beyond = any(self.words[k] in _SMALL | {"about"} for k in rest)
            return "other" if is_beyond else "doer"
        return "done to" if _BE.isdisjoint(self.words[max(0, i - 3) : i]) else "doer"

    def _role_at_noun(self, i: int, end: range) -> Role:
        word, before, behind = self.words[i], self.words[:i][-1:], self.words[i + 1 : end.start]
        is_place = before == ("the",) and broad_kind(kind_of(word)) == "place"
        is_object = behind[:1] == ("of",) and len(behind) < 4 and "".join(behind).islower()
        if is_object and is_place and word != "capital":
            return ""  # "the island of Sorn" is Sorn
        return "done to" if is_object or (before == ("s",) and end.stop == i - 1) else ""

    def _is_subject(self, k: int, end: range) -> bool:
        """Return whether the word before a verb is a name that is neither end nor joined to one."""
        if not self._is_capital(k) or any(k in each for each in self.ends):
            return False
        between = self.words[end.stop : k]
        is_listed = all(word in ("and", "or") or not word.islower() for word in between)
        is_relative = self.words[k + 1] in ("who", "which", "that")
        return is_relative or not (is_listed or k + 1 in self.apart or self._is_placed(k))

    def _is_placed(self, i: int) -> bool:
        """Return whether a preposition is before a name, which may have begun earlier."""
        while i and (not self.words[i - 1].islower() or self.words[i - 1] in ARTICLES):
            i -= 1
        return i > 0 and self.words[i - 1] in _SMALL

    def _is_capital(self, i: int) -> bool:
        """Return whether a word may be part of a name; a month or a nationality is not."""
        word = self.words[i]
        return word[0].isupper() and word.lower() not in lexicon.ADJECTIVES | MONTHS

    def _is_light(self, i: int) -> bool:
        word = self.words[i]
        return word in _JOINING or word.endswith("ly") or self._is_finite(i)

    def _is_finite(self, i: int) -> bool:
        return self.words[i] in _BE | _HAVE or self._is_verb(i)

    def _is_verb(self, i: int) -> bool:
        """Return whether there is a verb in the past, and no adjective or participle of state."""
        word = self.words[i]
        is_past = word in word_table("verbs") or (word.endswith("ed") and word.islower())
        is_verb = is_past and word not in word_table("states")
        return is_verb and (i == 0 or self.words[i - 1] not in ARTICLES | _POSSESSIVES | {"by"})
