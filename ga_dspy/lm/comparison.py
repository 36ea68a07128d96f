"""Questions answered by comparing two subjects: "A or B?", "are both ...?", "the same ...?"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ga_dspy.lm.candidates import bare_title
from ga_dspy.lm.idf import Idf
from ga_dspy.lm.lexicon import COUNTRIES, COUNTRY_OF, NATIONALITIES, US_STATES, noun_type
from ga_dspy.lm.question import Question
from ga_dspy.lm.static import PageStatics
from ga_dspy.lm.text import content_stem, keywords, normalize, stem
from ga_dspy.lm.values import dates, nearest, numbers

_BIRTH = frozenset("born older younger oldest youngest birth elder age".split())
_DEATH = frozenset("died die dies death dead".split())
_GENERIC = (
    "same both first earlier later older younger born die died more most considered kind "
    "type one country nationality are located from known which who film come came released "
    "person recently director of"
).split()
_CAREER = frozenset(
    "profession professions occupation occupations career careers job jobs roles hats".split()
)
_REACH = 6
_MADE_BY = {"director": "direct", "composer": "compos", "performer": "perform", "singer": "sing",
            "author": "author", "writer": "write", "producer": "produc"}  # fmt: skip


@cache
def _generic_stems() -> frozenset[str]:
    """Words that say what is compared, not of what; stemmed when first needed."""
    return frozenset(map(stem, _GENERIC))


class Verdict(NamedTuple):
    """The outcome of a comparison: an option's place (0 or 1) or yes (1) and no (0), and how sure.

    `margin` is in [0, 1]; `passages` are the places of the passages compared.
    """

    winner: int
    margin: float
    passages: tuple[int, ...]


def choose(question: Question, pages: Sequence[PageStatics], idf: Idf) -> Verdict:
    """Which of the two options of "A or B" answers the question: dates, numbers, else overlap."""
    subjects = [_subject(question, name, pages) for name in question.choices]
    passages = tuple(s for s in subjects if s >= 0)
    if question.order and len(passages) == 2:
        values = [_value(question, pages, s) for s in subjects]
        a, b = values
        if (a is None) != (b is None) and question.order in ("more", "less"):
            # A count that only one passage tells is the count of the one that has many.
            return Verdict(int((a is None) == (question.order == "more")), 0.3, passages)
        if a is not None and b is not None and a != b:
            low = question.order in ("early", "less")
            if set(question.parsed.lower) & {"younger", "youngest"}:
                low = False
            return Verdict(int((b < a) == low), 0.8, passages)
    shares = [
        _support(question, name, pages, s, idf)
        for name, s in zip(question.choices, subjects, strict=True)
    ]
    gap = shares[1] - shares[0]
    return Verdict(int(gap > 0), min(abs(gap), 0.6), passages)


def _subject(question: Question, name: str, pages: Sequence[PageStatics]) -> int:
    """The passage about a name: the one so titled, else the best-ranked that holds it; else -1."""
    norm = normalize(name)
    words = set(norm.split())
    for i, page in enumerate(pages):
        if norm in page.alias:
            return i
    for i, page in enumerate(pages):
        if any(set(a.split()) <= words or words <= set(a.split()) for a in page.alias):
            return i
    near = [(_alike(words, page), -i) for i, page in enumerate(pages)]
    score, place = max(near, default=(0.0, 0))
    if score >= 0.5:
        return -place
    return next((i for i, page in enumerate(pages) if norm in page.norms), -1)


def options(question: Question, pages: Sequence[PageStatics]) -> tuple[str, ...]:
    """The options as they are best written: the whole title where the question spells it out."""
    asked = f" {normalize(question.text)} "
    return tuple(_spelled(asked, name, pages) for name in question.choices)


def _spelled(asked: str, name: str, pages: Sequence[PageStatics]) -> str:
    for page in pages:
        title = bare_title(page.page.title)
        whole = f" {normalize(title)} "
        if f" {normalize(name)} " in whole and whole in asked:
            return title
    return name


def _alike(words: set[str], page: PageStatics) -> float:
    return max(
        (len(words & set(a.split())) / len(words | set(a.split())) for a in page.alias), default=0.0
    )


def _value(
    question: Question, pages: Sequence[PageStatics], subject: int
) -> tuple[float, ...] | None:
    page = pages[_maker(question, pages, subject)]
    if question.order in ("early", "late"):
        return _date(question, page)
    if set(question.parsed.lower) & _CAREER:
        return (float(_roles(page)),)
    counted = numbers(page.page.parsed)
    measured = _measure(question)
    places = [i for i, s in enumerate(page.page.parsed.stems) if s and s in measured]
    index = nearest(places, [n.start for n in counted])
    if index < 0 or min(abs(counted[index].start - p) for p in places) > _REACH:
        return None
    return (counted[index].value,)


def _measure(question: Question) -> set[str]:
    """The stems of what is counted: the content words after "more", else all but the names."""
    lower = question.parsed.lower
    at = next((i for i, w in enumerate(lower) if w in ("more", "most", "fewer", "less")), -1)
    after = [s for s in question.parsed.stems[at + 1 : at + 4] if s] if at >= 0 else []
    return set(after) - _name_stems(question) or _predicate(question)


def _roles(page: PageStatics) -> int:
    """How many kinds of person the definition names ("an actor, director and producer")."""
    parsed = page.page.parsed
    end = parsed.bounds[min(1, len(parsed.bounds) - 1)][1]
    return len({w for w in parsed.lower[:end] if noun_type(w) == "person"})


def _maker(question: Question, pages: Sequence[PageStatics], subject: int) -> int:
    """The maker's passage where a question compares makers ("the film whose director ...")."""
    asked = set(question.parsed.lower)
    for role, root in _MADE_BY.items():
        if role not in asked or pages[subject].subject_type == "person":
            continue
        parsed = pages[subject].page.parsed
        places = [i for i, w in enumerate(parsed.lower) if w.startswith(root)]
        titles = {form: i for i, p in enumerate(pages) for form in p.alias if i != subject}
        named = [
            (s.start, titles[n])
            for s, n in zip(pages[subject].page.spans, pages[subject].page.norms, strict=True)
            if n in titles and pages[titles[n]].subject_type == "person"
        ]
        index = nearest(places, [start for start, _ in named])
        if index >= 0:
            return named[index][1]
    return subject


def _date(question: Question, page: PageStatics) -> tuple[float, ...] | None:
    found = dates(page.page.parsed)
    if not found:
        return None
    asked = set(question.parsed.lower)
    if asked & _DEATH:
        return found[1].value if len(found) > 1 else None
    if asked & _BIRTH:
        return found[0].value
    index = nearest(_hits(question, page), [d.start for d in found])
    return found[max(index, 0)].value


def _hits(question: Question, page: PageStatics) -> list[int]:
    """Where the question's own words, other than its names, stand in the passage."""
    wanted = _predicate(question) - {""}
    return [i for i, s in enumerate(page.page.parsed.stems) if s in wanted]


def _predicate(question: Question) -> set[str]:
    names = [*question.names, *question.choices]
    return set(question.keywords) - {s for n in names for s in keywords(n)}


def _support(
    question: Question, name: str, pages: Sequence[PageStatics], subject: int, idf: Idf
) -> float:
    """The share of the question's other words that the option's passage holds."""
    if subject < 0:
        return 0.0
    wanted = (set(question.keywords) - _name_stems(question)) or set(question.keywords)
    held = set(pages[subject].page.parsed.stems)
    total = sum(idf(s) for s in wanted)
    return sum(idf(s) for s in wanted if s in held) / total if total else 0.0


def _name_stems(question: Question) -> set[str]:
    return {s for name in question.choices for s in keywords(name)}


def decide(question: Question, pages: Sequence[PageStatics], idf: Idf) -> Verdict:
    """Yes or no: the order of two dates, a shared attribute, else the predicate of each subject."""
    subjects = _subjects(question, pages)
    words = set(question.parsed.lower)
    if len(subjects) == 2:
        if words & {"before", "earlier", "after", "later", "older", "younger"}:
            return _ordered(question, pages, subjects)
        if "same" in words or "share" in words:
            return _shared(question, pages, subjects)
    return _predicated(question, pages, subjects, idf)


def _subjects(question: Question, pages: Sequence[PageStatics]) -> tuple[int, ...]:
    """The two passages whose titles the question names, in the question's order."""
    asked = f" {normalize(question.text)} "
    found: list[tuple[int, int, int]] = []
    for i, page in enumerate(pages):
        hits = [(asked.find(f" {a} "), len(a)) for a in page.alias if f" {a} " in asked]
        if hits:
            at, size = max(hits, key=lambda h: h[1])
            if all(at >= a + n or at + size <= a for a, n, _ in found):
                found.append((at, size, i))
    if len(found) < 2:
        for name in question.names:
            i = _subject(question, name, pages)
            if i >= 0 and len(name.split()) > 1 and i not in [f[2] for f in found]:
                found.append((asked.find(normalize(name)), len(name), i))
    return tuple(i for _, _, i in sorted(found[:2]))


def _ordered(
    question: Question, pages: Sequence[PageStatics], subjects: tuple[int, ...]
) -> Verdict:
    a, b = (_date(question, pages[s]) for s in subjects)
    if a is None or b is None or a == b:
        return Verdict(0, 0.1, subjects)
    early = bool(set(question.parsed.lower) & {"before", "earlier", "older"})
    return Verdict(int((a < b) == early), 0.6, subjects)


def _shared(question: Question, pages: Sequence[PageStatics], subjects: tuple[int, ...]) -> Verdict:
    """Whether both subjects show a common value of the attribute that is asked about."""
    makers = tuple(_maker(question, pages, s) for s in subjects)
    asked = set(question.parsed.lower)
    if asked & {"nationality", "country", "nation", "citizenship"}:
        a, b = (_countries(pages[m]) for m in makers)
    elif asked & {"profession", "occupation", "genre", "type", "kind", "job"}:
        a, b = (set(pages[m].definition) for m in makers)
    else:
        a, b = (_named(pages[m], "state" in asked) for m in makers)
    return Verdict(int(bool(a & b)), 0.5 if a and b else 0.1, makers)


def _countries(page: PageStatics) -> set[str]:
    """Countries and nationalities (as countries) of the first sentences, states as America."""
    found: set[str] = set()
    parsed = page.page.parsed
    limit = parsed.bounds[min(1, len(parsed.bounds) - 1)][1] if parsed.bounds else 0
    for i in range(limit):
        for phrase in (parsed.lower[i], " ".join(parsed.lower[i : i + 2])):
            if phrase in US_STATES or phrase in ("america", "u.s.", "usa"):
                found.add("united states")
            elif phrase in COUNTRIES:
                found.add(phrase)
            elif phrase in COUNTRY_OF or phrase in NATIONALITIES:
                found.add(COUNTRY_OF.get(phrase, phrase))
    return found


def _named(page: PageStatics, states: bool) -> set[str]:
    """Names of the first two sentences but the subject's own and countries; or states alone."""
    parsed = page.page.parsed
    limit = parsed.bounds[min(2, len(parsed.bounds) - 1)][1] if parsed.bounds else 0
    own = set(" ".join(page.alias).split())
    names = {
        n
        for s, n in zip(page.page.spans, page.page.norms, strict=True)
        if s.kind in ("name", "part") and s.start < limit and not set(n.split()) <= own
    }
    found = {n for n in names if n in US_STATES}
    return found if states and found else names - COUNTRIES - NATIONALITIES - found


def _predicated(
    question: Question, pages: Sequence[PageStatics], subjects: tuple[int, ...], idf: Idf
) -> Verdict:
    """Whether what is said of the subjects stands in the passage of each of them."""
    titles = {s for i in subjects for s in keywords(pages[i].page.title)}
    wanted = {s for s in question.keywords if s not in titles and s not in _generic_stems()}
    if not wanted or not subjects:
        return Verdict(1, 0.0, subjects)
    shares = []
    for i in subjects:
        held = set(pages[i].page.parsed.stems) | _as_nationality(pages[i])
        shares.append(sum(idf(s) for s in wanted if s in held) / sum(idf(s) for s in wanted))
    least = min(shares)
    return Verdict(int(least >= THRESHOLD), min(abs(least - THRESHOLD), 0.5), subjects)


THRESHOLD = 0.6


def _as_nationality(page: PageStatics) -> set[str]:
    """Nationality stems that the countries of a passage imply ("Ohio" implies "american")."""
    countries = _countries(page)
    return {content_stem(word) for word, country in COUNTRY_OF.items() if country in countries}
