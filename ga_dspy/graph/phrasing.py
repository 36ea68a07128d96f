"""Phrasing: shallow parsing of what a sentence states or denies, and of what a question asks.

Sentences and questions are read with the same word lists, so `ga_dspy.graph.checks` can compare
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, dropwhile, groupby, pairwise
from typing import Final, Literal, NamedTuple, Self

from ga_dspy import lexicon
from ga_dspy.graph.identity import split_qualifier, states_identity
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.paths import entries_in, is_class, meanings_in, meanings_of, named_in, word_table
from ga_dspy.graph.records import Relation
from ga_dspy.graph.traits import broad_kind, kind_of
from ga_dspy.passage import Passage
from ga_dspy.terms import ARTICLES, MONTHS, STOPWORDS, Word, fold, fold_words, sentences, words
from ga_dspy.text import cached_short, mentions, places, supports_phrase

Span = tuple[int, int]


# --- Negations and hedges

_RETRACTIONS: Final = frozenset(("doubt", "undone", "accuse", "condition"))
"""Negations that follow their statement: "which was disproved", "if the council agrees"."""


@cached_short(maxsize=4096, max_length=2000)
def denials(text: str) -> frozenset[str]:
    """Return the kinds of negations and hedges in a text; capitalised words are parts of names.

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
        behind: A few words after that part.
        meanings: The meanings of those words of the relation that the sentence has.
    """

    passage: str
    text: str
    part: str
    behind: str
    meanings: frozenset[str]

    @property
    def denials(self) -> frozenset[str]:
        """Return the kinds of negations and hedges that apply to the relation."""
        return denials(self.part) | denials(f"… {self.behind}") & _RETRACTIONS


def statements(
    graph: KnowledgeGraph, relation: Relation, passages: Mapping[str, Passage]
) -> Iterator[Statement]:
    """Yield the sentences of a relation's passages that state it, whether or not they deny it.

    A sentence states a relation if it mentions both ends, or one end if its passage is about the
    other, and has at least half of the relation's content words. If the relation has none, as in
    "is in", its small words must be just before the tail.
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
    end = max((word.end for word in words(passage.text[:200])[:6]), default=0)
    return f"{passage.title}\n{passage.text[:end]}"


_Found = tuple[str, str, frozenset[str]]
"""The last three attributes of a `Statement`."""


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
    of_ends = set(fold_words(" ".join((*heads, *tails))).split())
    others = (word for word in fold_words(relation.relation).split() if word not in of_ends)
    content = [word for word in others if word not in STOPWORDS or word in word_table("meanings")]
    if states_identity(relation.relation):
        return *_part(sentence, ends, ()), frozenset()
    if not content:
        is_joined = tail is not None and _is_joined(relation.relation, sentence[: tail[0]])
        meanings = meanings_in(relation.tail) if is_class(relation) else frozenset[str]()
        return (*_part(sentence, ends, ()), meanings) if is_joined else None
    stated = _meanings_of_sentence(sentence, tail)
    shared = [word for word in content if not stated.isdisjoint(*meanings_of([word]))]
    if 2 * len(shared) < len(content):
        return None
    read = _Sentence.of(sentence, head, tail)
    is_about = len(ends) == 2 or read.is_about(relation.relation, subject)
    if not is_about or not read.gives_roles(relation.relation, shared):
        return None
    meanings = frozenset[str]().union(*meanings_of(shared))
    return *_part(sentence, ends, read.positions(shared)), meanings | _makes(relation.relation)


def _names(graph: KnowledgeGraph, node: str) -> tuple[str, ...]:
    """Return the names of a node, also without the qualifier that the graph gave a namesake."""
    names = graph.names.get(node, (node,))
    return tuple(dict.fromkeys((*names, *(split_qualifier(name).base for name in names))))


def _described(relation: Relation, sentence: str, tail: Span | None) -> _Found | None:
    if tail:
        return *_part(sentence, [tail], ()), meanings_in(relation.tail)
    is_supported = supports_phrase(relation.tail, sentence, relation.head)
    return (sentence, "", meanings_in(relation.tail)) if is_supported else None


def _mention(names: Sequence[str], text: str) -> Span | None:
    return next((each for name in names for each in mentions(name, text)), None)


_LIFE: Final = re.compile(r"\([^()]*\d{3,4}(?:[^()]*[-–—][^()]*|\d{1,2} \w+ )\d{3,4}[^()]*\)")
_MADE: Final = re.compile(
    r"\b(?:is|was) (?:an?|the) (?:(?!(?:by|on|of|from|to|about)\b)[\w-]+ ){0,6}(\w+) by\b"
)


def _meanings_of_sentence(sentence: str, tail: Span | None) -> frozenset[str]:
    """Return the meanings that a sentence states or implies.

    Two dates in brackets imply a birth and a death, "is a novel by" an author, and the tail
    "French" a nationality.
    """
    life = ("birth", "death") if _LIFE.search(sentence) else ()
    is_national = tail is not None and fold(sentence[slice(*tail)]) in lexicon.ADJECTIVES
    made = entries_in("makers", " ".join(_MADE.findall(sentence)))
    return meanings_in(sentence).union(life, made, ("country",) if is_national else ())


def _is_joined(relation: str, before: str) -> bool:
    """Return whether a text ends with, or near, a small word of a relation, a comma or a bracket.

    >>> _is_joined("is in", "Karsten is a town in "), _is_joined("is in", "It buys water from ")
    (True, False)
    """
    small = "|".join(map(re.escape, fold_words(relation).split()))
    return re.search(rf"(?:\b(?:{small})\b(?:\W+\w+){{0,3}}|[,(])\W*\Z", before, re.I) is not None


def _makes(relation: str) -> frozenset[str]:
    """Return the meanings of a work's maker if a relation has a kind of work and "by"."""
    if {"by", "from", "of"}.isdisjoint(fold_words(relation).split()):
        return frozenset()
    return entries_in("makers", relation)


_BEFORE, _AFTER = 5, 6
"""How many words before and after a statement are included."""
_ASIDE: Final = re.compile(
    r"\b(?:[Aa]lthough|[Tt]hough|[Dd]espite)\b[^,]*,|, (?:who|which|not)\b[^,]*(?=,)"
)
"""A clause whose negation does not apply to the rest: "X, who never went to school, built Y"."""


def _within(found: Sequence[Word], span: Span) -> range:
    """Return the positions of the words that a span covers, at least in part."""
    inside = [i for i, word in enumerate(found) if word.start < span[1] and word.end > span[0]]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def _part(sentence: str, ends: Sequence[Span], shared: Iterable[int]) -> tuple[str, str]:
    """Return the part of a sentence that states a relation, and the text after it.

    Args:
        sentence: The sentence.
        ends: The relation's ends in it.
        shared: The positions of the relation's words in it.
    """
    found = words(sentence)
    stating = [*chain.from_iterable(_within(found, end) for end in ends), *shared]
    for aside in _ASIDE.finditer(sentence):
        if not any(aside.start() <= found[i].start < aside.end() for i in stating):
            blank = " " * len(aside[0])
            sentence = sentence[: aside.start()] + blank + sentence[aside.end() :]
    first, last = min(stating, default=0), max(stating, default=0)
    before = [word.folded for word in found[max(0, first - _BEFORE) : first]]
    semicolon = sentence.rfind(";", 0, found[first].start) + 1
    start = max(0 if "that" in before else found[first - len(before)].start, semicolon)
    end, stop = found[last].end, found[min(len(found) - 1, last + _AFTER)].end
    return sentence[start:end], sentence[end:stop].partition(";")[0]


# --- Questions: content words, names, years and negations

NAME: Final = "\0"
"""Masks a name among the words of a question."""

_YEAR: Final = re.compile(r"1\d{3}|20\d{2}")
_TYPES: Final = frozenset(("date", "number", "place", "country"))
"""Meanings that ask for a kind of answer."""
_IDLE: Final = frozenset("s type kind sort name called named past along across among near".split())
"""Further words without content in a question."""


class Asked(NamedTuple):
    """A content word of a question, with its position and meanings."""

    place: int
    word: str
    meanings: frozenset[str]

    @property
    def is_kind(self) -> bool:
        """Return whether the word asks for a kind of answer, such as a date."""
        return self.meanings <= _TYPES


class Question(NamedTuple):
    """A question with masked names.

    Attributes:
        text: The question as asked.
        words: Its folded words; `NAME` stands for each name or run of capitalised words.
        names: The names, in order.
        denials: The kinds of its negations and hedges.
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

        A relation about a mayor answers "Who is the mayor of X?"; a sentence that only has the
        word does not.
        """
        found = set[int]()
        for i, word, _ in (each for each in self.asked if not each.is_kind):
            before, after = self.words[i - 1] if i else "", self.words[i + 1 : i + 2]
            is_held = before in ("s", NAME) or after in (("of",), ("for",))
            is_action = word in word_table("meanings") or is_verb(word) or is_agent(word)
            is_property = is_action or (is_held and not is_class_word(self.words, i))
            if is_property and word not in word_table("order") and not word.isdecimal():
                found.add(i)
        return frozenset(found)


def read_question(graph: KnowledgeGraph, question: str) -> Question:
    r"""Read a question and mask its names: those in the graph, and other capitalised words.

    >>> read_question(KnowledgeGraph(), "Which firm did Otto's Works buy?").words
    ('which', 'firm', 'did', '\x00', 's', '\x00', 'buy')
    """
    found = words(question)
    folded = [word.folded for word in found]
    sources = set(named_in(graph, question))
    forms = {name for source in sources for name in graph.names[source]}
    forms |= {name for name, nodes in graph.nodes_by_name.items() if not sources.isdisjoint(nodes)}
    masked, is_lower = set[int](), question == question.lower()
    for parts in (fold_words(form).split() for form in forms):
        for start in places(parts, folded):
            span = range(start, start + len(parts))
            if is_lower or any(found[i].proper for i in span):
                masked.update(span)
    if not is_lower:
        capitals = (i for i, word in enumerate(found) if i and word.text[0].isupper())
        masked |= {i for i in capitals if folded[i] not in lexicon.ADJECTIVES}
    plain, names = list[str](), list[str]()
    for is_name, run in groupby(range(len(found)), masked.__contains__):
        if is_name:
            plain.append(NAME)
            names.append(" ".join(found[i].text for i in run))
        else:
            plain += [folded[i] for i in run]
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


def is_class_word(tokens: Sequence[str], i: int) -> bool:
    r"""Return whether a word is the class of the entity asked for or named, not a property.

    >>> [is_class_word("which drug treats the king of \0".split(), i) for i in (1, 4)]
    [True, False]
    """
    _, before, after = _around(tokens, i)
    kind = kind_of(tokens[i].removesuffix("s"))
    if after == "of":
        return tuple(tokens[i + 2 : i + 3]) == (NAME,) and broad_kind(kind) == "place"
    is_held = before == "s" or (before == NAME and kind == "person")
    return before in ("which", "what") or (bool(kind) and not is_held)


def _around(tokens: Sequence[str], i: int) -> tuple[str, str, str]:
    """Return the two tokens before a token and the one after it, empty where there is none."""
    padded = ("", "", *tokens, "")
    return padded[i], padded[i + 1], padded[i + 3]


# --- Semantic roles: who does what to whom

Role = Literal["doer", "done to", "other", ""]
"""The role of the end that leads to the answer; "other" is neither, empty is unknown."""

SYMMETRIC: Final = frozenset(("marriage", "brother", "sister", "play"))
"""Meanings that hold for either party: "X stars Y", "Y stars in X"."""
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
    word, (second, before, after) = tokens[i], _around(tokens, i)
    is_noun = not is_verb(word) and after in ("of", "for", "to")
    if is_noun and len(tokens) == i + 2:
        return "done to"
    if after == "than" or (is_noun and _DO.isdisjoint(tokens[:i])):
        return "doer"
    if before == "s" or (before in ("the", "a", "an", "first") and not is_verb(word)):
        return "" if after in _BE else "doer"
    if before in _BE:
        return "" if second == NAME else "done to"
    if before == NAME:
        passive: Role = "doer" if after == "by" else "other"
        return passive if second in _BE else "done to"
    if after == "by":
        is_open = tuple(tokens[i + 2 :]) in ((), ("who",), ("whom",), ("what",))
        return "doer" if is_open else "done to"
    is_third_person = word.endswith("s") and _DO.isdisjoint(tokens[:i])
    return "doer" if after and (is_verb(word) or is_third_person) else ""


def roles_stated(relation: str, word: str) -> tuple[Role, Role]:
    """Return the roles that a relation gives its head and its tail at one of its words.

    >>> roles_stated("was acquired by", "acquired"), roles_stated("acquired", "acquired")
    (('done to', 'doer'), ('doer', 'done to'))
    >>> roles_stated("father of", "father"), roles_stated("father", "father")
    (('doer', 'done to'), ('done to', 'doer'))
    """
    tokens = fold_words(relation).split()
    i = tokens.index(word)
    before, last = tokens[:i], "".join(tokens[i + 1 :][-1:])
    if "by" in tokens[i + 1 :]:
        return "done to", "doer"
    is_third_person = word.endswith("s") and not before
    if not is_verb(word) and not is_third_person:
        if last in _SMALL:
            return "doer", "done to"
        return ("done to", "doer") if _SMALL.isdisjoint(before) else ("", "")
    if word in word_table("states") or (before and before[-1] in _BE):
        return "done to", ""
    if last in ("in", "at", "on", "from", "with", "as"):
        return "", ""
    return "doer", "done to"


# --- Semantic roles in a sentence

_HAVE: Final = frozenset("has had have".split())
_CLAUSES: Final = frozenset("who which whose while whereas but although though because".split())
_JOINING: Final = frozenset("and or also then later both first who which that not only".split())
_PLACING: Final = frozenset("who which that where when whom whose".split())
_PRONOUNS: Final = frozenset("he she it they".split())
_POSSESSIVES: Final = frozenset("his her its their s".split())
_EITHER_WAY: Final = SYMMETRIC | {"work", "study", "award", "place"}
"""Meanings whose words give one end different roles: "X won Y", "X was awarded Y"."""


class _Sentence(NamedTuple):
    """A sentence, with the positions of a relation's ends.

    Attributes:
        words: Its words; those without a capital are folded.
        apart: The positions of words after a comma or bracket.
        ends: The positions of head and tail; an empty range for an end that is only implied.
    """

    words: tuple[str, ...]
    apart: frozenset[int]
    ends: tuple[range, range]

    @classmethod
    def of(cls, text: str, *ends: Span | None) -> Self:
        """Read a sentence, with the ends as character spans."""
        found = words(text)
        plain = tuple(word.folded if word.text.islower() else word.text for word in found)
        gaps = enumerate((text[a.end : b.start] for a, b in pairwise(found)), 1)
        apart = frozenset(i for i, gap in gaps if "," in gap or "(" in gap)
        head, tail = (_within(found, end) if end else range(0) for end in ends)
        return cls(plain, apart, (head, tail))

    def positions(self, shared: Iterable[str]) -> list[int]:
        """Return for each word of a relation the word of the same meaning nearest to the ends."""
        ends, found = list(filter(None, self.ends)), list[int]()
        for meaning in meanings_of(shared):
            same = (i for i, word in enumerate(self.words) if meaning & meanings_in(word))
            # Between the ends the last one counts: "X (born 1966) is a poet born in Y".
            found += sorted(same, key=lambda i: (sum(abs(i - e.start) for e in ends), -i))[:1]
        return found

    def is_about(self, relation: str, subject: str) -> bool:
        """Return whether a sentence that only implies one end is about its passage's subject.

        It is not if its own subject is another name or a relative: "Her brother was born in Oslo."
        """
        first = next(filter(self._is_finite, range(len(self.words))), len(self.words))
        kin = entries_in("kin", " ".join(self.words[1 : min(first, 3)]))
        if self.words[0].lower() in _POSSESSIVES and kin - entries_in("kin", relation):
            return False
        known, of_ends = set(fold_words(subject).split()), set(chain(*self.ends))
        names = [i for i in range(first) if i not in of_ends and self._is_capital(i)]
        if 0 in names and 1 not in names:
            names.remove(0)  # a sentence begins with a capital
        names = [i for i in names if fold(self.words[i]) not in known and not self._is_placed(i)]
        names = [i for i in names if _POSSESSIVES.isdisjoint(self.words[:i][-1:])]
        return not names or not _PRONOUNS.isdisjoint(self.words[names[-1] : first])

    def gives_roles(self, relation: str, shared: Iterable[str]) -> bool:
        """Return whether the ends have the same roles as in a relation, at each shared word.

        The doer of a verb is before it or after "by"; the other party is after the verb, unless
        another verb comes between; a noun with "of" is about what follows. An unclear role passes.
        """
        tail = self.ends[1]
        is_value = bool(tail) and self.words[tail.start][0].isdigit()
        for word in shared:
            is_open = is_value or word in word_table("symmetric")
            is_open |= any(meanings & _EITHER_WAY for meanings in meanings_of([word]))
            expected: tuple[Role, Role] = ("", "") if is_open else roles_stated(relation, word)
            for i in self.positions([word]):
                roles = [self._role(i, end) if end else "" for end in self.ends]
                pairs = zip(roles, expected, strict=True)
                if "other" in roles or any("" != one != other != "" for one, other in pairs):
                    return False
        return True

    def _role(self, i: int, end: range) -> Role:
        """Return the role of an end at a word; "other" if another verb or name comes between."""
        word, between = self.words[i], set(self.words[end.stop : i])
        if not is_verb(word):
            return self._role_at_noun(i, end)
        if i < end.start:
            return self._role_after(i, end)
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

    def _role_after(self, i: int, end: range) -> Role:
        """Return the role of an end after a verb."""
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
            after = range(i + 2 + between.index("by"), end.start)
            rest = dropwhile(lambda k: not self._is_capital(k), after)
            is_beyond = any(self.words[k] in _SMALL | {"about"} for k in rest)
            return "other" if is_beyond else "doer"
        return "done to" if _BE.isdisjoint(self.words[max(0, i - 3) : i]) else "doer"

    def _role_at_noun(self, i: int, end: range) -> Role:
        word, before, between = self.words[i], self.words[:i][-1:], self.words[i + 1 : end.start]
        is_place = before == ("the",) and broad_kind(kind_of(word)) == "place"
        is_object = between[:1] == ("of",) and len(between) < 4 and "".join(between).islower()
        if is_object and is_place and word != "capital":
            return ""  # "the island of Sorn" is Sorn
        return "done to" if is_object or (before == ("s",) and end.stop == i - 1) else ""

    def _is_subject(self, k: int, end: range) -> bool:
        """Return whether the word before a verb is another name, not joined to an end."""
        if not self._is_capital(k) or any(k in each for each in self.ends):
            return False
        between = self.words[end.stop : k]
        is_listed = all(word in ("and", "or") or not word.islower() for word in between)
        is_relative = self.words[k + 1] in ("who", "which", "that")
        return is_relative or not (is_listed or k + 1 in self.apart or self._is_placed(k))

    def _is_placed(self, i: int) -> bool:
        """Return whether a preposition precedes the name at this word, or around it."""
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
        """Return whether a word is a verb in the past tense, and no adjective or participle."""
        word = self.words[i]
        is_past = word in word_table("verbs") or (word.endswith("ed") and word.islower())
        is_verb = is_past and word not in word_table("states")
        return is_verb and (i == 0 or self.words[i - 1] not in ARTICLES | _POSSESSIVES | {"by"})
