"""The names of a file with their kinds: titles and their aliases, answers, evidences, works."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from ga_dspy.eval.files import DatasetName
from ga_dspy.eval.renaming.fields import Row, accepted, paragraphs, texts
from ga_dspy.eval.renaming.kinds import kind_of, kind_of_words
from ga_dspy.eval.renaming.lexicon import Lexicon
from ga_dspy.eval.renaming.text import key, runs, tokens
from ga_dspy.eval.renaming.words import CALENDAR, FUNCTION, NUMBERS, STAYING, Kind
from ga_dspy.graph.wording import stated_aliases

_PARENTHESES = re.compile(r"\s*\([^()]*\)\s*\Z")
_SUBJECT = re.compile(r"\A((?:[^\s(,]+ ?){1,8}?)\s*(?:\(|, |is |was |are |were )")
_QUOTED = re.compile(r"[\"“]\s?([A-Z][^\"“”]{2,70}?),?\s?[\"”]|``\s?([A-Z][^`]{2,70}?),?\s?''")
_USED = 4  # times in lower case, from which a word is taken for one of the language
_LONGEST = 9  # words; what is longer is a sentence, not a name
_PERSONS_LONGEST = 3


class Name(NamedTuple):
    """A name as written, its kind, and whether it has a paragraph of its own."""

    text: str
    kind: Kind
    titled: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Its folded words."""
        return key(self.text)


def find_names(rows: Iterable[Row], dataset: DatasetName, lexicon: Lexicon) -> tuple[Name, ...]:
    """All names, one for each key; the kind is of the first that told it, titles before others."""
    rows = list(rows)
    found: dict[tuple[str, ...], Name] = {}
    for name in [
        *_titled(rows, dataset, lexicon),
        *_answers(rows, lexicon),
        *_others(rows, lexicon),
    ]:
        known = found.get(name.key)
        if name.key and (known is None or (known.kind == "other" != name.kind)):
            found[name.key] = name
    return tuple(found[words] for words in sorted(found))


def bare(title: str) -> str:
    """A title without its disambiguator in parentheses.

    >>> bare("Titanic (1997 film)")
    'Titanic'
    """
    return _PARENTHESES.sub("", title) or title


def is_name(text: str) -> bool:
    """Whether a text is written like a name: words that matter are capitalised, no date.

    >>> [is_name(text) for text in ("Gold for the Caesars", "beer and whisky", "4 May 1990", "No")]
    [True, False, False, False]
    """
    there = tokens(text)
    content = [token for token in there if token.folded not in FUNCTION | NUMBERS]
    letters = [token for token in content if not any(c.isdigit() for c in token.text)]
    return (
        0 < len(there) <= _LONGEST
        and any(token.folded not in CALENDAR for token in letters)
        and all(token.capitalised or token.gap.endswith("-") for token in letters)
    )


def _titled(rows: Sequence[Row], dataset: DatasetName, lexicon: Lexicon) -> Iterator[Name]:
    for row in rows:
        for paragraph in paragraphs(row, dataset):
            kind = kind_of(paragraph.title, paragraph.text)
            title = bare(paragraph.title)
            if _is_common_noun(title, paragraph.text, lexicon):
                continue
            plain = title.split(",")[0] if kind in ("person", "place") else title
            yield Name(plain, kind, titled=True)
            yield from _aliases(title, paragraph.text, kind)
        for role, text in texts(row):
            if role == "title" and is_name(bare(text)):
                yield Name(bare(text), kind_of(text, ""))


def _is_common_noun(title: str, text: str, lexicon: Lexicon) -> bool:
    """Whether a title is no name: "Violin", "Black hole".

    A title of one word then stands in its own paragraph in lower case, too; one of several has
    a word in lower case that the file uses elsewhere (foreign titles have lower case of their own).
    """
    there = tokens(title)
    small = [token.folded for token in there if not token.capitalised]
    if any(lexicon.lower[word] >= _USED for word in small if word not in FUNCTION):
        return True
    if len(there) != 1:
        return False
    word = there[0].folded
    return any(t.folded in (word, f"{word}s") and not t.capitalised for t in tokens(text))


def _aliases(title: str, text: str, kind: Kind) -> Iterator[Name]:
    subject = _SUBJECT.match(text)
    if (
        subject
        and kind != "other"
        and is_name(subject.group(1))
        and _share(title, subject.group(1))
    ):
        yield Name(subject.group(1).strip(), kind)
    for _, alias in stated_aliases(text[:400]):
        if is_name(alias):
            yield Name(alias, kind)


def _share(title: str, subject: str) -> bool:
    return bool((set(key(title)) & set(key(subject))) - FUNCTION)


def _answers(rows: Sequence[Row], lexicon: Lexicon) -> Iterator[Name]:
    for row in rows:
        own = accepted(row)
        given = [text for role, text in texts(row) if role == "answer"]
        for text in dict.fromkeys([*own, *given]):
            stripped = bare(text.strip(" \"'“”.,"))
            if is_name(stripped):
                kind = kind_of_words(key(stripped)) or _guessed(stripped, lexicon)
                lone = text in own and _names_in(key(stripped), row)
                yield Name(stripped, kind, titled=lone)


def _names_in(words: tuple[str, ...], row: Row) -> bool:
    """Whether an answer of one common word is a name in its row ("the rock band Rush")."""
    if len(words) != 1:
        return False
    there = [t for role, text in texts(row) if role == "text" for t in tokens(text)]
    found = [token for token in there if token.folded == words[0]]
    return all(token.capitalised for token in found) and any(token.inner for token in found)


def _guessed(text: str, lexicon: Lexicon) -> Kind:
    there = tokens(text)
    proper = [lexicon.proper(token.folded) for token in there]
    plain = all(len(t.folded) == 1 or t.folded not in STAYING for t in there)
    if 2 <= len(there) <= _PERSONS_LONGEST and plain and any(proper):
        return "person"
    return "place" if len(there) == 1 and _leading_hint(there[0].folded, lexicon) else "other"


def _leading_hint(word: str, lexicon: Lexicon) -> bool:
    votes = lexicon.hints.get(word)
    return bool(votes) and votes is not None and votes.most_common(1)[0][0] == "place"


def _others(rows: Sequence[Row], lexicon: Lexicon) -> Iterator[Name]:
    """Names in contexts without a paragraph: quoted works, and people with a common word."""
    answers = {key(answer) for row in rows for answer in accepted(row)}
    for row in rows:
        for role, text in texts(row):
            if role == "text":
                yield from _quoted(text, answers)
                yield from _people(text, lexicon)


def _quoted(text: str, answers: Container[tuple[str, ...]]) -> Iterator[Name]:
    """Quotations of several capitalised words; of one word where it is an answer."""
    for match in _QUOTED.finditer(text):
        quoted = match.group(1) or match.group(2)
        words = key(quoted)
        if is_name(quoted) and (len(words) >= 2 or words in answers):
            yield Name(quoted, "work")


def _people(text: str, lexicon: Lexicon) -> Iterator[Name]:
    """Runs of two or three capitalised words, some proper and some common ("Win Butler")."""
    for run in runs(tokens(text)):
        proper = [lexicon.proper(token.folded) for token in run]
        plain = all(
            p or (t.inner and t.folded not in STAYING) for p, t in zip(proper, run, strict=True)
        )
        if 2 <= len(run) <= _PERSONS_LONGEST and plain and any(proper) and not all(proper):
            yield Name(text[run[0].start : run[-1].end], "person")
