"""Redaction of personal data in documents before they are indexed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import isfunction
from pkgutil import resolve_name
from typing import Any, Final, TypeAlias

from ga_dspy.errors import InputError, check_installed, require
from ga_dspy.passage import LONGEST, Metadata, Passage
from ga_dspy.retrieval.documents import Document, Section
from ga_dspy.retrieval.protocol import Row, as_passages, content_hash

Redact: TypeAlias = Callable[[str], str]
"""Returns a text without personal data; idempotent."""

PRESIDIO: Final = "presidio"


@dataclass(frozen=True)
class Redactor:
    """Applies a redaction function to all texts of a document; its errors never quote a text.

    Attributes:
        name: "presidio", or the module and name of a function, such as "rules:redact".
        function: The function.
    """

    name: str
    function: Redact

    def __call__(self, text: str) -> str:
        """Return a redacted text.

        Raises:
            InputError: The function fails, or returns no text.
        """
        if not text.strip():
            return text
        try:
            redacted = self.function(text)
        except InputError:
            raise
        except Exception as error:
            raise self._failed(f"raised {type(error).__name__}") from error
        if not isinstance(redacted, str):
            raise self._failed(f"returned {type(redacted).__name__}")
        return redacted

    def _failed(self, how: str) -> InputError:
        return InputError(
            f"the redaction {self.name} {how}",
            expected="a function that returns a text for any text",
            remedy="correct the function, or leave out the document; nothing was indexed",
        )

    def metadata(self, values: Mapping[Any, Any], keep: Collection[str] = ()) -> Metadata:
        """Return metadata with redacted texts; field names, numbers and `keep` are unchanged."""
        metadata = Metadata(values)
        personal = {name: value for name, value in metadata.items() if name not in keep}
        redacted = {n: self.value(_without_cut_word(v)) for n, v in personal.items()}
        return Metadata({**metadata, **redacted})

    def value(self, value: Any) -> Any:
        """Return a redacted text or list of texts; anything else is returned unchanged."""
        if isinstance(value, list | tuple):
            return tuple(map(self.value, value))
        return self(value) if isinstance(value, str) else value

    def passage(self, passage: Passage) -> Passage:
        """Return a redacted passage; its id and its `source` are unchanged.

        An id that was derived from the title or the content is derived again.
        """
        title, text = self(passage.title), self(passage.text)
        id = _redacted_id(passage.id, passage.title, title, text)
        if id == content_hash(passage.title, passage.text):
            id = content_hash(title, text)
        keep = ("source", "imported") if passage.imported else ("source",)
        metadata = self.metadata(passage.metadata, keep)
        return Passage(id=id, title=title, text=text, metadata=metadata)

    def document(self, document: Document) -> Document:
        """Return a redacted document; this has to happen before it is split."""
        return document._replace(
            sections=list(map(self._section, document.sections)),
            metadata=self.metadata(document.metadata),
            notes=tuple(map(self, document.notes)),
            rows=list(map(self._row, document.rows)),
        )

    def _section(self, section: Section) -> Section:
        path, metadata = tuple(map(self, section.path)), self.metadata(section.metadata)
        return section._replace(path=path, text=self(section.text), metadata=metadata)

    def _row(self, row: Row) -> Row:
        title, text = self(row.title), self(row.text)
        id, metadata = _redacted_id(row.id, row.title, title, text), self.metadata(row.metadata)
        return row._replace(title=title, text=text, id=id, metadata=metadata)


def _without_cut_word(value: Any) -> Any:
    """Drop the last word of texts that `Metadata` has cut: it may be half of a name."""
    if isinstance(value, tuple):
        return tuple(map(_without_cut_word, value))
    is_cut = isinstance(value, str) and len(value) == LONGEST
    return value.rpartition(" ")[0] if is_cut else value


def _redacted_id(id: str, old: str, title: str, text: str) -> str:
    """Replace the old title in an id by the redacted one, with a hash to keep ids unique.

    >>> _redacted_id("Jane Roe#2", "Jane Roe", "[name]", "A nurse.")
    '[name] [722addbd]#2'
    """
    if old == title:
        return id
    return id.replace(old, f"{title} [{content_hash(title, text)[:8]}]")


def redacted(passages: Any, redactor: Redactor | None) -> Iterator[Passage]:
    """Yield redacted passages; those that `read_files` has redacted are not redacted again.

    `Documents.redacted_by` marks these: unlike a mark in the metadata, a file cannot forge it.
    """
    found = as_passages(passages)
    if redactor is None or getattr(passages, "redacted_by", "") == redactor.name:
        return found
    return map(redactor.passage, found)


def load_redactor(given: str | Redact | None) -> Redactor | None:
    """Make a redactor of a name or a function; None stays None.

    Args:
        given: "presidio", "module:function", a function, or a redactor.

    Raises:
        InputError: There is no such function.
        MissingExtra: Presidio is not installed.
    """
    if given is None or isinstance(given, Redactor):
        return given
    if given == PRESIDIO:
        check_installed("presidio_analyzer", "redact")
        return Redactor(PRESIDIO, _presidio)
    function: Any = given
    why = ""
    if isinstance(given, str):
        try:
            function = resolve_name(given)
        except (ImportError, AttributeError, ValueError) as error:
            why = f" ({error})"
    if not callable(function):
        raise InputError(
            f"redact is {given!r:.80}{why}",
            expected='"presidio", "module:function", or a function from text to text',
            remedy="correct the name, or run where the module can be imported",
        )
    named = function if isfunction(function) else type(function)
    return Redactor(f"{named.__module__}:{named.__qualname__}", function)


def check_redactor(stored: str | None, given: str | Redact | None) -> Redactor | None:
    """Return the redactor that an index was built with.

    A function that only the manifest names is never imported: the index may be untrusted.

    Args:
        stored: The name in the manifest of the index.
        given: As for `load_redactor`; required if the index was built with a function.

    Raises:
        InputError: The function is missing, or `given` is not the redaction of the index.
    """
    if given is None and stored not in (None, PRESIDIO):
        raise InputError(
            f"the documents of this index are redacted by {stored}, which was not given",
            expected="that function",
            remedy="pass Index.open(…, redact=…), or --redact module:function",
        )
    found = load_redactor(stored if given is None else given)
    if found is not None and found.name != stored:
        raise InputError(
            f"redact is {found.name}, but the index was built with {stored or 'none'}",
            expected="the same redaction for all documents of an index",
            remedy="pass that redaction, or build another index",
        )
    return found


@cache
def _engines() -> tuple[Any, Any]:
    analyzer = require("presidio_analyzer", "redact")
    anonymizer = require("presidio_anonymizer", "redact")
    try:
        return analyzer.AnalyzerEngine(), anonymizer.AnonymizerEngine()
    except (Exception, SystemExit) as error:  # spaCy exits if a download fails
        raise InputError(
            f"Presidio has no language model ({type(error).__name__})",
            expected="spaCy's en_core_web_lg",
            remedy="run: python -m spacy download en_core_web_lg",
        ) from error


def _presidio(text: str) -> str:
    """Replace the personal data that Presidio finds in an English text by labels: "<PERSON>"."""
    analyzer, anonymizer = _engines()
    return str(anonymizer.anonymize(text, analyzer.analyze(text, language="en")).text)
