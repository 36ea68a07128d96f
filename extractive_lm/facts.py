"""Extract relations from passages, walk along them, and choose those to add to a graph.

Everything is copied: both ends of a relation occur verbatim in the passage, and the relation is
made of the words between them. A pronoun, a surname or "the film" is resolved to the passage's
title. There is no part-of-speech tagger: a verb is in a word list, or ends like a past form.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from extractive_lm import english
from extractive_lm.english import PREPOSITIONS, Parsed, Question, Span, keywords, normalize, words
from extractive_lm.prompt import Doc, Fact

# --- Relations: the words between two names

_BE = words("be")
_VERBS = _BE | words("irregular_verbs")
_NOT_PAST = words("not_past")
_HEDGES = words("hedges")
_NOUN_STARTS = words("determiners") | english.NATIONALITIES


def is_verb(word: str) -> bool:
    """Return whether a word looks like a verb."""
    past = word.endswith("ed") and len(word) > 4 and word not in _NOT_PAST and "-" not in word
    return past or word in _VERBS


def relation_phrase(phrase: list[str]) -> str:
    """Return the relation that the words between two mentions state; "" if they state none.

    >>> relation_phrase("is a 1994 American animated film directed by".split())
    'directed by'
    >>> relation_phrase("was born in".split()), relation_phrase("and is the county seat of".split())
    ('born in', 'is the county seat of')
    >>> relation_phrase("married the British actress".split())
    'married'
    """
    verb, end, before = -1, 0, ""
    for i, word in enumerate(phrase):
        # A participle before its noun ("an animated series") is not the verb.
        is_attributive = before.lower() in _NOUN_STARTS or before.isdigit()
        if word in PREPOSITIONS:
            end = i + 1
        elif is_verb(word) and not is_attributive:
            verb, end = i, i + 1
        before = word
    stated, rest = phrase[max(verb, 0) : end], set(phrase[end:]) & english.STOPWORDS
    if "and" in stated:
        stated = [stated[0], *stated[stated.index("and") + 1 :]]
    if verb < 0 or _BE.issuperset(stated) or rest - _NOUN_STARTS or not _HEDGES.isdisjoint(phrase):
        return ""
    return " ".join(stated)


# --- The statements of one passage

_PRONOUNS = frozenset("he she it they".split())
_OWNERS = frozenset("his her its their".split())
_RELATIVES = frozenset("that who which".split())
_AFTER_NAMES = frozenset(("'s", "’s", ",", "and", "&", "-", "also"))
_JOINTS = ([","], ["and"], [",", "and"], ["&"], ["or"])
_BRACKETS = re.compile(r"\s*\([^()]*\)")


class Statements(NamedTuple):
    """The statements of a passage.

    Attributes:
        subject: The thing that it is about.
        kind: The words of the subject's definition, "is a …": "big", "river".
        type: The type of that noun.
        facts: The relations in its sentences.
        asides: Names with the words of their apposition: "Oslo, a town in …".
    """

    subject: str
    kind: tuple[str, ...]
    type: str
    facts: tuple[Fact, ...] = ()
    asides: tuple[tuple[str, tuple[str, ...]], ...] = ()


@lru_cache(maxsize=2048)
def statements(doc: Doc) -> Statements:
    """Extract the statements of a passage.

    >>> text = "Red Lodge is a city and the seat of Carbon County."
    >>> found = statements(Doc(1, "Red Lodge", text))
    >>> found.type, [fact[:3] for fact in found.facts]
    ('place', [('Red Lodge', 'is the seat of', 'Carbon County')])
    """
    parsed = english.parse(_BRACKETS.sub("", doc.text))
    spans = [span for span in mentions(parsed) if span.kind == "name"]
    names = [parsed.slice(*span[:2]) for span in spans]
    subject, kind = english.bare_title(doc.title), english.definition(parsed)
    # If the text begins with a name and has no word of the title, the title is not its subject but
    # a heading or a file name.
    is_named = not set(keywords(subject)).isdisjoint(keywords(parsed.text))
    if names and not (subject and (is_named or spans[0].start)):
        subject = names[0]
    about = Statements(subject, kind, english.last_type(kind))
    # Full names by their short forms: last names, and the aliases of the subject.
    aliases = [about.subject, about.subject.partition(",")[0]]
    aliases += [name for name in names[:1] if name.split()[-1] == about.subject.split()[-1]]
    if about.type == "person":
        for name in filter(None, aliases[:]):
            aliases += [name.split()[0], name.split()[-1]]
    full_names = {name.partition(",")[0].split()[-1]: name for name in reversed(names)}
    full_names |= dict.fromkeys(aliases, about.subject)
    facts: dict[tuple[str, str], Fact] = {}
    for head, relation, tail in _relations(parsed, about, full_names):
        if relation and head != tail:
            facts.setdefault((head, tail), Fact(head, relation, tail, (doc.label,)))
    asides: list[tuple[str, tuple[str, ...]]] = []
    for name, (_, end, _) in zip(names, spans, strict=True):
        noun = english.noun_phrase(parsed.lower[end + 2 : end + 11])
        is_aside = parsed.lower[end : end + 2] in ((",", "a"), (",", "an"))
        if is_aside and not _is_of_subject(about, noun):
            asides.append((name, noun))
    return about._replace(facts=tuple(facts.values()), asides=tuple(asides))


def mentions(parsed: Parsed) -> list[Span]:
    """Return the names and dates in a text, in order; "Salem, Oregon" is one name."""
    dates = {span.end: span for span in english.pattern_spans(parsed, "year", "date")}
    candidates = english.shape_spans(parsed, "name") + list(dates.values())
    spans: list[Span] = []
    for span in sorted(span for span in candidates if _is_mention(parsed, span)):
        last = spans[-1] if spans else span
        is_state = parsed.slice(*span[:2]).lower() in english.US_STATES
        is_after_comma = parsed.lower[last.end : span.start] == (",",)
        if is_state and is_after_comma and last.kind == "name":
            spans[-1] = last._replace(end=span.end)
        else:
            spans.append(span)
    return spans


def _is_mention(parsed: Parsed, span: Span) -> bool:
    """Return whether a span is a name or a date, not an adjective or an ordinary first word."""
    text, after = parsed.slice(*span[:2]), "".join(parsed.words[span.end : span.end + 1])
    if span.kind != "name":
        # "A 1994 film", "the 1994 Scottish film".
        return is_verb(after) or not english.stem(after)
    if text.lower() in english.NATIONALITIES or (after.islower() and english.noun_type(after)):
        return False
    first = span.start == parsed.bounds[parsed.sentence[span.start]][0]
    return not first or " " in text or is_verb(after) or after in _AFTER_NAMES


def _is_of_subject(about: Statements, aside: tuple[str, ...]) -> bool:
    """Return whether an apposition describes the person that the passage is about.

    In "born in X, a son of Y" it does; in "born in X, a town in Y" it describes X.
    """
    return "person" == about.type == english.last_type(aside)


def _relations(
    parsed: Parsed, about: Statements, full_names: Mapping[str, str]
) -> Iterator[Sequence[str]]:
    """Yield head, relation and tail for each mention in a text that its sentence relates."""
    sentence, at, head, previous, last = -1, 0, "", "", ("", "", "")
    for mention in mentions(parsed):
        if parsed.sentence[mention.start] != sentence:
            sentence = parsed.sentence[mention.start]
            at, head = parsed.bounds[sentence][0], "" if sentence else about.subject
            previous, last = "", ("", "", "")
        gap = [word for word in parsed.words[at : mention.start] if word not in '"“”']
        if at == parsed.bounds[sentence][0]:
            gap[:1] = map(str.lower, gap[:1])
        text = parsed.slice(*mention[:2]).strip(" ,.")
        name, at = full_names.get(text, text), mention.end
        for i, word in enumerate(gap):
            if word in _PRONOUNS or (word in about.kind and gap[i - 1 : i] == ["the"]):
                head, gap = about.subject, gap[i + 1 :]
                break
        is_owned = gap[:1] and gap[0] in _OWNERS
        if is_owned and not head:
            head = about.subject
        if is_owned and english.noun_type(gap[-1]):
            # "Her first album X was …": the sentence continues about X.
            yield head, " ".join(gap[1:]), name
            head = name
        elif not head or name == head:
            head = name if mention.kind == "name" else ""
        elif gap in _JOINTS:
            # In "in Perth, Australia", the country only locates Perth.
            is_part = gap == [","] and text.lower() in english.COUNTRIES
            if name[0].isdigit() == last[2][:1].isdigit() and not is_part:
                yield *last[:2], name
        else:
            noun = list(takewhile(lambda word: word not in _RELATIVES, gap))
            if gap[:1] == [","] and english.ARTICLES & {*gap[1:2]} and not any(map(is_verb, noun)):
                if previous and not _is_of_subject(about, tuple(noun)):
                    head = previous
                gap = ["is", *gap[1:]]
            elif previous and {"who", "which"} & set(gap[:2]):
                head = previous
            marks = [i for i, word in enumerate(gap[:-1]) if not word[-1].isalnum()]
            last = (head, relation_phrase(gap[max(marks, default=-1) + 1 :]), name)
            yield last
        previous = name if mention.kind == "name" else ""


# --- Walks: chains of relations from a name in the question to its answer. Each relation takes the
# words of the question that state it; the words that no relation takes are still unanswered.

_MOST_HOPS = 4
_WHOLE = 0.6
_TAILS = {"in": "place", "at": "place", "near": "place", "on": "date", "by": "person"}


class Walk(NamedTuple):
    """A walk from a name of the question.

    Attributes:
        path: The normalised names along the walk.
        name: Its last name, as written in the passage.
        taken: The words of the question that it states.
        share: The share of the question that it states, up to 1.
        is_whole: Whether that is most of it, and the end is of the type that is asked for.
    """

    path: tuple[str, ...]
    name: str = ""
    taken: frozenset[str] = frozenset()
    share: float = 0.0
    is_whole: bool = False


def walks(question: Question, docs: Sequence[Doc], facts: Sequence[Fact]) -> list[Walk]:
    """Return the best walk to each name within four relations, the best first.

    Each relation after the first must state a word of the question that no earlier one states.
    """
    about: dict[str, set[str]] = defaultdict(set)
    for subject, kind, type_, more, asides in map(statements, docs):
        about[normalize(subject)].update([type_])
        for name, noun in ((subject, kind), *asides):
            about[normalize(name)].update(map(english.stem, noun))
        facts = (*facts, *more)
    starts = {end for fact in facts for end in _ends(fact) if question.holds(end)}
    target = english.stem(question.noun) or question.wants
    asked = set(question.focus) - {word for name in starts for word in keywords(name)} - {target}
    best = {name: Walk((name,)) for name in starts}
    links = [link for fact in facts for link in (fact[:3], fact[2::-1])]
    for one, relation, other in links * _MOST_HOPS:
        walk, name = best.get(normalize(one)), normalize(other)
        if walk and len(walk.path) <= _MOST_HOPS and name not in starts.union(walk.path):
            tail = _TAILS.get(relation.split()[-1], "")
            stated = about[name].union(keywords(f"{relation} {other}"), [tail])
            taken = walk.taken | {w for w in asked if not stated.isdisjoint(english.related(w))}
            share = (len(taken) + (target in stated)) / (len(asked) + 1)
            gains = len(walk.path) == 1 or len(taken) > len(walk.taken) or target in stated
            if gains and (name not in best or share > best[name].share):
                is_whole = target in stated and share >= _WHOLE
                best[name] = Walk((*walk.path, name), other, taken, share, is_whole)
    arrived = [walk for name, walk in best.items() if name not in starts]
    return sorted(arrived, key=lambda walk: (-walk.share, walk.path))


# --- Facts to add to a graph

_MOST_FACTS = 14
_UNSAFE = re.compile(r"->|--|\*\*|[→`\[\];|\\<>«»\n]|.{91}")
_TYPES = {"person": "person", "place": "place", "group": "organisation", "work": "work"}
# In "lives in a town now called X", X is the name of the town, but a graph would merge it with the
# head of the fact.
_NAMING = frozenset("called known named nicknamed renamed titled".split())


def additions(
    question: Question, docs: Sequence[Doc], known: Sequence[Fact], best_walks: Sequence[Walk]
) -> tuple[Fact, ...]:
    """Return up to fourteen facts to add to a graph, those on the walks first.

    Both ends of a fact occur verbatim in the passage that it cites, and the graph does not relate
    them yet. If there is a question, one end is in it or on a walk.
    """
    related = {_ends(fact) for fact in known}
    steps = {frozenset(pair) for walk in best_walks for pair in pairwise(walk.path)}
    near = {name for walk in best_walks for name in walk.path}
    fresh: list[Fact] = []
    for doc in docs:
        for fact in statements(doc).facts:
            ends = _ends(fact)
            is_near = ends & near or any(map(question.holds, ends)) or not question.focus
            if is_near and ends not in related and _is_writable(fact, doc):
                fresh.append(fact)
    return tuple(sorted(fresh, key=lambda fact: _ends(fact) not in steps)[:_MOST_FACTS])


def _ends(fact: Fact) -> frozenset[str]:
    return frozenset((normalize(fact.head), normalize(fact.tail)))


def _is_writable(fact: Fact, doc: Doc) -> bool:
    """Return whether a fact can be written as a graph line, and its passage has both ends."""
    content = f"{doc.title}\n{doc.text}"
    has_ends = fact.head in content and fact.tail in content
    is_safe = all(p.count("(") == p.count(")") and not _UNSAFE.search(p) for p in fact[:3])
    return has_ends and is_safe and _NAMING.isdisjoint(fact.relation.split())


def write_facts(facts: Sequence[Fact], docs: Sequence[Doc]) -> str:
    """Write facts as graph lines, with the types of their ends as far as passages define them.

    >>> print(write_facts([Fact("Ann", "met", "Bo", (1,))], []))
    - Ann -> met -> Bo [1]
    """
    types = {about.subject: _TYPES.get(about.type) for about in map(statements, docs)}
    typed = {name: f"{name} ({kind})" for name, kind in types.items() if kind}
    lines = [
        f"- {typed.get(head, head)} -> {relation} -> {typed.get(tail, tail)} [{labels[0]}]"
        for head, relation, tail, labels in facts
    ]
    return "\n".join(lines) or "(empty)"
