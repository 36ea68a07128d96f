"""What passages state: the relations in their sentences, where chains of them lead, what to keep.

Everything is copied: the ends of a relation stand in the passage as they are spelt here, and the
relation is made of the words between them. A pronoun, a surname or "the film" at the beginning of
a sentence stands for the passage's title. There is no tagger: a verb is a word of a list, or one
that ends like a past form.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from extractive_lm.prompt import Doc, Fact
from extractive_lm.question import Question
from extractive_lm.ranker import fits
from extractive_lm.spans import bare_title
from extractive_lm.text import (
    ARTICLES,
    COUNTRIES_AND_STATES,
    NATIONALITIES,
    PREPOSITIONS,
    RELATED,
    STOPWORDS,
    SUBJECT_TYPES,
    Parsed,
    Span,
    keywords,
    name_spans,
    normalize,
    noun_type,
    parse,
    pattern_spans,
    stem,
    words,
)

# --- Verbs, and relations made of the words between two names

_BE = words("be")
_DETERMINERS = words("determiners")
_HEDGES = words("hedges")
_ADVERBS = words("adverbs")
_PRONOUNS = words("pronouns")
_VERBS = _BE | words("irregular_verbs") | {"has", "have", "had"}
_NOT_PAST = words("not_past")
_LONGEST_RELATION = 6


def is_verb(word: str) -> bool:
    """Return whether a lower-case word reads like a verb of a statement."""
    past = word.endswith("ed") and len(word) > 4 and word not in _NOT_PAST and "-" not in word
    return word in _VERBS or past


def _is_predicate(phrase: Sequence[str], i: int) -> bool:
    """Return whether word `i` is a verb and no participle before its noun ("animated series")."""
    word = phrase[i]
    if not is_verb(word) or word in _BE or not word.endswith(("ed", "ing", "en")):
        return is_verb(word)
    before = phrase[i - 1] if i else ""
    noun_before = before in _DETERMINERS | PREPOSITIONS | NATIONALITIES or before.isdigit()
    after = phrase[i + 1] if i + 1 < len(phrase) else ""
    return not noun_before or after in PREPOSITIONS


def relation_phrase(phrase: Sequence[str]) -> str:
    """Make a relation of the words between two mentions; "" where they hold no statement.

    >>> relation_phrase("is a 1994 American animated film directed by".split())
    'directed by'
    >>> relation_phrase("was born in".split()), relation_phrase("and is the county seat of".split())
    ('born in', 'is the county seat of')
    >>> relation_phrase("married the British actress".split())
    'married'
    """
    start = max((i for i in range(len(phrase)) if _is_predicate(phrase, i)), default=-1)
    if start < 0 or _HEDGES & set(phrase[max(start - 3, 0) :]):
        return ""
    kept = [w for w in phrase[start:] if w not in _ADVERBS and not w.isdigit()]
    # What follows the verb or its last preposition goes where it only introduces the name.
    last = max((i for i, word in enumerate(kept) if word in PREPOSITIONS), default=0)
    rest = [word for word in kept[last + 1 :] if word not in _DETERMINERS]
    introduces = any(noun_type(w) in SUBJECT_TYPES or w in NATIONALITIES for w in rest)
    if not rest or ((last or kept[0] not in _BE) and (len(rest) > 3 or introduces)):
        kept = kept[: last + 1]
    if len(kept) > _LONGEST_RELATION:
        # Of "is a small unincorporated mining community in", "is mining community in".
        if kept[0] not in _BE or kept[-1] not in PREPOSITIONS:
            return ""
        kept = [kept[0], *kept[-3:]]
    while kept and kept[-1] in _DETERMINERS:
        kept.pop()
    return " ".join(word.capitalize() if word in NATIONALITIES else word for word in kept)


# --- What one passage states

_AFTER_NAMES = frozenset(("'s", "’s", ",", "(", "and", "&", "-", "also"))
_TYPE_ENDS = PREPOSITIONS | _ADVERBS | frozenset(
    "who which that whose whom where and best set starring featuring , . ; : ( ) – —".split()
)  # fmt: skip
_LIST = frozenset([(",",), ("and",), (",", "and"), ("&",), ("or",)])
_OWNERS = frozenset("his her its their".split())
_OPENING = 60
_SENTENCES = 8


class Triple(NamedTuple):
    """A relation, the sentence (from 0) that states it, the kind of its tail, and when it holds."""

    head: str
    relation: str
    tail: str
    sentence: int
    kind: str
    time: str = ""


class Statements(NamedTuple):
    """What a passage says: what it is about, what it says that this is, and its relations."""

    subject: str
    kind: str
    triples: tuple[Triple, ...]


@lru_cache(maxsize=2048)
def statements(title: str, text: str) -> Statements:
    """Read one passage.

    >>> found = statements("Red Lodge", "Red Lodge is a city and the seat of Carbon County.")
    >>> found.kind, [(t.relation, t.tail) for t in found.triples]
    ('city', [('is the seat of', 'Carbon County')])
    """
    about = _Reading(title, text)
    if about.subject and about.parsed.tokens:
        for number in range(min(len(about.parsed.bounds), _SENTENCES)):
            about.read_sentence(number)
    return Statements(about.subject, about.kind, tuple(about.triples.values()))


def mentions(parsed: Parsed) -> list[Span]:
    """Return what a text mentions, in order: names, dates, quoted works and quantities."""
    kept: list[Span] = []
    names = [span for span in name_spans(parsed) if _is_mention(parsed, span)]
    for one, other in list(pairwise(names)):
        # "Red Lodge, Montana" is one name.
        is_place = parsed.slice(other.start, other.end).lower() in COUNTRIES_AND_STATES
        if is_place and parsed.lower[one.end : other.start] == (",",):
            kept.append(Span(one.start, other.end, "name"))
    quotes = [s for s in pattern_spans(parsed, "quote") if parsed.tokens[s.start].text[0].isupper()]
    days = [s for s in pattern_spans(parsed, "date", "year") if not _qualifies(parsed, s)]
    counts = pattern_spans(parsed, "quantity")
    for found in (*quotes, *days, *names, *counts):
        if not any(found.start < other.end and other.start < found.end for other in kept):
            kept.append(found)
    return sorted(kept)


def _is_mention(parsed: Parsed, span: Span) -> bool:
    """Return whether a run of capitals is a name, and no adjective or mere first word."""
    text = parsed.slice(span.start, span.end)
    after = parsed.tokens[span.end].text if span.end < len(parsed.tokens) else ""
    if text.lower() in NATIONALITIES or (after.islower() and noun_type(after) in SUBJECT_TYPES):
        return False
    first = span.start == parsed.bounds[parsed.sentence[span.start]][0]
    return not first or " " in text or is_verb(after) or after in _AFTER_NAMES


def _qualifies(parsed: Parsed, span: Span) -> bool:
    """Return whether a year only qualifies what follows: "a 1994 film"."""
    after = parsed.lower[span.end] if span.end < len(parsed.tokens) else "."
    return after[0].isalnum() and after not in STOPWORDS and not is_verb(after)


class _Reading:
    """A passage with what is known of its subject and its names while it is read.

    `head` is whom the sentence speaks of, `verb` the words by which, `last` the relation found
    last.
    """

    def __init__(self, title: str, text: str) -> None:
        self.parsed = parse(text)
        self.low = self.parsed.lower
        self.mentions = mentions(self.parsed)
        names = [self.parsed.slice(*span[:2]) for span in self.mentions if span.kind == "name"]
        self.subject = bare_title(title) or "".join(names[:1])
        self.triples: dict[tuple[str, str], Triple] = {}
        self.kind = self._definition()
        self.is_person = noun_type(self.kind.split(" ")[-1]) == "person"
        own = {self.subject, self.subject.split(",")[0]}
        if self.mentions and self.mentions[0].kind == "name" and self.mentions[0].start <= 2:
            own.add(names[0])
        if self.is_person:
            own |= {name.split()[at] for name in own if name for at in (0, -1)}
        self.aliases = {name for name in own if len(name) > 1}
        self.full_names = {name.split()[-1]: name for name in reversed(names) if " " in name}
        self.head, self.verb, self.number = "", list[str](), 0
        self.last: Triple | None = None

    def _definition(self) -> str:
        """Return the noun phrase of "is a …", what the subject is; "" where there is none."""
        for i, (word, after) in enumerate(pairwise(self.low[:_OPENING]), start=2):
            if word in _BE and after in ARTICLES:
                phrase = self.low[i : i + 8]
                return " ".join(takewhile(lambda w: w not in _TYPE_ENDS and not is_verb(w), phrase))
        return ""

    def _name(self, mention: Span) -> str:
        """Return the name a mention stands for: the subject's, or a longer one of the passage."""
        text = self.parsed.slice(mention.start, mention.end).strip(" ,.")
        if text in self.aliases:
            return self.subject
        return self.full_names.get(text, text) if mention.kind == "name" else text

    def read_sentence(self, number: int) -> None:
        """Relate the mentions of a sentence, each to what came before it."""
        start, end = self.parsed.bounds[number]
        self.last, self.verb, self.number = None, [], number
        previous: Span | None = None
        at, depth = start, 0
        gap: list[str] = []
        self.head = self._opening(start) if number else self.subject
        by_start = {span.start: span for span in self.mentions if start <= span.start < end}
        for i in range(start, end):
            depth += (self.low[i] == "(") - (self.low[i] == ")")
            if i < at or depth > 0 or self.low[i] in ('"', "“", "”", ")"):
                continue
            mention = by_start.get(i)
            if mention is None:
                gap.append(self.low[i])
                continue
            name = self._name(mention)
            if not self.head or (previous is None and name == self.subject):
                self._begin(mention, name, gap)
            else:
                self._relate(mention, name, gap, previous)
            previous, at, gap = mention, mention.end, []

    def _opening(self, start: int) -> str:
        """Return whom a sentence speaks of by its first words; "" where a name has to tell."""
        first, second = (*self.low[start : start + 2], "")[:2]
        is_kind = first == "the" and second in self.kind.split()
        return self.subject if is_kind or first in _PRONOUNS | _OWNERS else ""

    def _begin(self, mention: Span, name: str, gap: list[str]) -> None:
        """Begin a sentence with its first mention: "In 1999, he married …"."""
        spoken_of = [i for i, word in enumerate(gap) if word in _PRONOUNS]
        if spoken_of:
            self.head = self.subject
            self._relate(mention, name, gap[spoken_of[0] + 1 :], None)
        elif mention.kind in ("name", "quote"):
            self.head = name

    def _relate(self, mention: Span, name: str, gap: list[str], previous: Span | None) -> None:
        owned = gap[1:5] if not previous and _OWNERS.issuperset(gap[:1]) else []
        if owned and noun_type(owned[-1]) and not any(map(is_verb, owned)):
            # "Her first album X was …": the sentence goes on about X.
            self._note(self.head, " ".join(owned), name, mention.kind)
            self.head = name
            return
        before = self._name(previous) if previous and previous.kind == "name" else ""
        if before and {"who", "which"} & set(gap[:2]):
            self.head, self.verb = before, []
        apposed = gap[:1] == [","] and gap[1:2] and gap[1] in ARTICLES and gap[-1] != ","
        if apposed and not any(map(is_verb, gap)):
            # "born in X, a son of Y" is about who was born, "X, a film by Y" about X.
            stays = self.last and self.last.relation.split()[-1] in PREPOSITIONS
            self.head = before if before and not (stays and self.is_person) else self.head
            gap = ["is", *gap[1:]]
        if self.last and tuple(gap) in _LIST:
            if mention.kind == self.last.kind:
                self._note(self.last.head, self.last.relation, name, mention.kind)
            return
        # The words after the last comma or colon.
        marks = [i for i, word in enumerate(gap[:-1]) if not word[-1].isalnum()]
        phrase = gap[max(marks, default=-1) + 1 :]
        if any(_is_predicate(phrase, i) for i in range(len(phrase))):
            self.verb = [word for word in phrase if is_verb(word)][-1:]
            self._note(self.head, relation_phrase(phrase), name, mention.kind)
        elif phrase and phrase[-1] in PREPOSITIONS | _DETERMINERS:
            self._relate_further(mention, name, phrase)

    def _relate_further(self, mention: Span, name: str, gap: list[str]) -> None:
        """Read a further "in", "on" or "of" after the verb's first object."""
        further = [word for word in gap if word not in _DETERMINERS | {"and", "or"}]
        if not self.last or not further or further[-1] not in PREPOSITIONS or len(further) > 3:
            return
        if self.last.relation.split()[-1] in PREPOSITIONS:
            if self.verb and (self.verb[0] not in _BE or len(further) > 1):
                relation = " ".join([*self.verb, *further])
                self._note(self.head, relation, name, mention.kind)
        elif mention.kind in ("date", "year") and not self.last.time:
            self.last = self.last._replace(time=name)
            self.triples[self.last.head, self.last.tail] = self.last

    def _note(self, head: str, relation: str, tail: str, kind: str) -> None:
        if relation and head and head != tail and (head, tail) not in self.triples:
            self.last = Triple(head, relation, tail, self.number, kind)
            self.triples[head, tail] = self.last


# --- Chains: from what a question names, relation by relation, to what it asks for. A walk takes,
# at each relation, the words of the question that state it; what is left over is still open.

_MOST_HOPS, _WIDTH = 4, 40
_LEAST_GAIN, FITS, WHOLE = 0.3, 0.5, 0.6
_END, _BETWEEN = 2.0, 1.0
_TAILS = {"in": "place", "at": "place", "near": "place", "by": "person"}


class Walk(NamedTuple):
    """A walk from a name of the question.

    Attributes:
        path: The normalised names on the way.
        name: Its end, as it is written.
        taken: The question's words that it states.
        fit: How well its end is of the kind that is asked for, up to 1.
        share: How much of the question it states, up to 1.
    """

    path: tuple[str, ...]
    name: str
    taken: frozenset[str] = frozenset()
    fit: float = 0.0
    share: float = 0.0


def walks(question: Question, docs: Sequence[Doc], facts: Sequence[Fact]) -> list[Walk]:
    """Return the best walk to each name that at most four relations lead to, the best first.

    Each relation after the first has to state something of the question that none before it did.
    """
    land = _Land(docs, facts)
    starts = sorted(name for name in land.links if len(name) > 2 and question.holds(name))
    sought = _Sought(question, starts)
    found = {name: Walk((name,), name) for name in starts}
    front = list(found.values())
    for _ in range(_MOST_HOPS):
        ahead: dict[str, Walk] = {}
        for walk in front[:_WIDTH]:
            for name, stated in land.links[walk.path[-1]].items():
                if name in walk.path or name in starts or walk.path[-1][0].isdigit():
                    continue
                step = sought.step(walk, name, stated, land)
                known = ahead.get(name) or found.get(name)
                if step and (not known or step.share > known.share):
                    ahead[name] = step
        found |= ahead
        front = _best_first(ahead.values())
    return _best_first(walk for walk in found.values() if len(walk.path) > 1)


def _best_first(found: Iterable[Walk]) -> list[Walk]:
    return sorted(found, key=lambda walk: (-walk.share, walk.path))


def shifts(walked: Sequence[Walk]) -> dict[str, float]:
    """Return what the best walk says for and against answers, in the scores of the ranker.

    Where it states most of the question: for where it ends, against what lies on its way.
    """
    found: dict[str, float] = {}
    for walk in walked[:1]:
        if walk.fit >= FITS and walk.share >= WHOLE and len(walk.path) > 2:
            found = {**dict.fromkeys(walk.path[1:-1], -_BETWEEN), walk.path[-1]: _END}
    return found


class _Land:
    """What passages and a graph relate.

    Attributes:
        links: For each name the names related to it, with the words that state how.
        names: Names as they are written.
        kinds: What the names are: "person", "place", ...
        words: The words of names and of what passages say that they are.
    """

    def __init__(self, docs: Sequence[Doc], facts: Sequence[Fact]) -> None:
        self.links: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.names: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.words: dict[str, set[str]] = defaultdict(set)
        related = [(fact.head, fact.relation, fact.tail) for fact in facts]
        for doc in docs:
            subject, kind, triples = statements(doc.title, doc.text)
            related += [triple[:3] for triple in triples if triple.kind != "quantity"]
            self.words[normalize(subject)].update(keywords(kind))
            self.kinds[normalize(subject)] = noun_type(kind.rpartition(" ")[2])
        for head, relation, tail in related:
            one, other = normalize(head), normalize(tail)
            self.names |= {one: head, other: tail}
            self.kinds.setdefault(other, _TAILS.get(relation.split()[-1], ""))
            for end, far in ((one, other), (other, one)) if one != other else ():
                self.links[end][far].update(keywords(relation))
                self.words[end].update(keywords(self.names[end]))


class _Sought:
    """The words of a question that relations may state, by the words that state them."""

    def __init__(self, question: Question, starts: Collection[str]) -> None:
        self.target, self.wants = question.noun_stem, question.wants
        named = {word for name in starts for word in keywords(name)}
        self.by_form: dict[str, set[str]] = defaultdict(set)
        self.open = {word for word in question.focus if word not in named} - {self.target}
        for token, word in zip(question.parsed.lower, question.parsed.stems, strict=True):
            for form in (token, *RELATED.get(token, ())) if word in self.open else ():
                self.by_form[stem(form)].add(word)

    def step(self, walk: Walk, name: str, stated: Collection[str], land: _Land) -> Walk | None:
        """Return the walk with one more relation; None where that states nothing new."""
        own = land.words[name]
        taken = walk.taken.union(*(self.by_form.get(form, ()) for form in own.union(stated)))
        fit = fits(self.wants, land.kinds.get(name, ""))
        if self.target:
            fit = 1.0 if self.target in own else fit / 2
        if len(walk.path) > 1 and taken == walk.taken and fit < _LEAST_GAIN:
            return None
        share = (len(taken) + fit) / (len(self.open) + 1)
        return Walk((*walk.path, name), land.names[name], taken, fit, share)


# --- The additions to a graph: what is close to the question, to the graph and to other passages

_PER_PASSAGE = 5
_MOST_RELATIONS = 14
_LEAST_WORTH = 1.6
_CHAINED = 3.0
_UNSAFE = ("->", "--", "→", "**", "`", "[", "]", ";", "|", "\\", "<", ">", "«", "»", "\n")
_LONGEST_NAME = 90
_TYPES = {"person": "person", "place": "place", "group": "organisation", "work": "work"}


def additions(
    question: Question, docs: Sequence[Doc], known: Sequence[Fact], walked: Sequence[Walk] = ()
) -> tuple[Fact, ...]:
    """Return the facts that the passages add to a graph.

    Both ends stand in the passage whose label the fact carries, spelt as there; nothing that the
    graph holds already is repeated. Without a question everything is worth keeping.

    Args:
        question: The analysed question.
        docs: The new passages.
        known: What the graph holds.
        walked: The best walks along the question: their relations are wanted.
    """
    asked = bool(question.text)
    held = {(fact.head.lower(), fact.tail.lower()) for fact in known}
    names = Counter(normalize(end) for fact in known for end in (fact.head, fact.tail))
    subjects = {normalize(statements(doc.title, doc.text).subject) for doc in docs}
    chained = {frozenset(pair) for walk in walked for pair in pairwise(walk.path)}
    scored: list[tuple[float, int, int, Fact]] = []
    for place, doc in enumerate(docs):
        for triple in statements(doc.title, doc.text).triples:
            ends = frozenset((normalize(triple.head), normalize(triple.tail)))
            worth = sum(1.2 * question.holds(end) for end in ends if end)
            worth += sum(0.8 * (end in subjects) + 0.5 * (end in names) for end in ends)
            worth += sum(question.focus.get(word, 0.0) for word in keywords(triple.relation))
            worth += _CHAINED * (ends in chained) - 0.15 * (place + triple.sentence)
            new = (triple.head.lower(), triple.tail.lower()) not in held
            if new and _is_writable(triple, doc) and (worth >= _LEAST_WORTH or not asked):
                fact = Fact(*triple[:3], (doc.label,), triple.time)
                scored.append((-worth, place, triple.sentence, fact))
    chosen: list[tuple[int, int, Fact]] = []
    by_label: Counter[tuple[int, ...]] = Counter()
    for _, place, sentence, fact in sorted(scored):
        if by_label[fact.labels] < _PER_PASSAGE or not asked:
            by_label[fact.labels] += 1
            chosen.append((place, sentence, fact))
    return tuple(fact for *_, fact in sorted(chosen[:_MOST_RELATIONS]))


def write_facts(facts: Sequence[Fact], docs: Sequence[Doc]) -> str:
    """Write facts as lines, with the types that the passages give their ends.

    >>> print(write_facts([Fact("Ann", "met", "Bo", (1,), "1962")], []))
    - Ann -> met -> Bo (time: 1962) [1]
    """
    about = (statements(doc.title, doc.text) for doc in docs)
    types = {found.subject: noun_type(found.kind.rpartition(" ")[2]) for found in about}
    written = {name: f"{name} ({_TYPES[kind]})" for name, kind in types.items() if kind in _TYPES}
    lines: list[str] = []
    for fact in facts:
        head, tail = (written.get(end, end) for end in (fact.head, fact.tail))
        time = f" (time: {fact.time})" if fact.time else ""
        lines.append(f"- {head} -> {fact.relation} -> {tail}{time} [{fact.labels[0]}]")
    return "\n".join(lines) or "(empty)"


_NAMING = frozenset(("called", "known", "named", "nicknamed", "renamed", "titled"))


def _is_writable(triple: Triple, doc: Doc) -> bool:
    """Return whether a relation fits on a line and has its ends in its passage.

    Another name is not written: it may belong to the noun before it, "a town now called X", and a
    graph would merge the two.
    """
    if not _NAMING.isdisjoint(triple.relation.split()):
        return False
    content = f"{doc.title}\n{doc.text}"
    for part in triple[:3]:
        unsafe = any(mark in part for mark in _UNSAFE) or part.count("(") != part.count(")")
        if unsafe or not 0 < len(part) <= _LONGEST_NAME:
            return False
    return triple.head in content and triple.tail in content
