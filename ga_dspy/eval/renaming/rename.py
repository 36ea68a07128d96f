"""Renaming the rows of a dataset: plan, replace, check, and write the copy."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import DamagedFile, InputError, listed
from ga_dspy.eval.datasets import (
    DatasetName,
    Row,
    accepted_answers,
    dataset_name,
    detect_rows,
    read_rows,
)
from ga_dspy.eval.protocol import file_digest
from ga_dspy.eval.renaming.names import (
    Name,
    find_names,
    gold_titles,
    is_name,
    is_name_in,
    paragraphs,
    read_lexicon,
    texts_of,
    without_qualifier,
)
from ga_dspy.eval.renaming.plan import Plan, RowNames, Scope, make_plan, rename_row, rename_text
from ga_dspy.eval.renaming.words import (
    CALENDAR,
    FUNCTION,
    KEPT,
    NUMBERS,
    STAYING,
    UNCHANGING,
    Token,
    is_caseless,
    key,
    nearest,
    tokens,
)
from ga_dspy.eval.scores import normalise
from ga_dspy.storage import write_whole
from ga_dspy.text import csv_cell, stands_in

_KEPT = UNCHANGING | KEPT | {"member", "members"}
_REPAIRS = 4  # plans that are made before lost answers are an error


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
        renamed: Number of names renamed, by kind; words that are in no listed name count as
            "further words".
        derivable_in_source: Share of questions with an accepted answer that is yes or no or
            stands in the paragraphs to read, from 0 to 1.
        derivable_in_copy: The same in the copy.
        followed_in_source: Share of questions with a gold paragraph whose title the question or
            another gold paragraph mentions, from 0 to 1.
        followed_in_copy: The same in the copy, with every mention that the source has.
        lost: Ids of the questions of which the copy has a mention less.
        unchanged_answers: Gold answers that stayed as they are, by reason.
        leaks: Rows whose question or context still holds a renamed name of several words, or a
            renamed surname.
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


# --- Renaming rows: plan, replace, check, and keep what would get lost.


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
    if not any(paragraphs(row, dataset) for row in rows):
        raise InputError(
            f"no row of this {dataset} file has a context",
            expected="questions with paragraphs from which the new names can be read",
            remedy="rename a file of hotpotqa, musique or 2wikimultihopqa; Bamboogle has no "
            "paragraphs of its own",
        )
    lexicon = read_lexicon(rows)
    names = find_names(rows, dataset, lexicon)
    before = [_derivable(row, dataset) for row in rows]
    kept: frozenset[str] = frozenset()
    for _ in range(_REPAIRS):
        plan = make_plan(names, lexicon, seed, kept)
        copies = [rename_row(row, plan) for row in rows]
        after = [_derivable(copy, dataset) for copy in copies]
        lost = _lost_answers(rows, before, after)
        if not lost:
            break
        # Common words are left alone ("tails", in "Lost Tails"); all where these are already.
        words = {word for answers in lost.values() for answer in answers for word in key(answer)}
        kept |= (words - plan.everywhere - kept) or words
    else:
        raise InputError(
            f"the answers of {len(lost)} questions cannot be read from their paragraphs any more "
            f"({listed(lost, 10)})",
            expected="every answer that the source holds to be held by the copy",
            remedy="leave these questions out, or use another seed",
        )
    links = [_mentions(row, dataset) for row in rows]
    followed = [any(mention.place != mention.title for mention in found) for found in links]
    lost_links = [
        _lost_mentions(copy, dataset, found) for copy, found in zip(copies, links, strict=True)
    ]
    changed = [(name, new) for name in names if (new := _new_name(name, plan)) != name.text]
    kinds = Counter(name.kind for name, _ in changed)
    within = {word for name, _ in changed for word in name.key}
    report = RenameReport(
        dataset=dataset,
        seed=seed,
        questions=len(rows),
        renamed=dict(sorted(kinds.items())) | {"further words": len(plan.new.keys() - within)},
        derivable_in_source=sum(map(any, before)) / len(rows),
        derivable_in_copy=sum(map(any, after)) / len(rows),
        followed_in_source=sum(followed) / len(rows),
        followed_in_copy=sum(f and not gone for f, gone in zip(followed, lost_links, strict=True))
        / len(rows),
        lost=tuple(_id(row, at) for at, row in enumerate(rows) if lost_links[at]),
        unchanged_answers=_unchanged(rows, copies),
        leaks=_count_leaks(copies, [name for name, _ in changed], plan.everywhere),
        kept_words=len(kept),
    )
    return Renamed(copies, _mapping(changed, plan), report)


def _derivable(row: Row, dataset: DatasetName) -> tuple[bool, ...]:
    """For each accepted answer: is it yes or no, or do the paragraphs to read hold it?

    To read are the gold paragraphs where the context has all of them, else all paragraphs.
    Answers and paragraphs are normalised as the official scores do, and whole words count.
    """
    context = paragraphs(row, dataset)
    gold = [part for part in context if part.gold]
    complete = gold_titles(row, dataset) <= {part.title for part in gold}
    read = [normalise(f"{p.title}\n{p.text}") for p in (gold if gold and complete else context)]
    answers = map(normalise, accepted_answers(row))
    return tuple(
        answer in ("yes", "no") or bool(answer and any(stands_in(answer, text) for text in read))
        for answer in answers
    )


def _lost_answers(
    rows: Iterable[Row], before: Iterable[Sequence[bool]], after: Iterable[Sequence[bool]]
) -> dict[str, list[str]]:
    """By row id, the accepted answers that were derivable and are not any more."""
    lost: dict[str, list[str]] = {}
    for position, (row, was, still) in enumerate(zip(rows, before, after, strict=True)):
        answers = zip(accepted_answers(row), was, still, strict=True)
        if gone := [answer for answer, held, holds in answers if held and not holds]:
            lost[_id(row, position)] = gone
    return lost


def _id(row: Row, position: int) -> str:
    return str(row.get("_id") or row.get("id") or f"row {position + 1}")


def _unchanged(rows: Sequence[Row], copies: Sequence[Row]) -> dict[str, int]:
    """How many gold answers stay as they are, by reason."""
    reasons: Counter[str] = Counter()
    for row, copy in zip(rows, copies, strict=True):
        answer, *_ = accepted_answers(row) or ("",)
        if not answer or accepted_answers(copy)[:1] != (answer,):
            continue
        words = set(key(answer))
        if normalise(answer) in ("yes", "no"):
            reasons["yes/no"] += 1
        elif is_name(answer) and words - _KEPT and is_name_in(row, key(answer)):
            reasons["names"] += 1
        elif any(map(str.isdigit, answer)) or not words.isdisjoint(NUMBERS | CALENDAR):
            reasons["date or number"] += 1
        else:
            reasons["common words"] += 1
    return dict(sorted(reasons.items()))


# --- Can the way from the question through its gold paragraphs still be followed?


class _Mention(NamedTuple):
    """A word of a gold title, by place, that stands in another place of the row.

    Places are the gold paragraphs from 0; the question is -1.
    """

    title: int
    word: int
    place: int


def _places(row: Row, dataset: DatasetName) -> tuple[list[tuple[Token, ...]], list[str]]:
    """The words of the gold titles, and the texts of the gold paragraphs and the question."""
    gold = [part for part in paragraphs(row, dataset) if part.gold]
    titles = [tokens(without_qualifier(part.title)) for part in gold]
    return titles, [*(part.text for part in gold), "".join(texts_of(row, "question")[:1])]


def _mentions(row: Row, dataset: DatasetName) -> frozenset[_Mention]:
    """Where words of gold titles are used as names: capitalised, or the whole title.

    A question may have a title in lower case, and misspelt.
    """
    titles, places = _places(row, dataset)
    lines = [tokens(text) for text in places]
    known = {t.folded for text in texts_of(row, "text") for t in tokens(text)}
    small = {t.folded for line in lines[:-1] for t in line if not t.capitalised}
    found = set()
    for place, line in enumerate(lines):
        asks = place == len(titles)
        loose = asks and is_caseless(line)
        names = {t.folded for t in line if t.capitalised or (loose and t.folded not in small)}
        if asks:
            names |= {nearest(word, sorted(known)) or "" for word in names - known}
        folded = " ".join(token.folded for token in line)
        for number, title in enumerate(titles):
            words = [token.folded for token in title]
            whole = (len(words) > 1 or words[0] in names) and stands_in(" ".join(words), folded)
            found |= {
                _Mention(number, at, -1 if asks else place)
                for at, word in enumerate(words)
                if len(word) > 1
                and word not in (FUNCTION | NUMBERS if whole else STAYING)
                and (whole or (word in names and place != number))
            }
    return frozenset(found)


def _lost_mentions(copy: Row, dataset: DatasetName, expected: frozenset[_Mention]) -> bool:
    """Whether the copy has not all of the source's mentions."""
    titles, places = _places(copy, dataset)
    words = [{token.folded for token in tokens(text)} for text in places]
    missing = {m for m in expected if titles[m.title][m.word].folded not in words[m.place]}
    return bool(missing and missing - _mentions(copy, dataset))


def _count_leaks(copies: Iterable[Row], renamed: Iterable[Name], everywhere: frozenset[str]) -> int:
    """How many rows have a question or context that still holds a renamed name.

    Names of several words count, and surnames that were renamed wherever they are capitalised.
    """
    whole: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for name in renamed:
        if len(name.key) > 1:
            whole[name.key[0]].add(name.key)
        if name.kind == "person" and name.key[-1] in everywhere:
            whole[name.key[-1]].add(name.key[-1:])
    return sum(
        any(_shows(tokens(text), whole) for text in texts_of(copy, "question", "text"))
        for copy in copies
    )


def _shows(line: Sequence[Token], names: Mapping[str, Collection[tuple[str, ...]]]) -> bool:
    folded = tuple(token.folded for token in line)
    return any(
        folded[place : place + len(name)] == name
        and all(t.capitalised or t.folded in FUNCTION for t in line[place : place + len(name)])
        and sum(t.capitalised for t in line[place : place + len(name)]) >= min(len(name), 2)
        for place, token in enumerate(line)
        if token.capitalised and "." not in token.text
        for name in names.get(token.folded, ())
    )


def _new_name(name: Name, plan: Plan) -> str:
    is_single = len(name.key) == 1 and name.key[0] in plan.single
    alone = frozenset(name.key if is_single else ())
    return rename_text(name.text, plan, Scope("title", RowNames(alone)))


def _mapping(changed: Sequence[tuple[Name, str]], plan: Plan) -> tuple[Renaming, ...]:
    names = [Renaming(name.text, new, name.kind) for name, new in changed]
    whole = {name.key for name, _ in changed}
    words = [
        Renaming(old.capitalize(), new.capitalize(), plan.shapes[old])
        for old, new in plan.new.items()
        if (old,) not in whole
    ]
    acronyms = [Renaming(old, new, "acronym") for old, new in plan.acronyms.items()]
    return tuple(sorted([*names, *words, *acronyms]))


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
    rows = read_rows(path)
    records = [row for row in rows if isinstance(row, Mapping)]
    if len(records) < len(rows):
        raise InputError(
            f"{path}: {len(rows) - len(records)} of {len(rows)} rows are no objects",
            expected="one JSON object a question",
            remedy="mend the file, so that the copy can hold the same rows",
        )
    name = detect_rows(records, path, dataset_name(dataset) if dataset else None)
    copies, renamings, report = rename_rows(records, name, seed)
    lines = [json.dumps(row, ensure_ascii=False) for row in copies]
    if path.read_text(encoding="utf-8-sig").lstrip().startswith("["):
        write_whole(out, "[\n" + ",\n".join(lines) + "\n]\n")
    else:
        write_whole(out, "\n".join(lines) + "\n")
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
        csv.writer(table, lineterminator="\n").writerows(
            [Renaming._fields, *(map(csv_cell, map(str, each)) for each in renamings)]
        )
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
            remedy="make the copy again, or delete the record if the file is no renamed copy any "
            "more",
        )
    return known


def record_path(path: Path | str) -> Path:
    """Where the record of a copy lies: beside it.

    >>> record_path("copies/dev.json").name
    'dev.json.rename.json'
    """
    path = Path(path)
    return path.with_name(path.name + ".rename.json")
