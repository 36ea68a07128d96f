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
Fact = tuple[str, int]
Paragraph = tuple[str, tuple[str, ...]]

_PARAGRAPHS: dict[DatasetName, int] = {"hotpotqa": 10, "musique": 20, "2wikimultihopqa": 10}
_HOPS = re.compile(r"(\d+)hop")


class Question(NamedTuple):
    """What a run needs of one row; `flaws` names what the row lacks.

    A supporting fact is a title and the number of a sentence, from 0; a paragraph is a title and
    its sentences.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold_titles: tuple[str, ...]
    supporting_facts: tuple[Fact, ...]
    paragraphs: tuple[Paragraph, ...]
    type: str
    level: str
    answerable: bool
    evidences: tuple[tuple[str, ...], ...]
    flaws: tuple[str, ...]


class Unusable(NamedTuple):
    """A row that cannot be asked; `position` counts rows from 1."""

    position: int
    reason: str


class _Support(NamedTuple):
    """The sound paragraphs of a row, what of them is gold, and the flaws met on the way."""

    paragraphs: tuple[Paragraph, ...] = ()
    titles: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    flaws: tuple[str, ...] = ()


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
    support = _support(dataset, row)
    identity = _text(row.get("_id")) or _text(row.get("id"))
    unnamed = ("no id",) if not identity and dataset != "bamboogle" else ()
    answerable = row.get("answerable") is not False
    return Question(
        id=identity or f"{dataset}-{position}",
        question=question,
        answers=answers,
        gold_titles=support.titles,
        supporting_facts=support.facts,
        paragraphs=support.paragraphs,
        type=_text(row.get("type")) or _hops(row, identity),
        level=_text(row.get("level")),
        answerable=answerable,
        evidences=_triples(row.get("evidences")),
        flaws=(*unnamed, *_flaws(dataset, support), *(() if answerable else ("unanswerable",))),
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


def _support(dataset: DatasetName, row: Row) -> _Support:
    if dataset == "bamboogle":
        return _Support()
    if dataset == "musique":
        return _musique_support(row)
    context, facts = _list(row.get("context")), _list(row.get("supporting_facts"))
    paragraphs = tuple(
        (_text(title), tuple(_text(sentence) for sentence in _list(sentences)))
        for title, sentences in filter(_is_paragraph, context)
    )
    pairs = [(_text(title), _sentence_number(number)) for title, number in filter(_is_fact, facts)]
    numbered = [(title, number) for title, number in pairs if number is not None]
    flaws = ["malformed paragraph"] if len(paragraphs) < len(context) else []
    if len(numbered) < len(facts):
        flaws.append("malformed supporting fact")
    if _beyond(numbered, paragraphs):
        flaws.append("supporting sentence not in paragraph")
    titles = _unique(title for title, _ in pairs)
    return _Support(paragraphs, titles, tuple(dict.fromkeys(numbered)), tuple(flaws))


def _musique_support(row: Row) -> _Support:
    given = _list(row.get("paragraphs"))
    sound = [
        entry
        for entry in given
        if isinstance(entry, Mapping)
        and _text(entry.get("title"))
        and _text(entry.get("paragraph_text"))
    ]
    paragraphs = tuple((_text(e["title"]), (_text(e["paragraph_text"]),)) for e in sound)
    gold = _unique(_text(entry["title"]) for entry in sound if entry.get("is_supporting") is True)
    flaws = ("malformed paragraph",) if len(sound) < len(given) else ()
    return _Support(paragraphs, gold, flaws=flaws)


def _beyond(facts: Iterable[Fact], paragraphs: Iterable[Paragraph]) -> bool:
    lengths: dict[str, int] = {}
    for title, sentences in paragraphs:
        lengths[title] = max(len(sentences), lengths.get(title, 0))
    return any(number >= lengths[title] for title, number in facts if title in lengths)


def _flaws(dataset: DatasetName, support: _Support) -> tuple[str, ...]:
    nominal = _PARAGRAPHS.get(dataset)
    if nominal is None:
        return support.flaws
    flaws = list(support.flaws)
    if not support.paragraphs:
        flaws.append("no context")
    elif len(support.paragraphs) < nominal:
        flaws.append("fewer paragraphs")
    if not support.titles:
        flaws.append("no supporting facts")
    elif support.paragraphs and not {title for title, _ in support.paragraphs}.issuperset(
        support.titles
    ):
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


def _sentence_number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value >= 0 else None


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
