"""The names of a file with their kinds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

from ga_dspy.eval.datasets import (
    DatasetName,
    Row,
    accepted_answers,
    as_list,
    from_hub_row,
    titled,
)
from ga_dspy.eval.renaming.words import (
    CALENDAR,
    FUNCTION,
    GENERIC_ACRONYMS,
    KIND_OF,
    NUMBERS,
    STAYING,
    Kind,
    Token,
    following,
    is_caseless,
    is_foreign,
    is_quoted_or_owner,
    key,
    runs,
    tokens,
)
from ga_dspy.graph import split_qualifier, stated_aliases
from ga_dspy.text import stands_in

# --- Where a row holds text, and in which role; everything else of a row is left alone.

Role = Literal["title", "text", "question", "answer"]

# Wikidata ids name the entities that were renamed; they are emptied.
_EMPTIED: dict[str, Any] = {"entity_ids": "", "evidences_id": [], "answer_id": ""}

# The roles of a field's texts by their key (in a record, or a column of the hub) or their place
# in an entry (of the official lists); None stands for the others.
_Roles = Mapping[str | int | None, Role | None]
_RECORD: _Roles = {
    "title": "title",
    "paragraph_text": "text",
    "question": "question",
    "answer": "answer",
}
_ROLES: dict[str, _Roles] = {
    "question": {None: "question"},
    "answer": {None: "answer"},
    "answer_aliases": {None: "answer"},
    "context": {"title": "title", 0: "title", None: "text"},
    "supporting_facts": {None: "title"},
    "evidences": {"relation": None, 1: None, None: "answer"},
    "paragraphs": _RECORD,
    "question_decomposition": _RECORD,
}


def rewrite_texts(row: Row, rewrite: Callable[[Role, str], str]) -> dict[str, Any]:
    """The row with every text replaced by `rewrite(role, text)`, fields and order kept."""

    def walk(value: Any, roles: _Roles, *path: str | int) -> Any:
        if isinstance(value, str):
            keys = (part for part in path if isinstance(part, str))
            role = roles.get(next(keys, path[1] if len(path) > 1 else None), roles.get(None))
            return rewrite(role, value) if role else value
        if isinstance(value, Mapping):
            return {name: walk(part, roles, *path, name) for name, part in value.items()}
        if isinstance(value, list):
            return [walk(part, roles, *path, place) for place, part in enumerate(value)]
        return value

    return {
        name: _EMPTIED[name] if name in _EMPTIED else walk(value, _ROLES.get(name, {}))
        for name, value in row.items()
    }


def texts(row: Row) -> list[tuple[Role, str]]:
    """Every text of the row with its role, in file order."""
    found: list[tuple[Role, str]] = []

    def collect(role: Role, text: str) -> str:
        found.append((role, text))
        return text

    rewrite_texts(row, collect)
    return found


def texts_of(row: Row, *roles: Role) -> list[str]:
    """The row's texts in these roles."""
    return [text for role, text in texts(row) if role in roles]


class Paragraph(NamedTuple):
    """A paragraph of a row's context; `gold` where the row says that it supports the answer."""

    title: str
    text: str
    gold: bool


def paragraphs(row: Row, dataset: DatasetName) -> tuple[Paragraph, ...]:
    """The row's context; malformed entries, which the loaders count, are passed over."""
    if dataset == "musique":
        return tuple(
            Paragraph(entry["title"], entry["paragraph_text"], entry.get("is_supporting") is True)
            for entry in as_list(row.get("paragraphs"))
            if isinstance(entry, Mapping)
            and isinstance(entry.get("title"), str)
            and isinstance(entry.get("paragraph_text"), str)
        )
    gold = gold_titles(row, dataset)
    return tuple(
        Paragraph(title, "".join(s for s in as_list(text) if isinstance(s, str)), title in gold)
        for title, text in titled(as_list(from_hub_row(row).get("context")))
    )


def gold_titles(row: Row, dataset: DatasetName) -> frozenset[str]:
    """Titles that the row names as its support, in its context or not."""
    if dataset == "musique":
        return frozenset(part.title for part in paragraphs(row, dataset) if part.gold)
    return frozenset(
        title for title, _ in titled(as_list(from_hub_row(row).get("supporting_facts")))
    )


# --- The words of a file, and which of them are proper: the file's own lower case shows it.

_MOSTLY = 8  # capitals for one lower case, from which a word counts as proper
_OFTEN = 2  # times, from which a use is no accident


@dataclass
class Lexicon:
    """Counts over all texts of a file; words are folded.

    Attributes:
        every: All words, in whatever field.
        lower: How often a context has the word in lower case.
        inner: How often a context has it capitalised where no sentence begins.
        named: Capitalised words of titles, questions, answers and evidences.
        acronyms: Acronyms, as capitals without dots.
        nouns: How often a context has the word in lower case behind an article.
        partners: The words beside which it stands in names.
    """

    every: set[str] = field(default_factory=set)
    lower: Counter[str] = field(default_factory=Counter)
    inner: Counter[str] = field(default_factory=Counter)
    named: set[str] = field(default_factory=set)
    acronyms: set[str] = field(default_factory=set)
    nouns: Counter[str] = field(default_factory=Counter)
    partners: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def is_proper(self, word: str) -> bool:
        """Whether a word is a name's wherever it is capitalised."""
        if word in STAYING or len(word) < 2 or any(c.isdigit() for c in word):
            return False
        inner = self.inner[word] or (word in self.named)
        return is_foreign(word) or (bool(inner) and self.lower[word] * _MOSTLY <= inner)

    def stays(self, word: str) -> bool:
        """Whether a word is what names are built with: "University", or here, "Diocese"."""
        is_noun = self.nouns[word] >= _OFTEN and len(self.partners[word]) > _OFTEN
        return word in STAYING or (is_noun and not self.is_proper(word))


def read_lexicon(rows: Sequence[Row]) -> Lexicon:
    """Count the words of all rows."""
    lexicon = Lexicon()
    for row in rows:
        for role, text in texts(row):
            line = tokens(text)
            lexicon.every.update(token.folded for token in line)
            shouted = sum(token.text.isupper() for token in line) * 2 > len(line) > 3
            if role != "text" or not shouted:  # a line in capitals says nothing of its words
                _count(lexicon, role, line)
            if role == "text":
                _count_partners(lexicon, line)
    lexicon.acronyms = {name for name in lexicon.acronyms if not _is_shouted(name, lexicon)}
    return lexicon


def _count(lexicon: Lexicon, role: Role, line: Sequence[Token]) -> None:
    for place, token in enumerate(line):
        if token.acronym:
            if "." not in token.text:
                lexicon.acronyms |= {token.acronym} - GENERIC_ACRONYMS
        elif role != "text" and token.capitalised and (place or role != "question"):
            lexicon.named.add(token.folded)
        elif role == "text" and not token.capitalised and not token.gap.endswith("-"):
            lexicon.lower[token.folded] += 1
            after = following(line, place)
            ends = after is None or after.gap != " " or after.folded in FUNCTION
            if ends and place and line[place - 1].folded in ("a", "an", "the"):
                lexicon.nouns[token.folded] += 1
        elif role == "text" and token.capitalised and _is_own_capital(line, place):
            lexicon.inner[token.folded] += 1


def _is_own_capital(line: Sequence[Token], place: int) -> bool:
    """Whether the capital is the word's own, wherever a sentence begins.

    So it is within a sentence, behind an initial ("J. Smith"), before another capital or "'s",
    and where a single word is quoted.
    """
    token, after = line[place], following(line, place)
    initial = place > 0 and len(line[place - 1].text) == 1 and token.gap == ". "
    followed = after is not None and after.gap == " " and after.text[0].isupper()
    leads = followed and not token.folded.endswith(("ly", "ing", "ed"))
    own = token.inner or initial or leads or is_foreign(token.text)
    return own or is_quoted_or_owner(line, place)


def _count_partners(lexicon: Lexicon, line: Sequence[Token]) -> None:
    for run in runs(line):
        words = [token.folded for token in run]
        last = line.index(run[-1])
        behind = line[last + 1 : last + 3]
        if len(behind) > 1 and behind[0].folded == "of" and behind[1].capitalised:
            lexicon.partners[words[-1]].add(behind[1].folded)
        for one, other in pairwise(words):
            lexicon.partners[one].add(other)
            lexicon.partners[other].add(one)


def _is_shouted(acronym: str, lexicon: Lexicon) -> bool:
    """Whether the capitals are a common or known word in capitals ("THE", "TITANIC")."""
    word = acronym.casefold()
    if word in FUNCTION:
        return acronym != "US"
    return len(acronym) > 2 and (lexicon.inner[word] > 0 or lexicon.lower[word] > 0)


# --- Of what kind a name is, by cheap evidence: its first sentence, its own words.

_BORN = re.compile(
    r"\A[^.]{0,120}?\((?:[^()]*\W)?(?:born|b\.|né?e|died|d\.)\W|\A[^.(]*\([^()]*\d{3,4}\s?[–-]\s"
)
_IS = re.compile(
    r"\b(?:is|was|are|were|refers to)\s+(?:(?:also|both|now)\s+)?(?:an?|the|one of|\w+)\b"
)
_PHRASE_ENDS = re.compile(
    r"\b(?:who|which|that|in|by|from|of|for|with|on|at|and|directed|written|located|situated|based|"
    r"born|starring|released|created|produced|published|known|to|as)\b|[,.;(]"
)


def kind_of(title: str, text: str) -> Kind:
    """The kind of what a paragraph is about.

    >>> kind_of("Titanic (1997 film)", "")
    'work'
    >>> kind_of("Ada Brook", "Ada Brook (born 1950) is an American film director from Ohio.")
    'person'
    """
    if hint := _last_kind(key(split_qualifier(title.strip()).qualifier)):
        return hint
    if _BORN.match(text):
        return "person"
    own = _last_kind(key(title))
    return _kind_by_sentence(text) or (own if own in ("place", "organisation") else None) or "other"


def _kind_by_sentence(text: str) -> Kind | None:
    verb = _IS.search(text[:400])
    if not verb:
        return None
    predicate = text[verb.start() : verb.end() + 120]
    start = verb.end() - verb.start()
    end = _PHRASE_ENDS.search(predicate, start)
    kind = _last_kind(key(predicate[: end.start()] if end else predicate))
    return kind or _last_kind(reversed(key(predicate[: start + 60])))


def _last_kind(words: Iterable[str]) -> Kind | None:
    return next((KIND_OF[word] for word in reversed(tuple(words)) if word in KIND_OF), None)


# --- The names of a file with their kinds: titles and their aliases, answers, evidences, works.

_SUBJECT = re.compile(r"\A((?:[^\s(,]+ ?){1,8}?)\s*(?:\(|, |is |was |are |were )")
_QUOTED = re.compile(r"[\"“]\s?([A-Z][^\"“”]{2,70}?),?\s?[\"”]|``\s?([A-Z][^`]{2,70}?),?\s?''")
_COMMON = 4  # times in lower case, from which a word counts as one of the language
_LONGEST = 9  # words; what is longer is a sentence, not a name
_PERSONS_LONGEST = 3


class Name(NamedTuple):
    """A name as it is spelled, its kind, whether it has a paragraph of its own or answers."""

    text: str
    kind: Kind
    titled: bool = False
    answer: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Its folded words."""
        return key(self.text)


def find_names(rows: Sequence[Row], dataset: DatasetName, lexicon: Lexicon) -> tuple[Name, ...]:
    """All names, one for each key; the kind is the first that is known, titles before others."""
    found: dict[tuple[str, ...], Name] = {}
    sources = _titles(rows, dataset, lexicon), _answers(rows, lexicon), _others(rows, lexicon)
    for name in chain.from_iterable(sources):
        known = found.get(name.key, name)
        kind = known.kind if known.kind != "other" else name.kind
        titled, answer = known.titled or name.titled, known.answer or name.answer
        found[name.key] = Name(known.text, kind, titled, answer)
    return tuple(found[words] for words in sorted(found) if words)


def without_qualifier(title: str) -> str:
    """A title without its disambiguator in parentheses.

    >>> without_qualifier("Titanic (1997 film)")
    'Titanic'
    """
    return split_qualifier(title.strip()).base


def is_name(text: str) -> bool:
    """Whether a text is spelled like a name: words that matter are capitalised, no date.

    >>> [is_name(text) for text in ("Gold for the Caesars", "beer and whisky", "4 May 1990", "No")]
    [True, False, False, False]
    """
    line = tokens(text)
    content = [t for t in line if t.folded not in FUNCTION and t.folded not in NUMBERS]
    letters = [token for token in content if not any(c.isdigit() for c in token.text)]
    return (
        0 < len(line) <= _LONGEST
        and any(token.folded not in CALENDAR for token in letters)
        and all(token.capitalised or token.gap.endswith("-") for token in letters)
    )


def _titles(rows: Sequence[Row], dataset: DatasetName, lexicon: Lexicon) -> Iterator[Name]:
    for row in rows:
        question = "".join(texts_of(row, "question")[:1])
        asked = question if not is_caseless(tokens(question)) else ""
        for paragraph in paragraphs(row, dataset):
            kind = kind_of(paragraph.title, paragraph.text)
            title = without_qualifier(paragraph.title)
            if _is_common_noun(title, f"{paragraph.text}\n{asked}", lexicon):
                continue
            short = title.split(",")[0] if kind in ("person", "place") else title
            yield Name(short, kind, titled=True)
            begun = _SUBJECT.match(paragraph.text)
            subject = begun[1].strip() if begun and kind != "other" else ""
            aliases = [alias for _, alias in stated_aliases(paragraph.text[:400])]
            shared = set(key(subject)) & set(key(title)) - FUNCTION
            yield from (Name(t, kind) for t in [subject] * bool(shared) + aliases if is_name(t))
        for text in texts_of(row, "title"):
            if is_name(without_qualifier(text)):
                yield Name(without_qualifier(text), kind_of(text, ""))


def _is_common_noun(title: str, text: str, lexicon: Lexicon) -> bool:
    """Whether a title is no name: "Violin", "Black hole".

    It then stands in its own paragraph in lower case, too, or has a word in lower case that the
    file uses elsewhere (foreign titles have lower case of their own).
    """
    line = tokens(title)
    if not line:
        return True
    small = {token.folded for token in line if not token.capitalised} - FUNCTION
    if any(lexicon.lower[word] >= _COMMON for word in small):
        return True
    words = tuple(token.folded for token in line)
    return stands_small(words, text) or stands_small((*words[:-1], f"{words[-1]}s"), text)


def stands_small(words: Sequence[str], text: str) -> bool:
    """Whether folded words stand in a text as they are: one after another, in lower case."""
    return stands_in(" ".join(words), as_written(text))


@lru_cache(maxsize=4096)
def as_written(text: str) -> str:
    """The words of a text without what is between them, in the case that they have."""
    return " ".join(t.folded if t.acronym else t.text for t in tokens(text))


def _answers(rows: Sequence[Row], lexicon: Lexicon) -> Iterator[Name]:
    for row in rows:
        accepted = accepted_answers(row)
        for text in dict.fromkeys([*accepted, *texts_of(row, "answer")]):
            name = without_qualifier(text.strip(" \"'“”.,"))
            if is_name(name):
                words = key(name)
                kind = _last_kind(words[-1:]) or _last_kind(words[:1]) or _guess(name, lexicon)
                answers = text in accepted and is_name_in(row, words)
                yield Name(name, kind, titled=answers and len(words) == 1, answer=answers)


def is_name_in(row: Row, words: tuple[str, ...]) -> bool:
    """Whether an answer is a name in its row: capitalised throughout ("the rock band Rush")."""
    found = texts_of(row, "text")
    if any(stands_small(words, text) for text in found):
        return False
    there = [t for text in found for t in tokens(text) if t.folded == words[0]]
    return len(words) > 1 or any(token.inner for token in there)


def _guess(name: str, lexicon: Lexicon) -> Kind:
    words = key(name)
    free = all(len(word) == 1 or word not in STAYING for word in words)
    if 2 <= len(words) <= _PERSONS_LONGEST and free and any(map(lexicon.is_proper, words)):
        return "person"
    return "other"


def _others(rows: Sequence[Row], lexicon: Lexicon) -> Iterator[Name]:
    """Names in contexts without a paragraph: quoted works, and people with a common word.

    A quotation of one word is a work where it is an answer; people are runs of two or three
    capitalised words, some proper and some common ("Win Butler").
    """
    answers = {key(answer) for row in rows for answer in accepted_answers(row)}
    for text in (text for row in rows for text in texts_of(row, "text")):
        for match in _QUOTED.finditer(text):
            quoted = match.group(1) or match.group(2)
            words = key(quoted)
            if is_name(quoted) and (len(words) >= 2 or words in answers):
                yield Name(quoted, "work")
        for run in runs(tokens(text)):
            proper = [lexicon.is_proper(token.folded) for token in run]
            free = all(
                p or (t.inner and not lexicon.stays(t.folded))
                for p, t in zip(proper, run, strict=True)
            )
            if 2 <= len(run) <= _PERSONS_LONGEST and free and any(proper) and not all(proper):
                yield Name(text[run[0].start : run[-1].end], "person")
