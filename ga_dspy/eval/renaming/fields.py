"""Where a row holds text, and in which role; everything else of a row is left alone.

Both layouts are walked: the official files' and the hub's (one record of lists).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ga_dspy.eval.files import DatasetName
from ga_dspy.eval.rows import from_hub_row

Role = Literal["title", "text", "question", "answer"]
Row = Mapping[str, Any]
Rewrite = Callable[[Role, str], str]

# Wikidata ids name the entities that were renamed; they are emptied.
BLANKED: dict[str, Any] = {"entity_ids": "", "evidences_id": [], "answer_id": ""}

_QUESTIONS = ("question", "Question")
_ANSWERS = ("answer", "Answer", "answer_aliases")


class Paragraph(NamedTuple):
    """A paragraph of a row's context; `gold` where the row says that it supports the answer."""

    title: str
    text: str
    gold: bool

    @property
    def content(self) -> str:
        """Title and text, as a reader sees them."""
        return f"{self.title}\n{self.text}"


def rewritten(row: Row, rewrite: Rewrite) -> dict[str, Any]:
    """The row with every text replaced by `rewrite(role, text)`, fields and order kept."""
    return {field: _field(field, value, rewrite) for field, value in row.items()}


def texts(row: Row) -> list[tuple[Role, str]]:
    """Every text of the row with its role, in file order."""
    found: list[tuple[Role, str]] = []

    def collect(role: Role, text: str) -> str:
        found.append((role, text))
        return text

    rewritten(row, collect)
    return found


def paragraphs(row: Row, dataset: DatasetName) -> tuple[Paragraph, ...]:
    """The row's context; malformed entries, which the loaders count, are passed over."""
    if dataset == "musique":
        return tuple(
            Paragraph(entry["title"], entry["paragraph_text"], entry.get("is_supporting") is True)
            for entry in _listed(row.get("paragraphs"))
            if isinstance(entry, Mapping)
            and isinstance(entry.get("title"), str)
            and isinstance(entry.get("paragraph_text"), str)
        )
    plain = from_hub_row(row)
    gold = {fact[0] for fact in _listed(plain.get("supporting_facts")) if _is_pair(fact)}
    return tuple(
        Paragraph(entry[0], "".join(_strings(entry[1])), entry[0] in gold)
        for entry in _listed(plain.get("context"))
        if _is_pair(entry)
    )


def gold_titles(row: Row, dataset: DatasetName) -> frozenset[str]:
    """Titles that the row names as its support, in its context or not."""
    if dataset == "musique":
        return frozenset(part.title for part in paragraphs(row, dataset) if part.gold)
    facts = _listed(from_hub_row(row).get("supporting_facts"))
    return frozenset(fact[0] for fact in facts if _is_pair(fact))


def accepted(row: Row) -> tuple[str, ...]:
    """The row's gold answer and its aliases."""
    values = (row.get(field) for field in _ANSWERS)
    given = [value for value in values for value in _strings(value)]
    return tuple(dict.fromkeys(text for text in given if text.strip()))


def identity(row: Row, position: int) -> str:
    """The row's id, or where it stands (from 1)."""
    name = row.get("_id") or row.get("id")
    return str(name) if name else f"row {position}"


def _field(field: str, value: Any, rewrite: Rewrite) -> Any:
    if field in BLANKED:
        return BLANKED[field]
    if field in _QUESTIONS:
        return _mapped(value, lambda text: rewrite("question", text))
    if field in _ANSWERS:
        return _mapped(value, lambda text: rewrite("answer", text))
    if field == "context":
        return _context(value, rewrite)
    if field == "supporting_facts":
        facts = value.items() if isinstance(value, Mapping) else ()
        hub = {name: _mapped(part, lambda text: rewrite("title", text)) for name, part in facts}
        return hub or _mapped(value, lambda text: rewrite("title", text))
    if field == "evidences":
        return _evidences(value, rewrite)
    if field in ("paragraphs", "question_decomposition"):
        return [_record(entry, rewrite) for entry in value] if isinstance(value, list) else value
    return value


def _context(value: Any, rewrite: Rewrite) -> Any:
    def text(sentence: str) -> str:
        return rewrite("text", sentence)

    if isinstance(value, Mapping):
        return {
            name: _mapped(part, (lambda t: rewrite("title", t)) if name == "title" else text)
            for name, part in value.items()
        }
    if not isinstance(value, list):
        return value
    return [
        [rewrite("title", entry[0]), *(_mapped(part, text) for part in entry[1:])]
        if isinstance(entry, list) and entry and isinstance(entry[0], str)
        else _mapped(entry, text)
        for entry in value
    ]


def _evidences(value: Any, rewrite: Rewrite) -> Any:
    def end(text: str) -> str:
        return rewrite("answer", text)

    if isinstance(value, Mapping):
        return {k: part if k == "relation" else _mapped(part, end) for k, part in value.items()}
    if not isinstance(value, list):
        return value
    return [
        [part if place == 1 else _mapped(part, end) for place, part in enumerate(triple)]
        if isinstance(triple, list)
        else triple
        for triple in value
    ]


_RECORD_ROLES: dict[str, Role] = {
    "title": "title",
    "paragraph_text": "text",
    "question": "question",
    "answer": "answer",
}


def _record(entry: Any, rewrite: Rewrite) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return {
        name: rewrite(_RECORD_ROLES[name], value)
        if name in _RECORD_ROLES and isinstance(value, str)
        else value
        for name, value in entry.items()
    }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    return [_mapped(part, change) for part in value] if isinstance(value, list) else value


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (str(value),)
    return tuple(part for part in _listed(value) if isinstance(part, str))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def _is_pair(value: Any) -> bool:
    return len(_listed(value)) == 2 and isinstance(value[0], str)
