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

LONGEST, _MOST = 1000, 64


def replace_invalid(text: str) -> str:
    r"""Replace lone surrogates and NULs, which no file or request can be written with.

    >>> replace_invalid("caf\ud800 au\0lait")
    'caf? au�lait'
    """
    if text.isascii() and "\0" not in text:
        return text
    whole = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    return text if whole == text else whole


class Metadata(dict[str, Value]):
    """The metadata of a passage by name: immutable and hashable.

    Values are JSON scalars and flat lists of them. A date becomes ISO text; mappings, NaN and
    empty values are dropped; anything else becomes text. Texts are cut at 1,000 characters, lists
    at 64 items.

    >>> Metadata({"page": 3, "tags": ["a", "b"], "note": None})
    {'page': 3, 'tags': ('a', 'b')}
    """

    def __init__(self, items: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        found = ((replace_invalid(str(name)), _value(value)) for name, value in dict(items).items())
        super().__init__([pair for pair in found if pair[1] not in _NOTHING][:_MOST])

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("metadata cannot be changed: make another passage with model_copy")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Value]]]:
        return type(self), (dict(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            lambda found: found if isinstance(found, cls) else cls(found), core_schema.dict_schema()
        )


_NOTHING = ("", None, ())


def _value(value: Any) -> Value:
    if not isinstance(value, (list, tuple, set, frozenset)):
        return _scalar(value)
    kept = map(_scalar, list(value)[:_MOST])
    return tuple(item for item in kept if item not in _NOTHING)


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
_PLACES = (
    (("page_label", "page"), "p. "), (("slide",), "slide "), (("sheet",), "sheet "),
    (("table",), "table "), (("rows",), "rows "),
)  # fmt: skip


class Sourced(pydantic.BaseModel):
    """Base of models with metadata; empty metadata is omitted when they are written."""

    model_config = pydantic.ConfigDict(frozen=True)

    metadata: Metadata = pydantic.Field(default=Metadata(), repr=False)

    @property
    def source(self) -> str:
        """The source for people: file or address, and page; empty if unknown.

        >>> Sourced(metadata={"source": "company/bridge.pdf", "page": 3}).source
        'company/bridge.pdf, p. 3'
        """
        parts = []
        for keys, word in ((_SOURCES, ""), *_PLACES):
            known = (self.metadata[key] for key in keys if key in self.metadata)
            parts += [f"{word}{value}" for value in list(known)[:1]]
        return ", ".join(parts)

    @pydantic.model_serializer(mode="wrap")
    def _without_empty(self, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        metadata = written.pop("metadata", None)
        return {**written, "metadata": metadata} if metadata else written


class Passage(Sourced):
    r"""A titled piece of text with an id that is unique in its corpus.

    Character spans in this library count in `content`, never in `text` alone. Lone surrogates and
    NULs are replaced when a passage is created; the rest of the text is unchanged, so that quotes
    match it. Text that could pass for a part of a prompt is escaped when prompts are written
    (`ga_dspy.signatures.prompt.safe`).

    `metadata` holds the source of the text and more: file, page, author, date. It is part of
    evidence, citations and a stored index; an LM never sees it.

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
        """Title, newline, text; the text alone if there is no title."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def imported(self) -> str:
        """The file that it is a fact of (`ga-dspy graph import`); empty for other passages."""
        name = str(self.metadata.get("imported", ""))
        return name if self.id.startswith(f"{name}#") else ""

    def quote(self, spans: Iterable[tuple[int, int]]) -> str:
        """Return the whole sentences of the text that hold any of these spans, or its first one."""
        content, places = self.content, list(spans)
        body = [span for span in sentences(content) if span[0] >= len(self.title)]
        body = body or [(0, len(content))]
        held = [(a, b) for a, b in body if any(a < end and start < b for start, end in places)]
        return " … ".join(" ".join(content[a:b].split()) for a, b in held or body[:1])

    def _repr_html_(self) -> str:
        """Title, text and source, for notebooks."""
        where = " · ".join(filter(None, (self.id, self.source)))
        return (
            notebook.line(self.title, bold=True) + notebook.line(self.text) + notebook.line(where)
        )
