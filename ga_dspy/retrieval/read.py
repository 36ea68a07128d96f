"""Reading of files and folders into passages: finds files, splits texts, reports on each file."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import re
import stat
from collections import defaultdict
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
from ga_dspy.storage import refused_by_disk, write_atomically
from ga_dspy.text import estimate_tokens, visible

_LOG = logging.getLogger("ga_dspy")

# --- Chunking: texts are split at headings, then at sentences; tables at lines

CHUNK_TOKENS = 400
PARAGRAPH_TOKENS = 800
"""Paragraphs of a dataset are split only above this size: gold labels refer to paragraphs."""


class Chunking(NamedTuple):
    """How texts are split.

    Attributes:
        chunk_tokens: The maximum number of tokens of a passage, its title included.
        overlap: The number of tokens that a chunk shares with the previous one.
    """

    chunk_tokens: int = CHUNK_TOKENS
    overlap: int = 0


_DEFAULT = Chunking()


def chunk_text(text: str, chunking: Chunking = _DEFAULT) -> list[str]:
    """Split a text at sentences into chunks of about equal size, none above `chunk_tokens`."""
    most, overlap = chunking
    tokens = estimate_tokens(text)
    chunks = [text]
    if tokens > most:
        # A fifth above equal shares, because sentences do not end exactly at a share.
        share = min(math.ceil(1.2 * tokens / math.ceil(1.2 * tokens / most)), most)
        chunks = _chunker(share)(text, overlap=min(overlap, share // 2) or None)
    return [chunk.strip("\n").rstrip() for chunk in chunks if chunk.strip()]


@lru_cache(maxsize=64)
def _chunker(size: int) -> Any:
    return require("semchunk", "search").chunkerify(estimate_tokens, size, memoize=False)


def gather(sections: Sequence[Section], chunking: Chunking = _DEFAULT) -> list[Section]:
    r"""Join short adjacent sections up to `chunk_tokens`, under the headings they share.

    Their other headings become part of the text. Sections of different pages, slides or sheets are
    not joined, and neither are two tables: a passage has one page and one table.

    >>> parts = [Section(("Guide", "Install"), "Run pip."), Section(("Guide", "Use"), "Call it.")]
    >>> [(joined.title, joined.text) for joined in gather(parts)]
    [('Guide', 'Install\nRun pip.\n\nUse\nCall it.')]
    """
    groups: list[list[Section]] = []
    size = 0
    for section in sections:
        tokens = estimate_tokens(section.text)
        size += tokens
        if groups and size <= chunking.chunk_tokens and _can_join(groups[-1], section):
            groups[-1].append(section)
        else:
            groups.append([section])
            size = tokens
    return [_joined(group) if len(group) > 1 else group[0] for group in groups]


def _can_join(group: Sequence[Section], section: Section) -> bool:
    def location(section: Section) -> object:
        return {k: v for k, v in section.metadata.items() if k not in ("heading", "table")}

    if section.rows and any(member.rows for member in group):
        return False
    return location(group[-1]) == location(section) and bool(_shared_path([*group, section]))


def _shared_path(group: Sequence[Section]) -> tuple[str, ...]:
    return tuple(commonprefix([section.path for section in group]))


def _joined(group: Sequence[Section]) -> Section:
    path, parts, previous = _shared_path(group), [], ""
    metadata = dict(group[0].metadata)
    for section in group:
        heading = " > ".join(section.path[len(path) :])
        is_new = heading not in ("", previous)
        parts.append(f"{heading}\n{section.text}" if is_new else section.text)
        previous = heading
        if section.rows:
            metadata |= {"table": section.metadata.get("table"), "rows": _span(section.rows)}
    joined = Section(path, "\n\n".join(parts))
    if "heading" in metadata:
        metadata["heading"] = joined.title
    return joined._replace(metadata=Metadata(metadata))


def _span(rows: Sequence[int]) -> str:
    return f"{rows[0]}-{rows[-1]}" if len(rows) > 1 else str(rows[0])


def _chunks(section: Section, chunking: Chunking) -> list[Section]:
    most, overlap = chunking
    room = max(most - estimate_tokens(section.title), most // 2)
    header, body, rows = "", section.text, section.rows
    if len(rows) > 1:
        first, _, others = body.partition("\n")
        size = estimate_tokens(first)
        if estimate_tokens(others) > room > 2 * size:  # the first line is repeated in each chunk
            header, body, rows, room = f"{first}\n", others, rows[1:], room - size
    texts = chunk_text(body, Chunking(room, min(overlap, room // 2)))
    chunks, at, line = [], 0, 0
    is_table = len(rows) == body.count("\n") + 1  # redaction may change the lines
    for text in texts:
        metadata = dict(section.metadata)
        if is_table:
            start = body.index(text, at)
            line, at = line + body.count("\n", at, start), start
            metadata["rows"] = _span(rows[line : line + text.count("\n") + 1])
        elif len(texts) > 1:  # it is unknown which chunk has the table
            metadata = {k: v for k, v in metadata.items() if k not in ("table", "rows")}
        chunks.append(section._replace(text=header + text, metadata=Metadata(metadata)))
    return chunks


# --- Finding and opening files

OUTSIDE = "a link that leads out of the folder"
_SKIPPED = {"node_modules": "third-party packages", "__pycache__": "compiled code",
            "site-packages": "third-party packages"}  # fmt: skip
_MOST_BYTES, _MOST_DATA = 500_000_000, 20_000_000_000
# Opening follows no link, and does not block on a pipe or a device.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class _File(NamedTuple):
    """A file to read, or one that is left out.

    Attributes:
        path: The path of the file.
        name: Its name in ids, unique among all files.
        folder: The resolved folder that must contain it.
        is_given: Whether the caller passed the file itself, not its folder.
        left_out: Why it is left out; empty if it is to be read.
    """

    path: Path
    name: str
    folder: Path
    is_given: bool = False
    left_out: str = ""


def _find(paths: Iterable[Path | str]) -> list[_File]:
    """Find the given files and those in the given folders.

    Raises:
        InputError: A path is missing, leads out of its folder, or is in no supported format.
    """
    found: dict[str, _File] = {}
    for path in map(Path, paths):
        is_link = path.is_symlink() and path.exists()
        if is_link and not path.resolve().is_relative_to(path.parent.resolve()):
            raise InputError(
                f"{path} is {OUTSIDE} that contains it",
                expected="a file or a folder, or a link inside one folder",
                remedy=f"pass {path.resolve()} itself, or copy it",
            )
        if path.is_dir():
            files = sorted(_walk(path), key=lambda file: file.path.parts)
        elif path.is_file() and path.suffix.lower() in READERS:
            target = path.resolve() if is_link else path
            files = [_File(target, path.name, path.parent.resolve(), is_given=True)]
        else:
            raise InputError(
                f"{path} is a {path.suffix or 'nameless'} file" if path.exists() else f"no {path}",
                expected=f"a folder of documents, or a file of {_FORMATS}",
                remedy="check the path, or convert the file",
            )
        for file in files:
            names = (file.name, f"{path.name}/{file.name}", file.path.as_posix())
            valid = map(replace_invalid, names)
            name = next((name for name in valid if name not in found), file.name)
            found[name] = file._replace(name=name)
    return list(found.values())


_FORMATS = (
    ".md, .txt, .html, .pdf, .docx, .pptx, .xlsx, .eml, .json, .jsonl, .csv, .parquet, or source "
    "code"
)


def _walk(root: Path) -> Iterator[_File]:
    def refuse(error: OSError) -> None:
        raise refused_by_disk(error.filename, error) from error

    rules: dict[Path, Any] = {}
    resolved = root.resolve()
    for top, folders, files in os.walk(root, onerror=refuse):
        folder = Path(top)
        # Like git, do not follow a link here.
        ignore = folder / ".gitignore"
        if ignore.name in files and stat.S_ISREG(ignore.lstat().st_mode):
            lines = _read_bytes(ignore, resolved).decode("utf-8", "replace").splitlines()
            rules[folder] = require("pathspec", "search").GitIgnoreSpec.from_lines(lines)
        for name in [*folders, *files]:
            path, is_folder = folder / name, name in folders
            reason = _why_left_out(path, rules, resolved, is_folder=is_folder)
            relative = path.relative_to(root).as_posix()
            if not is_folder:
                yield _File(path, relative, resolved, left_out=reason)
            elif reason:
                folders.remove(name)
                yield _File(path, f"{relative}/", resolved, left_out=reason)


def _why_left_out(path: Path, rules: dict[Path, Any], root: Path, *, is_folder: bool) -> str:
    """Return why a file or a folder is left out; "" if it is to be read."""
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
    for folder, spec in rules.items():  # the rules of deeper folders come later and take precedence
        if path.is_relative_to(folder):
            verdict = spec.check_file(path.relative_to(folder).as_posix() + slash).include
            ignored = ignored if verdict is None else verdict
    return ignored


def _read_bytes(path: Path, folder: Path) -> bytes:
    """Read a regular file in a folder, safe against links that replace it meanwhile.

    The opened file must be the one at the path, and the resolved path must be in the folder.

    Raises:
        InputError: The file is not regular, outside the folder, or too large.
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


# --- Reading files into passages

Status = Literal["read", "in part", "unread", "left out"]


class FileRead(BaseModel):
    """The outcome of reading a file.

    Attributes:
        name: The path relative to the folder that was read; a slash ends that of a skipped folder.
        status: "read" completely, "in part", "unread", or "left out" on purpose (hidden, ignored).
        notes: Why it was not read, or how, if that is unusual.
        ids: The ids of its passages.
        repeated: The number of its other passages, which an earlier file has too.
        sha256: The SHA-256 of its contents; empty if they were not read.
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
        """Whether the file was read completely, or left out on purpose."""
        return self.status in ("read", "left out")

    def __str__(self) -> str:
        """Describe the outcome on one line."""
        details = list(self.notes)
        if self.repeated:
            details.insert(0, f"{self.repeated:,} as in another file")
        if self.ids:
            noun = "passage" if len(self.ids) == 1 else "passages"
            details.insert(0, f"{len(self.ids):,} {noun}")
        line = f"{self.name}: {self.status}".replace("\n", "\\n")
        return visible(f"{line} ({'; '.join(details)})" if details else line)


UPLOAD = re.compile(r"upload(-[0-9a-f]{12})?:")
"""Matches the ids of passages that were added over HTTP, and belong to no file."""


class Documents(NamedTuple):
    """The passages of files and folders, and the outcome for each file.

    Attributes:
        passages: The passages.
        files: The outcome for each file.
        redacted_by: The name of the redaction of the files; empty for none.
    """

    passages: list[Passage]
    files: tuple[FileRead, ...]
    redacted_by: str = ""

    def with_uploads(self, index: Index) -> Documents:
        """Add the passages of an index that no file has: uploads over HTTP and imported facts."""
        uploads = [each for each in index if UPLOAD.match(each.id) or each.imported]
        return self._replace(passages=[*self.passages, *uploads])

    def deleted_from(self, index: Index) -> int:
        """Return the number of passages of an index that are not among these."""
        ids = {passage.id for passage in self.passages}
        return sum(passage.id not in ids for passage in index)


Known = Callable[[str, str], tuple[FileRead, list[Passage]] | None]
"""Returns a file that was read before, by its name and the SHA-256 of its contents."""


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

    Passages with equal title and text are read once, unless they are rows with different columns,
    such as a tenant. Hidden files, files that a `.gitignore` in the folder names, links, virtual
    environments and stored indexes are left out. A file that cannot be read is reported, and does
    not stop the others.

    The metadata of a passage are its `source` (the file), `page`, `slide` or `sheet`, its `table`
    and `rows`, its `heading`, the properties of the document (title, author, date, tags), and the
    other columns of a row.

    Args:
        paths: As in `read_passages`.
        chunk_tokens: The maximum number of tokens of a passage, its title included; 400 by default.
            Paragraphs of a dataset are not split up to 800.
        overlap: The number of tokens that a chunk shares with the previous one.
        strict: Stop at the first file that cannot be read completely.
        progress: Called with the stage ("reading FILE", "chunking"), files done, files in all.
        known: Returns files that were read before.
        redact: Redacts personal data in each document before it is split: "presidio",
            "module:function", or a function from text to text. File names are kept.

    Raises:
        InputError: A path is missing or in no supported format, a file that was passed directly
            cannot be read, `strict` and a file cannot be read completely, a number is out of range,
            or `redact` fails.
        MissingExtra: The library that reads a file that was passed directly is not installed.
    """
    chunking = Chunking(CHUNK_TOKENS if chunk_tokens is None else chunk_tokens, overlap)
    if chunking.chunk_tokens < 20 or not 0 <= overlap <= chunking.chunk_tokens // 2:
        raise InputError(
            f"chunk_tokens is {chunking.chunk_tokens}, overlap {overlap}",
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
                    f"{file.name} was not read completely ({'; '.join(unit.read.notes)})",
                    expected="files that can be read completely",
                    remedy="repair it, name it in a .gitignore, or read without strict",
                )
    result = _passages(units, chunking, progress)
    return result._replace(redacted_by=redactor.name) if redactor else result


class _Contents(NamedTuple):
    """The contents of a file: a document or rows, or the passages of a known file."""

    file: _File
    read: FileRead
    document: Document = Document([])
    passages: Sequence[Passage] = ()

    @property
    def is_pooled(self) -> bool:
        """Whether its rows are in one id namespace with those of other given data files."""
        return self.file.is_given and bool(self.document.rows)


def _read(
    file: _File, reader: DocumentReader, known: Known | None, redactor: Redactor | None
) -> _Contents:
    """Read and redact a file; an error becomes a note, unless the file was passed directly."""
    if file.left_out:
        return _Contents(file, FileRead(name=file.name, status="left out", notes=(file.left_out,)))
    extension, sha256 = Path(file.name).suffix.lower(), ""
    try:
        if not file.path.is_file():
            raise InputError("not a regular file" if file.path.exists() else "a broken link")
        if extension not in READERS:
            raise InputError(f"{extension} is not a supported format")
        data = _read_bytes(file.path, file.folder)
        sha256 = hashlib.sha256(data).hexdigest()
        is_pooled = file.is_given and extension in DATA
        if known and not is_pooled and (before := known(file.name, sha256)):
            return _Contents(file, before[0], passages=before[1])
        document = reader.read(file.name, data)
    except MissingExtra as error:
        if file.is_given:
            raise
        document = Document([], notes=(error.remedy,))
    except Exception as error:  # parsers raise anything for a damaged file; the error is reported
        cause = shorten(str(getattr(error, "strerror", None) or error), 100, placeholder="…")
        cause = error.found if isinstance(error, InputError) else f"{type(error).__name__}: {cause}"
        cause = redactor(cause) if redactor else cause
        if file.is_given:
            raise InputError(
                f"{file.path} cannot be read as {file.path.suffix[1:] or 'text'} ({cause})",
                expected=getattr(error, "expected", "") or "a complete file",
                remedy=getattr(error, "remedy", "") or "check the file, or fetch it again",
            ) from error
        document = Document([], notes=(cause,))
    if redactor:
        document = redactor.document(document)
    status: Status = "read" if document.whole else "in part"
    notes = document.notes
    if not document.rows and not document.sections:
        status, notes = "unread", notes or ("no text",)
    read = FileRead(name=file.name, status=status, notes=notes, sha256=sha256)
    return _Contents(file, read, document)


def _passages(units: Sequence[_Contents], chunking: Chunking, progress: Progress) -> Documents:
    """Split the contents of files into passages with ids; drop those that an earlier file has."""
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
            # The same text with other columns is another row, unless the id is the same.
            variants = (row.metadata, row.id or row.metadata)
            keys = {hash((row.title, row.text, variant)) for variant in variants}
            if seen.isdisjoint(keys):
                seen |= keys
                id = prefix + _row_id(row, texts[row.title])
                if not row.id and id in ids:
                    id += f" [{content_hash(id, json.dumps(row.metadata, sort_keys=True))[:8]}]"
                ids.add(id)
                found += _numbered(id, _row_chunks(row, chunking, name))
        chunks = []
        for section in gather(unit.document.sections, chunking):
            metadata = {"source": name, **section.metadata, **unit.document.metadata}
            chunks += _chunks(section._replace(metadata=Metadata(metadata)), chunking)
        found += _numbered(name, chunks)
        new = [passage for passage in found if _is_new(passage, unit, owners)]
        passages += new
        update = {"ids": tuple(p.id for p in new), "repeated": len(found) - len(new)}
        files.append(unit.read.model_copy(update=update))
    return Documents(passages, tuple(files))


def _is_new(passage: Passage, unit: _Contents, owners: dict[int, str]) -> bool:
    """Return whether no earlier file has the passage; record its file as the owner if so.

    Rows of data files are the same if their columns or, for given files, their ids are equal, too.
    """
    is_row, name = unit.file.path.suffix.lower() in DATA, unit.file.name
    columns = frozenset(item for item in passage.metadata.items() if is_row and item[0] != "source")
    variants = {columns, passage.id if unit.is_pooled else columns}
    keys = [hash((passage.title, passage.text, variant)) for variant in variants]
    if is_new := all(owners.get(key, name) == name for key in keys):
        owners.update(dict.fromkeys(keys, name))
    return is_new


def split_text(
    id: str, title: str, text: str, metadata: Metadata, chunking: Chunking = _DEFAULT
) -> list[Passage]:
    """Split a text that belongs to no file into passages."""
    section = Section((title,) if title else (), text, metadata)
    return list(_numbered(id, _chunks(section, chunking)))


def _numbered(id: str, chunks: Sequence[Section]) -> Iterator[Passage]:
    for number, chunk in enumerate(chunks, start=1):
        numbered = id if len(chunks) == 1 else f"{id}#{number}"
        yield Passage(id=numbered, title=chunk.title, text=chunk.text, metadata=chunk.metadata)


def _texts_by_title(rows: Iterable[Row]) -> dict[str, set[str]]:
    texts = defaultdict[str, set[str]](set)
    for row in rows:
        texts[row.title].add(row.text)
    return texts


def _row_id(row: Row, texts: Collection[str]) -> str:
    digest = content_hash(row.title, row.text)
    if row.title and not row.id and len(texts) > 1:
        return f"{row.title} [{digest[:8]}]"
    return row.id or row.title or digest


def _row_chunks(row: Row, chunking: Chunking, source: str) -> list[Section]:
    metadata = Metadata({"source": source, **row.metadata})
    if row.is_paragraph:
        metadata, chunking = row.metadata, Chunking(PARAGRAPH_TOKENS + estimate_tokens(row.title))
    return _chunks(Section((row.title,), row.text, metadata), chunking)


def read_passages(
    paths: Path | str | Iterable[Path | str],
    *,
    chunk_tokens: int | None = None,
    overlap: int = 0,
    strict: bool = False,
) -> list[Passage]:
    """Read passages from files and folders, in order and without duplicates (`read_files`).

    Files that could not be read completely are logged; `read_files` reports on each file.

    The id of a row is its `id`; without one, its title, with a short hash if the title has several
    texts; without a title, a hash of its text. If its data file was found in a folder, the path of
    the file precedes the id. The id of a document is its path relative to the folder. Long texts
    are split at headings, then at sentences, and numbered: `Title#1`, `Title#2`.

    Args:
        paths: A dataset file in its official format (HotpotQA, 2WikiMultiHopQA, MuSiQue), a
            .json, .jsonl, .csv, .tsv or .parquet file with a text and maybe `title` and `id`, a
            document (.txt, .md, .html, .rst, .eml and more; .pdf, .docx, .pptx and .xlsx with the
            extra `files`, scanned pages with `scans`), a folder of all these, or several.
        chunk_tokens: The maximum number of tokens of a passage, its title included; 400 by default.
        overlap: The number of tokens that a chunk shares with the previous one.
        strict: Stop at the first file that cannot be read completely.

    Raises:
        InputError: No file has a passage, a path is missing or in no supported format, a file that
            was passed directly does not parse, or `strict` and a file cannot be read completely.
    """
    read = read_files(paths, chunk_tokens=chunk_tokens, overlap=overlap, strict=strict)
    incomplete = [file for file in read.files if not file.is_whole]
    if not read.passages:
        raise _no_passages(paths, incomplete)
    if incomplete:
        counts = f"{len(incomplete)} of {len(read.files)}"
        _LOG.warning("%s files were not read completely: %s", counts, listed(incomplete, 10, "; "))
    return read.passages


def _no_passages(paths: Path | str | Iterable[Path | str], files: Sequence[FileRead]) -> InputError:
    every = [paths] if isinstance(paths, (str, Path)) else paths
    reasons = f" ({listed(files, 10, '; ')})" if files else ""
    return InputError(
        f"no passages in {listed(every)}{reasons}",
        expected="dataset rows, rows with 'title' and 'text', or documents",
        remedy=f"name files of {_FORMATS}, or a folder of documents",
    )


# --- The source files of an index, for `ga-dspy index sync`

_SOURCES = "files.json"


class Sources(BaseModel):
    """The source files of an index, stored in its folder; a search does not need them.

    Attributes:
        paths: Files and folders, relative to the folder of the index: they can be moved together.
        files: The outcome for each file.
        chunk_tokens: The maximum number of tokens of a passage.
        overlap: The number of tokens that a chunk shares with the previous one.
    """

    model_config = ConfigDict(frozen=True)

    paths: tuple[str, ...] = ()
    files: tuple[FileRead, ...] = ()
    chunk_tokens: int | None = None
    overlap: int = 0

    @classmethod
    def of(cls, folder: Path, **chunking: int | None) -> Self:
        """Load the sources of an index; `chunk_tokens` and `overlap` override the stored values.

        If the stored sources cannot be read, all files will be read again.
        """
        try:
            stored = cls.model_validate_json((folder / _SOURCES).read_bytes())
        except (OSError, ValidationError):
            stored = cls()
        changes: dict[str, Any] = {n: v for n, v in chunking.items() if v is not None}
        if any(getattr(stored, name) != value for name, value in changes.items()):
            changes["files"] = ()
        return stored.model_copy(update=changes)

    def with_paths(self, folder: Path, paths: Iterable[Path], *, add: bool = False) -> Self:
        """Return the sources with other paths, or with these added."""
        relative = [os.path.relpath(path, folder) for path in paths]
        every = dict.fromkeys([*self.paths, *relative] if add else relative)
        return self.model_copy(update={"paths": tuple(every)})

    def read(self, folder: Path, index: Index | None = None, **options: Any) -> Documents:
        """Read the files with the redaction of the index; reuse its passages of unchanged files.

        Args:
            folder: The folder of the index.
            index: The index.
            options: `strict` and `progress` of `read_files`; `redact`, if there is no index.

        Raises:
            InputError: As in `read_files`; there are no paths, or no passages.
        """
        if not self.paths:
            raise InputError(
                f"{folder} does not say which files it was built from",
                expected="an index built with `ga-dspy index build`",
                remedy="name the files: ga-dspy index sync FILES --index …",
            )
        before = {file.name: file for file in self.files}

        def known(name: str, sha256: str) -> tuple[FileRead, list[Passage]] | None:
            file = before.get(name)
            if index is None or file is None or file.sha256 != sha256 or file.repeated:
                return None
            # An incomplete file is read again: its reader may be installed by now.
            is_stored = file.is_whole and all(map(index.__contains__, file.ids))
            return (file, list(map(index.get, file.ids))) if is_stored else None

        if index is not None:
            options["redact"] = index.redactor
        paths = [os.path.normpath(folder / path) for path in self.paths]
        options |= {"chunk_tokens": self.chunk_tokens, "overlap": self.overlap}
        read = read_files(paths, known=known, **options)
        if not read.passages:
            raise _no_passages(paths, read.files)
        return read

    def save(self, folder: Path, files: Sequence[FileRead]) -> None:
        """Store the sources in the folder of the index, with the outcome for each file."""
        stored = self.model_copy(update={"files": tuple(files)})
        write_atomically(folder / _SOURCES, stored.model_dump_json(exclude_defaults=True))
