"""A passage: the unit that is retrieved, read, cited and quoted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time
from math import isfinite
from typing import Any, NoReturn, Self, TypeAlias

import pydantic
from pydantic_core import core_schema

from ga_dspy import notebook
from ga_dspy.terms import sentences

Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = Scalar | tuple[Scalar, ...]

LONGEST, _MOST_ITEMS = 1000, 64
_EMPTY = ("", None, ())


def replace_invalid(text: str) -> str:
    r"""Replace lone surrogates and NULs, which cannot be written to files or sent in requests.

    >>> replace_invalid("caf\ud800 au\0lait")
    'caf? au�lait'
    """
    if text.isascii() and "\0" not in text:
        return text
    valid = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    return text if valid == text else valid


class Metadata(dict[str, Value]):
    """The metadata of a passage: an immutable, hashable mapping from names to values.

    Values are JSON scalars and flat lists of them. Dates become ISO texts; mappings, NaN and
    empty values are dropped; anything else becomes a text. Texts are cut at 1,000 characters,
    lists at 64 items.

    >>> Metadata({"page": 3, "tags": ["a", "b"], "note": None})
    {'page': 3, 'tags': ('a', 'b')}
    """

    def __init__(self, items: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        pairs = ((replace_invalid(str(name)), _value(value)) for name, value in dict(items).items())
        super().__init__([pair for pair in pairs if pair[1] not in _EMPTY][:_MOST_ITEMS])

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("metadata is immutable: copy the passage with model_copy(update=…)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Value]]]:
        return type(self), (dict(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            lambda value: value if isinstance(value, cls) else cls(value), core_schema.dict_schema()
        )


def _value(value: Any) -> Value:
    if not isinstance(value, (list, tuple, set, frozenset)):
        return _scalar(value)
    items = map(_scalar, list(value)[:_MOST_ITEMS])
    return tuple(item for item in items if item not in _EMPTY)


def _scalar(value: Any) -> Scalar:
    if callable(item := getattr(value, "item", None)):  # NumPy's scalars
        value = item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, (Mapping, list, tuple, set)):
        return None
    text = value.isoformat() if isinstance(value, (date, time)) else str(value)
    return replace_invalid(text).strip()[:LONGEST]


_SOURCES = ("source", "file_path", "file_name", "filename", "path", "url")
_LABELS = (
    (("page_label", "page"), "p. "), (("slide",), "slide "), (("sheet",), "sheet "),
    (("table",), "table "), (("rows",), "rows "),
)  # fmt: skip


class Sourced(pydantic.BaseModel):
    """Base class of models with metadata; empty metadata is not serialized."""

    model_config = pydantic.ConfigDict(frozen=True)

    metadata: Metadata = pydantic.Field(default=Metadata(), repr=False)

    @property
    def source(self) -> str:
        """The readable source: file or address, and page; empty if unknown.

        >>> Sourced(metadata={"source": "company/bridge.pdf", "page": 3}).source
        'company/bridge.pdf, p. 3'
        """
        parts = []
        for keys, label in ((_SOURCES, ""), *_LABELS):
            key = next((key for key in keys if key in self.metadata), None)
            if key:
                parts.append(f"{label}{self.metadata[key]}")
        return ", ".join(parts)

    @pydantic.model_serializer(mode="wrap")
    def _without_empty(self, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        metadata = fields.pop("metadata", None)
        return {**fields, "metadata": metadata} if metadata else fields


class Passage(Sourced):
    r"""A titled piece of text with an id that is unique in its corpus.

    All character spans in this library are offsets into `content`, never into `text` alone. Lone
    surrogates and NULs are replaced when a passage is created; the rest of the text is unchanged,
    so quotes match it. Text that could pass for a part of a prompt is escaped when the prompt is
    rendered (`ga_dspy.signatures.prompt.safe`).

    `metadata` holds the source of the text and more: file, page, author, date. It is part of
    evidence, citations and stored indexes; an LM never sees it.

    >>> Passage(id="7", title="Red Lodge", text="Red Lodge is a city in Montana.").content
    'Red Lodge\nRed Lodge is a city in Montana.'
    """

    id: str
    text: str
    title: str = ""

    @pydantic.field_validator("id", "text", "title")
    @classmethod
    def _valid_text(cls, text: str) -> str:
        return replace_invalid(text)

    @property
    def content(self) -> str:
        """Title and text, joined by a newline; the text alone if there is no title."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def imported(self) -> str:
        """The file this fact was imported from (`ga-dspy graph import`), or ""."""
        name = str(self.metadata.get("imported", ""))
        return name if self.id.startswith(f"{name}#") else ""

    def quote(self, spans: Iterable[tuple[int, int]]) -> str:
        """Return the sentences of the text that overlap any of these spans, or its first one."""
        content, spans = self.content, list(spans)
        body = [span for span in sentences(content) if span[0] >= len(self.title)]
        body = body or [(0, len(content))]

        def is_cited(sentence: tuple[int, int]) -> bool:
            return any(start < sentence[1] and sentence[0] < end for start, end in spans)

        cited = list(filter(is_cited, body)) or body[:1]
        return " … ".join(" ".join(content[start:end].split()) for start, end in cited)

    def _repr_html_(self) -> str:
        """Show title, text, id and source in a notebook."""
        origin = " · ".join(filter(None, (self.id, self.source)))
        title = notebook.line(self.title, bold=True)
        return title + notebook.line(self.text) + notebook.line(origin)
