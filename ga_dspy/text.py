"""Text: token counts, normalization, escaping, and the names in a text.

Re-exports `ga_dspy.terms` (words, sentences) and `ga_dspy.mentions` (mentions of a phrase).

There are three normal forms. To find words in a text, `fold` removes case and accents, and
`fold_words` also punctuation. To compare names, `normalise` also removes articles and possessives,
and joins initials. The datasets' official scores use `ga_dspy.eval.normalise` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Any, Final

from ga_dspy import lexicon
from ga_dspy.mentions import Mention as Mention
from ga_dspy.mentions import mentions as mentions
from ga_dspy.mentions import supports_phrase as supports_phrase
from ga_dspy.terms import ARTICLES as ARTICLES
from ga_dspy.terms import CONNECTORS as CONNECTORS
from ga_dspy.terms import FUNCTION_WORDS as FUNCTION_WORDS
from ga_dspy.terms import MONTHS as MONTHS
from ga_dspy.terms import STOPWORDS as STOPWORDS
from ga_dspy.terms import Word as Word
from ga_dspy.terms import cached_short as cached_short
from ga_dspy.terms import fold as fold
from ga_dspy.terms import fold_words as fold_words
from ga_dspy.terms import sentences as sentences
from ga_dspy.terms import words as words

# --- Tokens

TokenCounter = Callable[[str], int]

_PIECE = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]|_|\n")
_LETTERS_PER_TOKEN = 9
_SCALE = 1.06
"""Fits the estimate to cl100k_base: a test keeps the mean over Wikipedia paragraphs within 5 %."""


@cached_short(maxsize=2048, max_length=4000)
def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, without a tokenizer to download.

    A word counts once (a long one more often), and so do up to three digits and any other
    character. If a budget must be exact for one model, pass your own counter.

    >>> estimate_tokens("Red Lodge is the county seat of Carbon County.")
    11
    """
    count = 0.0
    for piece in _PIECE.findall(text):
        if piece.isascii() or len(piece) == 1:
            count += 1 + (len(piece) - 1) // _LETTERS_PER_TOKEN
        else:
            count += 0.7 * len(piece)
    return round(count * _SCALE)


# --- Escaping untrusted text for a terminal, XML, Markdown or a spreadsheet

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_FORMULA: Final = re.compile(r"[=+\-@\t\r](?!\d[\d.,]*\Z)")


def visible(text: str) -> str:
    r"""Escape each character that hides or reverses text or controls a terminal.

    >>> print(visible("Red\x1b[2J Lodge \u202e"))
    Red\x1b[2J Lodge \u202e
    """
    return _HIDDEN.sub(lambda c: c[0].encode("unicode_escape").decode(), text)


_ACTIVE: Final = re.compile(
    r"(?<=[!\]<])(?=[\[(:a-zA-Z/!?])|(?<=://)(?=\S)|(?<=www\.)(?=\S)", re.IGNORECASE
)


def defuse_markup(text: str) -> str:
    r"""Break up whatever a page, front end or terminal would render as an image, link or element.

    A front end would fetch an image that a passage names, and leak the data in its address. A
    visible space in the markup prevents that.

    >>> print(defuse_markup("![x](http://evil/?q=1) <img> \x1b[2J"))
    ! [x] (http:// evil/?q=1) < img> \x1b[2J
    """
    return _ACTIVE.sub(" ", visible(text))


def json_text(value: Any, indent: int | None = None) -> str:
    r"""Return JSON for a terminal, with the characters that `visible` escapes as JSON escapes.

    >>> print(json_text({"a": "é\u202e\x9b"}))
    {"a": "é\u202e\u009b"}
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _HIDDEN.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def csv_cell(text: str) -> str:
    """Prefix a text with a quote if a spreadsheet would evaluate it as a formula.

    >>> csv_cell("=1+1"), csv_cell("-5"), csv_cell("Red Lodge")
    ("'=1+1", '-5', 'Red Lodge')
    """
    return f"'{text}" if _FORMULA.match(text) else text


# --- Normal forms


_APOSTROPHE: Final = re.compile(r"[’‘`´ʼ]")
_POSSESSIVE: Final = re.compile(r"(?<=\w)'s\b|'")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_POINT: Final = re.compile(r"(?<!\d)\.|\.(?!\d)|_")
_MARK: Final = re.compile(r"[^\w\s.+#$%@=<>^~×÷°€£]")
_INITIALS: Final = re.compile(r"\b[^\W\d_](?: [^\W\d_]\b)+")
_ARTICLE: Final = re.compile(r"\A(?:the|an?)\s+(?=.)", re.IGNORECASE)


@cached_short(maxsize=16384, max_length=200)
def normalise(name: str) -> str:
    """Return the normal form of a name, which is equal for different spellings.

    It removes case, accents, punctuation, a leading article and possessives, and joins initials. A
    name that consists of punctuation is kept.

    >>> normalise("The Beyoncé’s"), normalise("U. S."), normalise("J.K. Rowling")
    ('beyonce', 'us', 'jk rowling')
    """
    text = fold(name).replace("&", " and ")
    text = _POSSESSIVE.sub("", _APOSTROPHE.sub("'", text))
    text = _POINT.sub(" ", _THOUSANDS.sub("", text))
    text = " ".join(_MARK.sub(" ", text).split())
    text = _INITIALS.sub(lambda run: run.group().replace(" ", ""), text)
    return _ARTICLE.sub("", text) or " ".join(name.casefold().split())


# --- Words and their positions


def name_words(text: str) -> tuple[Word, ...]:
    """Return the words of a text, also split at underscores, as in links and file names."""
    return words(text.replace("_", " "))


def places(sought: Sequence[str], there: Sequence[str]) -> list[int]:
    """Return the positions where a run of words begins in a list of words.

    >>> places(["a", "b"], ["a", "b", "a", "a", "b"])
    [0, 3]
    """
    size, run = len(sought), list(sought)
    starts = (i for i in range(len(there) - size + 1) if there[i] == run[0]) if run else ()
    return [i for i in starts if list(there[i : i + size]) == run]


def stands_in(phrase: str, text: str) -> bool:
    """Return whether a text contains a phrase as whole words, both in the same normal form.

    >>> stands_in("red lodge", "red lodge is a city"), stands_in("red", "a redwood")
    (True, False)
    """
    return f" {phrase} " in f" {text} "


LONGEST_NAME: Final = 10
"""Longer names are not searched for."""


def longest_matches(
    starts: Iterable[int], size: int, matches: Callable[[int, int], bool]
) -> Iterator[tuple[int, int]]:
    """Yield the longest matching range of words from each start, without overlap.

    Args:
        starts: Possible starts of a match, ascending.
        size: The number of words.
        matches: Whether the words from a start to an end (exclusive) match.
    """
    free = 0
    for start in starts:
        ends = range(min(start + LONGEST_NAME, size), start, -1)
        end = next((end for end in ends if start >= free and matches(start, end)), None)
        if end:
            yield start, end
            free = end


# --- Names found by spelling alone: title aliases, first subjects, capitalised runs

_OPENING_WORDS: Final = (STOPWORDS - lexicon.NAMES_TOO) | MONTHS | lexicon.NUMBERS_AND_TIMES
"""Words that begin sentences but are not names by themselves."""
_SUBJECT: Final = re.compile(
    r"^(?P<subject>[^.,;:(\n]{2,80}?)\s*(?:\(|,|\b(?:is|was|are|were|refers|has|had)\b)"
)
_JOINT: Final = re.compile(r"(?:\s+|[-'’]|\s*&\s*)\Z")


def aliases(title: str, text: str) -> frozenset[str]:
    """Return the folded names under which other texts may mention a passage.

    They are the title without parentheses, with and without the part after its comma, each with and
    without its article; and the subject of the first sentence if it is capitalised. Single common
    words and names of more than ten words are excluded.

    >>> sorted(aliases("The Mercury (band), London", "Mercury Rising is a band."))
    ['mercury', 'mercury london', 'mercury rising', 'the mercury', 'the mercury london']
    """
    bare = re.sub(r"\s*\([^)]*\)", "", title).strip()
    names = {bare, bare.split(",")[0].strip()}
    subject = _SUBJECT.match(text)
    if subject and all(word.proper for word in name_words(subject["subject"])[-1:]):
        names.add(subject["subject"].strip())
    names |= {_ARTICLE.sub("", name) for name in names}
    return frozenset(folded for folded in map(fold_words, names) if _is_usable(folded))


def _is_usable(folded: str) -> bool:
    count = len(folded.split())
    if count == 1:
        return len(folded) > 1 and folded not in _OPENING_WORDS
    return 1 < count <= LONGEST_NAME


def proper_names(text: str) -> frozenset[str]:
    """Return the folded runs of capitalised words in a text, such as people, places and works.

    >>> sorted(proper_names("In 1904 the Duke of York met H. G. Wells near the Thames."))
    ['duke of york', 'h g wells', 'thames']
    """
    found = set()
    for run in _capitalised_runs(text):
        parts = list(dropwhile((_OPENING_WORDS | CONNECTORS).__contains__, run))
        while parts and parts[-1] in CONNECTORS:
            parts.pop()
        if len(parts) > 1 or (parts and len(parts[0]) > 2 and not parts[0].isdigit()):
            found.add(" ".join(parts))
    return frozenset(found)


def _capitalised_runs(text: str) -> list[list[str]]:
    """Return the folded runs of capitalised words and numbers, with the connectors inside them."""
    runs, end = list[list[str]]([[]]), 0
    for word in name_words(text):
        run, gap, end = runs[-1], text[end : word.start], word.end
        is_initial = bool(run) and len(run[-1]) <= 2 and re.fullmatch(r"\.\s*", gap)
        if not (is_initial or _JOINT.match(gap)):
            run = []
            runs.append(run)
        if word.proper or (run and word.text in CONNECTORS and not run[-1].isdigit()):
            run.append(word.folded)
        else:
            runs.append([])
    return list(filter(None, runs))
