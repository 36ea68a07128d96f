"""One official row as a question: id, accepted answers, gold titles, and what it lacks.

A row with a question and an answer always survives. What else it lacks or has wrong is named
in `Question.flaws`, one short reason each, for the loader to count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from ga_dspy.eval.files import DatasetName

Row = Mapping[str, Any]

_PARAGRAPHS: dict[DatasetName, int] = {"hotpotqa": 10, "musique": 20, "2wikimultihopqa": 10}
_HOPS = re.compile(r"(\d+)hop")


class Question(NamedTuple):
    """What a run needs of one row; `flaws` names what the row lacks."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold_titles: tuple[str, ...]
    type: str
    level: str
    answerable: bool
    evidences: tuple[tuple[str, ...], ...]
    flaws: tuple[str, ...]


class Unusable(NamedTuple):
    """A row that cannot be asked; `position` counts rows from 1."""

    position: int
    reason: str


def parse_row(dataset: DatasetName, row: object, position: int) -> Question | Unusable:
    """The row as a question, or why it cannot be one.

    Args:
        dataset: Whose layout the row has.
        row: One element of the file.
        position: Its place in the file, from 1; it makes the id where the row has none.
    """
    if not isinstance(row, Mapping):
        return Unusable(position, "not an object")
    question, answers = _text(row.get("question")), _answers(row)
    if not question:
        return Unusable(position, "no question")
    if not answers:
        return Unusable(position, "no answer")
    titles, gold, flaws = _support(dataset, row)
    identity = _text(row.get("_id")) or _text(row.get("id"))
    if not identity and dataset != "bamboogle":
        flaws = (*flaws, "no id")
    answerable = row.get("answerable") is not False
    return Question(
        id=identity or f"{dataset}-{position}",
        question=question,
        answers=answers,
        gold_titles=gold,
        type=_text(row.get("type")) or _hops(row, identity),
        level=_text(row.get("level")),
        answerable=answerable,
        evidences=_triples(row.get("evidences")),
        flaws=(*flaws, *_flaws(dataset, titles, gold), *(() if answerable else ("unanswerable",))),
    )


def from_hub_row(row: Row) -> dict[str, Any]:
    """The hub's layout of a row in the official one; an official row comes back as it is.

    The hub keeps lists of records as one record of lists: context
    `{"title": [...], "sentences": [[...]]}`, supporting facts `{"title": [...], "sent_id":
    [...]}`, evidences `{"fact": [...], "relation": [...], "entity": [...]}`, and spells
    Bamboogle's fields "Question" and "Answer".

    >>> from_hub_row({"supporting_facts": {"title": ["Red Lodge"], "sent_id": [0]}})
    {'supporting_facts': [['Red Lodge', 0]]}
    """
    spelled = {"Question": "question", "Answer": "answer"}
    return {spelled.get(field, field): _records(field, value) for field, value in row.items()}


_COLUMNS = {
    "context": (("title",), ("sentences", "content")),
    "supporting_facts": (("title",), ("sent_id",)),
    "evidences": (("fact",), ("relation",), ("entity",)),
}


def _records(field: str, value: Any) -> Any:
    if field not in _COLUMNS or not isinstance(value, Mapping):
        return value
    columns: list[list[Any]] = [
        next((value[name] for name in names if name in value), []) for names in _COLUMNS[field]
    ]
    return [list(record) for record in zip_longest(*columns)]


def _support(
    dataset: DatasetName, row: Row
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Titles of the context, gold titles, and the flaws met on the way."""
    if dataset == "bamboogle":
        return (), (), ()
    if dataset == "musique":
        return _musique_support(row)
    context, facts = _list(row.get("context")), _list(row.get("supporting_facts"))
    titles = tuple(_text(entry[0]) for entry in context if _is_paragraph(entry))
    gold = tuple(_text(entry[0]) for entry in facts if _is_fact(entry))
    flaws = ["malformed paragraph"] if len(titles) < len(context) else []
    if len(gold) < len(facts):
        flaws.append("malformed supporting fact")
    return titles, _unique(gold), tuple(flaws)


def _musique_support(row: Row) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    paragraphs = _list(row.get("paragraphs"))
    sound = [
        entry
        for entry in paragraphs
        if isinstance(entry, Mapping)
        and _text(entry.get("title"))
        and _text(entry.get("paragraph_text"))
    ]
    titles = tuple(_text(entry["title"]) for entry in sound)
    gold = _unique(_text(entry["title"]) for entry in sound if entry.get("is_supporting") is True)
    flaws = ("malformed paragraph",) if len(sound) < len(paragraphs) else ()
    return titles, gold, flaws


def _flaws(dataset: DatasetName, titles: Sequence[str], gold: Sequence[str]) -> tuple[str, ...]:
    nominal = _PARAGRAPHS.get(dataset)
    if nominal is None:
        return ()
    flaws = []
    if not titles:
        flaws.append("no context")
    elif len(titles) < nominal:
        flaws.append("fewer paragraphs")
    if not gold:
        flaws.append("no supporting facts")
    elif titles and not set(gold) <= set(titles):
        flaws.append("gold paragraph not in context")
    return tuple(flaws)


def _answers(row: Row) -> tuple[str, ...]:
    """All accepted answers, the row's own first; a list stands for several."""
    given = row.get("answer")
    own = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return _unique(_text(answer) for answer in [*own, *_list(row.get("answer_aliases"))])


def _hops(row: Row, identity: str) -> str:
    """MuSiQue's kind of question: how many single-hop questions it is composed of."""
    steps = _list(row.get("question_decomposition"))
    if steps:
        return f"{len(steps)}hop"
    found = _HOPS.match(identity)
    return found.group(0) if found else ""


def _triples(evidences: object) -> tuple[tuple[str, ...], ...]:
    triples = (tuple(_text(part) for part in _list(entry)) for entry in _list(evidences))
    return tuple(triple for triple in triples if len(triple) == 3 and all(triple))


def _is_paragraph(entry: object) -> bool:
    return _is_fact(entry) and bool(_list(_list(entry)[1]))


def _is_fact(entry: object) -> bool:
    pair = _list(entry)
    return len(pair) == 2 and bool(_text(pair[0]))


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def _text(value: object) -> str:
    """A string stripped; a number as its digits (some files leave years unquoted); else ""."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    # A lone surrogate, which JSON can spell, could be neither stored nor printed.
    return value.strip().encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
