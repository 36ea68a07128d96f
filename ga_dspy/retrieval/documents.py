"""Readers that turn the bytes of a file into sections of text or rows of data, one per format.

Formats in which a hostile file could take much time or memory are read in a separate process with
limits.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import count, pairwise
from operator import attrgetter
from pathlib import PurePosixPath
from textwrap import shorten
from threading import Timer
from typing import Any, BinaryIO, NamedTuple, TypeAlias
from xml.etree import ElementTree
from zipfile import ZipFile

from pydantic import TypeAdapter

from ga_dspy.errors import InputError, MissingExtra, install, listed, require
from ga_dspy.passage import Metadata, replace_invalid
from ga_dspy.processes import LineProcess, reply_in_lines
from ga_dspy.retrieval import scans
from ga_dspy.retrieval.protocol import TEXT_KEYS, Row, row_of


class Section(NamedTuple):
    """The text under a heading.

    Attributes:
        path: The headings above the text, outermost first.
        text: The text.
        metadata: Metadata of this section only, such as its page.
        rows: The row number of each line of a table. If the table is split, its first line is
            repeated above each piece.
    """

    path: tuple[str, ...]
    text: str
    metadata: Metadata = Metadata()
    rows: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The headings joined as `Guide > Install`."""
        return " > ".join(self.path)


class Document(NamedTuple):
    """The contents of a file: the sections of a document, or rows of data.

    Attributes:
        sections: The sections, in order.
        metadata: Title, author, date and other properties of the file.
        notes: Notes for the user on how the file was read.
        whole: Whether the file was read completely.
        rows: The rows of a data file with a text column.
    """

    sections: list[Section]
    metadata: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()
    whole: bool = True
    rows: Sequence[Row] = ()


# --- Text encodings


def decode(data: bytes) -> tuple[str, tuple[str, ...], bool]:
    """Decode text as UTF-8, by its byte order mark, by its declared encoding, or by a guess.

    Returns:
        The text with normalised line breaks, notes on the encoding, and whether all bytes could be
        decoded.

    Raises:
        InputError: The data is binary.
    """
    text = data.decode("utf-8-sig", "replace")
    lost = text.count("\ufffd") - data.count("\ufffd".encode())
    # A few invalid bytes among many valid characters are damaged UTF-8, not another encoding.
    if b"\0" not in data and 4 * lost <= sum(letter > "\x7f" for letter in text) - lost:
        notes = (f"damaged UTF-8, characters lost: {lost}",) if lost else ()
        return _normalise_breaks(text), notes, not lost
    if declared := _DECLARED.search(data[:2048]):
        # Browsers also read Latin-1 as Windows-1252, its superset.
        name = _LATIN_1.sub("cp1252", declared[1].decode())
        with suppress(LookupError, UnicodeDecodeError):
            return _normalise_breaks(data.decode(name)), (f"read as {name}",), True
    library = require("charset_normalizer", "search")
    guesses = library.from_bytes(data, cp_isolation=list(_ENCODINGS))
    best = guesses.best()
    if best is None:
        raise InputError("binary data, not text", expected="text", remedy="convert it")
    if best.encoding == "cp1250":  # the library takes short French and Spanish texts for Polish
        best = next((guess for guess in guesses if guess.encoding == "cp1252"), best)
    if best.encoding == "utf_8":
        return _normalise_breaks(str(best)), (), True
    certainty = "" if best.bom else ", a guess"
    return _normalise_breaks(str(best)), (f"read as {best.encoding}{certainty}",), True


_DECLARED = re.compile(rb"""(?:charset|encoding)\s*[=:]\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_LATIN_1 = re.compile(r"^(iso[-_]?8859-1|latin[-_]?1|us-ascii)$", re.IGNORECASE)
_ENCODINGS = (
    "utf_8", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "cp1252", "cp1250", "cp1251", "cp1253",
    "cp1254", "cp1255", "cp1256", "cp1257", "cp866", "cp874", "koi8_r", "cp932", "euc_jp",
    "iso2022_jp", "gb18030", "big5", "cp949",
)  # fmt: skip


def _normalise_breaks(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --- Text and Markdown

_FRONT_MATTER = re.compile(
    r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)


def _text(text: str) -> Document:
    if re.search(r"^-----BEGIN [A-Z ]*PRIVATE KEY", text, re.MULTILINE):
        raise InputError("it holds a private key", expected="a document", remedy="move it away")
    return Document([Section((), text)])


def _markdown(text: str) -> Document:
    metadata: Any = {}
    notes: tuple[str, ...] = ()
    if front := _FRONT_MATTER.match(text):
        try:
            metadata = require("yaml", "search").safe_load(front[1])
        except Exception as error:  # noqa: BLE001 - parsers raise anything; the note names the error
            cause = shorten(str(error), 80, placeholder="…")
            notes = (f"front matter that does not parse ({cause})",)
        if notes or isinstance(metadata, Mapping):
            text = text[front.end() :]
        else:
            metadata = {}
    return Document(_markdown_sections(text), metadata, notes, not notes)


def _markdown_sections(markdown: str) -> list[Section]:
    lines = markdown.split("\n")  # the parser counts lines like this, too
    outline, start = _Outline(), 0
    tokens = require("markdown_it", "search").MarkdownIt().enable("table").parse(markdown)
    for opening, inline in pairwise(tokens):
        # Headings and tables inside lists and quotes do not divide the document.
        if opening.type not in ("heading_open", "table_open") or opening.level:
            continue
        first, end = opening.map
        outline.add("\n".join(lines[start:first]))
        start = end
        if opening.type == "heading_open":
            outline.enter(int(opening.tag[1]), inline.content)
        else:
            rows = [_CELL_EDGE.split(line.strip().strip("|")) for line in lines[first:end]]
            del rows[1]  # the delimiter row
            outline.add_table(rows)
    outline.add("\n".join(lines[start:]))
    return outline.sections


_CELL_EDGE = re.compile(r"(?<!\\)\|")


class _Outline:
    """Collects sections and gives each the path of the headings above it."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._headings: list[tuple[int, str]] = []
        self._tables = count(1)

    def enter(self, level: int, heading: str) -> None:
        self._headings = [(above, name) for above, name in self._headings if above < level]
        if heading.strip():
            self._headings.append((level, " ".join(heading.split())))

    def add(self, text: str, **metadata: Any) -> None:
        self._add(Section((), text, Metadata(metadata)))

    def add_table(self, rows: Iterable[Iterable[Any]], **metadata: Any) -> None:
        self._add(_table(enumerate(rows, start=1), table=next(self._tables), **metadata))

    def _add(self, section: Section) -> None:
        path = tuple(name for _, name in self._headings)
        self.sections.append(section._replace(path=path))


def _table(
    rows: Iterable[tuple[int, Iterable[Any]]], path: tuple[str, ...] = (), **metadata: Any
) -> Section:
    """Return numbered rows of cells as a section with a line per row, without blank rows."""
    lines = {}
    for number, row in rows:
        line = " | ".join(" ".join(str(cell).split()) for cell in row)
        if line.strip(" |"):
            lines[number] = line
    return Section(path, "\n".join(lines.values()), Metadata(metadata), tuple(lines))


# --- HTML and mail

_INVISIBLE = ("script", "style", "template", "noscript", "nav", "footer", "svg", "button", "title")
_MARKDOWN: dict[str, Any] = {
    "heading_style": "atx", "table_infer_header": True, "escape_asterisks": False,
    "escape_underscores": False, "escape_misc": False,
    "strip": ["a", "img", "b", "strong", "em", "i", "code"],
}  # fmt: skip


def _page(html: str) -> Document:
    """Read HTML as Markdown; headings, lists and tables are kept, links and formatting are not."""
    soup = require("bs4", "search").BeautifulSoup(html, "html.parser")
    declared = {tag.get("name", "").lower(): tag.get("content") for tag in soup("meta")}
    metadata = {name: declared.get(name) for name in ("author", "date", "keywords")}
    if soup.title:
        metadata["title"] = " ".join(soup.title.get_text().split())
    for tag in soup(_INVISIBLE):
        tag.decompose()
    markdown = require("markdownify", "search").MarkdownConverter(**_MARKDOWN).convert_soup(soup)
    lines = map(str.rstrip, markdown.splitlines())
    return Document(_markdown_sections("\n".join(lines)), metadata)


def _mail(data: bytes) -> Document:
    from email import message_from_bytes, policy

    message = message_from_bytes(data, policy=policy.default)
    body = message.get_body(("plain", "html"))
    content = body.get_content() if body else ""
    sections = [Section((), content)]
    if body and body.get_content_subtype() == "html":
        sections = _page(content).sections
    headers = {"title": "subject", "author": "from", "to": "to"}
    metadata: dict[str, Any] = {name: str(message[key] or "") for name, key in headers.items()}
    metadata["date"] = getattr(message["date"], "datetime", None)
    unread = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    notes = (f"attachments not read: {', '.join(unread)}",) if unread else ()
    return Document(sections, metadata, notes, not unread)


# --- Office and PDF

_MOST_UNPACKED = 1_000_000_000  # bytes
_DUBLIN_CORE = {"title": "title", "creator": "author", "created": "date", "date": "date",
                "language": "language", "keywords": "keywords"}  # fmt: skip


def check_size(found: str, size: int, most: int) -> None:
    """Raise `InputError` if a size exceeds a limit.

    Args:
        found: A format string for the message, with a field for the size.
        size: The size.
        most: The limit.
    """
    if size > most:
        raise InputError(found.format(size), expected=f"{most:,} at most", remedy="split it")


def _open_archive(data: bytes) -> ZipFile:
    archive = ZipFile(BytesIO(data))
    size = sum(file.file_size for file in archive.infolist())
    check_size("it unpacks to {:,} bytes", size, _MOST_UNPACKED)
    return archive


def _properties(data: bytes) -> dict[str, str]:
    """Return the Dublin Core properties (title, author, date, …) of an Office file."""
    with _open_archive(data) as archive:
        name = "docProps/core.xml"
        if name not in archive.namelist():
            return {}
        xml = archive.read(name)
    properties: dict[str, str] = {}
    for element in ElementTree.fromstring(xml).iter():
        key = _DUBLIN_CORE.get(element.tag.rpartition("}")[2])
        if key and (text := (element.text or "").strip()):
            properties.setdefault(key, text)
    return properties


def _docx(data: bytes) -> Document:
    properties = _properties(data)
    styles = "p[style-name='Title'] => title"
    html = require("mammoth", "files").convert_to_html(BytesIO(data), style_map=styles).value
    page = _page(html)
    return page._replace(metadata=properties | {k: v for k, v in page.metadata.items() if v})


def _pptx(data: bytes) -> Document:
    properties, sections = _properties(data), []
    slides = require("pptx", "files").Presentation(BytesIO(data)).slides
    for number, slide in enumerate(slides, start=1):
        title = slide.shapes.title
        parts = [text for shape in slide.shapes if shape != title for text in _shape_texts(shape)]
        if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame):
            parts.append(frame.text)
        heading = " ".join(title.text_frame.text.split()) if title is not None else ""
        text = "\n".join(filter(str.strip, parts)) or heading
        path = (heading,) if heading else ()
        sections.append(Section(path, text, Metadata({"slide": number})))
    return Document(sections, properties)


def _shape_texts(shape: Any) -> Iterator[str]:
    if shape.shape_type == 6:  # a group
        for member in shape.shapes:
            yield from _shape_texts(member)
    elif shape.has_text_frame:
        yield shape.text_frame.text
    elif getattr(shape, "has_table", False):
        rows = [map(attrgetter("text"), row.cells) for row in shape.table.rows]
        yield _table(enumerate(rows)).text


def _workbook(data: bytes) -> Document:
    if data.startswith(b"PK"):
        _open_archive(data).close()
    book = require("python_calamine", "files").CalamineWorkbook.from_filelike(BytesIO(data))
    sections = []
    for name in book.sheet_names:
        rows = map(_cells, book.get_sheet_by_name(name).iter_rows())
        sections.append(_table(enumerate(rows, start=1), (name,), sheet=name))
    return Document(sections)


def _cells(row: Iterable[Any]) -> list[Any]:
    """Return the cells of a row as a spreadsheet shows them: workbooks store 12 as 12.0."""
    return [int(c) if isinstance(c, float) and c.is_integer() else c for c in row]


def _pdf(data: bytes) -> Document:
    outline, notes, scanned, empty = _Outline(), list[str](), list[int](), list[int]()
    has_scans, tables = scans.is_installed(), dict[int, list[Any]]()
    with require("pypdfium2", "files").PdfDocument(data) as pdf:
        created = re.match(r"D:(\d{4})(\d\d)(\d\d)", pdf.get_metadata_value("CreationDate") or "")
        metadata = {
            "title": pdf.get_metadata_value("Title"),
            "author": pdf.get_metadata_value("Author"),
            "date": "-".join(created.groups()) if created else "",
        }
        bookmarks = defaultdict[int, list[Any]](list)
        for mark in pdf.get_toc():
            if destination := mark.get_dest():
                bookmarks[destination.get_index()].append(mark)
        try:
            tables = scans.find_tables(data) if has_scans else {}
        except Exception as error:  # noqa: BLE001 - parsers raise anything; the text is still read
            notes.append(f"tables not found ({type(error).__name__})")
        for number, page in enumerate(pdf, start=1):
            for mark in bookmarks[number - 1]:
                outline.enter(mark.level + 1, mark.get_title())
            parts = [*scans.page_parts(page, tables.get(number, []))]
            if not parts:
                parts = [*scans.page_parts(*scans.read_scan(page))] if has_scans else []
                (scanned if parts else empty).append(number)
            for part in parts:
                if isinstance(part, str):
                    outline.add(part, page=number)
                else:
                    outline.add_table(part, page=number)
    if scanned:
        notes.append(f"read by OCR: page {listed(scanned)}")
    if empty:
        remedy = "" if has_scans else f" (scanned? for OCR: {install(scans.EXTRA)})"
        notes.append(f"no text on page {listed(empty)}{remedy}")
    return Document(outline.sections, metadata, tuple(notes), not empty)


# --- Data files: datasets in their official formats, tables with a text column

_TEXT_COLUMNS = frozenset(TEXT_KEYS)

_Flaws: TypeAlias = defaultdict[str, list[str]]
"""For each kind of flaw, where it occurs in the file: "row 3"."""


def _data(records: Iterable[tuple[str, Any]], flaws: _Flaws) -> Document:
    """Return the rows of records, which come with their place in the file.

    HotpotQA and 2WikiMultiHopQA records have their paragraphs in `context`, MuSiQue records in
    `paragraphs`. Any other record needs a text, and may have a title and an id.
    """
    rows = []
    for place, record in records:
        if not isinstance(record, Mapping):
            flaws["not an object"].append(place)
            continue
        for row in _rows_of(record, flaws, place):
            if row.text:
                rows.append(row)
            else:
                flaws["no text"].append(place)
    notes = tuple(f"{flaw}: {listed(places)}" for flaw, places in flaws.items())
    return Document([], {}, notes, not flaws, rows)


def _rows_of(record: Mapping[str, Any], flaws: _Flaws, place: str) -> Iterator[Row]:
    """Yield a row for each paragraph of a record, or one row if it has no paragraphs."""
    paragraphs = record.get("context", record.get("paragraphs"))
    if paragraphs is None or isinstance(paragraphs, str):  # SQuAD's context is the text itself
        yield row_of(record)
        return
    if isinstance(paragraphs, Mapping):  # columns, as on the Hugging Face hub
        columns = (paragraphs.get("title") or (), paragraphs.get("sentences") or ())
        paragraphs = list(zip(*columns, strict=False))
    if not isinstance(paragraphs, Sequence) or not paragraphs:
        flaws["no paragraphs"].append(place)
        return
    for paragraph in paragraphs:
        match paragraph:
            case {"paragraph_text": text}:
                yield Row(_clean(paragraph.get("title")), _clean(text), is_paragraph=True)
            case [title, [*sentences] | str(sentences)]:
                yield Row(_clean(title), join_sentences(sentences), is_paragraph=True)
            case _:
                flaws["no paragraph"].append(place)


def join_sentences(sentences: Sequence[Any] | str) -> str:
    """Join sentences, with a space where there is none between them.

    >>> join_sentences(["One.", " Two.", "Three."])
    'One. Two. Three.'
    """
    joined = ""
    for sentence in [sentences] if isinstance(sentences, str) else sentences:
        has_space = not joined or joined[-1].isspace() or str(sentence)[:1].isspace()
        joined += str(sentence) if has_space else f" {sentence}"
    return _clean(joined)


def _clean(value: Any) -> str:
    return "" if value is None else replace_invalid(str(value)).strip()


def _damaged(cause: object) -> InputError:
    return InputError(
        f"it does not parse ({cause})",
        expected="a complete file",
        remedy="check the file, or fetch it again",
    )


def _json(text: str) -> Document:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data") and text.lstrip().startswith("{"):
            return _json_lines(text)
        raise _damaged(error) from error
    if isinstance(content, Mapping):
        content = content.get("data", [content])
    if not isinstance(content, list):
        raise _damaged("it holds no list of rows")
    return _data(_numbered(content), _Flaws(list))


def _numbered(records: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"row {number}", record) for number, record in enumerate(records, start=1))


def json_lines(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the number and the value of each line that is not blank; None for invalid JSON."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            value = None
            with suppress(ValueError, RecursionError):
                value = json.loads(line)
            yield f"line {number}", value


def _json_lines(text: str) -> Document:
    rows, flaws = list(json_lines(text)), _Flaws(list)
    if invalid := [place for place, value in rows if value is None]:
        flaws["invalid JSON"] = invalid
    return _data((row for row in rows if row[1] is not None), flaws)


def table_lines(text: str, delimiter: str = "") -> list[tuple[int, list[str]]]:
    """Return the line number and the cells of each row of a table, without blank rows.

    Raises:
        InputError: A quoted cell does not end.
    """
    csv.field_size_limit(2**31 - 1)
    if mark := re.match("sep=(.)(?=\n)", text):  # Excel's way to declare the delimiter
        delimiter, text = mark[1], text[mark.end() :]
    delimiter = delimiter or max(",;\t|", key=text.lstrip("\n").partition("\n")[0].count)

    def read(text: str, **options: Any) -> list[tuple[int, list[str]]]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **options)
        return [(reader.line_num, row) for row in reader if any(map(str.strip, row))]

    with suppress(csv.Error):
        return read(text, strict=True)
    if delimiter == "\t":  # most TSV files do not quote cells
        return read(text, quoting=csv.QUOTE_NONE)
    end = "\0end"  # becomes the last row, unless an open quote includes it
    *lines, (_, last) = read(f"{text}\n{end}")
    if last != [end]:
        raise _damaged(f"a quote after line {lines[-1][0] if lines else 0} does not close")
    return lines


def _csv(text: str, delimiter: str = "") -> Document:
    """Read a table with a text column as rows of data, any other as text."""
    lines = table_lines(text, delimiter)
    names = [name.strip() for name in lines[0][1]] if lines else []
    if lines and not _TEXT_COLUMNS & {name.lower() for name in names}:
        return Document([_table(lines)], notes=("no column of text: read as a table",))
    known = _TEXT_COLUMNS | {"title", "id"}
    names = [name.lower() if name.lower() in known else name for name in names]
    records, flaws = [], _Flaws(list)
    for number, row in lines[1:]:
        if len(row) > len(names):
            flaws["more cells than columns"].append(f"line {number}")
        records.append((f"line {number}", dict(zip(names, row, strict=False))))
    return _data(records, flaws)


def _parquet(data: bytes) -> Document:
    pyarrow = require("pyarrow", "search")
    try:
        file = require("pyarrow.parquet", "search").ParquetFile(pyarrow.BufferReader(data))
        rows = [row for batch in file.iter_batches() for row in batch.to_pylist()]
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(error) from error
    return _data(_numbered(rows), _Flaws(list))


# --- Formats by file name extension

TEXTS = (
    "",
    *".txt .text .log .rst .org .adoc .asciidoc .tex .srt .vtt .py .pyi .js .mjs .ts .jsx .tsx "
    ".java .kt .scala .c .h .cc .cpp .hpp .cs .go .rs .rb .php .swift .r .jl .lua .pl .sh .bash "
    ".ps1 .bat .sql .yaml .yml .toml .ini .cfg .conf .xml .proto .graphql .diff .patch".split(),
)
"""Extensions of plain text; a file without an extension is read as plain text."""

DATA: dict[str, Callable[[Any], Document]] = {
    ".json": _json,
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    ".csv": _csv,
    ".tsv": partial(_csv, delimiter="\t"),
    ".parquet": _parquet,
}
MARKUP: dict[str, Callable[[Any], Document]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _page),
    ".eml": _mail,
}
_OFFICE: dict[str, Callable[[Any], Document]] = {
    ".docx": _docx,
    ".pptx": _pptx,
    **dict.fromkeys((".xlsx", ".xls", ".xlsb", ".ods"), _workbook),
    ".pdf": _pdf,
}
"""Formats whose headings seldom include the title, which is put above them."""

READERS = {**DATA, **dict.fromkeys(TEXTS, _text), **MARKUP, **_OFFICE}
"""The reader for each extension; it takes decoded text, or bytes for those in `_BINARY`."""

_BINARY = frozenset((".parquet", ".eml", *_OFFICE))

_NO_TITLE = re.compile(r"untitled|(?:microsoft|power\w+) .* - |\.\w{2,4}\Z|\A\W*\Z", re.IGNORECASE)
"""Matches default titles of programs, such as "Untitled" and "Microsoft Word - report.doc"."""


def read_document(name: str, data: bytes) -> Document:
    """Read a file, without sections that have no text.

    Args:
        name: The name of the file; its stem replaces a missing title, the title missing headings.
        data: The contents of the file.

    Raises:
        InputError: The file cannot be read.
        MissingExtra: The library that reads this format is not installed.
    """
    path = PurePosixPath(name)
    extension = path.suffix.lower()
    content, notes, whole = (data, (), True) if extension in _BINARY else decode(data)
    document = READERS[extension](content)
    title = str(document.metadata.get("title") or "")
    title = " ".join((path.stem if _NO_TITLE.search(title) else title).split())
    root = (title,) if extension in _OFFICE else ()
    sections = []
    for section in document.sections:
        text = re.sub(r"\A(?:[ \t]*\n)+", "", section.text).rstrip()
        metadata = Metadata({"heading": section.title, **section.metadata})
        if text.strip():
            headings = (*root, *section.path) or (title,)
            sections.append(section._replace(path=headings, text=text, metadata=metadata))
    size = sum(len(section.text) for section in sections)
    # Files with ordinary contents have less text than this.
    check_size("it has {:,} characters", size, 5_000_000 + 20 * len(data))
    notes, whole = (*notes, *document.notes), whole and document.whole
    return document._replace(sections=sections, notes=notes, whole=whole)


# --- A separate process with limits on time, memory and text
#
# Plain text, data and small markup are parsed in bounded time whatever they contain, so they are
# read in this process.

SECONDS, PER_MEGABYTE = 60.0, 10.0
_MOST_MEMORY = 4_000_000_000  # bytes
_SMALL = 20_000  # bytes


class DocumentReader:
    """Reads documents, in a separate process unless `is_cheap`."""

    def __init__(self) -> None:
        self._process: LineProcess | None = None

    def read(self, name: str, data: bytes) -> Document:
        """Read a document like `read_document`.

        Raises:
            InputError: The document cannot be read, or exceeds a limit.
            MissingExtra: The library that reads this format is not installed.
        """
        if is_cheap(name, data):
            return read_document(name, data)
        if self._process is None:
            self._process = LineProcess("from ga_dspy.retrieval.documents import serve; serve()")
        is_scan = name.lower().endswith(".pdf") and scans.is_installed()
        per_megabyte = PER_MEGABYTE * (10 if is_scan else 1)  # OCR of a page of 30 kB may take 3 s
        process, seconds = self._process.process, SECONDS + per_megabyte * len(data) / 1e6
        limit = Timer(seconds, process.kill)
        limit.daemon = True
        limit.start()
        try:
            reply = self._process.ask(json.dumps([name, len(data)]).encode() + b"\n" + data)
        finally:
            timed_out = not limit.is_alive()
            limit.cancel()
        if isinstance(reply, list):
            return TypeAdapter(Document).validate_python(reply)
        if reply:
            raise MissingExtra(**reply) if "package" in reply else InputError(**reply)
        code = process.wait()
        self.close()
        raise InputError(
            f"not read within {seconds:.0f} s" if timed_out else f"its parser ended ({code})",
            expected="a document of ordinary size",
            remedy="split or convert it",
        )

    def close(self) -> None:
        """Kill the separate process."""
        if self._process:
            self._process.end()
            self._process = None


def is_cheap(name: str, data: bytes) -> bool:
    """Return whether parsing a file takes bounded time and memory, whatever it contains."""
    extension = PurePosixPath(name).suffix.lower()
    return extension in {*TEXTS, *DATA} or (extension in MARKUP and len(data) <= _SMALL)


def serve() -> None:
    """Read documents from stdin, and write each to stdout as a line of JSON."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    reply_in_lines(_reply)


def _reply(line: bytes, source: BinaryIO) -> Any:
    name, size = json.loads(line)
    data = source.read(size)
    try:
        document = read_document(name, data)
    except MissingExtra as error:
        return {"package": error.package, "extra": error.extra}
    except InputError as error:
        return {part: getattr(error, part) for part in ("found", "expected", "remedy")}
    except Exception as error:  # noqa: BLE001 - parsers raise anything; the reply names the error
        cause = shorten(str(error), 100, placeholder="…")
        return {"found": f"{type(error).__name__}: {cause}"}
    return document._replace(metadata=Metadata(document.metadata))
