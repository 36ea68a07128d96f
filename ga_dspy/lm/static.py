"""What can be said of a candidate from its passage alone; memoised by the passage's text."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ga_dspy.lm.candidates import KINDS, Page, page
from ga_dspy.lm.lexicon import (
    COUNTRIES,
    FIRST_NAMES,
    GROUP_ENDINGS,
    NATIONALITIES,
    PERSON_TITLES,
    PLACE_ENDINGS,
    US_STATES,
    noun_type,
)
from ga_dspy.lm.text import Span, normalize

TYPES = (
    "", "person", "place", "group", "work", "date", "year", "number", "nationality", "role",
)  # fmt: skip
"""Types a candidate may be guessed to have; its index is the feature."""

NAMES = (
    "kind", "words", "content_words", "capitals", "has_digit", "before", "after", "sentence",
    "place_in_sentence", "in_brackets", "joints", "first_name", "place_name", "noun_of_last",
    "noun_before", "noun_after", "type", "in_title", "comma_place",
)  # fmt: skip
"""Names of the static features, in the order of their columns."""

_BEFORE = {
    word: code
    for code, words in enumerate(
        (
            "in at near on inside", "by", "of", "the", "a an", "and &", "is was are were be",
            ",", "(", "named called titled entitled as nicknamed dubbed", "from", "to",
            "with for", '" “', "starring featuring including like",
        ),
        start=2,
    )
    for word in words.split()
}  # fmt: skip
_JOINTS = frozenset("and in at on for to from with & ,".split())
_COPULAS = frozenset("is was are were".split())
_DEFINITION_ENDS = frozenset(
    ", . ; who which that in by from for on at located based born and founded".split()
)
_PERSON_PRONOUNS = frozenset("he she his her".split())


class PageStatics(NamedTuple):
    """Static features of a passage: one row a candidate, columns as in `NAMES`.

    `definition` holds the stems of what its first sentence says the subject is ("is a ..."),
    `subject_type` the type of the subject, `alias` the normalised forms of the title, `norms` the
    normalised candidates as a set and `types` the guessed type of each candidate.
    """

    page: Page
    rows: tuple[tuple[float, ...], ...]
    definition: frozenset[str]
    subject_type: str
    alias: tuple[str, ...]
    norms: frozenset[str]
    types: tuple[str, ...]


@lru_cache(maxsize=2048)
def page_statics(title: str, text: str) -> PageStatics:
    """Read one passage and describe its candidates."""
    read = page(title, text)
    definition, subject_type = _definition(read)
    depth = _bracket_depth(read)
    types = tuple(
        guess_type(read, span, subject_type if span.kind == "title" else "") for span in read.spans
    )
    rows = tuple(
        _row(read, span, depth, kind) for span, kind in zip(read.spans, types, strict=True)
    )
    return PageStatics(
        read, rows, definition, subject_type, _aliases(title), frozenset(read.norms), types
    )


def _aliases(title: str) -> tuple[str, ...]:
    bare = title.partition(" (")[0]
    forms = (normalize(bare), normalize(bare.partition(",")[0]))
    return tuple(dict.fromkeys(f for f in forms if len(f) > 2))


def _definition(read: Page) -> tuple[frozenset[str], str]:
    """The stems after the first copula, up to the end of the noun phrase, and its type."""
    parsed, start = read.parsed, read.title_tokens
    stop = min(len(parsed.lower), start + 60)
    copula = next((i for i in range(start, stop) if parsed.lower[i] in _COPULAS), -1)
    stems: list[str] = []
    found: list[str] = []
    for i in range(copula + 1, min(copula + 16, len(parsed.lower))) if copula >= 0 else ():
        if parsed.lower[i] in _DEFINITION_ENDS and (found or i > copula + 8):
            if parsed.lower[i] not in (",", "and"):
                break
            continue
        if parsed.stems[i]:
            stems.append(parsed.stems[i])
            found += [kind] if (kind := noun_type(parsed.lower[i])) else []
    head = parsed.lower[start : start + 40]
    if "born" in head or ("person" in found and _PERSON_PRONOUNS & set(parsed.lower)):
        return frozenset(stems), "person"
    return frozenset(stems), found[0] if found else ""


def _bracket_depth(read: Page) -> list[int]:
    depths, depth = [], 0
    for token in read.parsed.tokens:
        depth = max(0, depth + (token.text == "(") - (token.text == ")"))
        depths.append(depth)
    return depths


def guess_type(read: Page, span: Span, known: str = "") -> str:
    """The likeliest type of a candidate by its form alone; "" where the form does not tell."""
    lower = read.parsed.lower[span.start : span.end]
    if known in TYPES and known:
        return known
    if span.kind in ("date", "day", "month"):
        return "date"
    if span.kind == "year":
        return "year"
    if span.kind in ("number", "quantity"):
        return "number"
    if span.kind == "quote":
        return "work"
    if span.kind in ("words", "mixed"):
        kind = noun_type(lower[-1])
        return "role" if kind == "person" else kind
    if span.kind == "list":
        return _guess_name(read, span, lower[-1:])
    return _guess_name(read, span, lower)


def _guess_name(read: Page, span: Span, lower: tuple[str, ...]) -> str:
    joined = " ".join(lower)
    if len(lower) == 1 and joined in NATIONALITIES:
        return "nationality"
    if joined in COUNTRIES or joined in US_STATES or lower[-1] in US_STATES:
        return "place"
    if span.kind == "pair":
        return "place"
    if lower[-1].strip(".") in GROUP_ENDINGS or lower[0] in ("university", "college", "bank"):
        return "group"
    if lower[-1] in PLACE_ENDINGS or lower[0] in ("lake", "mount", "city", "port", "river"):
        return "place"
    before = read.parsed.lower[max(0, span.start - 1) : span.start]
    if lower[0] in FIRST_NAMES and 1 < len(lower) < 5:
        return "person"
    if lower[0] in PERSON_TITLES or (before and before[0] in PERSON_TITLES):
        return "person"
    if before and noun_type(before[0]) == "person" and len(lower) > 1:
        return "person"
    return ""


def _row(read: Page, span: Span, depth: list[int], kind: str) -> tuple[float, ...]:
    parsed = read.parsed
    lower = parsed.lower[span.start : span.end]
    texts = [t.text for t in parsed.tokens[span.start : span.end]]
    first, last = parsed.bounds[parsed.sentence[span.start]]
    joined = " ".join(lower)
    return (
        KINDS.index(span.kind),
        len(lower),
        sum(1 for s in parsed.stems[span.start : span.end] if s),
        sum(t[0].isupper() for t in texts) / len(texts),
        float(any(t[0].isdigit() for t in texts)),
        _context(parsed.lower[span.start - 1]) if span.start > first else 0,
        _context(parsed.lower[span.end]) if span.end < last else 0,
        parsed.sentence[span.start],
        (span.start - first) / max(last - first, 1),
        float(depth[span.start] > 0),
        sum(w in _JOINTS for w in lower),
        float(lower[0] in FIRST_NAMES),
        float(joined in COUNTRIES or joined in US_STATES),
        _type_code(noun_type(lower[-1])),
        _nearest_noun(read, range(span.start - 1, max(first, span.start - 4) - 1, -1)),
        _nearest_noun(read, range(span.end, min(last, span.end + 4))),
        _type_code(kind),
        float(span.start < read.title_tokens),
        float(span.end < last and parsed.lower[span.end] == "," and _is_place(read, span.end + 1)),
    )


def _context(word: str) -> int:
    if word in _BEFORE:
        return _BEFORE[word]
    return 18 if word.endswith("ed") else 19 if word[0].isalpha() else 1


def _type_code(kind: str) -> int:
    return TYPES.index(kind) if kind in TYPES else 0


def _nearest_noun(read: Page, indexes: range) -> int:
    for i in indexes:
        if kind := noun_type(read.parsed.lower[i]):
            return _type_code(kind)
    return 0


def _is_place(read: Page, index: int) -> bool:
    if index >= len(read.parsed.lower):
        return False
    two = " ".join(read.parsed.lower[index : index + 2])
    one = read.parsed.lower[index]
    return any(w in COUNTRIES or w in US_STATES for w in (one, two))
