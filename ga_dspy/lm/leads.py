"""Where to search next: names that the passages mention and that no passage is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ga_dspy.lm.evidence import Answer, Doc
from ga_dspy.lm.inputs import Inputs
from ga_dspy.lm.lexicon import NATIONALITIES
from ga_dspy.lm.mention import Mention, mentions
from ga_dspy.lm.question import Question
from ga_dspy.lm.relations import Statements, Triple, statements
from ga_dspy.lm.text import Parsed, content_stem, normalize, parse

_LIKELY = 8
_BEFORE, _AFTER = 6, 5
_MOST_WORDS = 12


class Lead(NamedTuple):
    """A name worth searching for, the passage that mentions it, and how promising it is."""

    name: str
    home: Doc
    worth: float


def leads(question: Question, inputs: Inputs, ranked: Sequence[Answer]) -> list[Lead]:
    """Names that could lead on, the most promising first.

    A name counts by the passage that mentions it (is its subject in the question?), by the
    question's words near it, in its relation and in its type, and by the ranker's score for it.
    Names of the question and of the passages' subjects lead nowhere new.
    """
    asked = f" {normalize(question.text)} "
    said = [statements(doc.title, doc.text) for doc in inputs.docs]
    known = {normalize(name) for s, d in zip(said, inputs.docs, strict=True)
             for name in (s.subject, d.title)}  # fmt: skip
    known |= {normalize(fact.head) for fact in inputs.graph.facts}
    likely = {normalize(answer.text): answer.score for answer in reversed(ranked[:_LIKELY])}
    found: dict[str, Lead] = {}
    for place, (doc, statement) in enumerate(zip(inputs.docs, said, strict=True)):
        near = (1.5 if f" {normalize(statement.subject)} " in asked else 0.0) - 0.2 * place
        for mention, worth in _weighed(question, doc, statement):
            key = normalize(mention.text)
            if not key or key in known or f" {key} " in asked:
                continue
            total = near + worth + 2.0 * likely.get(key, 0.0)
            if key not in found or found[key].worth < total:
                found[key] = Lead(mention.text, doc, total)
    return sorted(found.values(), key=lambda lead: (-lead.worth, lead.name))


def _weighed(question: Question, doc: Doc, statement: Statements) -> list[tuple[Mention, float]]:
    """Each name of a passage with its fit to what the question says."""
    parsed = parse(doc.text)
    stated: dict[str, Triple] = {}
    for triple in statement.triples:
        for name in (triple.head, triple.tail):
            stated.setdefault(name, triple)
    names = [m for m in mentions(parsed) if m.kind in ("name", "quote") and m.text[0].isupper()]
    return [
        (m, _near(question, parsed, m) + _stated(question, m.text, statement, stated.get(m.text)))
        for m in names
    ]


def _near(question: Question, parsed: Parsed, mention: Mention) -> float:
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


def _stated(question: Question, name: str, statement: Statements, triple: Triple | None) -> float:
    kind = statement.types.get(name, "")
    worth = 0.7 * sum(content_stem(w) in question.focus for w in kind.split())
    if triple is not None:
        words = {content_stem(w) for w in triple.relation.split()}
        worth += 0.2 + 0.4 * len(words & set(question.focus))
    return worth + (0.4 if " " in name else 0.0) - (0.6 if kind == "place" else 0.0)


def unmet(question: Question, inputs: Inputs) -> list[str]:
    """Names of the question that neither a passage nor the graph mentions, even in part."""
    seen = " ".join(normalize(f"{doc.title} {doc.text}") for doc in inputs.docs)
    seen = f" {seen} {' '.join(normalize(name) for name in inputs.graph.names)} "
    names = (n for n in question.names if " " in n.strip())
    return [name for name in names if not _met(name, seen)]


def _met(name: str, seen: str) -> bool:
    """Whether a name was seen, or half of its words: a slip in the others is common."""
    words = [word for word in normalize(name).split() if len(word) > 2]
    held = sum(f" {word} " in seen or word in NATIONALITIES for word in words)
    return not words or f" {normalize(name)} " in seen or held >= len(words) / 2


def query_for(name: str, question: Question, home: Doc | None, tried: Sequence[str]) -> str:
    """A query for a name with what its passage leaves open of the question; "" if it was tried."""
    held = set(parse(f"{home.title} {home.text}").stems) if home else set()
    held |= set(parse(name).stems)
    pairs = zip(question.parsed.tokens, question.parsed.stems, strict=True)
    words = dict.fromkeys(token.text for token, word in pairs if word and word not in held)
    query = " ".join([name, *list(words)[:_MOST_WORDS]])
    return "" if normalize(query) in {normalize(old) for old in tried} else query
