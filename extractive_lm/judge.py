"""The judgement: is the evidence enough, and what is searched next?

Deterministic rules over what one call can see: the new passages, the graph, the queries tried and
what the step before concluded. The search goes on where a name of the question was not met yet, or
where the best answer is unsure and a linked name has no passage of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from extractive_lm.chain import Walk, leading
from extractive_lm.facts import Statements, Triple, statements
from extractive_lm.prompt import Answer, Doc, Fact, Inputs
from extractive_lm.question import Question
from extractive_lm.spans import Mention, bare_title, mentions
from extractive_lm.text import Parsed, content_stem, keywords, normalize, parse
from extractive_lm.words import NATIONALITIES

_ENOUGH = (0.5, 0.2, 0.1)
_SUPPORT = (("well supported", 0.5), ("fairly supported", 0.25), ("weakly supported", 0.0))


class Judgement(NamedTuple):
    """What the judge says; `next_query` is empty exactly where the evidence suffices."""

    reasoning: str
    sufficient: bool
    candidate: str
    next_query: str


def judge(
    question: Question,
    inputs: Inputs,
    facts: Sequence[Fact],
    ranked: Sequence[Answer],
    walked: Mapping[str, Walk],
) -> Judgement:
    """Judge one step.

    Args:
        question: The analysed question.
        inputs: What the prompt says.
        facts: The graph's relations with those just added.
        ranked: The ranker's answers, best first.
        walked: Walks along the question by where they end.
    """
    best = ranked[0] if ranked else Answer()
    if inputs.best and inputs.confidence > best.score:
        best = Answer(inputs.best, inputs.confidence)
    unsure = best.score < enough(inputs)
    ahead = _ahead(question, inputs, walked)
    names = names_to_search(question, inputs, ranked, unsure)
    queries = chain(
        ahead, ((name, query_for(name, question, home, inputs.tried)) for name, home in names)
    )
    name, query = next(((name, query) for name, query in queries if query), ("", ""))
    reasoning = _reasoning(question, facts, best, name)
    return Judgement(reasoning, not query, best.text, query)


def enough(inputs: Inputs) -> float:
    """The score of an answer that counts as enough: the longer the search, the lower."""
    step = max(len(inputs.tried), 1)
    return _ENOUGH[min(step, len(_ENOUGH)) - 1]


def _reasoning(question: Question, facts: Sequence[Fact], best: Answer, name: str) -> str:
    """One to three plain sentences that agree with the judgement."""

    def worth(fact: Fact) -> float:
        named = sum(question.holds(normalize(end)) for end in (fact.head, fact.tail))
        words = (question.focus.get(content_stem(w), 0.0) for w in fact.relation.split())
        return named + sum(words)

    parts = []
    closest = sorted(facts, key=lambda fact: -worth(fact))[:3]
    if links := [fact for fact in closest if worth(fact) >= 1.0]:
        stated = "; ".join(f"{f.head} {f.relation} {f.tail} {_marks(f.labels)}" for f in links)
        parts.append(f"Established: {stated}.")
    if best.text:
        support = next(word for word, least in _SUPPORT if best.score >= least)
        where = f" {_marks(best.labels)}" if best.labels else ""
        parts.append(
            f'The best answer so far is "{best.text}"{where}, {support} ({best.score:.2f}).'
        )
    else:
        parts.append("No answer is seen yet.")
    if name:
        parts.append(f"Missing: what is asked about {name}.")
    return " ".join(parts)


def _marks(labels: Iterable[int]) -> str:
    return "".join(f"[{label}]" for label in labels)


# --- Where to search next: names that the passages mention and that no passage is about

_LIKELY = 8
_BEFORE, _AFTER = 6, 5
_MOST_WORDS = 12
_FITS, _BEGUN, _WHOLE = 0.5, 0.3, 0.6


def names_to_search(
    question: Question, inputs: Inputs, ranked: Sequence[Answer], unsure: bool
) -> Iterator[tuple[str, Doc | None]]:
    """Names worth a search, the first one first, each with the passage that leads to it.

    Names of the question that were not met yet; then, while the answer is unsure, linked ones.
    """
    seen = " ".join(normalize(f"{doc.title} {doc.text}") for doc in inputs.docs)
    seen = f" {seen} {' '.join(map(normalize, inputs.graph.names))} "
    for name in question.names:
        # Half of its words are enough: a slip in the others is common.
        words = [word for word in normalize(name).split() if len(word) > 2]
        held = sum(f" {word} " in seen or word in NATIONALITIES for word in words)
        met = f" {normalize(name)} " in seen or held >= len(words) / 2
        if " " in name.strip() and not met:
            yield name, None
    if unsure and not question.choices:
        yield from _leads(question, inputs, ranked)[:3]


def _ahead(
    question: Question, inputs: Inputs, walked: Mapping[str, Walk]
) -> Iterator[tuple[str, str]]:
    """The ends of the best walks that are short of what is asked for, and queries for the rest."""
    best = leading(walked)
    if not best or len(best[0].path) < 3 or best[0].share < _BEGUN:
        return
    if best[0].fit >= _FITS and best[0].share >= _WHOLE:
        return
    read = {normalize(bare_title(doc.title)) for doc in inputs.docs}
    read |= {normalize(fact.head) for fact in inputs.graph.facts}
    for walk in best:
        end, is_far = walk.path[-1], len(walk.path) > 2
        if is_far and end not in read and not end[0].isdigit():
            held = {*walk.taken, *(word for name in walk.path for word in keywords(name))}
            yield walk.name, _query(walk.name, question, held, inputs.tried)


def _leads(question: Question, inputs: Inputs, ranked: Sequence[Answer]) -> list[tuple[str, Doc]]:
    """Names that could lead on, each with the passage that mentions it, the best first.

    A name counts by the passage that mentions it (is its subject in the question?), by the
    question's words near it, in its relation and in its type, and by the ranker's score for it.
    Names of the question and of the passages' subjects lead nowhere new.
    """
    readings = [statements(doc.title, doc.text) for doc in inputs.docs]
    known = {normalize(name) for s, d in zip(readings, inputs.docs, strict=True)
             for name in (s.subject, d.title)}  # fmt: skip
    known |= {normalize(fact.head) for fact in inputs.graph.facts}
    likely = {normalize(answer.text): answer.score for answer in reversed(ranked[:_LIKELY])}
    found: dict[str, tuple[float, str, Doc]] = {}
    for place, (doc, stated) in enumerate(zip(inputs.docs, readings, strict=True)):
        near = 1.5 * question.holds(normalize(stated.subject)) - 0.2 * place
        parsed = parse(doc.text)
        triples: dict[str, Triple] = {}
        for triple in stated.triples:
            triples.setdefault(triple.head, triple)
            triples.setdefault(triple.tail, triple)
        for mention in mentions(parsed):
            key = normalize(mention.text)
            if mention.kind not in ("name", "quote") or not mention.text[0].isupper():
                continue
            if not key or key in known or question.holds(key):
                continue
            worth = near + (
                _nearness(question, parsed, mention)
                + _relevance(question, mention.text, stated, triples.get(mention.text))
            )
            worth += 2.0 * likely.get(key, 0.0)
            if key not in found or found[key][0] < worth:
                found[key] = (worth, mention.text, doc)
    best = sorted(found.values(), key=lambda lead: (-lead[0], lead[1]))
    return [(name, home) for _, name, home in best]


def _nearness(question: Question, parsed: Parsed, mention: Mention) -> float:
    """The question's words around a name, those within a few words counting more."""
    number = parsed.sentence[mention.start]
    start, end = parsed.bounds[number]
    own = set(parsed.stems[mention.start : mention.end])
    close = set(parsed.stems[max(start, mention.start - _BEFORE) : mention.start])
    close |= set(parsed.stems[mention.end : min(end, mention.end + _AFTER)])
    focus = question.focus
    worth = sum(0.28 + 0.42 * focus[word] for word in close - own if word in focus)
    worth += 0.2 * sum(word in focus for word in set(parsed.stems[start:end]) - own)
    return worth - 0.1 * number


def _relevance(question: Question, name: str, stated: Statements, triple: Triple | None) -> float:
    """The question's words in the type of a name and in its relation."""
    kind = stated.types.get(name, "")
    worth = 0.7 * sum(content_stem(word) in question.focus for word in kind.split())
    if triple is not None:
        words = {content_stem(word) for word in triple.relation.split()}
        worth += 0.2 + 0.4 * len(words & question.focus.keys())
    return worth + (0.4 if " " in name else 0.0) - (0.6 if kind == "place" else 0.0)


def query_for(name: str, question: Question, home: Doc | None, tried: Sequence[str]) -> str:
    """A query for a name with what its passage leaves open of the question; "" if it was tried."""
    held = set(parse(f"{home.title} {home.text}").stems) if home else set()
    return _query(name, question, held | set(parse(name).stems), tried)


def _query(name: str, question: Question, held: Collection[str], tried: Sequence[str]) -> str:
    pairs = zip(question.parsed.tokens, question.parsed.stems, strict=True)
    words = dict.fromkeys(token.text for token, word in pairs if word and word not in held)
    query = " ".join([name, *list(words)[:_MOST_WORDS]])
    return "" if normalize(query) in map(normalize, tried) else query


# --- What an answer rests on


def cited(question: Question, docs: Sequence[Doc], best: Answer) -> tuple[int, ...]:
    """The passages an answer rests on: where it stands, and the one that leads there."""
    home = next((doc for doc in docs if doc.label in best.labels[:1]), None)
    if home is None:
        return best.labels[:2]
    subject = statements(home.title, home.text).subject
    bridges = [
        doc.label
        for doc in docs
        if doc is not home
        and question.holds(normalize(statements(doc.title, doc.text).subject))
        and (question.holds(normalize(subject)) or subject in doc.text or doc.title in home.text)
    ]
    return (home.label, *bridges[:1])
