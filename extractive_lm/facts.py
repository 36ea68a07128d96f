"""What passages state: the relations in their sentences, where chains of them lead, what to keep.

Everything is copied: the ends of a relation stand in the passage as they are spelt here, and the
relation is made of the words between them. A pronoun, a surname or "the film" stands for the
passage's title. There is no tagger: a verb is a word of a list, or one that ends like a past form.
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
    """Return whether a word reads like a verb of a statement."""
    past = word.endswith("ed") and len(word) > 4 and word not in _NOT_PAST and "-" not in word
    return past or word in _VERBS


def relation_phrase(phrase: list[str]) -> str:
    """Make a relation of the words between two mentions; "" where they hold no statement.

    >>> relation_phrase("is a 1994 American animated film directed by".split())
    'directed by'
    >>> relation_phrase("was born in".split()), relation_phrase("and is the county seat of".split())
    ('born in', 'is the county seat of')
    >>> relation_phrase("married the British actress".split())
    'married'
    """
    verb, end, before = -1, 0, ""
    for i, word in enumerate(phrase):
        # A participle before its noun ("an animated series") is no verb.
        is_attributive = before.lower() in _NOUN_STARTS or before.isdigit()
        if word in PREPOSITIONS or (is_verb(word) and not is_attributive):
            verb, end = verb if word in PREPOSITIONS else i, i + 1
        before = word
    kept, rest = phrase[max(verb, 0) : end], set(phrase[end:]) & english.STOPWORDS
    if "and" in kept:
        kept = [kept[0], *kept[kept.index("and") + 1 :]]
    if verb < 0 or _BE.issuperset(kept) or rest - _NOUN_STARTS or not _HEDGES.isdisjoint(phrase):
        return ""
    return " ".join(kept)


# --- What one passage states

_PRONOUNS = frozenset("he she it they".split())
_OWNERS = frozenset("his her its their".split())
_RELATIVES = frozenset("that who which".split())
_AFTER_NAMES = frozenset(("'s", "’s", ",", "and", "&", "-", "also"))
_JOINTS = ([","], ["and"], [",", "and"], ["&"], ["or"])
_BRACKETS = re.compile(r"\s*\([^()]*\)")


class Statements(NamedTuple):
    """What a passage states.

    Attributes:
        subject: What it is about.
        kind: The words of what it says that this is: "big", "river".
        type: The type of that.
        facts: The relations in its sentences.
        asides: Names with the words of what they are said to be: "Oslo, a town in …".
    """

    subject: str
    kind: tuple[str, ...]
    type: str
    facts: tuple[Fact, ...] = ()
    asides: tuple[tuple[str, tuple[str, ...]], ...] = ()


@lru_cache(maxsize=2048)
def statements(doc: Doc) -> Statements:
    """Read one passage.

    >>> text = "Red Lodge is a city and the seat of Carbon County."
    >>> found = statements(Doc(1, "Red Lodge", text))
    >>> found.type, [fact[:3] for fact in found.facts]
    ('place', [('Red Lodge', 'is the seat of', 'Carbon County')])
    """
    parsed = english.parse(_BRACKETS.sub("", doc.text))
    spans = [span for span in mentions(parsed) if span.kind == "name"]
    names = [parsed.slice(*span[:2]) for span in spans]
    subject, kind = english.bare_title(doc.title), english.definition(parsed)
    # A text that begins with a name and has no word of its title: that is a heading or a file.
    is_named = not set(keywords(subject)).isdisjoint(keywords(parsed.text))
    if names and not (subject and (is_named or spans[0].start)):
        subject = names[0]
    about = Statements(subject, kind, english.last_type(kind))
    # The subject's own names, and a last name for the whole one that the passage gives.
    own = [about.subject, about.subject.partition(",")[0]]
    own += [name for name in names[:1] if name.split()[-1] == about.subject.split()[-1]]
    if about.type == "person":
        own += [part for name in own if name for part in (name.split()[0], name.split()[-1])]
    known = {name.partition(",")[0].split()[-1]: name for name in reversed(names)}
    known |= dict.fromkeys(own, about.subject)
    facts: dict[tuple[str, str], Fact] = {}
    for head, relation, tail in _relations(parsed, about, known):
        if relation and head != tail:
            facts.setdefault((head, tail), Fact(head, relation, tail, (doc.label,)))
    asides: list[tuple[str, tuple[str, ...]]] = []
    for name, (_, end, _) in zip(names, spans, strict=True):
        noun = english.noun_phrase(parsed.lower[end + 2 : end + 11])
        starts = parsed.lower[end : end + 2] in ((",", "a"), (",", "an"))
        if starts and not _is_of_subject(about, noun):
            asides.append((name, noun))
    return about._replace(facts=tuple(facts.values()), asides=tuple(asides))


def mentions(parsed: Parsed) -> list[Span]:
    """Return what a text mentions, in order: names and dates; "Salem, Oregon" is one name."""
    dates = {span.end: span for span in english.pattern_spans(parsed, "year", "date")}
    found = english.shape_spans(parsed, "name") + list(dates.values())
    spans: list[Span] = []
    for span in sorted(span for span in found if _is_mention(parsed, span)):
        is_state = parsed.slice(*span[:2]).lower() in english.US_STATES
        before = spans[-1] if is_state and spans else span
        if before.kind == "name" and parsed.lower[before.end : span.start] == (",",):
            spans[-1] = before._replace(end=span.end)
        else:
            spans.append(span)
    return spans


def _is_mention(parsed: Parsed, span: Span) -> bool:
    """Return whether a span is a name or a date, and no adjective or mere first word."""
    text, after = parsed.slice(*span[:2]), "".join(parsed.words[span.end : span.end + 1])
    if span.kind != "name":
        # "A 1994 film", "the 1994 Scottish film".
        return is_verb(after) or not english.stem(after)
    if text.lower() in english.NATIONALITIES or (after.islower() and english.noun_type(after)):
        return False
    first = span.start == parsed.bounds[parsed.sentence[span.start]][0]
    return not first or " " in text or is_verb(after) or after in _AFTER_NAMES


def _is_of_subject(about: Statements, aside: tuple[str, ...]) -> bool:
    """Return whether an aside goes back to a person that a passage is about.

    "born in X, a son of Y" is about who was born, "born in X, a town in Y" about X.
    """
    return "person" == about.type == english.last_type(aside)


def _relations(
    parsed: Parsed, about: Statements, known: Mapping[str, str]
) -> Iterator[Sequence[str]]:
    """Relate each mention of a text to what its sentence speaks of before it."""
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
        name, at = known.get(text, text), mention.end
        for i, word in enumerate(gap):
            if word in _PRONOUNS or (word in about.kind and gap[i - 1 : i] == ["the"]):
                head, gap = about.subject, gap[i + 1 :]
                break
        is_owned = gap[:1] and gap[0] in _OWNERS
        head = head or about.subject if is_owned else head
        if is_owned and english.noun_type(gap[-1]):
            # "Her first album X was …": the sentence goes on about X.
            yield head, " ".join(gap[1:]), name
            head = name
        elif not head or name == head:
            head = name if mention.kind == "name" else ""
        elif gap in _JOINTS:
            # Of "in Perth, Australia", Perth is enough.
            is_part = gap == [","] and text.lower() in english.COUNTRIES
            if name[0].isdigit() == last[2][:1].isdigit() and not is_part:
                yield *last[:2], name
        else:
            noun = list(takewhile(lambda word: word not in _RELATIVES, gap))
            if gap[:1] == [","] and english.ARTICLES & {*gap[1:2]} and not any(map(is_verb, noun)):
                is_same = _is_of_subject(about, tuple(noun))
                head, gap = head if is_same else previous or head, ["is", *gap[1:]]
            elif previous and {"who", "which"} & set(gap[:2]):
                head = previous
            marks = [i for i, word in enumerate(gap[:-1]) if not word[-1].isalnum()]
            last = (head, relation_phrase(gap[max(marks, default=-1) + 1 :]), name)
            yield last
        previous = name if mention.kind == "name" else ""


# --- Chains: from what a question names, relation by relation, to what it asks for. A walk takes,
# at each relation, the words of the question that state it; what is left over is still open.

_MOST_HOPS = 4
_WHOLE = 0.6
_TAILS = {"in": "place", "at": "place", "near": "place", "on": "date", "by": "person"}


class Walk(NamedTuple):
    """A walk from a name of the question.

    Attributes:
        path: The normalised names on the way.
        name: Its end, as it is written.
        taken: The question's words that it states.
        share: How much of the question it states, up to 1.
        is_whole: Whether that is most of it, and the end is of the kind that is asked for.
    """

    path: tuple[str, ...]
    name: str = ""
    taken: frozenset[str] = frozenset()
    share: float = 0.0
    is_whole: bool = False


def walks(question: Question, docs: Sequence[Doc], facts: Sequence[Fact]) -> list[Walk]:
    """Return the best walk to each name that at most four relations lead to, the best first.

    Each relation after the first has to state something of the question that none before it did.
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
            said = about[name].union(keywords(f"{relation} {other}"), [tail])
            taken = walk.taken | {w for w in asked if not said.isdisjoint(english.related(w))}
            share = (len(taken) + (target in said)) / (len(asked) + 1)
            gains = len(walk.path) == 1 or len(taken) > len(walk.taken) or target in said
            if gains and (name not in best or share > best[name].share):
                is_whole = target in said and share >= _WHOLE
                best[name] = Walk((*walk.path, name), other, taken, share, is_whole)
    found = [walk for name, walk in best.items() if name not in starts]
    return sorted(found, key=lambda walk: (-walk.share, walk.path))


# --- The additions to a graph

_MOST_FACTS = 14
_UNSAFE = re.compile(r"->|--|\*\*|[→`\[\];|\\<>«»\n]|.{91}")
_TYPES = {"person": "person", "place": "place", "group": "organisation", "work": "work"}
# Another name may belong to the noun before it, "a town now called X", and a graph would merge the
# two.
_NAMING = frozenset("called known named nicknamed renamed titled".split())


def additions(
    question: Question, docs: Sequence[Doc], known: Sequence[Fact], walked: Sequence[Walk]
) -> tuple[Fact, ...]:
    """Return what the passages add to a graph: up to fourteen facts, those on the walks first.

    Both ends stand in the passage whose label the fact carries, spelt as there; nothing that the
    graph holds already is repeated. With a question, one end is in it or on a walk.
    """
    held = {_ends(fact) for fact in known}
    steps = {frozenset(pair) for walk in walked for pair in pairwise(walk.path)}
    near = {name for walk in walked for name in walk.path}
    fresh: list[Fact] = []
    for doc in docs:
        for fact in statements(doc).facts:
            ends = _ends(fact)
            is_near = ends & near or any(map(question.holds, ends)) or not question.focus
            if is_near and ends not in held and _is_writable(fact, doc):
                fresh.append(fact)
    return tuple(sorted(fresh, key=lambda fact: _ends(fact) not in steps)[:_MOST_FACTS])


def _ends(fact: Fact) -> frozenset[str]:
    return frozenset((normalize(fact.head), normalize(fact.tail)))


def _is_writable(fact: Fact, doc: Doc) -> bool:
    """Return whether a fact fits on a line and has its ends in its passage."""
    content = f"{doc.title}\n{doc.text}"
    stands = fact.head in content and fact.tail in content
    for part in fact[:3]:
        stands &= part.count("(") == part.count(")") and not _UNSAFE.search(part)
    return stands and _NAMING.isdisjoint(fact.relation.split())


def write_facts(facts: Sequence[Fact], docs: Sequence[Doc]) -> str:
    """Write facts as lines, with the types that the passages give their ends.

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
