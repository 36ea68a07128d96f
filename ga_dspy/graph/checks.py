"""Checks: do passages state each link of a chain, and does the chain answer its question?

`evidence_chain` finds a path from a question to an answer. Each of its links may be true and the
chain may still not answer the question: it leads to the other party, to another year, to a
brother's death, through a statement that a passage denies, or through two things of one name. The
checks compare wording; they cannot tell whether a passage is right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import Final, NamedTuple

from ga_dspy import lexicon
from ga_dspy.graph.identity import identity
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.paths import (
    EVENTS,
    LIST,
    NO_WORDS,
    entries_in,
    evidence_chain,
    holds_date,
    hops_from,
    is_class,
    kind_of_value,
    meanings_in,
    meanings_of,
    named_by,
    named_in,
    says,
    word_table,
)
from ga_dspy.graph.phrasing import (
    NAME,
    SYMMETRIC,
    Question,
    Role,
    Statement,
    denials,
    is_agent,
    is_sort,
    read_question,
    role_asked,
    roles_stated,
    statements,
)
from ga_dspy.graph.records import Relation
from ga_dspy.graph.traits import broad_kind, kind_of
from ga_dspy.passage import Passage
from ga_dspy.terms import ARTICLES, NUMBER_WORDS, ORDINAL_WORDS, fold, fold_words, terms
from ga_dspy.text import mentions, normalise, places


class Link(NamedTuple):
    """A relation of a chain.

    Attributes:
        relation: The relation.
        goal: The end that is nearer to the answer; empty where both are equally near.
        statements: The sentences that state it without denying it.
    """

    relation: Relation
    goal: str
    statements: tuple[Statement, ...]

    @property
    def things(self) -> frozenset[str]:
        """Return its ends that are neither a value nor a class, such as a nationality."""
        ends = self.relation.ends[: 1 if is_class(self.relation) else 2]
        values = (end for end in ends if kind_of_value(end) or fold(end) in lexicon.ADJECTIVES)
        return frozenset(ends).difference(values)

    @property
    def passages(self) -> frozenset[str]:
        """Return the ids of the passages that state it."""
        return frozenset(each.passage for each in self.statements)

    @property
    def meanings(self) -> frozenset[str]:
        """Return the meanings of its words that a sentence has; a dated work implies a release."""
        is_dated = is_class(self.relation) and holds_date(self.relation.tail)
        own = frozenset(("release", "founding") if is_dated else ())
        return own.union(*(each.meanings for each in self.statements))

    @property
    def wording(self) -> str:
        """Return its own words and the parts of sentences that state it."""
        one, parts = self.relation, (each.part for each in self.statements)
        return " ".join(filter(None, (one.head, one.relation, one.tail, one.time, *parts)))


class Case(NamedTuple):
    """A chain with everything that the checks need."""

    graph: KnowledgeGraph
    question: Question
    sources: tuple[str, ...]
    answer: str
    links: tuple[Link, ...]
    passages: Mapping[str, Passage]

    @property
    def judgement(self) -> str:
        """Return "yes" or "no" where the answer is one, else an empty string."""
        word = normalise(self.answer).partition(" ")[0]
        return {"yes": "yes", "true": "yes", "no": "no", "false": "no"}.get(word, "")

    @property
    def is_comparison(self) -> bool:
        """Return whether the answer is yes, no or something that the question names."""
        named = named_by(self.graph, self.answer)
        return bool(self.judgement) or not named.isdisjoint(self.sources)

    @property
    def described(self) -> str:
        """Return the types and attributes of the nodes on the chain."""
        nodes = dict.fromkeys(end for link in self.links for end in link.relation.ends)
        known = filter(None, map(self.graph.find, nodes))
        return " ".join(text for each in known for text in (each.type, *each.attributes))


def sound_chain(
    graph: KnowledgeGraph, question: str, answer: str, passages: Mapping[str, Passage]
) -> tuple[Relation, ...]:
    """Return the chain of evidence from a question to an answer if it passes all checks.

    Args:
        graph: The graph.
        question: The question.
        answer: The answer.
        passages: The passages that the graph's evidence points to, by id.

    Returns:
        Relations of the graph, in the order of `evidence_chain`; empty if a check fails.
    """
    denied = read_question(graph, question).denials
    stated: dict[Relation, tuple[Statement, ...]] = {}
    rest = graph
    while chain := evidence_chain(rest, question, answer):
        for relation in (each for each in chain if each not in stated):
            own = denials(relation.relation)
            found = statements(graph, relation, passages)
            stated[relation] = tuple(each for each in found if own | each.denials <= denied)
        unstated = [relation for relation in chain if not stated[relation]]
        if not unstated:
            case = _case(rest, question, answer, chain, stated, passages)
            faults = [*_FAULTS, *(_FAULTS_COMPARING if case.is_comparison else _FAULTS_OTHERWISE)]
            return () if any(has_fault(case) for has_fault in faults) else chain
        rest = _without(rest, unstated)
    return ()


def fits_question(
    graph: KnowledgeGraph, question: str, answer: str, chain: Sequence[Relation]
) -> bool:
    """Return whether an answer has the form and the kind that its question asks for.

    A date for "when", yes or no for "is", one of the options for "A or B". It says nothing about
    whether the answer is right.
    """
    case = _case(graph, question, answer, chain)
    return not (_has_other_form(case) or (not case.is_comparison and _is_of_other_kind(case)))


def _case(
    graph: KnowledgeGraph,
    question: str,
    answer: str,
    chain: Sequence[Relation],
    stated: Mapping[Relation, tuple[Statement, ...]] = {},
    passages: Mapping[str, Passage] = {},
) -> Case:
    import networkx as nx

    sources = named_in(graph, question)
    parts = [answer, *LIST.split(answer)]
    ends = dict.fromkeys(end for each in chain for end in each.ends)
    goals = named_by(graph, answer) | {e for e in ends if any(says(e, part) for part in parts)}
    far = hops_from(nx.Graph(each.ends for each in chain), goals.difference(sources))
    links = []
    for each in chain:
        head, tail = (far.get(end, len(chain) + 1) for end in each.ends)
        goal = "" if head == tail else each.head if head < tail else each.tail
        links.append(Link(each, goal, stated.get(each, ())))
    return Case(graph, read_question(graph, question), sources, answer, tuple(links), passages)


def _without(graph: KnowledgeGraph, gone: Collection[Relation]) -> KnowledgeGraph:
    """Return a graph that does not show these relations, types and attributes."""
    texts = {each.ends for each in gone if each.relation == "described as"}
    entities = []
    for each in graph.entities:
        attributes = tuple(a for a in each.attributes if (each.name, a) not in texts)
        kind = "" if (each.name, each.type) in texts else each.type
        entities.append(each.model_copy(update={"type": kind, "attributes": attributes}))
    return graph.with_visible(tuple(entities), tuple(r for r in graph.relations if r not in gone))


# --- The faults of a chain: namesakes, polarity, time


def _joins_namesakes(case: Case) -> bool:
    """Return whether two links only share a name: it may belong to two things."""
    return any(
        case.graph.is_joint(node, one.passages, other.passages)
        and not _is_titled(case, node, one.passages | other.passages)
        for one, other in combinations(case.links, 2)
        for node in one.things & other.things
    )


def _is_titled(case: Case, node: str, passages: Iterable[str]) -> bool:
    """Return whether one of these passages is titled with the only thing of this name."""
    titles = (case.passages[id].title for id in passages)
    is_only = len(case.graph.nodes_by_name.get(normalise(node), ())) == 1
    return is_only and any(identity(title) == identity(node) for title in titles)


def _lacks_denial(case: Case) -> bool:
    """Return whether the chain lacks a negation or hedge of the question."""
    ours = (denials(link.relation.relation) for link in case.links)
    theirs = (each.denials for link in case.links for each in link.statements)
    return case.judgement != "no" and bool(case.question.denials.difference(*ours, *theirs))


_SPAN: Final = re.compile(
    r"\b(\d{4})\b\D{1,20}?(?:-|–|—|to|until|till|and|through)\D{1,20}?\b(\d{4})\b"
)
_SINCE: Final = re.compile(r"\bsince (?:\w+ ){0,2}(\d{4})\b")
_CLAUSE: Final = re.compile(r"[;:]|,? (?:and|but|while|whereas|then)\b|, ")


def is_of_year(text: str, year: str, about: str) -> bool:
    """Return whether a text dates something to a year, in its clause or by a span.

    >>> is_of_year("Eva won in 2004, and Tom won it in 2005.", "2004", "Tom")
    False
    >>> is_of_year("Ada was mayor from 2001 to 2009.", "2005", "Ada")
    True
    """
    here = [each for each in _CLAUSE.split(text) if each and mentions(about, each)]
    dated = [each for each in here if re.search(r"\d{4}", each)] or [text]
    return any(_has_year(each, year) for each in dated)


def _has_year(text: str, year: str) -> bool:
    spans = any(first <= year <= last for first, last in _SPAN.findall(text))
    return spans or year in text or any(first <= year for first in _SINCE.findall(text))


def _is_of_other_time(case: Case) -> bool:
    """Return whether the chain is of another year, or of the past and the question is not."""
    stated = [(link, each) for link in case.links for each in link.statements]
    own = [f"{one.relation} {one.time or ''} {one.tail}" for one, _, _ in case.links]
    own += [case.described, *(end for link in case.links for end in link.relation.ends)]
    about = [
        (each.text, case.answer if mentions(case.answer, each.text) else link.relation.head)
        for link, each in stated
    ]
    for year in case.question.years:
        is_stated = any(is_of_year(text, year, name) for text, name in about)
        if not is_stated and not any(_has_year(text, year) for text in own):
            return True
    past, asked = word_table("past").keys(), set(case.question.words)
    is_present = asked & {"is", "are"} and not asked & {"was", "were", "did", "had", *past}
    said = ((link.relation.relation, each.part, *each.behind.split()[:1]) for link, each in stated)
    parts = fold_words(" ".join(chain.from_iterable(said)))
    return bool(is_present and past & set(parts.split()))


# --- Words of the question that the chain does not have


def _lacks_word(case: Case) -> bool:
    """Return whether the chain lacks a word of the question.

    A word that asks for a property must be in a relation; a word that narrows down may be in a
    sentence; a name may be anywhere in them.
    """
    # "son of" is about a father or a mother too.
    inverse = (entries_in("inverse", link.relation.relation) for link in case.links)
    related = NO_WORDS.union(*inverse, *(link.meanings for link in case.links))
    kinds = meanings_in(case.described)
    wording = " ".join(link.wording for link in case.links)
    texts = (each.text for link in case.links for each in link.statements)
    there = set(fold_words(" ".join((wording, case.described, *texts))).split())
    around = kinds | meanings_in(wording) | {word for word in there if word.isdecimal()}
    telling, order = case.question.telling, word_table("order")
    for asked in case.question.asked:
        i, word, meanings = asked
        if word in order or not meanings.isdisjoint(related) or is_sort(case.question.words, i):
            continue
        if i in telling and not (is_agent(word) and meanings & kinds):
            return True
        if meanings.isdisjoint(around) and not asked.is_kind:
            return True
    ranks = {word for word in case.question.words if word in order or word in ORDINAL_WORDS}
    return not case.is_comparison and not ranks <= there | _AROUND


_AROUND: Final = frozenset(("before", "after", "more", "most", "less", "least"))


def _has_other_holder(case: Case) -> bool:
    """Return whether the chain is of the director of another film than the question names."""
    tokens = case.question.words
    for i, word, meanings in case.question.asked:
        behind = [t for t in tokens[i + 1 : i + 5] if t not in ARTICLES and not kind_of(t)]
        if not is_agent(word) or behind[:2] != ["of", NAME]:
            continue
        stated = [link for link in case.links if not meanings.isdisjoint(link.meanings)]
        if stated and not any(set(case.sources) & {*link.relation.ends} for link in stated):
            return True
    return False


def _has_other_kin(case: Case) -> bool:
    """Return whether the chain has a relative that the question does not ask for."""
    wanted = entries_in("kin", " ".join(case.question.words))
    allowed = wanted.union(*(_MAY_BE[each] for each in wanted))
    related = [entries_in("kin", link.relation.relation) for link in case.links]
    generations = sum(not kin.isdisjoint(("parent", "child")) for kin in related)
    is_short = "grand" in wanted and generations < 2
    is_stated = any("grand" in link.relation.relation for link in case.links)
    return any(not kin <= allowed for kin in related) or (is_short and not is_stated)


_MAY_BE: Final = {
    "parent": ("child",), "child": ("parent",), "grand": ("parent", "child", "kin"),
    "kin": ("kin", "grand"), "sibling": (), "marriage": (),
}  # fmt: skip


# --- Direction, and the kind of the answer


def _runs_other_way(case: Case) -> bool:
    """Return whether the chain states of one party what the question asks of the other."""
    tokens = case.question.words
    if not {"when", "where"}.isdisjoint(tokens[:2]):
        return False
    for i, word, meanings in case.question.asked:
        is_action = i in case.question.telling or "than" in tokens[i + 1 : i + 2]
        is_third_person = word.endswith("s") and not is_sort(tokens, i)
        wanted = role_asked(tokens, i) if is_action or is_third_person else ""
        if not wanted or meanings & SYMMETRIC:
            continue
        roles = {role for link in case.links for role in _roles(link, meanings)}
        is_met = roles != {"done to"} if wanted == "other" else wanted in roles
        if roles and not is_met:
            return True
    return False


_OTHER: Final[Mapping[Role, Role]] = {"doer": "done to", "done to": "doer"}


def _roles(link: Link, meanings: frozenset[str]) -> Iterator[Role]:
    """Yield the roles that a link gives its goal, by words of these meanings."""
    table = word_table("inverse")
    for word in fold_words(link.relation.relation).split() if link.goal else ():
        is_inverse = not meanings.isdisjoint(table.get(word, ()))
        if is_inverse or any(meanings & each for each in meanings_of([word])):
            head, tail = roles_stated(link.relation.relation, word)
            role = head if link.goal == link.relation.head else tail
            if role:
                yield _OTHER.get(role, role) if is_inverse else role


_POLAR: Final = frozenset("is are was were do does did has have had can could will would".split())
_ASKING: Final = frozenset("who whom whose what which when where why how".split())
_OPTIONS: Final = re.compile(r"[,:]\s*((?!who|which|that|what|and\b)[^,:]+\bor\b[^,:?]+)\?\s*$")
"""The end of a question that offers a choice: ", A or B?"."""


def _has_other_form(case: Case) -> bool:
    """Return whether the form of the question excludes the answer.

    "Are both …?" asks for yes or no, "which …, A or B?" for A or B, and what both are has to be
    stated of each.
    """
    tokens = case.question.words
    asks_for_word = "or" in tokens or not _ASKING.isdisjoint(tokens)
    offered = _OPTIONS.search(case.question.text)
    is_offered = offered is None or bool(mentions(case.answer, offered[1]))
    is_polar = tokens[0] in _POLAR and not asks_for_word
    if not case.judgement and (is_polar or not is_offered):
        return True
    ends = {end for link in case.links for end in link.relation.ends}
    both = _joined(case.question) if "both" in tokens and case.judgement != "no" else ()
    return any(named_by(case.graph, name).isdisjoint(ends) for name in both)


def _joined(question: Question) -> tuple[str, ...]:
    """Return the two names in "A and B are both", if the question has these."""
    tokens = [word for word in question.words if word not in ARTICLES]
    place = next(iter(places((NAME, "and", NAME), tokens)), len(tokens))
    return question.names[tokens[:place].count(NAME) :][:2] if place < len(tokens) else ()


_NATIONALITY: Final = frozenset(("nationality", "citizenship"))
_APART: Final = ({"person", "work"}, {"person", "place"}, {"work", "place"})


def _is_of_other_kind(case: Case) -> bool:
    """Return whether the answer is not of the kind that the question asks for."""
    tokens, value = case.question.words, kind_of_value(case.answer)
    entity = case.graph.find(case.answer)
    kind = broad_kind(kind_of(entity.type)) if entity else ""
    sorts = [kind_of(behind) for word, behind in pairwise(tokens) if word in ("which", "what")]
    if sorts and {broad_kind(sorts[0]), kind} in _APART:
        return True
    if tokens[0] == "when" and not holds_date(case.answer):
        return True
    is_number = bool(value) or not NUMBER_WORDS.keys().isdisjoint(fold_words(case.answer).split())
    if tokens[:2] == ("how", "many") and not is_number:
        return True
    if tokens[0] in ("who", "whom", "whose") and (value or kind in ("place", "work")):
        return True
    if tokens[0] == "where" or not _NATIONALITY.isdisjoint(tokens):
        # "Where does the director of X work?" asks about the director, and not who it is.
        own = named_by(case.graph, case.answer)
        last = [link.relation.relation for link in case.links if link.goal in own]
        holders = (
            asked.meanings
            for asked in case.question.asked
            if is_agent(asked.word) and tokens[asked.place + 1 : asked.place + 2] == ("of",)
        )
        stated = NO_WORDS.union(*map(meanings_in, last))
        if any(not stated.isdisjoint(meanings) for meanings in holders):
            return True
    asks_for_place = tokens[0] == "where" or tokens[:4] == ("what", "is", "the", "place")
    return asks_for_place and (bool(value) or kind in ("person", "work", "band"))


# --- Comparisons: the values decide


_Reached = Sequence[tuple[Link, int]]
"""The links that lead from a source, and how far from it each is."""


def _compares_otherwise(case: Case) -> bool:
    """Return whether the facts of a comparison do not lead to the answer."""
    tokens, order = case.question.words, word_table("order")
    reached = {source: list(_from(case, source)) for source in case.sources}
    reached = {source: links for source, links in reached.items() if links}
    orders = [each for word in tokens for each in order.get(word, ())]
    if orders:
        return not _is_in_order(case, reached, orders[0])
    if "same" in tokens:
        return not _is_same(case, reached)
    if case.judgement == "no":
        return not any(denials(link.relation.relation) for link in case.links)
    telling = [each for each in case.question.asked if each.place in case.question.telling]
    stated = [NO_WORDS.union(*(link.meanings for link, _ in links)) for links in reached.values()]
    is_stated = not any(each.meanings.isdisjoint(one) for each in telling for one in stated)
    return bool(case.judgement) and not is_stated


def _from(case: Case, source: str) -> Iterator[tuple[Link, int]]:
    """Yield the links that lead from a source, not beyond another source."""
    front, seen, rest = {source}, {source, *case.sources}, list(case.links)
    far = 0
    while found := [link for link in rest if not front.isdisjoint(link.relation.ends)]:
        far += 1
        yield from ((link, far) for link in found)
        rest = [link for link in rest if link not in found]
        front = {end for link in found for end in link.relation.ends} - seen
        seen |= front


_Amount = tuple[float, ...]


def _amounts(text: str, kind: str) -> Iterator[_Amount]:
    """Yield the dates of a text as (year, month, day), 0 where unstated, or its other numbers.

    >>> list(_amounts("3 May 1950", "date")), list(_amounts("3,000 people", "number"))
    ([(1950.0, 5.0, 3.0)], [(3000.0,)])
    """
    for term in terms(text):
        key = term.keys[0]
        if isinstance(key, str):
            continue
        if key[0] == "n" and kind == "number" and term.text[0].isdigit():
            yield (float(key[1]),)
        elif key[0] == "n" and kind == "date" and re.fullmatch(r"\d{3,4}", term.text):
            yield float(key[1]), 0.0, 0.0
        elif isinstance(key[0], int) and kind == "date":
            yield tuple(map(float, key))


def _is_in_order(case: Case, reached: Mapping[str, _Reached], order: str) -> bool:
    """Return whether the values of a comparison put the answer first."""
    kind, _, pick = order.partition(" ")
    is_life = not {"lived", "live"}.isdisjoint(case.question.words)
    asked = NO_WORDS.union(*(each.meanings for each in case.question.asked))
    values: dict[str, _Amount] = {}
    shared: list[frozenset[str]] = []
    for source, links in reached.items():
        found = _life(links) if is_life else _values(links, kind, asked & EVENTS)
        if not found:
            return False
        values[source] = min(found) if pick == "least" else max(found)
        shared.append(NO_WORDS.union(*(link.meanings for link, _ in links)))
    if len(values) < 2 or not frozenset.intersection(*shared):
        return False
    is_most = is_life or pick == "most"
    first, second = sorted(values, key=lambda source: values[source], reverse=is_most)[:2]
    if not _is_decided(values[first], values[second], is_life):
        return False
    if case.judgement:
        return (first == next(iter(reached))) == (case.judgement == "yes")
    return first in named_by(case.graph, case.answer)


def _values(links: _Reached, kind: str, events: frozenset[str]) -> list[_Amount]:
    found = []
    for link, _ in links:
        if kind == "number" or not events or events & link.meanings:
            found += list(_amounts(link.relation.tail, kind))[:1]
    return found


def _life(links: _Reached) -> list[_Amount]:
    """Return how long somebody lived, as years, months and days."""
    born, died = (_values(links, "date", frozenset((event,))) for event in ("birth", "death"))
    return [tuple(d - b for b, d in zip(born[0], died[0], strict=True))] if born and died else []


def _is_decided(one: _Amount, other: _Amount, is_life: bool) -> bool:
    """Return whether two amounts differ in a part that both state.

    >>> [_is_decided((year, 0, 0), (1950, 5, 3), False) for year in (1950, 1949)]
    [False, True]
    """
    pairs = zip(one, other, strict=True)
    first = next(((a, b) for a, b in pairs if a != b), None)
    is_number = len(one) == 1
    return first is not None and (is_life or is_number or 0 not in first)


def _is_same(case: Case, reached: Mapping[str, _Reached]) -> bool:
    """Return whether the values of a comparison are the same, or not where the answer is no."""
    tokens = case.question.words
    needed = [e.meanings for e in case.question.asked if e.is_kind or not is_sort(tokens, e.place)]
    if len(reached) < 2 or not needed:
        return False
    *way, last = needed
    values = []
    for links in reached.values():
        on_way = [far for link, far in links if any(each & link.meanings for each in way)]
        behind = (link for link, far in links if far > max(on_way, default=0))
        values.append({value for link in behind for value in _what(link, last)})
        if not values[-1] or len(on_way) < len(way):
            return False
    return bool(set.intersection(*values)) == (case.judgement == "yes")


def _what(link: Link, meanings: frozenset[str]) -> Iterator[str]:
    """Yield the values of these meanings that a link states; a country under one of its names."""
    found = fold_words(link.relation.tail).split()
    is_land = is_class(link.relation) and not lexicon.ADJECTIVES.isdisjoint(found)
    if meanings.isdisjoint(link.meanings) and not (is_land and "country" in meanings):
        return
    for word in found if "country" in meanings else ():
        if word in lexicon.ADJECTIVES or word in lexicon.COUNTRY_FORMS:
            yield min(word, *lexicon.COUNTRY_FORMS.get(word, ()), key=str)
    if not is_class(link.relation):
        yield identity(link.relation.tail)


_FAULTS: Final = (
    _joins_namesakes, _lacks_denial, _has_other_form, _lacks_word, _has_other_holder,
    _has_other_kin, _is_of_other_time,
)  # fmt: skip
_FAULTS_COMPARING: Final = (_compares_otherwise,)
_FAULTS_OTHERWISE: Final = (_runs_other_way, _is_of_other_kind)
