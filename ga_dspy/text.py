"""Text: its cost in tokens, its words and their normal forms, and which names stand in it.

Names are compared in three normal forms. `fold` drops case and accents, and `fold_words`
punctuation too: for finding words in a text. `normalise` also drops articles and possessives, and
joins initials: for telling whether two names are one. The official scores have a third form of
their own, `ga_dspy.eval.normalise`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import dropwhile, pairwise
from typing import Final, Literal, NamedTuple

from rapidfuzz.fuzz import ratio

# --- Tokens

TokenCounter = Callable[[str], int]

_PIECE = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]|_|\n")
_LETTERS_PER_TOKEN = 9
_SCALE = 1.06
"""Scales to cl100k_base: a test holds the mean over Wikipedia paragraphs within 5 %."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, the same on every machine and without a download.

    Words count once (long ones twice or more), digits by threes, each sign once. Pass a counter
    of your own where a budget must be exact for one model.

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


# --- Lists of words, in lower case

ARTICLES: Final = frozenset(("the", "a", "an"))
CONNECTORS: Final = frozenset("of the de la le van von du der and for in at on".split())
"""Small words inside names."""

MONTHS: Final = frozenset(
    "january february march april may june july august september october november december".split()
)
DATE_WORDS: Final = MONTHS | frozenset(
    "jan feb mar apr jun jul aug sep sept oct nov dec bc ad ce bce".split()
)
FUNCTION_WORDS: Final = ARTICLES | frozenset(
    """
    of in on at by for from to with and or as is was are were be been being has have had his her
    its their he she it they that this these those who which s during into after before
    """.split()
)
"""Words that a passage need not repeat to support a phrase."""

STOPWORDS: Final = (FUNCTION_WORDS - {"s"}) | frozenset(
    """
    about all also although another any because both but can could did do does each either ever him
    how however i if itself many may me more most much my name no nor not one only other our out
    over same should so some such than them then there through too under until up us very we what
    when where whether while whom whose why will within would yes you
    """.split()
)
"""Words that say nothing of what a question asks for."""

_NAMES_TOO: Final = frozenset(
    """
    been being ever him i itself me much my nor out same should so them too us very whether whom
    will yes
    """.split()
)
_NUMBERS_AND_TIMES: Final = frozenset(
    """
    early eight few first five four last late later nine seven several since six ten three two upon
    your
    """.split()
)
_OPENING_WORDS: Final = (STOPWORDS - _NAMES_TOO) | MONTHS | _NUMBERS_AND_TIMES
"""Words that are no names by themselves, though a sentence may begin with them."""


# --- Normal forms


def fold(text: str) -> str:
    """Case, accents and compatibility forms removed.

    >>> fold("Čapek’s Ünique")
    'capek’s unique'
    """
    return text.lower() if text.isascii() else _without_accents(text).casefold()


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def fold_words(text: str) -> str:
    """The words of a folded text, with one space between them.

    >>> fold_words("St. Louis, Missouri")
    'st louis missouri'
    """
    return " ".join(_WORD.findall(fold(text).replace("_", " ")))


_LETTERS: Final = str.maketrans(
    dict(zip("øłđæœþðı&", ("o", "l", "d", "ae", "oe", "th", "d", "i", " and "), strict=True))
)
_APOSTROPHE: Final = re.compile(r"[’‘`´ʼ]")
_POSSESSIVE: Final = re.compile(r"(?<=\w)'s\b|'")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_POINT: Final = re.compile(r"(?<!\d)\.|\.(?!\d)|_")
_MARK: Final = re.compile(r"[^\w\s.+#$%@=<>^~×÷°€£]")
_INITIALS: Final = re.compile(r"\b[^\W\d_](?: [^\W\d_]\b)+")
_ARTICLE: Final = re.compile(r"\A(?:the|an?) (?=.)")


@lru_cache(maxsize=65536)
def normalise(name: str) -> str:
    """The form in which two spellings of one name are equal.

    Case, accents, punctuation, a leading article and a possessive do not count; initials are
    written together. A name made of punctuation alone stays as it is.

    >>> normalise("The Beyoncé’s"), normalise("U. S."), normalise("J.K. Rowling")
    ('beyonce', 'us', 'jk rowling')
    """
    text = unicodedata.normalize("NFKC", name).casefold()
    text = _without_accents(text.translate(_LETTERS))
    text = _POSSESSIVE.sub("", _APOSTROPHE.sub("'", text))
    text = _POINT.sub(" ", _THOUSANDS.sub("", text))
    text = " ".join(_MARK.sub(" ", text).split())
    text = _INITIALS.sub(lambda run: run.group().replace(" ", ""), text)
    return _ARTICLE.sub("", text) or " ".join(name.casefold().split())


# --- Words and sentences with their places

_WORD: Final = re.compile(r"\w+")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])|\n+")


class Word(NamedTuple):
    """A word as written and folded, with its place: characters `start` to `end` (exclusive)."""

    text: str
    folded: str
    start: int
    end: int

    @property
    def proper(self) -> bool:
        """Whether the word may be part of a name: it has a capital, or is a number."""
        return not self.text[0].islower()


@lru_cache(maxsize=4096)
def words(text: str) -> tuple[Word, ...]:
    """The words of a text.

    >>> words("Red Lodge")[1]
    Word(text='Lodge', folded='lodge', start=4, end=9)
    """
    return tuple(Word(m[0], fold(m[0]), m.start(), m.end()) for m in _WORD.finditer(text))


def name_words(text: str) -> tuple[Word, ...]:
    """The words of a text, cut at underscores too, as links and file names have them."""
    return words(text.replace("_", " "))


@lru_cache(maxsize=1024)
def sentences(text: str) -> tuple[tuple[int, int], ...]:
    """The sentences of a text as character spans; a line break ends one too."""
    cuts = [0, *(m.end() for m in _SENTENCE_END.finditer(text)), len(text)]
    return tuple((a, a + len(text[a:b].rstrip())) for a, b in pairwise(cuts) if text[a:b].strip())


def places(sought: Sequence[str], there: Sequence[str]) -> list[int]:
    """Where a run of words begins in a list of words.

    >>> places(["a", "b"], ["a", "b", "a", "a", "b"])
    [0, 3]
    """
    size, run = len(sought), list(sought)
    starts = (i for i in range(len(there) - size + 1) if there[i] == run[0]) if run else ()
    return [i for i in starts if list(there[i : i + size]) == run]


def stands_in(phrase: str, text: str) -> bool:
    """Whether a phrase stands in a text as whole words, both in the same normal form.

    >>> stands_in("red lodge", "red lodge is a city"), stands_in("red", "a redwood")
    (True, False)
    """
    return f" {phrase} " in f" {text} "


LONGEST_NAME: Final = 10
"""Names of more words are not looked for."""


def longest_matches(
    starts: Iterable[int], size: int, matches: Callable[[int, int], bool]
) -> Iterator[tuple[int, int]]:
    """Ranges of words that match, left to right: from each start the longest, none overlapping.

    Args:
        starts: Where a match may begin, ascending.
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


# --- Where does a text mention a phrase? Spans are found here and never claimed by an LM.

FUZZY_THRESHOLD = 90.0
FUZZY_LENGTH = 8
MAX_MENTIONS = 20

Rung = Literal["exact", "normalised", "fuzzy"]


class Mention(NamedTuple):
    """Where a phrase stands: characters `start` to `end` (exclusive), and how it was found."""

    start: int
    end: int
    rung: Rung


@lru_cache(maxsize=65536)
def mentions(phrase: str, text: str) -> tuple[Mention, ...]:
    """Every place where a text mentions a phrase, by the first rung that finds any.

    1. exact: the same words in the same order, spelled the same;
    2. normalised: the same words in the same order once folded, whatever the punctuation between
       them, without a leading article;
    3. fuzzy: the window of as many words (one more or fewer) whose spelling is nearest and
       reaches `FUZZY_THRESHOLD` of 100, for phrases of at least `FUZZY_LENGTH` letters; numbers
       in it must be equal. Dates match in any order, and a phrase without a name or number ("her
       father's church") where all its content words stand close together ("the church of her
       father").

    >>> mentions("the red lodge", "Red Lodge is a city.")
    (Mention(start=0, end=9, rung='normalised'),)
    >>> mentions("Billings", "Red Lodge is a city.")
    ()
    """
    sought = [word.folded for word in words(phrase)]
    while len(sought) > 1 and sought[0] in ARTICLES:
        sought = sought[1:]
    if not sought:
        return ()
    there = words(text)
    if found := places(sought, [word.folded for word in there])[:MAX_MENTIONS]:
        spans = [(there[i].start, there[i + len(sought) - 1].end) for i in found]
        return tuple(
            Mention(a, b, "exact" if text[a:b] == phrase else "normalised") for a, b in spans
        )
    loose = _fuzzy(sought, there) or _any_order(phrase, sought, there)
    return (Mention(*loose, "fuzzy"),) if loose else ()


def _fuzzy(sought: list[str], there: tuple[Word, ...]) -> tuple[int, int] | None:
    joined, numbers = " ".join(sought), _numbers(sought)
    if len(joined) < FUZZY_LENGTH:
        return None
    scored = []
    for size in {max(1, len(sought) - 1), len(sought), len(sought) + 1}:
        for i in range(len(there) - size + 1):
            window = [word.folded for word in there[i : i + size]]
            score = ratio(joined, " ".join(window), score_cutoff=FUZZY_THRESHOLD)
            if score and _numbers(window) == numbers:
                scored.append((-score, there[i].start, there[i + size - 1].end))
    return min(scored)[1:] if scored else None


def _numbers(folded: list[str]) -> list[str]:
    return sorted(word for word in folded if any(c.isdigit() for c in word))


def _any_order(phrase: str, sought: list[str], there: tuple[Word, ...]) -> tuple[int, int] | None:
    is_date = all(word.isdigit() or word in DATE_WORDS for word in sought)
    is_name = re.search(r"\b[A-Z0-9]", phrase) is not None
    content = [word for word in sought if word not in FUNCTION_WORDS]
    if len(content) < 2 or (is_name and not is_date):
        return None
    reach = len(content) + (1 if is_date else 4)
    for i in range(len(there)):
        window = there[i : i + reach]
        hits = [next((w for w in window if _same_word(w.folded, c)), None) for c in content]
        if None not in hits and window[0] in hits:
            return min(w.start for w in hits if w), max(w.end for w in hits if w)
    return None


def _same_word(one: str, other: str) -> bool:
    """Whether two folded words are equal, or forms of one word: "sang in church", "churches"."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 4 or short.isdigit() or long.isdigit():
        return False
    return long.startswith(short) or (len(short) >= 6 and short[:5] == long[:5])


def supports_phrase(phrase: str, text: str) -> bool:
    """Does a text carry a descriptive phrase: all its names and numbers, half of its words?

    >>> supports_phrase("sang in church", "After singing in church as a child, she left.")
    True
    >>> supports_phrase("sang in Detroit", "After singing in church as a child, she left.")
    False
    """
    there = {word.folded for word in words(text)}
    content = [word for word in words(phrase) if word.folded not in FUNCTION_WORDS]
    if not content:
        return bool(mentions(phrase, text))
    for word in content[1:] if phrase[:1].isupper() else content:
        if (word.text[0].isupper() or word.text[0].isdigit()) and word.folded not in there:
            return False
    held = sum(any(_same_word(word.folded, other) for other in there) for word in content)
    return 2 * held >= len(content)


# --- Names in text, found by spelling alone: title aliases, first subjects, capitalised runs

_PARENTHESES: Final = re.compile(r"\s*\([^)]*\)")
_LEADING_ARTICLE: Final = re.compile(r"^(?:the|a|an)\s+", re.IGNORECASE)
_SUBJECT: Final = re.compile(
    r"^(?P<subject>[^.,;:(\n]{2,80}?)\s*(?:\(|,|\b(?:is|was|are|were|refers|has|had)\b)"
)
_JOINT: Final = re.compile(r"(?:\s+|[-'’]|\s*&\s*)\Z")
_AFTER_INITIAL: Final = re.compile(r"\.\s*\Z")


def aliases(title: str, text: str) -> frozenset[str]:
    """Names, in the form of `fold_words`, under which other texts may mention a passage.

    The title without what stands in parentheses, the same before its comma, each without its
    article, and the subject of the first sentence where it is capitalised. Lone common words and
    names over ten words are no aliases.

    >>> sorted(aliases("The Mercury (band), London", "Mercury Rising is a band."))
    ['mercury', 'mercury london', 'mercury rising', 'the mercury', 'the mercury london']
    """
    bare = _PARENTHESES.sub("", title).strip()
    names = {bare, bare.split(",")[0].strip()}
    subject = _SUBJECT.match(text)
    if subject and all(word.proper for word in name_words(subject["subject"])[-1:]):
        names.add(subject["subject"].strip())
    names |= {_LEADING_ARTICLE.sub("", name) for name in names}
    return frozenset(folded for folded in map(fold_words, names) if _is_usable(folded))


def _is_usable(folded: str) -> bool:
    count = len(folded.split())
    if count == 1:
        return len(folded) > 1 and folded not in _OPENING_WORDS
    return 1 < count <= LONGEST_NAME


def known_names(text: str, known: Container[str]) -> Iterator[str]:
    """The known names in a text, left to right: the longest match, capitalised.

    A text without any capital letter, as people type queries, may match in lower case.

    Args:
        text: The text.
        known: Names in the form of `fold_words`.
    """
    there = name_words(text)
    folded = [word.folded for word in there]
    relaxed = not any(word.proper and not word.folded[0].isdigit() for word in there)
    starts = (i for i, word in enumerate(there) if relaxed or word.proper)
    for start, end in longest_matches(
        starts, len(there), lambda start, end: " ".join(folded[start:end]) in known
    ):
        yield " ".join(folded[start:end])


def proper_names(text: str) -> frozenset[str]:
    """Folded runs of capitalised words in a text: people, places, works, spelled as names.

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


def _capitalised_runs(text: str) -> Iterator[list[str]]:
    """Runs of capitalised words and numbers, folded, with the small words inside them."""
    run: list[str] = []
    end = 0
    for word in name_words(text):
        gap, end = text[end : word.start], word.end
        initial = bool(run) and len(run[-1]) <= 2 and _AFTER_INITIAL.match(gap)
        if run and not (initial or _JOINT.match(gap)):
            yield run
            run = []
        if word.proper or (run and word.text in CONNECTORS and not run[-1].isdigit()):
            run.append(word.folded)
        elif run:
            yield run
            run = []
    if run:
        yield run
