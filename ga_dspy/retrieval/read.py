"""Reads files and folders into passages: finds files, splits texts, reports the outcome."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from os.path import commonprefix
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import InputError, MissingExtra, listed, require
from ga_dspy.passage import Metadata, Passage, replace_invalid
from ga_dspy.retrieval import documents
from ga_dspy.retrieval.documents import DATA, READERS, Document, DocumentReader, Section
from ga_dspy.retrieval.encoders import Progress, silent
from ga_dspy.retrieval.index import Index
from ga_dspy.retrieval.protocol import Row, content_hash
from ga_dspy.retrieval.redact import Redact, Redactor, load_redactor
from ga_dspy.storage import refused_by_disk, write_whole
from ga_dspy.text import estimate_tokens, visible

_LOG = logging.getLogger("ga_dspy")

# --- Splitting: at headings first, then at sentences, tables at lines

CHUNK_TOKENS = 400
PARAGRAPH_TOKENS = 800
"""A dataset's own paragraph is split only above this size: gold labels count paragraphs."""


class Cutting(NamedTuple):
    """How texts are split.

    Attributes:
        chunk_tokens: The maximum tokens of a passage, its title included.
        overlap: Tokens that a piece shares with the one before.
    """

    chunk_tokens: int = CHUNK_TOKENS
    overlap: int = 0


_DEFAULT = Cutting()


def chunk_text(text: str, cutting: Cutting = _DEFAULT) -> list[str]:
    """Split a text at sentences into pieces of about equal size, none above `chunk_tokens`."""
    most, overlap = cutting
    tokens = estimate_tokens(text)
    pieces = [text]
    if tokens > most:
        # A fifth above equal shares, because sentences do not end where the share does.
        share = min(math.ceil(1.2 * tokens / math.ceil(1.2 * tokens / most)), most)
        pieces = _chunker(share)(text, overlap=min(overlap, share // 2) or None)
    return [piece.strip("\n").rstrip() for piece in pieces if piece.strip()]


@lru_cache(maxsize=64)
def _chunker(size: int) -> Any:
    return require("semchunk", "search").chunkerify(estimate_tokens, size, memoize=False)


def gather(sections: Sequence[Section], cutting: Cutting = _DEFAULT) -> list[Section]:
    r"""Join neighbouring short sections, up to `chunk_tokens`, under the headings they share.

    The other headings of joined sections go into the text, above theirs. Pages, slides and sheets
    are not joined, nor are two tables, so that each passage has its own.

    >>> parts = [Section(("Guide", "Install"), "Run pip."), Section(("Guide", "Use"), "Call it.")]
    >>> [(joined.title, joined.text) for joined in gather(parts)]
    [('Guide', 'Install\nRun pip.\n\nUse\nCall it.')]
    """
    groups: list[list[Section]] = []
    size = 0
    for section in sections:
        tokens = estimate_tokens(section.text)
        size += tokens
        if groups and size <= cutting.chunk_tokens and _can_join(groups[-1], section):
            groups[-1].append(section)
        else:
            groups.append([section])
            size = tokens
    return [_joined(group) if len(group) > 1 else group[0] for group in groups]


def _can_join(group: Sequence[Section], section: Section) -> bool:
    def place(one: Section) -> object:
        return {k: v for k, v in one.metadata.items() if k not in ("heading", "table")}

    if section.rows and any(one.rows for one in group):
        return False
    return place(group[-1]) == place(section) and bool(_shared_path([*group, section]))


def _shared_path(group: Sequence[Section]) -> tuple[str, ...]:
    return tuple(commonprefix([section.path for section in group]))


def _joined(group: Sequence[Section]) -> Section:
    path, parts, above = _shared_path(group), [], ""
    metadata = dict(group[0].metadata)
    for section in group:
        heading = " > ".join(section.path[len(path) :])
        parts.append(f"{heading}\n{section.text}" if heading not in ("", above) else section.text)
        above = heading
        if section.rows:
            metadata |= {"table": section.metadata.get("table"), "rows": _span(section.rows)}
    joined = Section(path, "\n\n".join(parts))
    if "heading" in metadata:
        metadata["heading"] = joined.title
    return joined._replace(metadata=Metadata(metadata))


def _span(rows: Sequence[int]) -> str:
    return f"{rows[0]}-{rows[-1]}" if len(rows) > 1 else str(rows[0])


def _pieces(section: Section, cutting: Cutting) -> list[Section]:
    most, overlap = cutting
    room = max(most - estimate_tokens(section.title), most // 2)
    header, body, rows = "", section.text, section.rows
    if len(rows) > 1:
        first, _, others = body.partition("\n")
        size = estimate_tokens(first)
        if estimate_tokens(others) > room > 2 * size:  # repeated above each piece
            header, body, rows, room = f"{first}\n", others, rows[1:], room - size
    texts = chunk_text(body, Cutting(room, min(overlap, room // 2)))
    pieces, at, line = [], 0, 0
    is_table = len(rows) == body.count("\n") + 1  # redaction may change the lines
    for text in texts:
        metadata = dict(section.metadata)
        if is_table:
            start = body.index(text, at)
            line, at = line + body.count("\n", at, start), start
            metadata["rows"] = _span(rows[line : line + text.count("\n") + 1])
        elif len(texts) > 1:  # which of them has the table?
            metadata = {k: v for k, v in metadata.items() if k not in ("table", "rows")}
        pieces.append(section._replace(text=header + text, metadata=Metadata(metadata)))
    return pieces


# --- Which files are read

OUTSIDE = "a link that leads out of the folder"
_SKIPPED = {"node_modules": "packages of others", "__pycache__": "compiled code",
            "site-packages": "packages of others"}  # fmt: skip
_MOST_BYTES, _MOST_DATA = 500_000_000, 20_000_000_000
# No link is followed, no pipe or device waited for.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class _Found(NamedTuple):
    """A file that was found.

    Attributes:
        path: Its path.
        name: Its name in ids, unique among the files.
        folder: The resolved folder that it must lie in.
        is_given: Whether the caller named the file itself, not its folder.
        left_out: Why it is left out; empty if it is to be read.
    """

    path: Path
    name: str
    folder: Path
    is_given: bool = False
    left_out: str = ""


def _find(paths: Iterable[Path | str]) -> list[_Found]:
    """Return the files of paths and folders.

    Raises:
        InputError: A path is missing, leads out of its folder, or is in no supported format.
    """
    found: dict[str, _Found] = {}
    for path in map(Path, paths):
        is_link = path.is_symlink() and path.exists()
        if is_link and not path.resolve().is_relative_to(path.parent.resolve()):
            raise InputError(
                f"{path} is {OUTSIDE} it lies in",
                expected="a file or a folder, or a link that stays there",
                remedy=f"name {path.resolve()} itself, or copy it",
            )
        if path.is_dir():
            files = sorted(_walk(path), key=lambda file: file.path.parts)
        elif path.is_file() and path.suffix.lower() in READERS:
            target = path.resolve() if is_link else path
            files = [_Found(target, path.name, path.parent.resolve(), is_given=True)]
        else:
            raise InputError(
                f"{path} is a {path.suffix or 'nameless'} file" if path.exists() else f"no {path}",
                expected=f"a folder of documents, or a file of {_FORMATS}",
                remedy="check the path, or convert the file",
            )
        for file in files:
            names = map(
                replace_invalid, (file.name, f"{path.name}/{file.name}", file.path.as_posix())
            )
            name = next((name for name in names if name not in found), file.name)
            found[name] = file._replace(name=name)
    return list(found.values())


_FORMATS = (
    ".md, .txt, .html, .pdf, .docx, .pptx, .xlsx, .eml, .json, .jsonl, .csv, .parquet, or source "
    "code"
)


def _walk(root: Path) -> Iterator[_Found]:
    def refuse(error: OSError) -> None:
        raise refused_by_disk(error.filename, error) from error

    rules: dict[Path, Any] = {}
    resolved = root.resolve()
    for top, folders, files in os.walk(root, onerror=refuse):
        at = Path(top)
        # As git does, without following a link.
        if ".gitignore" in files and stat.S_ISREG((at / ".gitignore").lstat().st_mode):
            lines = _bytes(at / ".gitignore", resolved).decode("utf-8", "replace").splitlines()
            rules[at] = require("pathspec", "search").GitIgnoreSpec.from_lines(lines)
        for name in [*folders, *files]:
            path, is_folder = at / name, name in folders
            why = _left_out(path, rules, resolved, is_folder=is_folder)
            below = path.relative_to(root).as_posix()
            if not is_folder:
                yield _Found(path, below, resolved, left_out=why)
            elif why:
                folders.remove(name)
                yield _Found(path, f"{below}/", resolved, left_out=why)


def _left_out(path: Path, rules: dict[Path, Any], root: Path, *, is_folder: bool) -> str:
    """Why a file or a folder is left out; empty if it is to be read."""
    if path.name.startswith("."):
        return "hidden"
    if _is_ignored(path, rules, "/" if is_folder else ""):
        return "named in .gitignore"
    if path.is_symlink() and path.exists():
        if not path.resolve().is_relative_to(root):
            return OUTSIDE
        return "a link to a folder" if is_folder else "a link to a file of the folder"
    if not is_folder:
        return ""
    if (path / "pyvenv.cfg").is_file():
        return "a virtual environment"
    is_index = (path / "manifest.json").is_file() and any(path.glob("contents-*"))
    return "a stored index" if is_index else _SKIPPED.get(path.name, "")


def _is_ignored(path: Path, rules: dict[Path, Any], slash: str) -> bool:
    ignored = False
    for folder, spec in rules.items():  # the rules of a deeper folder come later, and win
        if path.is_relative_to(folder):
            verdict = spec.check_file(path.relative_to(folder).as_posix() + slash).include
            ignored = ignored if verdict is None else verdict
    return ignored


def _bytes(path: Path, folder: Path) -> bytes:
    """Read a regular file in a folder, even if somebody puts links in its place meanwhile.

    What was opened must be what is at that path, and the path must lie in the folder.

    Raises:
        InputError: It is not a regular file, lies outside the folder, or is too large.
    """
    try:
        opened = os.open(path, os.O_RDONLY | _NO_LINK)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it became a link after it was found
            raise InputError(OUTSIDE) from error
        raise
    with os.fdopen(opened, "rb") as file:
        status, resolved = os.fstat(opened), path.resolve()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("not a regular file")
        if not (resolved.is_relative_to(folder) and os.path.samestat(status, resolved.stat())):
            raise InputError(OUTSIDE)
        most = _MOST_DATA if path.suffix.lower() in DATA else _MOST_BYTES
        documents.check_size("it has {:,} bytes", status.st_size, most)
        return file.read(status.st_size)


# --- Files as passages

Status = Literal["read", "in part", "unread", "left out"]


class FileRead(BaseModel):
    """The outcome of reading a file.

    Attributes:
        name: Its path below the folder that was read; a folder that was left out ends in a slash.
        status: "read" completely, "in part", "unread", or "left out" on purpose (hidden, ignored).
        notes: Why it was not read, and how it was read if that is unusual.
        ids: Its passages.
        repeated: How many more of its passages are in a file before it.
        sha256: Of its bytes; empty if they were not read.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    status: Status = "read"
    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    repeated: int = 0
    sha256: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it was read completely, or left out on purpose."""
        return self.status in ("read", "left out")

    def __str__(self) -> str:
        """Return the file on one line."""
        details = list(self.notes)
        if self.repeated:
            details.insert(0, f"{self.repeated:,} as in another file")
        if self.ids:
            noun = "passage" if len(self.ids) == 1 else "passages"
            details.insert(0, f"{len(self.ids):,} {noun}")
        line = f"{self.name}: {self.status}".replace("\n", "\\n")
        return visible(f"{line} ({'; '.join(details)})" if details else line)


UPLOAD = re.compile(r"upload(-[0-9a-f]{12})?:")
"""What the ids of passages begin with that no file of an index has: those added over HTTP."""


class Documents(NamedTuple):
    """The passages of files and folders, and the outcome for each file.

    Attributes:
        passages: The passages.
        files: The outcome for each file.
        redacted_by: The name of the redaction that the files went through; empty for none.
    """

    passages: list[Passage]
    files: tuple[FileRead, ...]
    redacted_by: str = ""

    def with_uploads(self, index: Index) -> Documents:
        """Return these with the documents added to an index over HTTP and the imported facts."""
        uploads = [each for each in index if UPLOAD.match(each.id) or each.imported]
        return self._replace(passages=[*self.passages, *uploads])

    def deleted_from(self, index: Index) -> int:
        """Return how many passages of an index these no longer have."""
        wanted = {passage.id for passage in self.passages}
        return sum(passage.id not in wanted for passage in index)


Known = Callable[[str, str], tuple[FileRead, list[Passage]] | None]
"""Returns a file that was read before, by its name and the SHA-256 of its bytes."""


def read_files(
    paths: Path | str | Iterable[Path | str],
    *,
    chunk_tokens: int | None = None,
    overlap: int = 0,
    strict: bool = False,
    progress: Progress = silent,
    known: Known | None = None,
    redact: str | Redact | None = None,
) -> Documents:
    """Read passages from files and folders, and report the outcome for each file.

    Passages with equal title and text count once, but rows with other columns, such as a tenant,
    are passages of their own. Hidden files, files that a `.gitignore` in the folder names, links,
    virtual environments and stored indexes are left out. A file that cannot be read is reported,
    and the others are read.

    The metadata of a passage are its `source` (the file), `page`, `slide` or `sheet`, the `table`
    and the `rows` of it, `heading`, the properties of the document (title, author, date, tags), and
    the other columns of a row.

    Args:
        paths: As in `read_passages`.
        chunk_tokens: The maximum tokens of a passage, its title included; 400 by default. A
            dataset's own paragraphs stay whole up to 800.
        overlap: Tokens that a piece of a text shares with the one before.
        strict: Stop at the first file that cannot be read completely.
        progress: Called with the stage ("reading FILE", "chunking"), files done, files in all.
        known: Returns files that were read before.
        redact: Takes personal data out of each document before it is split: "presidio",
            "module:function", or a function from text to text. File names stay.

    Raises:
        InputError: A path is missing or in no supported format, a file that was named itself
            cannot be read, `strict` and a file cannot be read completely, a number is out of
            range, or `redact` fails.
        MissingExtra: The library that reads a file that was named itself is not installed.
    """
    cutting = Cutting(chunk_tokens or CHUNK_TOKENS, overlap)
    if cutting.chunk_tokens < 20 or not 0 <= overlap <= cutting.chunk_tokens // 2:
        raise InputError(
            f"chunk_tokens is {cutting.chunk_tokens}, overlap {overlap}",
            expected="chunk_tokens from 20, an overlap of at most half of it",
            remedy=f"pass chunk_tokens={CHUNK_TOKENS}, overlap=0",
        )
    redactor = load_redactor(redact)
    files = _find([paths] if isinstance(paths, (str, Path)) else paths)
    units = []
    with closing(DocumentReader()) as reader:
        for number, file in enumerate(files):
            progress(f"reading {visible(file.name)}", number, len(files))
            units.append(unit := _read(file, reader, known, redactor))
            if strict and not unit.read.is_whole:
                raise InputError(
                    f"{file.name} was not read whole ({'; '.join(unit.read.notes)})",
                    expected="files that can be read completely",
                    remedy="repair it, name it in a .gitignore, or read without strict",
                )
    found = _passages(units, cutting, progress)
    return found._replace(redacted_by=redactor.name) if redactor else found


class _Unit(NamedTuple):
    """The contents of a file: rows or a document, or passages that are known."""

    file: _Found
    read: FileRead
    document: Document = Document([])
    passages: Sequence[Passage] = ()

    @property
    def is_pooled(self) -> bool:
        """Whether its rows get their ids together with those of the other data files."""
        return self.file.is_given and bool(self.document.rows)


def _read(
    file: _Found, reader: DocumentReader, known: Known | None, redactor: Redactor | None
) -> _Unit:
    """Read and redact a file; an error of its parser becomes a note.

    Such an error is raised if the caller named the file itself.
    """
    if file.left_out:
        return _Unit(file, FileRead(name=file.name, status="left out", notes=(file.left_out,)))
    ending, sha256 = Path(file.name).suffix.lower(), ""
    try:
        if not file.path.is_file():
            raise InputError("not a regular file" if file.path.exists() else "a link to nothing")
        if ending not in READERS:
            raise InputError(f"{ending} is not a supported format")
        data = _bytes(file.path, file.folder)
        sha256 = hashlib.sha256(data).hexdigest()
        is_pooled = file.is_given and ending in DATA
        if known and not is_pooled and (before := known(file.name, sha256)):
            return _Unit(file, before[0], passages=before[1])
        document = reader.read(file.name, data)
    except MissingExtra as error:
        if file.is_given:
            raise
        document = Document([], notes=(error.remedy,))
    except Exception as error:  # parsers raise anything for a damaged file; the file is named
        cause = shorten(str(getattr(error, "strerror", None) or error), 100, placeholder="…")
        why = error.found if isinstance(error, InputError) else f"{type(error).__name__}: {cause}"
        why = redactor(why) if redactor else why
        if file.is_given:
            raise InputError(
                f"{file.path} does not read as {file.path.suffix[1:] or 'text'} ({why})",
                expected=getattr(error, "expected", "") or "a complete file",
                remedy=getattr(error, "remedy", "") or "check the file, or fetch it again",
            ) from error
        document = Document([], notes=(why,))
    if redactor:
        document = redactor.document(document)
    status: Status = "read" if document.whole else "in part"
    notes = document.notes
    if not document.rows and not document.sections:
        status, notes = "unread", notes or ("no text",)
    read = FileRead(name=file.name, status=status, notes=notes, sha256=sha256)
    return _Unit(file, read, document)


def _passages(units: Sequence[_Unit], cutting: Cutting, progress: Progress) -> Documents:
    """Split what was read into passages with ids; drop those that an earlier file has."""
    pooled = _texts_by_title(row for unit in units if unit.is_pooled for row in unit.document.rows)
    owners, ids = dict[int, str](), set[str]()
    passages: list[Passage] = []
    files = []
    for number, unit in enumerate(units):
        progress("chunking", number, len(units))
        name, found = unit.file.name, list(unit.passages)
        texts = pooled if unit.is_pooled else _texts_by_title(unit.document.rows)
        prefix, seen = "" if unit.is_pooled else f"{name}#", set[int]()
        for row in unit.document.rows:
            # A text with other columns, such as a tenant, is another row, unless its id is known.
            own = (row.metadata, row.id or row.metadata)
            marks = {hash((row.title, row.text, one)) for one in own}
            if seen.isdisjoint(marks):
                seen |= marks
                id = prefix + _row_id(row, texts[row.title])
                if not row.id and id in ids:
                    id += f" [{content_hash(id, json.dumps(row.metadata, sort_keys=True))[:8]}]"
                ids.add(id)
                found += _numbered(id, _row_pieces(row, cutting, name))
        pieces = []
        for section in gather(unit.document.sections, cutting):
            metadata = {"source": name, **section.metadata, **unit.document.metadata}
            pieces += _pieces(section._replace(metadata=Metadata(metadata)), cutting)
        found += _numbered(name, pieces)
        new = [passage for passage in found if _is_new(passage, unit, owners)]
        passages += new
        update = {"ids": tuple(p.id for p in new), "repeated": len(found) - len(new)}
        files.append(unit.read.model_copy(update=update))
    return Documents(passages, tuple(files))


def _is_new(passage: Passage, unit: _Unit, owners: dict[int, str]) -> bool:
    """Return whether no file before has a passage, of a row with the same columns or id."""
    is_row, name = unit.file.path.suffix.lower() in DATA, unit.file.name
    columns = frozenset(one for one in passage.metadata.items() if is_row and one[0] != "source")
    marks = {columns, passage.id if unit.is_pooled else columns}
    keys = [hash((passage.title, passage.text, mark)) for mark in marks]
    if is_new := all(owners.get(key, name) == name for key in keys):
        owners.update(dict.fromkeys(keys, name))
    return is_new


def split_text(
    id: str, title: str, text: str, metadata: Metadata, cutting: Cutting = _DEFAULT
) -> list[Passage]:
    """Return the passages of a text that is in no file."""
    section = Section((title,) if title else (), text, metadata)
    return list(_numbered(id, _pieces(section, cutting)))


def _numbered(id: str, pieces: Sequence[Section]) -> Iterator[Passage]:
    for number, piece in enumerate(pieces, start=1):
        numbered = id if len(pieces) == 1 else f"{id}#{number}"
        yield Passage(id=numbered, title=piece.title, text=piece.text, metadata=piece.metadata)


def _texts_by_title(rows: Iterable[Row]) -> dict[str, set[str]]:
    texts: dict[str, set[str]] = {}
    for row in rows:
        texts.setdefault(row.title, set()).add(row.text)
    return texts


def _row_id(row: Row, texts: Collection[str]) -> str:
    digest = content_hash(row.title, row.text)
    if row.title and not row.id and len(texts) > 1:
        return f"{row.title} [{digest[:8]}]"
    return row.id or row.title or digest


def _row_pieces(row: Row, cutting: Cutting, source: str) -> list[Section]:
    metadata = Metadata({"source": source, **row.metadata})
    if row.is_paragraph:
        metadata, cutting = row.metadata, Cutting(PARAGRAPH_TOKENS + estimate_tokens(row.title))
    return _pieces(Section((row.title,), row.text, metadata), cutting)


def read_passages(
    paths: Path | str | Iterable[Path | str],
    *,
    chunk_tokens: int | None = None,
    overlap: int = 0,
    strict: bool = False,
) -> list[Passage]:
    """Read passages from files and folders, in order, equal ones once (`read_files`).

    Files that could not be read completely are logged; `read_files` reports each.

    A passage's id is its row's id; else its title, with a short hash if the title has several
    texts; else a hash of the text. For documents it is the path below the folder, which also
    precedes the ids of rows of a data file in a folder. Long texts are split at headings, then at
    sentences, and numbered: `Title#1`, `Title#2`.

    Args:
        paths: A dataset file in its official format (HotpotQA, 2WikiMultiHopQA, MuSiQue), a
            .json, .jsonl, .csv, .tsv or .parquet file with a text and maybe `title` and `id`, a
            document (.txt, .md, .html, .rst, .eml and more; .pdf, .docx, .pptx and .xlsx with the
            extra `files`, scanned pages with `scans`), a folder of all these, or several.
        chunk_tokens: The maximum tokens of a passage, its title included; 400 by default.
        overlap: Tokens that a piece of a text shares with the one before.
        strict: Stop at the first file that cannot be read completely.

    Raises:
        InputError: No file has a passage, a path is missing or in no supported format, a file
            that was named itself does not parse, or `strict` and a file cannot be read completely.
    """
    found = read_files(paths, chunk_tokens=chunk_tokens, overlap=overlap, strict=strict)
    partly = [file for file in found.files if not file.is_whole]
    if not found.passages:
        raise _no_passages(paths, partly)
    if partly:
        _LOG.warning(
            "%d of %d files were not read whole: %s",
            len(partly), len(found.files), listed(partly, 10, "; "),
        )  # fmt: skip
    return found.passages


def _no_passages(paths: Path | str | Iterable[Path | str], files: Sequence[FileRead]) -> InputError:
    every = [paths] if isinstance(paths, (str, Path)) else paths
    reasons = f" ({listed(files, 10, '; ')})" if files else ""
    return InputError(
        f"no passages in {listed(every)}{reasons}",
        expected="dataset rows, rows with 'title' and 'text', or documents",
        remedy=f"name files of {_FORMATS}, or a folder of documents",
    )


# --- The source files of an index, so that it can follow them as they change

_SOURCES = "files.json"


class Sources(BaseModel):
    """The source files of an index; stored beside it, not needed to search it.

    Attributes:
        paths: Files and folders, relative to the folder of the index, so that all can be moved.
        files: The outcome for each file.
        chunk_tokens: The maximum tokens of a passage.
        overlap: Tokens that a piece of a text shares with the one before.
    """

    model_config = ConfigDict(frozen=True)

    paths: tuple[str, ...] = ()
    files: tuple[FileRead, ...] = ()
    chunk_tokens: int | None = None
    overlap: int = 0

    @classmethod
    def of(cls, folder: Path, **cutting: int | None) -> Self:
        """Load the sources of an index, with another `chunk_tokens` or `overlap` if given.

        If the file cannot be read, all source files are read again.
        """
        try:
            stored = cls.model_validate_json((folder / _SOURCES).read_bytes())
        except (OSError, ValidationError):
            stored = cls()
        changes: dict[str, Any] = {n: v for n, v in cutting.items() if v is not None}
        if any(getattr(stored, name) != value for name, value in changes.items()):
            changes["files"] = ()
        return stored.model_copy(update=changes)

    def with_paths(self, folder: Path, paths: Iterable[Path], *, add: bool = False) -> Self:
        """Return the sources with other paths, or with more."""
        relative = [os.path.relpath(path, folder) for path in paths]
        every = dict.fromkeys([*self.paths, *relative] if add else relative)
        return self.model_copy(update={"paths": tuple(every)})

    def read(self, folder: Path, index: Index | None = None, **options: Any) -> Documents:
        """Read the files, redacted as the index is; unchanged ones are taken from the index.

        Args:
            folder: The folder of the index.
            index: The index.
            options: `strict` and `progress` of `read_files`; `redact`, if there is no index.

        Raises:
            InputError: As `read_files`; there are no paths, or they hold no passages.
        """
        if not self.paths:
            raise InputError(
                f"{folder} does not say which files it was built from",
                expected="an index that `ga-dspy index build` made",
                remedy="name the files: ga-dspy index sync FILES --index …",
            )
        before = {file.name: file for file in self.files}

        def known(name: str, sha256: str) -> tuple[FileRead, list[Passage]] | None:
            file = before.get(name)
            if index is None or file is None or file.sha256 != sha256 or file.repeated:
                return None
            # A file that was not wholly read is read again: its reader may be installed by now.
            is_stored = file.is_whole and all(id in index for id in file.ids)
            return (file, [index.get(id) for id in file.ids]) if is_stored else None

        if index is not None:
            options["redact"] = index.redactor
        paths = [os.path.normpath(folder / path) for path in self.paths]
        found = read_files(
            paths, chunk_tokens=self.chunk_tokens, overlap=self.overlap, known=known, **options
        )
        if not found.passages:
            raise _no_passages(paths, found.files)
        return found

    def save(self, folder: Path, files: Sequence[FileRead]) -> None:
        """Store the sources beside the index, with the outcome for each file."""
        stored = self.model_copy(update={"files": tuple(files)})
        write_whole(folder / _SOURCES, stored.model_dump_json(exclude_defaults=True))
