"""Reading what foreign retrievers return: strings, mappings, documents, predictions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ga_dspy.errors import GaDspyError
from ga_dspy.passage import Passage

_TEXT_KEYS = ("text", "long_text", "page_content", "content", "contents", "passage")
_ID_KEYS = ("id", "_id", "pid", "doc_id", "docid", "passage_id")
_LONGEST_TITLE = 150


class UnreadableResult(GaDspyError):
    """A retriever returned something that holds no passage."""

    def __init__(self, found: object, where: str = "the retriever's result") -> None:
        shown = repr(found)
        shown = shown if len(shown) <= 120 else f"{shown[:117]}..."
        super().__init__(
            f"{where} is {type(found).__name__} {shown}; expected passages: strings, mappings with "
            "'text' (and 'title'), LangChain documents, Passages, or a prediction with .passages; "
            "wrap the retriever in a function that returns one of these"
        )
        self.found = found


def content_hash(title: str, text: str) -> str:
    """A stable id for a passage that has none: 16 hex digits of the SHA-256 of its content.

    >>> content_hash("Red Lodge", "A city.")
    'edf0505b5f920980'
    """
    return hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]


def sound(text: str) -> str:
    r"""Replace lone surrogates, which JSON can hold and no file can be written with.

    >>> sound("caf\ud800")
    'caf?'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def read_results(result: Any) -> list[Passage]:
    """Read a retriever's whole result.

    Raises:
        UnreadableResult: It is no collection of passages, or one item holds no text.
    """
    items = _items(result)
    return [_passage(item, f"result {number}") for number, item in enumerate(items, start=1)]


def _items(result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        result = result.get("passages", result)
    elif not isinstance(result, (str, bytes, Passage)):
        result = getattr(result, "passages", result)
    if isinstance(result, (str, bytes, Mapping, Passage)) or not isinstance(result, Iterable):
        raise UnreadableResult(result)
    return list(result)


def _passage(item: Any, where: str) -> Passage:
    if isinstance(item, Passage):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], (int, float)):
        return _passage(item[0], where)
    if isinstance(item, str):
        fields: Mapping[str, Any] = {"text": item}
    elif isinstance(item, Mapping):
        fields = item
    elif isinstance(getattr(item, "page_content", None), str):
        fields = {
            "page_content": item.page_content,
            "metadata": getattr(item, "metadata", None),
            "id": getattr(item, "id", None),
        }
    else:
        raise UnreadableResult(item, where)
    return _from_fields(fields, item, where)


def _from_fields(fields: Mapping[str, Any], item: Any, where: str) -> Passage:
    text = next((fields[key] for key in _TEXT_KEYS if _has_text(fields.get(key))), None)
    if text is None:
        raise UnreadableResult(item, where)
    metadata = fields.get("metadata")
    more = metadata if isinstance(metadata, Mapping) else {}
    title = fields.get("title") or more.get("title") or ""
    if not title:
        title, text = _split_title(text)
    title, text = sound(str(title)).strip(), sound(text).strip()
    id = next((sound(str(v)) for v in _ids(fields, more) if v is not None and str(v) != ""), "")
    return Passage(id=id or content_hash(title, text), title=title, text=text)


def _ids(fields: Mapping[str, Any], more: Mapping[str, Any]) -> Iterable[Any]:
    yield from (fields.get(key) for key in _ID_KEYS)
    yield from (more.get(key) for key in _ID_KEYS)


def _has_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _split_title(text: str) -> tuple[str, str]:
    """Split DSPy's `Title | text`; a bar far into the text belongs to the text."""
    title, bar, rest = text.partition(" | ")
    if bar and rest.strip() and len(title) <= _LONGEST_TITLE and "\n" not in title:
        return title, rest
    return "", text
