"""Questions answered by comparing two subjects: "A or B?", "are both ...?", "the same ...?"."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from extractive_lm.question import Question
from extractive_lm.spans import Page, bare_title
from extractive_lm.text import Idf, Value, content_stem, dates, keywords, normalize, numbers, stem
from extractive_lm.words import (
    COUNTRIES,
    COUNTRIES_AND_STATES,
    COUNTRY_OF,
    NATIONALITIES,
    US_STATES,
)

_BIRTH = frozenset("born older younger oldest youngest birth elder age".split())
_DEATH = frozenset("died die dies death dead".split())
# Words that say what is compared, not of what.
_GENERIC = (
    "same both first earlier later older younger born die died more most considered kind "
    "type one country nationality are located from known which who film come came released "
    "person recently director of"
).split()
_MADE_BY = {"director": "direct", "composer": "compos", "performer": "perform", "singer": "sing",
            "author": "author", "writer": "write", "producer": "produc"}  # fmt: skip
_REACH = 6
_THRESHOLD = 0.6


class Verdict(NamedTuple):
    """The outcome of a comparison: an option's place (0 or 1) or yes (1) and no (0), and how sure.

    `margin` is in [0, 1]; `passages` are the places of the passages compared.
    """

    winner: int
    margin: float
    passages: tuple[int, ...]


# --- A or B


def options(question: Question, pages: Sequence[Page]) -> tuple[str, ...]:
    """The options as they are best written: the whole title where the question spells it out."""
    titles = [t for page in pages if question.holds(normalize(t := bare_title(page.title)))]
    return tuple(
        next((t for t in titles if f" {normalize(name)} " in f" {normalize(t)} "), name)
        for name in question.choices
    )


def choose(question: Question, pages: Sequence[Page], idf: Idf) -> Verdict:
    """Which of the two options of "A or B" answers the question: dates, numbers, else overlap."""
    subjects = [_subject(name, pages) for name in question.choices]
    passages = tuple(s for s in subjects if s >= 0)
    if question.order and len(passages) == 2:
        a, b = (_measured(question, pages[_maker(question, pages, s)]) for s in subjects)
        if (a is None) != (b is None) and question.order in ("more", "less"):
            # A count that only one passage states is the count of the one that has many.
            return Verdict(int((a is None) == (question.order == "more")), 0.3, passages)
        if a is not None and b is not None and a != b:
            low = question.order in ("early", "less")
            low = low and not {"younger", "youngest"} & set(question.parsed.lower)
            return Verdict(int((b < a) == low), 0.8, passages)
    # The share of the question's other words that each option's passage holds.
    named = _stems(question.choices)
    wanted = [s for s in question.keywords if s not in named] or question.keywords
    total = sum(idf(s) for s in wanted)
    first, second = (
        sum(idf(s) for s in wanted if s in pages[i].parsed.stems) / total if i >= 0 and total else 0
        for i in subjects
    )
    return Verdict(int(second > first), min(abs(second - first), 0.6), passages)


def _measured(question: Question, page: Page) -> tuple[float, ...] | None:
    """The date or number by which a passage's subject is compared; None where it has none."""
    parsed = page.parsed
    if question.order in ("early", "late"):
        return _date(question, page)
    # What is counted: the content words after "more", else all but the names.
    more = [
        i for i, w in enumerate(question.parsed.lower) if w in ("more", "most", "fewer", "less")
    ]
    after = question.parsed.stems[more[0] + 1 : more[0] + 4] if more else ()
    counted = set(filter(None, after)) - _stems(question.choices) or _predicate(question)
    places = [i for i, s in enumerate(parsed.stems) if s and s in counted]
    found = _nearest(places, numbers(parsed))
    near = found and min(abs(found.start - place) for place in places) <= _REACH
    return found.value if found and near else None


def _date(question: Question, page: Page) -> tuple[float, ...] | None:
    found, asked = dates(page.parsed), set(question.parsed.lower)
    if not found:
        return None
    if asked & _DEATH:
        return found[1].value if len(found) > 1 else None
    if asked & _BIRTH:
        return found[0].value
    wanted = _predicate(question)
    places = [i for i, s in enumerate(page.parsed.stems) if s in wanted]
    return (_nearest(places, found) or found[0]).value


def _nearest(places: Collection[int], values: Sequence[Value]) -> Value | None:
    """The value that stands nearest to any of the places; None where there is none of either."""
    if not places:
        return None
    return min(values, key=lambda v: min(abs(v.start - p) for p in places), default=None)


# --- The passages that are compared


def _subject(name: str, pages: Sequence[Page]) -> int:
    """The passage about a name: the one so titled, else the best-ranked that holds it; else -1."""
    norm = normalize(name)
    words = set(norm.split())
    for i, page in enumerate(pages):
        if norm in page.aliases:
            return i
    for i, page in enumerate(pages):
        forms = (set(alias.split()) for alias in page.aliases)
        if any(form <= words or words <= form for form in forms):
            return i
    return next((i for i, page in enumerate(pages) if norm in page.norms), -1)


def _maker(question: Question, pages: Sequence[Page], subject: int) -> int:
    """The maker's passage where a question compares makers ("the film whose director ...")."""
    page = pages[subject]
    titles = {form: i for i, other in enumerate(pages) for form in other.aliases if i != subject}
    makers = {form: i for form, i in titles.items() if pages[i].subject_type == "person"}
    for role, root in _MADE_BY.items():
        if role not in question.parsed.lower or page.subject_type == "person":
            continue
        places = [i for i, word in enumerate(page.parsed.lower) if word.startswith(root)]
        named = [
            Value((makers[norm],), span.start)
            for span, norm in zip(page.spans, page.norms, strict=True)
            if norm in makers
        ]
        if found := _nearest(places, named):
            return int(found.value[0])
    return subject


def _stems(names: Sequence[str]) -> set[str]:
    return {s for name in names for s in keywords(name)}


def _predicate(question: Question) -> set[str]:
    return set(question.keywords) - _stems((*question.names, *question.choices))


# --- Yes or no


def decide(question: Question, pages: Sequence[Page], idf: Idf) -> Verdict:
    """Yes or no: the order of two dates, a shared attribute, else the predicate of each subject."""
    subjects = _subjects(question, pages)
    words = set(question.parsed.lower)
    if len(subjects) == 2 and words & {"before", "earlier", "after", "later", "older", "younger"}:
        a, b = (_date(question, pages[s]) for s in subjects)
        if a is None or b is None or a == b:
            return Verdict(0, 0.1, subjects)
        early = bool(words & {"before", "earlier", "older"})
        return Verdict(int((a < b) == early), 0.6, subjects)
    if len(subjects) == 2 and words & {"same", "share"}:
        makers = tuple(_maker(question, pages, s) for s in subjects)
        ours, theirs = (_attributes(words, pages[m]) for m in makers)
        return Verdict(int(bool(ours & theirs)), 0.5 if ours and theirs else 0.1, makers)
    titles = {s for i in subjects for s in keywords(pages[i].title)}
    generic = set(map(stem, _GENERIC))
    wanted = [s for s in question.keywords if s not in titles and s not in generic]
    if not wanted or not subjects:
        return Verdict(1, 0.0, subjects)
    shares = []
    for i in subjects:
        # "Ohio" implies "american".
        countries = _countries(pages[i])
        implied = {content_stem(w) for w, country in COUNTRY_OF.items() if country in countries}
        held = implied.union(pages[i].parsed.stems)
        shares.append(sum(idf(s) for s in wanted if s in held) / sum(idf(s) for s in wanted))
    least = min(shares)
    return Verdict(int(least >= _THRESHOLD), min(abs(least - _THRESHOLD), 0.5), subjects)


def _subjects(question: Question, pages: Sequence[Page]) -> tuple[int, ...]:
    """The two passages whose titles the question names, in the question's order."""
    found: list[tuple[int, int, int]] = []
    for i, page in enumerate(pages):
        hits = [(question.norm.find(f" {a} "), len(a)) for a in page.aliases if question.holds(a)]
        if hits:
            at, size = max(hits, key=lambda h: h[1])
            if all(at >= a + n or at + size <= a for a, n, _ in found):
                found.append((at, size, i))
    return tuple(i for _, _, i in sorted(found[:2]))


def _attributes(asked: set[str], page: Page) -> set[str]:
    """The values of the attribute that is asked about, for one of two subjects."""
    if asked & {"nationality", "country", "nation", "citizenship"}:
        return _countries(page)
    if asked & {"profession", "occupation", "genre", "type", "kind", "job"}:
        return set(page.definition)
    # Names of the first two sentences but the subject's own and countries.
    limit, own = len(page.opening(3)), set(" ".join(page.aliases).split())
    return (
        {
            norm
            for span, norm in zip(page.spans, page.norms, strict=True)
            if span.kind in ("name", "part") and span.start < limit and not set(norm.split()) <= own
        }
        - COUNTRIES_AND_STATES
        - NATIONALITIES
    )


def _countries(page: Page) -> set[str]:
    """Countries and nationalities (as countries) of the first sentences, states as America."""
    found: set[str] = set()
    lower = page.parsed.lower
    for i in range(len(page.opening(2))):
        for phrase in (lower[i], " ".join(lower[i : i + 2])):
            if phrase in US_STATES or phrase in ("america", "u.s.", "usa"):
                found.add("united states")
            elif phrase in COUNTRIES:
                found.add(phrase)
            elif phrase in COUNTRY_OF or phrase in NATIONALITIES:
                found.add(COUNTRY_OF.get(phrase, phrase))
    return found
