"""Renamed copies of datasets, on which a strong LM can answer only by reading.

Every name of a file (people, places, works, organisations) becomes an invented one of its kind,
the same wherever it occurs: in contexts and titles, questions, answers and aliases, supporting
facts, question decompositions and evidences. The work is done on words, so that relations
survive: father and son keep sharing a surname, "University of Kansas" and "Kansas City" a word,
"Austria" and "Austrian" a stem.

1. A word is proper if the file hardly ever has it in lower case. It is replaced wherever it is
   capitalised, and in a question typed without capitals.
2. A common word is replaced where it stands in a name of the file ("The Velvet Harbour"), and
   wherever else a capital is its own; at the beginning of a sentence it may be just a word.
3. Everything else stays: structure ("University of", "Lake", "Sir"), numbers, dates, months, yes
   and no, disambiguators, ids. Names of nothing but structure ("Supreme Court") stay, too, unless
   they are titles or answers ("Green Bay"). Wikidata ids, which would show who is meant, are
   emptied.

Where an answer could not be read from its paragraphs any more, its words are kept. The report says
what the copy is worth; it lists the questions on whose way from the question through the gold
paragraphs a mention got lost.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import DamagedFile, InputError, listed
from ga_dspy.eval import datasets
from ga_dspy.eval import renaming_words as w
from ga_dspy.eval.datasets import DatasetName, Row
from ga_dspy.eval.protocol import file_digest
from ga_dspy.eval.renaming_words import Kind, Shape, Token, key, tokens
from ga_dspy.eval.scores import normalise
from ga_dspy.graph import split_qualifier, stated_aliases
from ga_dspy.storage import write_whole
from ga_dspy.text import csv_cell, stands_in

# --- Where a row holds text; everything else of a row is left alone.

_CONTEXT: Final = ("context", "paragraphs")
_SHORT: Final = (
    "answer", "answer_aliases", "supporting_facts", "evidences", "question_decomposition",
)  # fmt: skip
# Wikidata ids name the entities that were renamed.
_EMPTIED: Final[dict[str, Any]] = {"entity_ids": "", "evidences_id": [], "answer_id": ""}


def _rewrite(value: Any, change: Callable[[str, bool], str], *, asks: bool = False) -> Any:
    """The value with each of its texts replaced by `change(text, is a question)`."""
    if isinstance(value, str):
        return change(value, asks)
    if isinstance(value, Mapping):
        return {at: _rewrite(part, change, asks=at == "question") for at, part in value.items()}
    return [_rewrite(part, change) for part in value] if isinstance(value, list) else value


def _texts(row: Row, fields: Iterable[str]) -> list[str]:
    """Every text of these fields of a row."""
    found: list[str] = []

    def collect(text: str, asks: bool) -> str:
        found.append(text)
        return text

    _rewrite([row.get(name) for name in fields], collect)
    return found


class Question(NamedTuple):
    """A row as far as names are looked for and checked.

    Attributes:
        id: The row's, or its position.
        text: The question.
        answers: All accepted ones.
        paragraphs: Titles with their texts.
        gold: Places of the paragraphs that support the answer; none where one is missing.
        small: Words that the paragraphs have in lower case.
        named: Words that they have capitalised.
        subjects: The words of each title and answer.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    paragraphs: tuple[tuple[str, str], ...]
    gold: tuple[int, ...]
    small: frozenset[str]
    named: frozenset[str]
    subjects: frozenset[tuple[str, ...]]


def _read(rows: Sequence[Row], dataset: DatasetName) -> list[Question]:
    questions = []
    for row in rows:
        fields = datasets.question_fields(dataset, datasets.from_hub_row(row))
        paragraphs = tuple((title, " ".join(parts)) for title, parts in fields["paragraphs"])
        titles, wanted = [title for title, _ in paragraphs], set(fields["gold_titles"])
        complete = wanted.issubset(titles)
        gold = tuple(at for at, title in enumerate(titles) if complete and title in wanted)
        line = [token for paragraph in paragraphs for text in paragraph for token in tokens(text)]
        named = frozenset(token.folded for token in line if token.capitalised)
        small = frozenset(token.folded for token in line if not token.capitalised)
        bases = (split_qualifier(text).base for text in (*titles, *fields["answers"]))
        own = fields["id"], fields["question"], fields["answers"], paragraphs
        questions.append(Question(*own, gold, small, named, frozenset(map(key, bases))))
    return questions


_NOWHERE: Final = Question("", "", (), (), (), frozenset(), frozenset(), frozenset())


# --- The words of a file, and which of them are proper: the file's own lower case shows it.

_MOSTLY: Final = 8  # capitals for one lower case, from which a word counts as proper


class Lexicon(NamedTuple):
    """The words of a file, folded.

    Attributes:
        every: All words, in whatever field.
        lower: How often a context has the word in lower case.
        inner: How often a context has it with a capital of its own; what only titles, questions
            and answers have counts once.
        proper: Words that are a name's wherever they are capitalised.
        acronyms: Those of them that are acronyms.
    """

    every: frozenset[str]
    lower: Counter[str]
    inner: Counter[str]
    proper: frozenset[str]
    acronyms: frozenset[str]


def read_lexicon(rows: Sequence[Row], questions: Sequence[Question]) -> Lexicon:
    """Count the words of all rows."""
    lower, inner = Counter[str](), Counter[str]()
    named = set[str]()
    for question in questions:
        for title, text in question.paragraphs:
            line = tokens(text)
            lower.update(t.folded for t in line if not t.capitalised and t.gap[-1:] != "-")
            inner.update(t.folded for t in line if t.capitalised and t.owns_capital)
            named.update(t.folded for t in tokens(title) if t.capitalised)
        named.update(t.folded for t in tokens(question.text)[1:] if t.capitalised)
    for row in rows:
        names = filter(is_name, _texts(row, _SHORT))
        named.update(t.folded for text in names for t in tokens(text) if t.capitalised)
    inner.update(named - inner.keys())
    fields = ("question", *_SHORT, *_CONTEXT)
    found = [token for row in rows for text in _texts(row, fields) for token in tokens(text)]
    every = frozenset(token.folded for token in found)
    # A common word in capitals ("THE") is no acronym.
    short = {token.folded for token in found if token.is_acronym and not lower[token.folded]}
    acronyms = frozenset(short - w.STAYING)
    proper = (
        word
        for word in every - w.STAYING
        if w.is_foreign(word) or (word.isalpha() and 0 < inner[word] >= lower[word] * _MOSTLY)
    )
    return Lexicon(every, lower, inner, acronyms.union(proper), acronyms)


# --- The names of a file with their kinds: titles, what else they are called, answers, works.

_BORN = re.compile(
    r"\A[^.]{0,120}?\((?:[^()]*\W)?(?:born|b\.|né?e|died|d\.)\W|\A[^.(]*\([^()]*\d{3,4}\s?[–-]\s"
)
_IS = re.compile(
    r"\b(?:is|was|are|were|refers to) (.{3,120}?)(?:[,.;(]|\b(?:who|which|that|in|by|from|for|with"
    r"|on|at|and|directed|written|located|based|starring|released|created|produced|known|to|as)\b|\Z)"
)
_SUBJECT = re.compile(r"\A((?:[^\s(,]+ ?){1,8}?)\s*(?:\(|, |is |was |are |were )")
_QUOTED = re.compile(r"[\"“]\s?([A-Z][^\"“”]{2,70}?),?\s?[\"”]|``\s?([A-Z][^`]{2,70}?),?\s?''")
_LONGEST: Final = 9  # words; what is longer is a sentence, not a name


class Name(NamedTuple):
    """A name as it is spelled, its kind, and whether it is a title or an answer."""

    text: str
    kind: Kind
    chief: bool = False


def kind_of(title: str, text: str) -> Kind:
    """The kind of what a paragraph is about, by its title and its first sentence.

    >>> kind_of("Titanic (1997 film)", "")
    'work'
    >>> kind_of("Ada Brook", "Ada Brook (born 1950) is an American film director from Ohio.")
    'person'
    """
    base, qualifier = split_qualifier(title)
    stated = _IS.search(text[:400])
    return (
        _last_kind(qualifier)
        or ("person" if _BORN.match(text) else None)
        or _last_kind(stated[1] if stated else "")
        or _last_kind(base)
        or "other"
    )


def _last_kind(text: str) -> Kind | None:
    return next((w.KIND_OF[word] for word in reversed(key(text)) if word in w.KIND_OF), None)


def find_names(rows: Sequence[Row], questions: Sequence[Question]) -> tuple[Name, ...]:
    """All names, one for each key: with the fewest capitals, of the first kind that is known."""
    found: dict[tuple[str, ...], Name] = {}
    for name in _proposals(rows, questions):
        words = key(name.text)
        known = found.get(words, name)
        text = min(known.text, name.text, key=lambda text: (_capitals(text), text))
        kind = known.kind if known.kind != "other" else name.kind
        found[words] = Name(text, kind, known.chief or name.chief)
    return tuple(found[words] for words in sorted(found) if words)


def _capitals(text: str) -> int:
    return sum(token.capitalised for token in tokens(text))


def _proposals(rows: Sequence[Row], questions: Sequence[Question]) -> Iterator[Name]:
    yield from (Name(f"United {form}", "place", chief=True) for form in ("States", "Kingdom"))
    answers = {key(answer) for question in questions for answer in question.answers}
    for row, question in zip(rows, questions, strict=True):
        for title, text in question.paragraphs:
            for quoted in ("".join(pair) for pair in _QUOTED.findall(text)):
                if is_name(quoted) and (len(key(quoted)) > 1 or key(quoted) in answers):
                    yield Name(quoted, "work")
            kind, base = kind_of(title, text), split_qualifier(title).base
            if _is_common_noun(base, question, text):
                continue
            yield Name(base.split(",")[0] if kind in ("person", "place") else base, kind, True)
            subject = _SUBJECT.match(text)
            aliases = [alias for _, alias in stated_aliases(text[:400])]
            if subject and set(key(subject[1])) & set(key(base)) - w.FUNCTION:
                aliases.append(subject[1].strip())
            yield from (Name(alias, kind) for alias in aliases if is_name(alias))
        for text in _texts(row, _SHORT):
            name = split_qualifier(text.strip(" \"'“”.,")).base
            if is_name(name) and not _is_small_in(question, key(name)):
                answers_it = text in question.answers and _is_name_in(question, name)
                yield Name(name, _last_kind(name) or "other", answers_it)


def is_name(text: str) -> bool:
    """Whether a text is spelled like a name: words that matter are capitalised, no date.

    >>> [is_name(text) for text in ("Gold for the Caesars", "beer and whisky", "4 May 1990", "No")]
    [True, False, False, False]
    """
    line = [t for t in tokens(text) if t.folded not in w.FUNCTION and not re.search(r"\d", t.text)]
    telling = [token for token in line if token.folded not in w.COUNTED]
    return len(line) <= _LONGEST and 0 < len(telling) == sum(
        token.capitalised or token.gap[-1:] == "-" for token in telling
    )


def _is_common_noun(title: str, question: Question, text: str) -> bool:
    """Whether a title is no name: it, its paragraph or the question has no capital ("Violin")."""
    words = " ".join(key(title))
    there = f"{text}\n{question.text}" if _capitals(question.text) > 1 else text
    return not _capitals(title) or any(
        stands_in(form, _spelled(there)) for form in (words, f"{words}s")
    )


def _is_name_in(question: Question, answer: str) -> bool:
    """Whether an answer is a name in its paragraphs: nowhere in lower case."""
    words, texts = key(answer), [text for _, text in question.paragraphs]
    there = (t for text in texts for t in tokens(text) if t.folded == words[0])
    is_capitalised = len(words) > 1 or any(t.capitalised and t.owns_capital for t in there)
    return is_capitalised and not _is_small_in(question, words)


def _is_small_in(question: Question, words: Sequence[str]) -> bool:
    """Whether a paragraph has these words one after another, in lower case."""
    return any(stands_in(" ".join(words), _spelled(text)) for _, text in question.paragraphs)


@lru_cache(maxsize=4096)
def _spelled(text: str) -> str:
    """The words of a text in the case that they have, without what is between them."""
    return " ".join(token.text for token in tokens(text))


# --- What is replaced by what: words everywhere, and common words where they are names.


class Phrase(NamedTuple):
    """A name with common words in it, the places of those to replace, and its capitals."""

    words: tuple[str, ...]
    targets: tuple[int, ...]
    capitals: int


class Plan(NamedTuple):
    """All decisions about one file.

    Attributes:
        lexicon: The words of the file.
        new: Invented words by old word, folded.
        shapes: What each invented word is shaped like.
        letters: The letters that stand for initials.
        common: Common words that stand in names: replaced wherever a capital is their own.
        phrases: The names in which they and other words are replaced, by their first word.
    """

    lexicon: Lexicon
    new: Mapping[str, str]
    shapes: Mapping[str, Shape]
    letters: Mapping[str, str]
    common: frozenset[str]
    phrases: Mapping[str, Sequence[Phrase]]


def make_plan(names: Sequence[Name], lexicon: Lexicon, seed: int, kept: Collection[str]) -> Plan:
    """Decide what to replace; `kept` are folded words to leave alone."""
    lexicon = lexicon._replace(proper=lexicon.proper.difference(kept))
    common, phrases = set[str](), defaultdict[str, list[Phrase]](list)
    shapes: dict[str, Shape] = {}
    for name in names:
        words = key(name.text)
        targets = tuple(at for at in _targets(words, name) if words[at] not in kept)
        capitals = 1 if lexicon.proper.intersection(words) else min(2, _capitals(name.text))
        phrases[words[0]].append(Phrase(words, targets, capitals))
        common.update(words[at] for at in targets if words[at] not in w.STAYING)
        for at in targets:
            given: Shape = "given" if at == 0 and len(targets) > 1 else "surname"
            shapes.setdefault(words[at], given if name.kind == "person" else name.kind)
    for word in lexicon.proper:
        shapes[word] = "acronym" if word in lexicon.acronyms else shapes.get(word, "other")
    new = w.invent(shapes, seed, lexicon.every)
    return Plan(lexicon, new, shapes, w.alphabet(seed), frozenset(common), dict(phrases))


def _targets(words: Sequence[str], name: Name) -> list[int]:
    """The places of what is replaced in a name: all but structure.

    Where a title or an answer is all structure, its head alone stays.
    """
    content = [at for at, word in enumerate(words) if word.isalpha() and word not in w.UNCHANGING]
    structure = w.KIND_OF.keys() | w.KEPT if name.kind == "work" else w.STAYING
    free = [at for at in content if words[at] not in structure]
    return free or (content[:-1] or content if name.chief else [])


# --- Applying a plan to one text.

_WELL_KNOWN: Final = 3  # capitals, from which a word is no slip of another


def _meant(text: str, question: Question, lexicon: Lexicon, *, asks: bool) -> list[Token]:
    """The words of a text as its row means them.

    Where a line has no capital but the first, its case says nothing: what the paragraphs do not
    have in lower case counts as capitalised. A misspelt word of a question is taken for the
    nearest of its paragraphs.
    """
    line = tokens(text)
    loose = not any(token.capitalised for token in line[1:])
    found = []
    for token in line:
        word = token.folded
        capital = token.capitalised or (loose and word not in question.small)
        if asks and capital and lexicon.inner[word] < _WELL_KNOWN and word not in w.STAYING:
            known = word in question.named or word in question.small
            word = word if known else w.nearest(word, sorted(question.named))
        found.append(token._replace(folded=word, capitalised=capital))
    return found


def rename_row(row: Row, question: Question, plan: Plan) -> dict[str, Any]:
    """The row with all its texts renamed; keys and order are kept."""
    fields = {name: row[name] for name in ("question", *_SHORT, *_CONTEXT) if name in row}
    emptied = {name: empty for name, empty in _EMPTIED.items() if name in row}
    new = _rewrite(fields, lambda text, asks: rename_text(text, plan, question, asks=asks))
    return {**row, **new, **emptied}


def rename_text(text: str, plan: Plan, question: Question = _NOWHERE, *, asks: bool = False) -> str:
    """The text with every name in it replaced."""
    line = _meant(text, question, plan.lexicon, asks=asks)
    hits = _hits(line, plan, question, asks=asks)
    new: list[str] = []
    for at, token in reversed(list(enumerate(line))):
        word, dotted = token.folded, "." in token.text
        is_acronym = plan.shapes.get(word) == "acronym"
        is_initial = len(word) == 1 and token.capitalised and token.behind[:1] == "."
        leads = at + 1 < len(line) and new[-1] != line[at + 1].text
        replaced = at in hits or (
            token.capitalised
            and (word in plan.lexicon.proper or (word in plan.common and token.owns_capital))
        )
        if (dotted and not is_acronym) or (is_initial and leads):
            kept = word.upper() in w.GENERIC_ACRONYMS
            new.append(token.text if kept else "".join(plan.letters.get(c, c) for c in token.text))
        elif replaced:
            invented = ".".join(plan.new[word]) if dotted else plan.new[word]
            invented += "." * token.text.endswith(".")
            new.append(w.match_case(invented, token.text))
        else:
            new.append(token.text)
    parts, end = list[str](), 0
    for token, word in zip(line, reversed(new), strict=True):
        parts += [text[end : token.start], word]
        end = token.start + len(token.text)
    return "".join([*parts, text[end:]])


def _hits(line: Sequence[Token], plan: Plan, question: Question, *, asks: bool) -> set[int]:
    """The places that phrases replace: capitalised, or in a question whose row has none small.

    One word is the whole text, or a title or an answer of the row.
    """
    found = set[int]()
    for start, token in enumerate(line):
        for words, targets, capitals in plan.phrases.get(token.folded, ()):
            window = line[start : start + len(words)]
            if tuple(t.folded for t in window) == words:
                shown = sum(t.capitalised or t.gap == "-" for t in window)
                whole = len(line) == len(words)
                named = shown >= (1 if whole else capitals) or (
                    asks and not _is_small_in(question, words)
                )
                own = words in question.subjects and (start == 0 or token.owns_capital)
                if named and (len(words) > 1 or whole or own):
                    found.update(start + at for at in targets)
    return found


# --- Rows: plan, replace, check, and keep what would get lost.

_REPAIRS: Final = 4  # plans that are made before lost answers are an error


class Renaming(NamedTuple):
    """One name or word: as it was, as it is, and of what kind.

    Kinds of names are person, place, organisation, work and other; single words have "given",
    "surname" or one of these as their shape, acronyms "acronym".
    """

    old: str
    new: str
    kind: str


class RenameReport(BaseModel):
    """What a renamed copy is worth; nothing in it is text of a row.

    Attributes:
        dataset: Whose layout the rows have.
        seed: What the invented names were drawn with.
        questions: Number of rows.
        renamed: Number of names renamed, by kind, and of different words in them.
        derivable_in_source: Share of questions with an accepted answer that is yes or no or
            stands in the paragraphs to read, from 0 to 1.
        derivable_in_copy: The same in the copy.
        followed_in_source: Share of questions that have all their gold paragraphs, and of which
            a gold title has a word, no structure, that the question or another gold paragraph
            mentions, from 0 to 1.
        followed_in_copy: The same in the copy, with every mention that the source has.
        lost: Ids of the questions of which the copy has a mention less.
        unchanged_answers: Gold answers that stayed as they are, by reason.
        leaks: Rows whose question or context still has a renamed name of several words, or a
            renamed surname, spelled as in the source.
        kept_words: Words left alone because an answer would have got lost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetName
    seed: int
    questions: int
    renamed: dict[str, int]
    derivable_in_source: float
    derivable_in_copy: float
    followed_in_source: float | None = None
    followed_in_copy: float | None = None
    lost: tuple[str, ...] = ()
    unchanged_answers: dict[str, int]
    leaks: int
    kept_words: int


class Renamed(NamedTuple):
    """The copy's rows, in the source's order, what was replaced, and the report."""

    rows: list[dict[str, Any]]
    mapping: tuple[Renaming, ...]
    report: RenameReport


def rename_rows(rows: Sequence[Row], dataset: DatasetName, seed: int) -> Renamed:
    """Replace the names in all rows, consistently, by invented ones.

    Args:
        rows: Rows in the official layout or the hub's; they are left as they are.
        dataset: Whose layout the rows have.
        seed: Decides the invented names; the same rows and seed give the same copy.

    Raises:
        InputError: no row has a context, or an answer that the source holds is not held by the
            copy.
    """
    questions = _read(rows, dataset)
    if not any(question.paragraphs for question in questions):
        raise InputError(
            f"no row of this {dataset} file has a context",
            expected="questions with paragraphs from which the new names can be read",
            remedy="rename a file of another dataset; Bamboogle has no paragraphs of its own",
        )
    lexicon = read_lexicon(rows, questions)
    names = find_names(rows, questions)
    kept: set[str] = set()
    for _ in range(_REPAIRS):
        plan = make_plan(names, lexicon, seed, kept)
        copies = [rename_row(*pair, plan) for pair in zip(rows, questions, strict=True)]
        pairs = list(zip(questions, _read(copies, dataset), strict=True))
        lost = {old.id: gone for old, new in pairs if (gone := _lost_answers(old, new))}
        if not lost:
            break
        # Common words are left alone ("tails", in "Lost Tails"); all where these are already.
        words = {word for answers in lost.values() for answer in answers for word in key(answer)}
        kept |= (words - plan.lexicon.proper - kept) or words
    else:
        raise InputError(
            f"the answers of {len(lost)} questions cannot be read from their paragraphs any more "
            f"({listed(lost, 10)})",
            expected="every answer that the source holds to be held by the copy",
            remedy="leave these questions out, or use another seed",
        )
    changed = [(name, new) for name in names if (new := rename_text(name.text, plan)) != name.text]
    kinds = Counter(name.kind for name, _ in changed)
    ways = [_ways(old, new, lexicon) for old, new in pairs]
    unchanged = Counter(reason for old, new in pairs if (reason := _why_unchanged(old, new)))
    report = RenameReport(
        dataset=dataset,
        seed=seed,
        questions=len(rows),
        renamed=dict(sorted(kinds.items())) | {"words": len(plan.new)},
        derivable_in_source=sum(any(_derivable(old)) for old, _ in pairs) / len(rows),
        derivable_in_copy=sum(any(_derivable(new)) for _, new in pairs) / len(rows),
        followed_in_source=sum(before for before, _ in ways) / len(rows),
        followed_in_copy=sum(before and still for before, still in ways) / len(rows),
        lost=tuple(old.id for (old, _), (_, still) in zip(pairs, ways, strict=True) if not still),
        unchanged_answers=dict(sorted(unchanged.items())),
        leaks=_count_leaks(copies, [name for name, _ in changed], plan),
        kept_words=len(kept),
    )
    return Renamed(copies, _mapping(changed, plan), report)


def _derivable(question: Question) -> list[bool]:
    """For each accepted answer: is it yes or no, or do the paragraphs to read hold it?

    To read are the gold paragraphs where the context has all of them, else all paragraphs.
    Answers and paragraphs are normalised as the official scores do, and whole words count.
    """
    read = question.gold or range(len(question.paragraphs))
    texts = [normalise("\n".join(question.paragraphs[at])) for at in read]
    return [
        answer in ("yes", "no") or bool(answer and any(stands_in(answer, text) for text in texts))
        for answer in map(normalise, question.answers)
    ]


def _lost_answers(old: Question, new: Question) -> list[str]:
    """The accepted answers that were derivable and are not any more."""
    states = zip(old.answers, _derivable(old), _derivable(new), strict=True)
    return [answer for answer, held, holds in states if held and not holds]


def _why_unchanged(old: Question, new: Question) -> str:
    """Why a gold answer stayed as it is; "" if it did not."""
    answer = old.answers[0] if old.answers else ""
    words = set(key(answer))
    if not answer or answer != new.answers[0]:
        return ""
    if normalise(answer) in ("yes", "no"):
        return "yes/no"
    if is_name(answer) and words - w.UNCHANGING - w.KEPT and _is_name_in(old, answer):
        return "names"
    counted = any(map(str.isdigit, answer)) or not words.isdisjoint(w.COUNTED)
    return "date or number" if counted else "common words"


def _ways(old: Question, new: Question, lexicon: Lexicon) -> tuple[bool, bool]:
    """Whether a gold title is mentioned elsewhere, and whether the copy has all that is mentioned.

    A mention is a word of a gold title, no structure, that stands capitalised in the question or
    in another gold paragraph; a question may have it in lower case and misspelt.
    """
    followed, kept = False, True
    for number in old.gold:
        titles = (split_qualifier(question.paragraphs[number][0]).base for question in (old, new))
        renamed = dict(zip(*map(key, titles), strict=True))
        for place in {*old.gold, None} - {number}:
            before, after = (_capitalised(question, place, lexicon) for question in (old, new))
            mentioned = {new_word for word, new_word in renamed.items() if word in before}
            followed, kept = followed or bool(mentioned), kept and mentioned <= after
    return followed, kept


def _capitalised(question: Question, place: int | None, lexicon: Lexicon) -> set[str]:
    """The capitalised words, no structure, of a paragraph, or of the question (None)."""
    text = question.text if place is None else question.paragraphs[place][1]
    line = _meant(text, question, lexicon, asks=place is None)
    return {token.folded for token in line if token.capitalised} - w.STAYING


def _count_leaks(copies: Iterable[Row], renamed: Iterable[Name], plan: Plan) -> int:
    """How many rows have a question or context that still holds a renamed name.

    Names of several words count, and surnames that were renamed wherever they are capitalised.
    """
    sought: dict[str, set[str]] = defaultdict(set)
    for name in renamed:
        words = _spelled(name.text).split()
        if len(words) > 1:
            sought[words[0]].add(" ".join(words))
        if name.kind == "person" and key(words[-1])[0] in plan.lexicon.proper:
            sought[words[-1]].add(words[-1])
    texts = (_spelled("\n".join(_texts(copy, ("question", *_CONTEXT)))) for copy in copies)
    return sum(
        any(stands_in(name, text) for word in set(text.split()) for name in sought.get(word, ()))
        for text in texts
    )


def _mapping(changed: Sequence[tuple[Name, str]], plan: Plan) -> tuple[Renaming, ...]:
    names = [Renaming(name.text, new, name.kind) for name, new in changed]
    whole = {key(name.text) for name, _ in changed}
    words = [Renaming(old, plan.new[old], kind) for old, kind in plan.shapes.items()]
    words = [word for word in words if (word.old,) not in whole]
    return tuple(sorted([*names, *words]))


# --- Renamed copies on disk: the copy in its source's format, and what is known about it.


class Provenance(RenameReport):
    """Where a renamed copy comes from, and what it is worth: stored beside it.

    Attributes:
        source: File name of the source.
        source_sha256: Digest of the source's bytes.
        sha256: Digest of the copy's bytes.
        version: Version of this library.
    """

    source: str
    source_sha256: str
    sha256: str
    version: str


def rename_file(
    path: Path | str,
    out: Path | str,
    seed: int,
    dataset: str | None = None,
    mapping: Path | str | None = None,
) -> RenameReport:
    """Write a renamed copy of a dataset file, and its record beside it (`OUT.rename.json`).

    The copy has the source's format (JSON array or JSON lines), fields, ids and order, so that
    results on both pair by id; only 2WikiMultiHopQA's Wikidata ids are emptied.

    Args:
        path: An official question file.
        out: Where the copy goes; a file there is replaced.
        seed: Decides the invented names.
        dataset: Whose layout the file has; by default the one that its fields show.
        mapping: Where to write old and new names as CSV (old, new, kind), to look at.

    Raises:
        InputError: the file cannot be read, is another dataset's, has no context (Bamboogle) or
            would lose an answer; or `out` or `mapping` is the source itself. Nothing is written.
    """
    path, out = Path(path), Path(out)
    for target in (out, Path(mapping) if mapping else out):
        if target.resolve() == path.resolve():
            raise InputError(
                f"{target} is the source itself",
                expected="another file to write to",
                remedy="pass another path; the source is never written to",
            )
    rows = datasets.read_rows(path)
    records = [row for row in rows if isinstance(row, Mapping)]
    if len(records) < len(rows):
        raise InputError(
            f"{path}: {len(rows) - len(records)} of {len(rows)} rows are no objects",
            expected="one JSON object a question",
            remedy="mend the file, so that the copy can hold the same rows",
        )
    name = datasets.detect_rows(records, path, datasets.dataset_name(dataset) if dataset else None)
    copies, renamings, report = rename_rows(records, name, seed)
    lines = [json.dumps(row, ensure_ascii=False) for row in copies]
    is_array = path.read_text(encoding="utf-8-sig").lstrip().startswith("[")
    text = "[\n" + ",\n".join(lines) + "\n]" if is_array else "\n".join(lines)
    write_whole(out, text + "\n")
    known = Provenance(
        source=path.name,
        source_sha256=file_digest(path),
        sha256=file_digest(out),
        version=version("ga-dspy"),
        **report.model_dump(),
    )
    write_whole(record_path(out), known.model_dump_json(indent=2) + "\n")
    if mapping:
        table = io.StringIO()
        cells = [Renaming._fields, *(map(csv_cell, each) for each in renamings)]
        csv.writer(table, lineterminator="\n").writerows(cells)
        write_whole(Path(mapping), table.getvalue())
    return report


def provenance(path: Path | str) -> Provenance | None:
    """The record of a renamed copy; None for a file without one.

    Raises:
        DamagedFile: the file is not as it was when it was recorded.
        InputError: the record cannot be read.
    """
    path, record = Path(path), record_path(path)
    if not record.exists():
        return None
    try:
        known = Provenance.model_validate_json(record.read_bytes())
    except (ValidationError, OSError) as error:
        raise InputError(
            f"{record} cannot be read as the record of a renamed copy",
            expected="the file that was written with the copy",
            remedy="make the copy again",
        ) from error
    found = file_digest(path)
    if found != known.sha256:
        raise DamagedFile(
            f"{path} has the digest {found[:12]}…",
            expected=f"{known.sha256[:12]}…, as recorded beside it in {record.name}",
            remedy="make the copy again, or delete the record if the file is no copy any more",
        )
    return known


def record_path(path: Path | str) -> Path:
    """Where the record of a copy lies: beside it.

    >>> record_path("copies/dev.json").name
    'dev.json.rename.json'
    """
    path = Path(path)
    return path.with_name(path.name + ".rename.json")
