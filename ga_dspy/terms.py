"""Tokenization: the sentences, words, numbers and dates of a text.

A term is the unit of comparison: a folded word, or a number or date by value. So "1.2 million"
equals "1,200,000", and "20 Oct. 1926" equals "1926-10-20".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from ga_dspy import lexicon

_T = TypeVar("_T")


def cached_short(
    maxsize: int, max_length: int
) -> Callable[[Callable[[str], _T]], Callable[[str], _T]]:
    """Cache a function of one text (LRU), except for texts of more than `max_length` characters.

    Long texts, such as the output of a model that repeats itself, would fill a plain cache.
    """

    def decorate(function: Callable[[str], _T]) -> Callable[[str], _T]:
        cached = lru_cache(maxsize=maxsize)(function)

        @wraps(function)
        def call(text: str) -> _T:
            return cached(text) if len(text) <= max_length else function(text)

        return call

    return decorate


# --- Lists of words, in lower case

ARTICLES: Final = frozenset(("the", "a", "an"))
CONNECTORS: Final = frozenset("of the de la le van von du der and for in at on".split())
"""Small words that occur inside names."""

_MONTHS: Final = (
    "january february march april may june july august september october november december".split()
)
MONTHS: Final = frozenset(_MONTHS)
MONTH_NUMBERS: Final = {
    name[:size]: i for i, name in enumerate(_MONTHS, 1) for size in (3, len(name))
} | {"sept": 9, **lexicon.MONTHS_ABROAD}
"""Month numbers by folded name or abbreviation, in several languages."""
MONTH_NAME: Final = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))
"""A regex for any month name, in lower case."""
FUNCTION_WORDS: Final = lexicon.FUNCTION_WORDS
"""Words of a phrase that a passage need not contain to support it."""

STOPWORDS: Final = (FUNCTION_WORDS - {"s"}) | lexicon.OTHER_STOPWORDS
"""Words without content in a question."""

# --- Forms of a word

_ENDINGS: Final = [pair.split() for pair in lexicon.TABLES["endings"]]


@lru_cache(maxsize=8192)
def other_forms(word: str, *, numbers: bool = False) -> frozenset[str]:
    """Return the other forms of a folded word: abbreviations, irregular forms, other spellings.

    Args:
        word: The word.
        numbers: Include its plural or singular.

    >>> sorted(other_forms("centre", numbers=True)), "corporation" in other_forms("corp")
    (['center', 'centers', 'centres'], True)
    """
    roots = {word, *_plurals(word)} if numbers else {word}
    forms = {form for root in roots for form in (root, *lexicon.FORMS.get(root, ()))}
    forms |= lexicon.COUNTRY_FORMS.get(word, frozenset())
    if not word.isascii():
        forms |= _other_scripts(word)
    elif len(word) > 4:
        stem = word.removesuffix("s")
        for ending, other in (*_ENDINGS, *((b, a) for a, b in _ENDINGS)):
            if stem.endswith(ending):
                forms.add(stem.removesuffix(ending) + other + word[len(stem) :])
    if numbers:
        forms |= {form for each in tuple(forms) for form in _plurals(each)}
    return frozenset(forms - {word})


def _other_scripts(word: str) -> set[str]:
    first = word[0]
    if "가" <= first <= "힣":
        bare = {word.removesuffix(p) for p in lexicon.PARTICLES if len(word) - len(p) > 1}
        return {stem + particle for stem in (word, *bare) for particle in ("", *lexicon.PARTICLES)}
    for letters, prefixes in (("\u05d0\u05ea", lexicon.HEBREW), ("\u0620\u064a", lexicon.ARABIC)):
        if letters[0] <= first <= letters[1]:
            bare = {word.removeprefix(p) for p in prefixes if len(word) - len(p) > 2}
            return {prefix + stem for stem in (word, *bare) for prefix in ("", *prefixes)}
    return set()


def _plurals(word: str) -> Iterator[str]:
    if len(word) < 3 or word.endswith("ss"):
        return
    if word.endswith("ies"):
        yield word[:-3] + "y"
    elif word.endswith("s"):
        yield word[:-1]
        if word.endswith(("xes", "ses", "ches", "shes", "zes")):
            yield word[:-2]
    elif word.endswith("y") and word[-2] not in "aeou":
        yield word[:-1] + "ies"
    else:
        yield word + ("es" if word.endswith(("x", "ch", "sh", "z")) else "s")


# --- Normal forms

_LETTERS: Final = str.maketrans(lexicon.TABLES["letters"])


def fold(text: str) -> str:
    """Remove case, accents and compatibility forms, and write special letters in English.

    >>> fold("Čapek’s Ünique"), fold("Tromsø, Straße")
    ('capek’s unique', 'tromso, strasse')
    """
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS)
    bare = (c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", "".join(bare))


# --- Words and sentences, with their positions

_UNSPACED: Final[str] = lexicon.TABLES["unspaced"]
"""The scripts without spaces between words: Chinese, Japanese, Thai, Lao, Burmese and Khmer."""
_MARKS: Final[str] = lexicon.TABLES["marks"]
UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")
_SIGN: Final = rf"[{_UNSPACED}][{_MARKS}]*"
_WORD: Final = re.compile(rf"{_SIGN}|[^\W{_UNSPACED}]+(?:[{_MARKS}]+[^\W{_UNSPACED}]*)*")


class Word(NamedTuple):
    """A word as written and folded, at the characters `start` to `end` (exclusive)."""

    text: str
    folded: str
    start: int
    end: int

    @property
    def proper(self) -> bool:
        """Return whether the word may be part of a name: it is capitalised, or a number."""
        return not self.text[0].islower()


@lru_cache(maxsize=256)
def words(text: str) -> tuple[Word, ...]:
    """Return the words of a text; in scripts without spaces, its characters.

    >>> words("Red Lodge")[1], len(words("東京都"))
    (Word(text='Lodge', folded='lodge', start=4, end=9), 3)
    """
    return tuple(Word(m[0], fold(m[0]), m.start(), m.end()) for m in _WORD.finditer(text))


def fold_words(text: str) -> str:
    """Return the words of a folded text, with one space between them.

    >>> fold_words("St. Louis, Missouri")
    'st louis missouri'
    """
    return " ".join(word.folded for word in words(fold(text).replace("_", " ")))


_END: Final = re.compile(
    r"[.!?…]+[\"'”’)\]»]*\s+|[。！？｡]+[」』）”’\"]*\s*|[।॥؟۔။។]+[\"'”’)]*\s*|\s*\n\s*"
)
_OPENING_MARKS: Final = "\"'“‘«([¿¡`"
_LAST_WORD: Final = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")


@lru_cache(maxsize=256)
def sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Return the sentences of a text as character spans; a line break ends a sentence too.

    A point after initials or an abbreviation ends one only if a typical opening word follows.

    >>> text = "He met J. K. Rowling of Acme Inc. in Paris. She left."
    >>> [text[a:b] for a, b in sentences(text)]
    ['He met J. K. Rowling of Acme Inc. in Paris.', 'She left.']
    """
    cuts = [0, *(m.end() for m in _END.finditer(text) if _ends_sentence(text, m)), len(text)]
    return tuple((a, a + len(text[a:b].rstrip())) for a, b in pairwise(cuts) if text[a:b].strip())


def _ends_sentence(text: str, end: re.Match[str]) -> bool:
    stop = end[0]
    if "\n" in stop or stop[0] not in ".!?…":
        return True
    following = text[end.end() : end.end() + 30].lstrip(_OPENING_MARKS + " ")
    if not following or following[0].islower() or not following[0].isalnum():
        return not following
    last = _LAST_WORD.search(text, max(0, end.start() - 20), end.start())
    if not stop.startswith(".") or stop.startswith("..") or not last:
        return True
    word = last[0].lower()
    first = _WORD.match(following)
    if word in lexicon.NEVER_LAST:
        return False
    if word.isdecimal() and len(word) < 3 and first and fold(first[0]) in lexicon.MONTHS_ABROAD:
        return False
    initial = (len(word) == 1 or "." in word) and last[0][0].isupper()
    if initial or word in lexicon.SELDOM_LAST:
        begins = STOPWORDS | lexicon.BEGINS
        return first is not None and len(first[0]) > 1 and first[0].lower() in begins
    return True


# --- Terms: words, numbers and dates by value

Key = str | tuple[str, float, str] | tuple[int, int, int]
"""The value of a term: a folded word (initials also end with a point); a number or ordinal as
("n" or "o", value, unit); a date as (year, month, day), where 0 is unstated."""

NEAR, APART, BORDER, WALL = range(4)
"""The gap between two terms: none; a comma, colon or dash; a bracket or semicolon; the end of a
sentence or line. A match of a name crosses no gap that is wider than the name's own."""


class Term(NamedTuple):
    """A word, number or date of a text.

    Attributes:
        text: The term as written.
        start: The position of its first character.
        end: The position after its last character.
        keys: Its values, the main one first: a day is also a date in its year.
        gap: The gap before it: NEAR, APART, BORDER or WALL.
        joint: Whether it follows the previous term without any character between them.
    """

    text: str
    start: int
    end: int
    keys: tuple[Key, ...]
    gap: int = NEAR
    joint: bool = False

    @property
    def proper(self) -> bool:
        """Return whether it may be part of a name: it is capitalised, or a number."""
        return not self.text[0].islower()

    @property
    def is_word(self) -> bool:
        """Return whether it is neither a number nor a date."""
        return isinstance(self.keys[0], str)


_CURRENCIES: Final[dict[str, str]] = lexicon.TABLES["currencies"]
_CURRENCY_WORDS: Final[dict[str, str]] = lexicon.TABLES["currency_words"]
_OWNERS: Final[dict[str, str]] = lexicon.TABLES["owners"]
_SCALES: Final[dict[str, float]] = lexicon.TABLES["scales"]
_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_PAIRS: Final = [f"{tens} {ones}".removesuffix(" zero") for tens in _TENS for ones in _ONES[:10]]
NUMBER_WORDS: Final = {word: value for value, word in enumerate([*_ONES, *_PAIRS])}
"""The values of number words from "zero" to "ninety nine"."""

_IRREGULAR: Final[dict[str, int]] = lexicon.TABLES["ordinals"]
ORDINAL_WORDS: Final = _IRREGULAR | {
    (word[:-1] + "ieth" if word.endswith("y") else word + "th"): value
    for word, value in NUMBER_WORDS.items()
    if " " not in word and value not in (0, 1, 2, 3, 5, 8, 9, 12)
}
_ROMAN: Final = re.compile(r"(?=[IVX]{2})X{0,3}(?:IX|IV|V?I{0,3})")
_ROMAN_DIGITS: Final = {"I": 1, "V": 5, "X": 10, "L": 50}


_PIECE: Final = re.compile(
    r"(?P<initials>(?<![^\W_])[A-ZÀ-Þ]\.(?:\s?[A-ZÀ-Þ]\.)*(?:[A-ZÀ-Þ](?![^\W_]))?"
    r"|(?<![^\W_])[B-HJ-Z](?: [A-Z](?![^\W_]))+)"
    r"|(?P<number>\d|[$£€¥₹]\s?\d|(?<!\w)(?:US|CA?|AU?|NZ|HK)[$£€¥₹]\s?\d)"
    rf"|&|{_SIGN}|[^\W\d_{_UNSPACED}]+(?:[{_MARKS}]+[^\W\d_{_UNSPACED}]*)*"
)
_DATE: Final = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])"
    r"|(?P<one>\d{1,2})([/.])(?P<other>\d{1,2})\5(?P<of>\d{4})(?![\d/])"
    r"|(?P<y>\d{4})\s?[年년](?:\s?(?P<m>\d{1,2})\s?[月월](?:\s?(?P<d>\d{1,2})\s?[日일])?)?"
)
_NUMBER: Final = re.compile(
    rf"""
    (?:(?P<owner>US|CA?|AU?|NZ|HK)?(?P<sign>[$£€¥₹])\s?)?
    (?P<digits>
        \d{{4}}(?=\d{{1,2}}\ (?:{MONTH_NAME})\b)
      | \d{{1,3}}(?:[,'’\u00a0\u202f]\d{{3}})+(?!\d)(?:\.\d+)?
      | (?<!\d,)\d+,\d{{1,2}}(?![\d,])
      | \d+(?:\.\d+)*
      | (?:(?:{"|".join(_TENS)})(?:[ -](?:{"|".join(_ONES[1:10])}))?|{"|".join(_ONES)})\b
    )
    (?:(?P<ordinal>st|nd|rd|th)(?![^\W\d_])|(?P<decade>'?s)(?!\w))?
    (?P<scale>(?:[\s-]?(?:{"|".join(_SCALES)})\b)*)
    (?P<unit>\s?%|[\s-]per\s?cent\b
      |\s(?:(?P<whose>U\.?S\.?|Canadian|American|Australian|New\ Zealand|Hong\ Kong)\s)?
       (?:dollar|euro|pound|yen|rupee)s?\b)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:\.\d{3})+")
"""A number with points between thousands, as many languages write it: "9.200"."""
_NEGATIVE: Final = re.compile(r"(?:\A|[\s(\[:,;])[$£€]?[-−]\Z|\bminus \Z")
_DIVIDES: Final = re.compile(r"[,:—―]|\s–")
_BREAKS: Final = re.compile(r"[()\[\]{};|<>\n!?]")


def terms(text: str) -> list[Term]:
    """Return the terms of a text, in order; "DeToth" is two terms.

    >>> [term.keys[0] for term in terms("DeToth earned $1.2 million by 20 October 1926")]
    ['de', 'toth', 'earned', ('n', 1200000.0, '$'), 'by', (1926, 10, 20)]
    """
    borders = [*(start for start, _ in sentences(text)), len(text)]
    found: list[Term] = []
    end, border = 0, 1
    for start, stop, keys in _pieces(text):
        between = text[end:start]
        joint = not between and end > 0
        gap = NEAR if joint or between == " " else _gap(text, end, start)
        while borders[border] <= start:
            border, gap = border + 1, WALL
        if between in ("-", "–", "/") and gap < BORDER and found:
            keys += _century(found[-1].text, text[start:stop])
        found.append(Term(text[start:stop], start, stop, keys, gap, joint))
        end = stop
    return _with_dates(found, text)


def _century(year: str, short: str) -> tuple[Key, ...]:
    """Return the key of the second year in "1914-18"."""
    if len(year) == 4 and len(short) == 2 and (year + short).isdecimal() and short > year[2:]:
        return (("n", float(year[:2] + short), ""),)
    return ()


def _gap(text: str, end: int, start: int) -> int:
    """Return the gap between a term that ends at `end` and the next, which starts at `start`."""
    between, before = text[end:start], text[max(end - 3, 0) : end]
    if between in ("", "-"):
        return NEAR
    is_stop = between == "." and len(before) == 3 and before.islower() and text[start].isupper()
    if is_stop or _BREAKS.search(between):
        return WALL if is_stop or "\n" in between else BORDER
    return APART if _DIVIDES.search(between) else NEAR


def _pieces(text: str) -> Iterator[tuple[int, int, tuple[Key, ...]]]:
    """Yield start, end and keys of each word, number and numeric date."""
    end = 0
    for piece in _PIECE.finditer(text):
        if piece.start() < end:
            continue
        start, end = piece.span()
        written = piece[0]
        word = fold(written) if written != "&" else "and"
        is_number = piece.lastgroup == "number" or word in NUMBER_WORDS
        if piece.lastgroup == "initials":
            letters = "".join(c for c in word if c.isalnum())
            yield start, end, (letters, f"{letters}.")
        elif is_number and (date := _DATE.match(text, start)):
            end = date.end()
            yield start, end, _numeric_date_keys(date)
        elif is_number and (number := _NUMBER.match(text, start)):
            end = number.end()
            yield start, end, _number_keys(text, number)
        elif word in ORDINAL_WORDS:
            yield start, end, (("o", float(ORDINAL_WORDS[word]), ""), word)
        elif written[1:].islower():
            yield start, end, (word,) if written.isascii() else _spellings(written, word)
        elif _ROMAN.fullmatch(written):
            yield start, end, (("n", float(roman_value(written)), ""), word)
        else:
            yield from _camel_parts(written, word, start)


_UMLAUTS: Final = str.maketrans(lexicon.TABLES["umlauts"])


def _spellings(written: str, word: str) -> tuple[str, ...]:
    """Return a folded word and its spelling without umlauts: "Schön" is also "schoen"."""
    return tuple(dict.fromkeys((word, fold(written.lower().translate(_UMLAUTS)))))


def _camel_parts(written: str, word: str, start: int) -> Iterator[tuple[int, int, tuple[Key, ...]]]:
    """Split a word at each capital that follows a small letter: "DeToth"."""
    if written.isupper() or len(written) == 1:
        is_short = len(word) < 4 and written.isupper() and written not in ("A", "I")
        initials = (f"{word}.",) if is_short else ()
        yield start, start + len(written), (word, *initials)
        return
    cuts = [i for i, (a, b) in enumerate(pairwise(written), 1) if a.islower() and b.isupper()]
    for first, last in pairwise([0, *cuts, len(written)]):
        yield start + first, start + last, (fold(written[first:last]),)


def roman_value(numeral: str) -> int:
    """Return the value of a Roman numeral in capitals."""
    digits = [_ROMAN_DIGITS[letter] for letter in numeral]
    return sum(-a if a < b else a for a, b in zip(digits, [*digits[1:], 0], strict=True))


def _numeric_date_keys(date: re.Match[str]) -> tuple[Key, ...]:
    """Return the keys of a numeric date; "3/5/1950" is 3 May and 5 March."""
    if date["of"]:
        one, other, year = int(date["one"]), int(date["other"]), int(date["of"])
        dates = [(year, m, d) for d, m in ((one, other), (other, one)) if m <= 12]
        return tuple(dict.fromkeys(key for each in dates for key in _date_keys(*each)))
    parts = (date["year"] or date["y"], date["month"] or date["m"], date["day"] or date["d"])
    return _date_keys(*(int(part or 0) for part in parts))


def _date_keys(year: int, month: int, day: int) -> tuple[Key, ...]:
    """Return the keys of a date and of every less exact date that it implies."""
    keys: list[Key] = [(year, month, day)] if month else []
    if year and month and day:
        keys += [(year, month, 0), (0, month, day)]
    if year:
        keys.append(("n", float(year), ""))
    return (*keys, _MONTHS[month - 1]) if 0 < month <= 12 else tuple(keys)


def _number_keys(text: str, number: re.Match[str]) -> tuple[Key, ...]:
    written = number["digits"].lower().replace("-", " ")
    thousands = float(written.replace(".", "")) if _THOUSANDS.fullmatch(written) else None
    more: tuple[Key, ...] = () if thousands is None else (("n", thousands, ""),)
    if number["decade"] or written.count(".") > 1:
        return (fold(number[0]).replace("'", ""), *more)
    figures = re.sub(r",(\d\d?)\Z", r".\1", written)
    value = float(NUMBER_WORDS.get(written, re.sub(r"[^\d.]", "", figures) or 0))
    if number["ordinal"]:
        return (("o", value, ""),)
    for scale in re.findall(r"[a-z]+", number["scale"].lower()):
        value *= _SCALES[scale]
    before = text[max(0, number.start() - 7) : number.start()]
    if _NEGATIVE.search(before) and not before.rstrip(" -−").endswith(tuple("0123456789")):
        value = -value
    value = round(value, 6)
    unit = _unit(number)
    owner = _OWNERS.get((number["owner"] or number["whose"] or "").lower(), "")
    return (*(("n", value, each) for each in dict.fromkeys((owner + unit, unit, ""))), *more)


def _unit(number: re.Match[str]) -> str:
    if number["sign"]:
        return _CURRENCIES[number["sign"]]
    unit = (number["unit"] or "").lower()
    return next((short for word, short in _CURRENCY_WORDS.items() if word in unit), "")


# Dates are matched in a string with one letter per term: D for a possible day, Y for a year, M for
# a month, o for "of", x for any other term; - for a dash or "to", | for a border.
_WRITTEN_DATE: Final = re.compile(r"D(?:-D)?o?M(?!DY)(?:o?Y)?|MD(?:-D(?!o?M))?Y?|M(?:-M)?o?Y")
_UNTIL: Final = frozenset(("to", "until", "till", "through"))


def _with_dates(found: list[Term], text: str) -> list[Term]:
    """Merge the terms of each date in words into one term."""
    if not any(term.keys[0] in MONTH_NUMBERS for term in found):
        return found
    letters, at, end = "", list[int](), 0
    for i, term in enumerate(found):
        is_dashed = not {"-", "–", "—", "‒"}.isdisjoint(text[end : term.start])
        separator = "-" if is_dashed and i else ""
        added = ("|" if term.gap >= BORDER else separator) + _letter(term)
        letters, end = letters + added, term.end
        at += [i] * len(added)
    merged, done = list[Term](), 0
    for first, last, value in _dates(letters, [found[i] for i in at]):
        head, tail = found[at[first]], found[at[last]]
        merged += found[done : at[first]]
        written = text[head.start : tail.end]
        merged.append(head._replace(text=written, end=tail.end, keys=_date_keys(*value)))
        done = at[last] + 1
    return [*merged, *found[done:]]


_IS_PROPER: Final[dict[str, bool]] = lexicon.TABLES["may_be_months"]
"""Whether a month is capitalised, for the months that are other words or names too."""


def _letter(term: Term) -> str:
    key = term.keys[0]
    if isinstance(key, str):
        if key in MONTH_NUMBERS and term.proper == _IS_PROPER.get(key, term.proper):
            return "M"
        if key in ("of", "de", "del"):
            return "o"
        return "-" if key in _UNTIL else "x"
    if term.text.isdigit() and len(term.text) == 4:
        return "Y"
    digits = term.text[:2].rstrip("stndrh")
    return "D" if len(term.text) <= 4 and digits.isdigit() and 0 < int(digits) <= 31 else "x"


def _dates(letters: str, found: list[Term]) -> list[tuple[int, int, tuple[int, int, int]]]:
    """Return first letter, last letter and value of each date; a range shares the year."""
    dates: list[tuple[int, int, tuple[int, int, int]]] = []
    for start, stop in (match.span() for match in _WRITTEN_DATE.finditer(letters)):
        parts = list(zip(letters[start:stop], found[start:stop], strict=True))
        year = next((int(term.text) for letter, term in parts if letter == "Y"), 0)
        months = [MONTH_NUMBERS[str(term.keys[0])] for letter, term in parts if letter == "M"]
        days = [int(term.text[:2].rstrip("stndrh")) for letter, term in parts if letter == "D"]
        values = [(year, month, 0) for month in months]
        if days:
            values = [(year, months[0], day) for day in days]
        if year and dates and letters[dates[-1][1] + 1 : start] == "-":
            first, last, (_, month, day) = dates[-1]
            dates[-1] = dates[-1] if dates[-1][2][0] else (first, last, (year, month, day))
        for i in range(start, stop):
            if letters[i] == "-":
                dates.append((start, i - 1, values[0]))
                start = i + 1
        dates.append((start, stop - 1, values[-1]))
    return dates
