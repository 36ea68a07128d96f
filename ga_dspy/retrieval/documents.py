"""Documents as sections of text: what a file says, under which headings, on which page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from xml.etree import ElementTree
from zipfile import ZipFile

from ga_dspy.errors import InputError, listed, require
from ga_dspy.passage import Metadata
from ga_dspy.retrieval.protocol import Row


class Section(NamedTuple):
    """The text under a heading, and the headings above it, outermost first.

    `metadata` is its own, such as a page; `header` the first line of a table, which stands above
    each piece that the text is cut into.
    """

    path: tuple[str, ...]
    text: str
    metadata: Metadata = Metadata()
    header: str = ""

    @property
    def title(self) -> str:
        """The headings joined as `Guide > Install`."""
        return " > ".join(self.path)


class Document(NamedTuple):
    """What was read of a file: a document's sections, or the rows of data.

    Attributes:
        sections: In order.
        metadata: Of the whole: title, author, date and what else it says of itself.
        notes: What a person should know of how it was read.
        whole: Whether all of it was.
        rows: Of a data file with a column of text.
    """

    sections: list[Section]
    metadata: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()
    whole: bool = True
    rows: Sequence[Row] = ()


# --- Bytes as text


def decode(data: bytes) -> tuple[str, tuple[str, ...], bool]:
    """Bytes as text: as UTF-8, by byte order mark, as the text declares, or else by a guess.

    Returns:
        The text, its line breaks made one; how it was read where that is no matter of course; and
        whether all of it was.

    Raises:
        InputError: They are no text.
    """
    broken = data.decode("utf-8-sig", "replace")
    lost = broken.count("\ufffd") - data.count("\ufffd".encode())
    # A few bad bytes among many good letters: damaged UTF-8, not another encoding.
    if b"\0" not in data and 4 * lost <= sum(letter > "\x7f" for letter in broken) - lost:
        notes = (f"not wholly UTF-8, characters lost: {lost}",) if lost else ()
        return _one_break(broken), notes, not lost
    if said := _DECLARED.search(data[:2048]):
        # As browsers do: what is called Latin-1 is Windows' set, which has its characters and more.
        name = re.sub(r"(?i)^(iso[-_]?8859-1|latin[-_]?1|us-ascii)$", "cp1252", said[1].decode())
        with suppress(LookupError, UnicodeDecodeError):
            return _one_break(data.decode(name)), (f"read as {name}",), True
    library = require("charset_normalizer", "search")
    guesses = library.from_bytes(data, cp_isolation=list(_ENCODINGS))
    best = guesses.best()
    if best is None:
        raise InputError("no text, but binary data", expected="text", remedy="convert it")
    if best.encoding == "cp1250":  # short French and Spanish look like Polish to it
        best = next((guess for guess in guesses if guess.encoding == "cp1252"), best)
    how = "" if best.bom else ", a guess"
    notes = () if best.encoding == "utf_8" else (f"read as {best.encoding}{how}",)
    return _one_break(str(best)), notes, True


_DECLARED = re.compile(rb"""(?:charset|encoding)\s*[=:]\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_ENCODINGS = (
    "utf_8", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "cp1252", "cp1250", "cp1251", "cp1253",
    "cp1254", "cp1255", "cp1256", "cp1257", "cp866", "cp874", "koi8_r", "cp932", "euc_jp",
    "iso2022_jp", "gb18030", "big5", "cp949",
)  # fmt: skip


def _one_break(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --- Text and Markdown

_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def _text(data: bytes) -> Document:
    text, notes, whole = decode(data)
    if re.search(r"^-----BEGIN [A-Z ]*PRIVATE KEY", text, re.MULTILINE):
        raise InputError("it holds a private key", expected="a document", remedy="move it away")
    return Document([Section((), text)], {}, notes, whole)


def _markdown(data: bytes) -> Document:
    text, notes, whole = decode(data)
    metadata: Any = None
    if found := _FRONT.match(text):
        try:
            metadata = require("yaml", "search").safe_load(found[1])
        except Exception as error:  # noqa: BLE001 - whatever a parser makes of it, it is named
            cause = " ".join(str(error).split())[:80]
            notes, whole = (*notes, f"front matter that does not parse ({cause})"), False
        if isinstance(metadata, Mapping) or not whole:
            text = text[found.end() :]
    about = metadata if isinstance(metadata, Mapping) else {}
    return Document(_sections(text), about, notes, whole)


def _sections(markdown: str) -> list[Section]:
    lines = markdown.splitlines()
    outline = _Outline()
    done = 0
    tokens = require("markdown_it", "search").MarkdownIt().parse(markdown)
    for opening, inline in pairwise(tokens):
        # Headings inside lists and quotes are no divisions of the document.
        if opening.type != "heading_open" or opening.level or opening.map is None:
            continue
        outline.add("\n".join(lines[done : opening.map[0]]))
        outline.enter(int(opening.tag[1]), inline.content)
        done = opening.map[1]
    outline.add("\n".join(lines[done:]))
    return outline.sections


class _Outline:
    """Collects sections while keeping the path of headings that are open."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, heading: str) -> None:
        self._open = [(above, name) for above, name in self._open if above < level]
        if heading.strip():
            self._open.append((level, " ".join(heading.split())))

    def add(self, text: str) -> None:
        self.sections.append(Section(tuple(name for _, name in self._open), text))


def table_section(path: tuple[str, ...], rows: Iterable[Sequence[Any]], **about: Any) -> Section:
    """Rows of cells as lines; the first stands above each piece that the table is cut into."""
    lines = [" | ".join(" ".join(str(cell).split()) for cell in row) for row in rows]
    lines = [line for line in lines if line.strip(" |")]
    return Section(path, "\n".join(lines), Metadata(about), lines[0] if len(lines) > 1 else "")


# --- HTML

_UNSEEN = ("script", "style", "template", "noscript", "nav", "footer", "svg", "button", "title")
_PLAIN: dict[str, Any] = {
    "heading_style": "atx", "table_infer_header": True, "escape_asterisks": False,
    "escape_underscores": False, "escape_misc": False,
    "strip": ["a", "img", "b", "strong", "em", "i", "code"],
}  # fmt: skip


def _html(data: bytes) -> Document:
    text, notes, whole = decode(data)
    return _page(text)._replace(notes=notes, whole=whole)


def _page(html: str) -> Document:
    """A page as Markdown: headings, lists and the bars of tables stay, links and looks go."""
    soup = require("bs4", "search").BeautifulSoup(html, "html.parser")
    about = {tag.get("name", "").lower(): tag.get("content") for tag in soup("meta")}
    metadata = {name: about[name] for name in ("author", "date", "keywords") if name in about}
    if soup.title:
        metadata["title"] = " ".join(soup.title.get_text().split())
    for tag in soup(_UNSEEN):
        tag.decompose()
    markdown = require("markdownify", "search").MarkdownConverter(**_PLAIN).convert_soup(soup)
    return Document(_sections("\n".join(map(str.rstrip, markdown.splitlines()))), metadata)


# --- Mail


def _mail(data: bytes) -> Document:
    from email import message_from_bytes, policy

    message = message_from_bytes(data, policy=policy.default)
    body = message.get_body(("plain", "html"))
    content = body.get_content() if body else ""
    sections = [Section((), content)]
    if body and body.get_content_subtype() == "html":
        sections = _page(content).sections
    names = {"subject": "title", "from": "author", "to": "to", "date": "date"}
    metadata = {name: str(message[key]) for key, name in names.items() if message[key]}
    left = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    notes = (f"attachments not read: {', '.join(left)}",) if left else ()
    return Document(sections, metadata, notes, not left)


# --- Archives of XML: EPUB, Word, PowerPoint, Excel

_MOST_UNPACKED = 1_000_000_000  # bytes
_CORE = {"title": "title", "creator": "author", "created": "date", "date": "date",
         "language": "language", "keywords": "keywords"}  # fmt: skip


def _unpack(data: bytes) -> ZipFile:
    archive = ZipFile(BytesIO(data))
    size = sum(file.file_size for file in archive.infolist())
    if size > _MOST_UNPACKED:
        raise InputError(
            f"it unpacks to {size:,} bytes", expected=f"{_MOST_UNPACKED:,} at most",
            remedy="split it",
        )  # fmt: skip
    return archive


def _core(xml: bytes) -> dict[str, str]:
    """What a package says of itself, in Dublin Core's words."""
    found: dict[str, str] = {}
    for element in ElementTree.fromstring(xml).iter():
        name = _CORE.get(element.tag.rpartition("}")[2])
        if name and (text := (element.text or "").strip()):
            found.setdefault(name, text)
    return found


def _office_core(data: bytes) -> dict[str, str]:
    with _unpack(data) as archive:
        name = "docProps/core.xml"
        return _core(archive.read(name)) if name in archive.namelist() else {}


def _epub(data: bytes) -> Document:
    with _unpack(data) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        (package,) = [e.get("full-path", "") for e in container.iter() if "full-path" in e.attrib]
        xml = archive.read(package)
        elements = list(ElementTree.fromstring(xml).iter())
        hrefs = {e.get("id"): e.get("href", "") for e in elements if e.tag.endswith("}item")}
        spine = [hrefs[e.get("idref")] for e in elements if e.tag.endswith("}itemref")]
        sections = []
        for href in spine:
            path = (PurePosixPath(package).parent / href).as_posix()
            sections += _page(decode(archive.read(path))[0]).sections
    return Document(sections, _core(xml))


def _docx(data: bytes) -> Document:
    about = _office_core(data)
    styles = "p[style-name='Title'] => title"
    found = require("mammoth", "files").convert_to_html(BytesIO(data), style_map=styles)
    document = _page(found.value)
    return document._replace(metadata={**about, **document.metadata})


def _pptx(data: bytes) -> Document:
    about = _office_core(data)
    sections = []
    for number, slide in enumerate(require("pptx", "files").Presentation(BytesIO(data)).slides, 1):
        title = slide.shapes.title
        parts = [part for shape in slide.shapes if shape is not title for part in _shape(shape)]
        if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame):
            parts.append(frame.text)
        heading = " ".join(title.text_frame.text.split()) if title is not None else ""
        text = "\n".join(filter(str.strip, parts)) or heading
        path = (heading,) if heading else ()
        sections.append(Section(path, text, Metadata({"slide": number})))
    return Document(sections, about)


def _shape(shape: Any) -> Iterator[str]:
    if shape.shape_type == 6:  # a group
        for each in shape.shapes:
            yield from _shape(each)
    elif shape.has_text_frame:
        yield shape.text_frame.text
    elif getattr(shape, "has_table", False):
        rows = ([cell.text for cell in row.cells] for row in shape.table.rows)
        yield table_section((), rows).text


def _workbook(data: bytes) -> Document:
    if data.startswith(b"PK"):
        _unpack(data).close()
    book = require("python_calamine", "files").CalamineWorkbook.from_filelike(BytesIO(data))
    sheets = ((name, book.get_sheet_by_name(name).to_python()) for name in book.sheet_names)
    return Document(
        [table_section((name,), map(_cells, rows), sheet=name) for name, rows in sheets]
    )


def _cells(row: Iterable[Any]) -> list[Any]:
    """Cells as they look: whole numbers, which a workbook keeps as 12.0, without a point."""
    return [int(c) if isinstance(c, float) and c.is_integer() else c for c in row]


# --- PDF


def _pdf(data: bytes) -> Document:
    pdfium = require("pypdfium2", "files")
    with pdfium.PdfDocument(data) as pdf:
        said = {name: pdf.get_metadata_value(name) for name in ("Title", "Author", "CreationDate")}
        bookmarks = [(mark.get_dest(), mark) for mark in pdf.get_toc()]
        headings = [(dest.get_index(), mark.level, mark.get_title())
                    for dest, mark in bookmarks if dest]  # fmt: skip
        outline, sections, empty = _Outline(), [], []
        for number, page in enumerate(pdf, 1):
            for _, level, heading in (h for h in headings if h[0] == number - 1):
                outline.enter(level + 1, heading)
            # PDFium gives U+FFFE for a hyphen at which a line breaks a word.
            text = page.get_textpage().get_text_bounded().replace("\r\n", "\n")
            text = re.sub("\ufffe\n?", "", text)
            outline.add(text)
            sections.append(outline.sections[-1]._replace(metadata=Metadata({"page": number})))
            empty += [str(number)] if not text.strip() else []
    date = _pdf_date(said["CreationDate"] or "")
    metadata = {"title": said["Title"], "author": said["Author"], "date": date}
    notes = (f"no text on page {listed(empty)} (scanned? run OCR over it)",) if empty else ()
    return Document(sections, metadata, notes, not empty)


def _pdf_date(said: str) -> str:
    found = re.match(r"D:(\d{4})(\d\d)(\d\d)", said)
    return "-".join(found.groups()) if found else ""


# --- By ending

TEXTS = (
    "",
    *".txt .text .log .rst .org .adoc .asciidoc .tex .srt .vtt .py .pyi .js .mjs .ts .jsx .tsx "
    ".java .kt .scala .c .h .cc .cpp .hpp .cs .go .rs .rb .php .swift .r .jl .lua .pl .sh .bash "
    ".ps1 .bat .sql .yaml .yml .toml .ini .cfg .conf .xml .proto .graphql .diff .patch".split(),
)
"""Endings of plain text; a file without one is read as such."""

PARSERS: dict[str, Callable[[bytes], Document]] = {
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys((".md", ".markdown", ".mdx"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    ".eml": _mail,
    ".epub": _epub,
    ".docx": _docx,
    ".pptx": _pptx,
    **dict.fromkeys((".xlsx", ".xls", ".xlsb", ".ods"), _workbook),
    ".pdf": _pdf,
}
"""What reads a document, by the ending of its name."""

_BELOW_TITLE = (".epub", ".docx", ".pptx", ".pdf", ".xlsx", ".xls", ".xlsb", ".ods")
"""Whose headings name parts and seldom the whole."""

_NO_TITLE = re.compile(r"untitled|(?:microsoft|power\w+) .* - |\.\w{2,4}\Z|\A\W*\Z", re.IGNORECASE)
"""What programs write where nobody gave a title."""


def read_document(name: str, data: bytes) -> Document:
    """Read a document; sections without text go, and its title stands in for missing headings.

    Args:
        name: Its name, for the ending; the stem stands in for a missing title.
        data: Its bytes.

    Raises:
        InputError: It cannot be read.
        MissingExtra: What reads it is not installed.
    """
    path = PurePosixPath(name)
    document = PARSERS[path.suffix.lower()](data)
    title = str(document.metadata.get("title") or "")
    title = " ".join((path.stem if _NO_TITLE.search(title) else title).split())
    root = (title,) if path.suffix.lower() in _BELOW_TITLE else ()
    sections = [
        section._replace(
            path=(*root, *section.path) or (title,),
            text=re.sub(r"\A(?:[ \t]*\n)+", "", section.text).rstrip(),
            metadata=Metadata({"heading": section.title, **section.metadata}),
        )
        for section in document.sections
    ]
    return document._replace(sections=[section for section in sections if section.text.strip()])
