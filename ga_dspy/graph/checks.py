"""Checks: do passages state each link of a chain, and does the chain answer the question?

`evidence_chain` finds a path from a question to an answer. Even if each of its links is true, the
chain may not answer the question: it may lead to the other party, to another year or to a
brother's death, or through a statement that a passage denies or through two namesakes. The checks
compare wording; they cannot tell whether a passage is right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
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
    is_class_word,
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
        goal: The end that is nearer to the answer; empty if both are equally near.
        statements: The sentences that state the relation without denying it.
    """

    relation: Relation
    goal: str
    statements: tuple[Statement, ...]

    @property
    def things(self) -> frozenset[str]:
        """Return the ends that are neither a value nor a class, such as a nationality."""
        ends = self.relation.ends[: 1 if is_class(self.relation) else 2]
        values = (end for end in ends if kind_of_value(end) or fold(end) in lexicon.ADJECTIVES)
        return frozenset(ends).difference(values)

    @property
    def passages(self) -> frozenset[str]:
        """Return the ids of the passages that state the relation."""
        return frozenset(each.passage for each in self.statements)

    @property
    def meanings(self) -> frozenset[str]:
        """Return the meanings that the sentences state; a dated work implies a release."""
        is_dated = is_class(self.relation) and holds_date(self.relation.tail)
        implied = frozenset(("release", "founding") if is_dated else ())
        return implied.union(*(each.meanings for each in self.statements))

    @property
    def wording(self) -> str:
        """Return the words of the relation and of the parts of sentences that state it."""
        one, parts = self.relation, (each.part for each in self.statements)
        return " ".join(filter(None, (one.head, one.relation, one.tail, one.time, *parts)))


class Case(NamedTuple):
    """A chain, with the question, answer, graph and passages that the checks need."""

    graph: KnowledgeGraph
    question: Question
    sources: tuple[str, ...]
    answer: str
    links: tuple[Link, ...]
    passages: Mapping[str, Passage]

    @property
    def judgement(self) -> str:
        """Return "yes" or "no" if the answer means one of them, else an empty string."""
        word = normalise(self.answer).partition(" ")[0]
        return {"yes": "yes", "true": "yes", "no": "no", "false": "no"}.get(word, "")

    @property
    def is_comparison(self) -> bool:
        """Return whether the answer is yes, no or a node that the question names."""
        named = named_by(self.graph, self.answer)
        return bool(self.judgement) or not named.isdisjoint(self.sources)

    @property
    def described(self) -> str:
        """Return the types and attributes of the nodes on the chain."""
        entities = filter(None, map(self.graph.find, dict.fromkeys(self.ends)))
        return " ".join(text for each in entities for text in (each.type, *each.attributes))

    @property
    def ends(self) -> list[str]:
        """Return the head and tail of each link, in order."""
        return [end for link in self.links for end in link.relation.ends]


def checked_chain(
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
    allowed = read_question(graph, question).denials
    stated: dict[Relation, tuple[Statement, ...]] = {}
    rest = graph
    while relations := evidence_chain(rest, question, answer):
        for relation in set(relations) - stated.keys():
            denied = denials(relation.relation)
            found = statements(graph, relation, passages)
            stated[relation] = tuple(each for each in found if denied | each.denials <= allowed)
        unstated = [relation for relation in relations if not stated[relation]]
        if not unstated:
            case = _case(rest, question, answer, relations, stated, passages)
            others = _COMPARISON_FAULTS if case.is_comparison else _LOOKUP_FAULTS
            return () if any(has_fault(case) for has_fault in (*_FAULTS, *others)) else relations
        rest = _without(rest, unstated)
    return ()


def fits_question(
    graph: KnowledgeGraph, question: str, answer: str, chain: Sequence[Relation]
) -> bool:
    """Return whether an answer has the form and the kind that its question asks for.

    "When" asks for a date, "is" for yes or no, "A or B" for one of the options. A fitting answer
    may still be wrong.
    """
    case = _case(graph, question, answer, chain)
    return not (_has_wrong_form(case) or (not case.is_comparison and _has_wrong_kind(case)))


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
    goals = set(named_by(graph, answer))
    for part in (answer, *LIST.split(answer)):
        goals.update(end for relation in chain for end in relation.ends if says(end, part))
    hops = hops_from(nx.Graph(relation.ends for relation in chain), goals.difference(sources))
    links = []
    for relation in chain:
        nearest, farthest = sorted(relation.ends, key=lambda end: hops.get(end, len(chain) + 1))
        is_even = hops.get(nearest) == hops.get(farthest)
        links.append(Link(relation, "" if is_even else nearest, stated.get(relation, ())))
    return Case(graph, read_question(graph, question), sources, answer, tuple(links), passages)


def _without(graph: KnowledgeGraph, hidden: Collection[Relation]) -> KnowledgeGraph:
    """Return a graph that does not show these relations, types and attributes."""
    texts = {relation.ends for relation in hidden if relation.relation == "described as"}
    entities = []
    for entity in graph.entities:
        attributes = tuple(a for a in entity.attributes if (entity.name, a) not in texts)
        kind = "" if (entity.name, entity.type) in texts else entity.type
        entities.append(entity.model_copy(update={"type": kind, "attributes": attributes}))
    relations = tuple(relation for relation in graph.relations if relation not in hidden)
    return graph.with_visible(tuple(entities), relations)


# --- The faults of a chain: namesakes, polarity, time


def _joins_namesakes(case: Case) -> bool:
    """Return whether two links share only a name, which may belong to two namesakes."""
    return any(
        case.graph.is_joint(node, one.passages, other.passages)
        and not _is_titled(case, node, one.passages | other.passages)
        for one, other in combinations(case.links, 2)
        for node in one.things & other.things
    )


def _is_titled(case: Case, node: str, passages: Iterable[str]) -> bool:
    """Return whether the title of a passage is the name, and only one node has that name."""
    titles = (case.passages[id].title for id in passages)
    is_only = len(case.graph.nodes_by_name.get(normalise(node), ())) == 1
    return is_only and any(identity(title) == identity(node) for title in titles)


def _lacks_denial(case: Case) -> bool:
    """Return whether the chain lacks a negation or hedge of the question."""
    in_relations = (denials(link.relation.relation) for link in case.links)
    in_sentences = (each.denials for link in case.links for each in link.statements)
    lacking = case.question.denials.difference(*in_relations, *in_sentences)
    return case.judgement != "no" and bool(lacking)


_SPAN: Final = re.compile(
    r"\b(\d{4})\b\D{1,20}?(?:-|–|—|to|until|till|and|through)\D{1,20}?\b(\d{4})\b"
)
_SINCE: Final = re.compile(r"\bsince (?:\w+ ){0,2}(\d{4})\b")
_CLAUSE: Final = re.compile(r"[;:]|,? (?:and|but|while|whereas|then)\b|, ")


def is_of_year(text: str, year: str, about: str) -> bool:
    """Return whether a text dates a name to a year, in a clause with the name or by a span.

    >>> is_of_year("Eva won in 2004, and Tom won it in 2005.", "2004", "Tom")
    False
    >>> is_of_year("Ada was mayor from 2001 to 2009.", "2005", "Ada")
    True
    """
    clauses = [clause for clause in _CLAUSE.split(text) if clause and mentions(about, clause)]
    dated = [clause for clause in clauses if re.search(r"\d{4}", clause)] or [text]
    return any(_has_year(clause, year) for clause in dated)


def _has_year(text: str, year: str) -> bool:
    spans = any(first <= year <= last for first, last in _SPAN.findall(text))
    return spans or year in text or any(first <= year for first in _SINCE.findall(text))


def _has_wrong_time(case: Case) -> bool:
    """Return whether the chain lacks the question's year, or answers "is" with "was"."""
    texts = [f"{one.relation} {one.time or ''} {one.tail}" for one, _, _ in case.links]
    texts += [case.described, *case.ends]
    sentences, wordings = list[tuple[str, str]](), list[str]()
    for link in case.links:
        for each in link.statements:
            about = case.answer if mentions(case.answer, each.text) else link.relation.head
            sentences.append((each.text, about))
            wordings += [link.relation.relation, each.part, *each.behind.split()[:1]]
    for year in case.question.years:
        is_stated = any(is_of_year(text, year, about) for text, about in sentences)
        if not is_stated and not any(_has_year(text, year) for text in texts):
            return True
    past, asked = word_table("past").keys(), set(case.question.words)
    is_present = asked & {"is", "are"} and not asked & {"was", "were", "did", "had", *past}
    return bool(is_present and past & set(fold_words(" ".join(wordings)).split()))


# --- Words of the question that the chain lacks


def _lacks_word(case: Case) -> bool:
    """Return whether the chain lacks a word of the question.

    A word that asks for a property must be in a relation. Any other content word may be in a
    sentence, a description or a name.
    """
    related = NO_WORDS.union(*(link.meanings for link in case.links))
    for link in case.links:  # "son of" also answers a question about a father or a mother
        related |= entries_in("inverse", link.relation.relation)
    kinds = meanings_in(case.described)
    wording = " ".join(link.wording for link in case.links)
    texts = (each.text for link in case.links for each in link.statements)
    words = set(fold_words(" ".join((wording, case.described, *texts))).split())
    stated = kinds | meanings_in(wording) | set(filter(str.isdecimal, words))
    telling, order = case.question.telling, word_table("order")
    for asked in case.question.asked:
        i, word, meanings = asked
        if (
            word in order
            or not meanings.isdisjoint(related)
            or is_class_word(case.question.words, i)
        ):
            continue
        if i in telling and not (is_agent(word) and meanings & kinds):
            return True
        if meanings.isdisjoint(stated) and not asked.is_kind:
            return True
    ranks = {word for word in case.question.words if word in order or word in ORDINAL_WORDS}
    return not case.is_comparison and not ranks <= words | _COMPARING


_COMPARING: Final = frozenset(("before", "after", "more", "most", "less", "least"))


def _has_wrong_holder(case: Case) -> bool:
    """Return whether the chain has a role in another entity: the director of another film."""
    tokens = case.question.words
    for i, word, meanings in case.question.asked:
        after = [t for t in tokens[i + 1 : i + 5] if t not in ARTICLES and not kind_of(t)]
        if not is_agent(word) or after[:2] != ["of", NAME]:
            continue
        stated = [link for link in case.links if not meanings.isdisjoint(link.meanings)]
        if stated and not any(set(case.sources) & {*link.relation.ends} for link in stated):
            return True
    return False


def _has_wrong_relative(case: Case) -> bool:
    """Return whether the chain has a relative that the question does not ask for."""
    asked = entries_in("kin", " ".join(case.question.words))
    allowed = asked.union(*(_MAY_BE[kin] for kin in asked))
    stated = [entries_in("kin", link.relation.relation) for link in case.links]
    generations = sum(not kin.isdisjoint(("parent", "child")) for kin in stated)
    is_short = "grand" in asked and generations < 2
    is_stated = any("grand" in link.relation.relation for link in case.links)
    return any(not kin <= allowed for kin in stated) or (is_short and not is_stated)


_MAY_BE: Final = {
    "parent": ("child",), "child": ("parent",), "grand": ("parent", "child", "kin"),
    "kin": ("kin", "grand"), "sibling": (), "marriage": (),
}  # fmt: skip


# --- Direction, and the kind of the answer


def _has_wrong_direction(case: Case) -> bool:
    """Return whether the chain leads to the wrong party of an action.

    For example, it leads to the buyer, and the question asks which firm was bought.
    """
    tokens = case.question.words
    if not {"when", "where"}.isdisjoint(tokens[:2]):
        return False
    for i, word, meanings in case.question.asked:
        is_action = i in case.question.telling or "than" in tokens[i + 1 : i + 2]
        is_third_person = word.endswith("s") and not is_class_word(tokens, i)
        asked = role_asked(tokens, i) if is_action or is_third_person else ""
        if not asked or meanings & SYMMETRIC:
            continue
        roles = {role for link in case.links for role in _roles(link, meanings)}
        is_met = roles != {"done to"} if asked == "other" else asked in roles
        if roles and not is_met:
            return True
    return False


_OTHER: Final[Mapping[Role, Role]] = {"doer": "done to", "done to": "doer"}


def _roles(link: Link, meanings: frozenset[str]) -> Iterator[Role]:
    """Yield the roles that a link gives its goal, at each word with one of these meanings."""
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


def _has_wrong_form(case: Case) -> bool:
    """Return whether the form of the question excludes the answer.

    "Are both …?" asks for yes or no, and the chain must be about each of the two; "which …, A or
    B?" asks for A or B.
    """
    tokens = case.question.words
    asks_for_word = "or" in tokens or not _ASKING.isdisjoint(tokens)
    offered = _OPTIONS.search(case.question.text)
    is_offered = offered is None or bool(mentions(case.answer, offered[1]))
    is_polar = not _POLAR.isdisjoint(tokens[:1]) and not asks_for_word
    if not case.judgement and (is_polar or not is_offered):
        return True
    both = _joined(case.question) if "both" in tokens and case.judgement != "no" else ()
    return any(named_by(case.graph, name).isdisjoint(case.ends) for name in both)


def _joined(question: Question) -> tuple[str, ...]:
    """Return the two names in "A and B", if the question has these words."""
    tokens = [word for word in question.words if word not in ARTICLES]
    place = next(iter(places((NAME, "and", NAME), tokens)), len(tokens))
    return question.names[tokens[:place].count(NAME) :][:2] if place < len(tokens) else ()


_NATIONALITY: Final = frozenset(("nationality", "citizenship"))
_APART: Final = ({"person", "work"}, {"person", "place"}, {"work", "place"})


def _has_wrong_kind(case: Case) -> bool:
    """Return whether the question asks for another kind of answer."""
    tokens, value = case.question.words, kind_of_value(case.answer)
    opening = "".join(tokens[:1])
    entity = case.graph.find(case.answer)
    kind = broad_kind(kind_of(entity.type)) if entity else ""
    sorts = [kind_of(after) for word, after in pairwise(tokens) if word in ("which", "what")]
    if sorts and {broad_kind(sorts[0]), kind} in _APART:
        return True
    if opening == "when" and not holds_date(case.answer):
        return True
    is_number = bool(value) or not NUMBER_WORDS.keys().isdisjoint(fold_words(case.answer).split())
    if tokens[:2] == ("how", "many") and not is_number:
        return True
    if opening in ("who", "whom", "whose") and (value or kind in ("place", "work")):
        return True
    if opening == "where" or not _NATIONALITY.isdisjoint(tokens):
        # "Where does the director of X work?" does not ask who the director is.
        nodes = named_by(case.graph, case.answer)
        last = [link.relation.relation for link in case.links if link.goal in nodes]
        stated = NO_WORDS.union(*map(meanings_in, last))
        for i, word, meanings in case.question.asked:
            is_holder = is_agent(word) and tokens[i + 1 : i + 2] == ("of",)
            if is_holder and not stated.isdisjoint(meanings):
                return True
    asks_for_place = opening == "where" or tokens[:4] == ("what", "is", "the", "place")
    return asks_for_place and (bool(value) or kind in ("person", "work", "band"))


# --- Comparisons: the values decide


_Reached = Sequence[tuple[Link, int]]
"""The links that lead from a source, each with its distance in hops."""


def _has_wrong_comparison(case: Case) -> bool:
    """Return whether the facts of a comparison do not lead to the answer."""
    tokens, order = case.question.words, word_table("order")
    pairs = ((source, list(_links_from(case, source))) for source in case.sources)
    reached = {source: links for source, links in pairs if links}
    orders = [each for word in tokens for each in order.get(word, ())]
    if orders:
        return not _is_in_order(case, reached, orders[0])
    if "same" in tokens:
        return not _is_same(case, reached)
    if case.judgement == "no":
        return not any(denials(link.relation.relation) for link in case.links)
    if not case.judgement:
        return False
    telling = [each for each in case.question.asked if each.place in case.question.telling]
    stated = map(_meanings, reached.values())
    return any(each.meanings.isdisjoint(one) for one in stated for each in telling)


def _meanings(links: _Reached) -> frozenset[str]:
    return NO_WORDS.union(*(link.meanings for link, _ in links))


def _links_from(case: Case, source: str) -> Iterator[tuple[Link, int]]:
    """Yield the links that lead from a source, but not beyond another source."""
    front, seen, rest = {source}, {source, *case.sources}, list(case.links)
    hops = 0
    while found := [link for link in rest if not front.isdisjoint(link.relation.ends)]:
        hops += 1
        yield from ((link, hops) for link in found)
        rest = [link for link in rest if link not in found]
        front = {end for link in found for end in link.relation.ends} - seen
        seen |= front


_Amount = tuple[float, ...]


def _amounts(text: str, kind: str) -> Iterator[_Amount]:
    """Yield the dates of a text as (year, month, day), 0 for unstated parts, or its other numbers.

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
        found = _lifespan(links) if is_life else _values(links, kind, asked & EVENTS)
        if not found:
            return False
        values[source] = min(found) if pick == "least" else max(found)
        shared.append(_meanings(links))
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


def _lifespan(links: _Reached) -> list[_Amount]:
    """Return a lifespan as years, months and days, if the links state a birth and a death."""
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
    """Return whether a comparison's values are the same and the answer yes, or neither.

    The last content word of the question names the value; those before it lead there.
    """
    tokens = case.question.words
    asked = [
        e.meanings for e in case.question.asked if e.is_kind or not is_class_word(tokens, e.place)
    ]
    if len(reached) < 2 or not asked:
        return False
    *way, last = asked
    leading = NO_WORDS.union(*way)
    values = []
    for links in reached.values():
        on_way = [hops for link, hops in links if leading & link.meanings]
        after = (link for link, hops in links if hops > max(on_way, default=0))
        values.append({value for link in after for value in _stated_values(link, last)})
        if not values[-1] or len(on_way) < len(way):
            return False
    return bool(set.intersection(*values)) == (case.judgement == "yes")


def _stated_values(link: Link, meanings: frozenset[str]) -> Iterator[str]:
    """Yield the values with these meanings that a link states; a country has one name."""
    words = fold_words(link.relation.tail).split()
    is_national = is_class(link.relation) and not lexicon.ADJECTIVES.isdisjoint(words)
    if meanings.isdisjoint(link.meanings) and not (is_national and "country" in meanings):
        return
    for word in words if "country" in meanings else ():
        if word in lexicon.ADJECTIVES or word in lexicon.COUNTRY_FORMS:
            yield min(word, *lexicon.COUNTRY_FORMS.get(word, ()), key=str)
    if not is_class(link.relation):
        yield identity(link.relation.tail)


_FAULTS: Final = (
    _joins_namesakes, _lacks_denial, _has_wrong_form, _lacks_word, _has_wrong_holder,
    _has_wrong_relative, _has_wrong_time,
)  # fmt: skip
_COMPARISON_FAULTS: Final = (_has_wrong_comparison,)
_LOOKUP_FAULTS: Final = (_has_wrong_direction, _has_wrong_kind)
