"""Files and folders into passages: what is read, how it is cut, and what was not read and why."""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import InputError, MissingExtra, listed, require
from ga_dspy.passage import Metadata, Passage, sound
from ga_dspy.retrieval.bounded import DocumentReader
from ga_dspy.retrieval.documents import PARSERS, Document, Section
from ga_dspy.retrieval.encoders import Progress, silent
from ga_dspy.retrieval.protocol import Row, content_hash
from ga_dspy.retrieval.rows import ENDINGS, read_table
from ga_dspy.storage import refused_by_disk
from ga_dspy.text import estimate_tokens, visible

# --- Cutting: at headings first, then at sentences, tables at lines.

CHUNK_TOKENS = 400
PARAGRAPH_TOKENS = 800
"""A dataset's own paragraph is cut above so many tokens: it is the unit that gold labels count."""


class Cutting(NamedTuple):
    """How texts are cut.

    Attributes:
        chunk_tokens: The most tokens of a passage, its title among them.
        overlap: Tokens that a piece shares with the one before.
    """

    chunk_tokens: int = CHUNK_TOKENS
    overlap: int = 0


_DEFAULT = Cutting()


def chunk_text(text: str, cutting: Cutting = _DEFAULT) -> list[str]:
    """Cut a text at sentences into pieces of about equal size, none above `chunk_tokens`."""
    most, overlap = cutting
    tokens = estimate_tokens(text)
    if tokens <= most:
        return [text.strip("\n").rstrip()] if text.strip() else []
    # A fifth above equal shares, because sentences do not end where the share does.
    share = min(math.ceil(1.2 * tokens / math.ceil(1.2 * tokens / most)), most)
    pieces = _chunker(share)(text, overlap=min(overlap, share // 2) or None)
    return [piece.strip("\n").rstrip() for piece in pieces if piece.strip()]


@lru_cache(maxsize=64)
def _chunker(size: int) -> Any:
    return require("semchunk", "search").chunkerify(estimate_tokens, size, memoize=False)


def gather(sections: Sequence[Section], cutting: Cutting = _DEFAULT) -> list[Section]:
    r"""Join neighbouring short sections, up to `chunk_tokens`, under the headings they share.

    The headings of joined sections stand in the text, above theirs. Pages, slides and sheets stay
    apart, so that each passage has its own.

    >>> parts = [Section(("Guide", "Install"), "Run pip."), Section(("Guide", "Use"), "Call it.")]
    >>> [(joined.title, joined.text) for joined in gather(parts)]
    [('Guide', 'Install\nRun pip.\n\nUse\nCall it.')]
    """
    groups: list[list[Section]] = []
    size = 0
    for section in sections:
        tokens = estimate_tokens(section.text)
        if (
            groups
            and size + tokens <= cutting.chunk_tokens
            and _apart(groups[-1][-1]) == _apart(section)
            and _shared([*groups[-1], section])
        ):
            groups[-1].append(section)
            size += tokens
        else:
            groups.append([section])
            size = tokens
    return [_joined(group) for group in groups]


def _apart(section: Section) -> object:
    """What keeps sections apart, whatever their headings."""
    return section.header, {k: v for k, v in section.metadata.items() if k != "heading"}


def _shared(group: Sequence[Section]) -> tuple[str, ...]:
    levels = zip(*(section.path for section in group), strict=False)
    return tuple(level[0] for level in takewhile(lambda names: len(set(names)) == 1, levels))


def _joined(group: Sequence[Section]) -> Section:
    if len(group) == 1:
        return group[0]
    path = _shared(group)
    parts = []
    for section in group:
        heading = " > ".join(section.path[len(path) :])
        parts.append(f"{heading}\n{section.text}" if heading else section.text)
    joined = group[0]._replace(path=path, text="\n\n".join(parts))
    named = {"heading": joined.title} if "heading" in joined.metadata else {}
    return joined._replace(metadata=Metadata({**joined.metadata, **named}))


def _pieces(section: Section, cutting: Cutting) -> list[Section]:
    (most, overlap), count = cutting, estimate_tokens
    room = max(most - count(section.title), most // 2)
    head, body = f"{section.header}\n", section.text
    is_cut = bool(section.header) and count(body) > room > 2 * count(head)
    if is_cut:  # the names of the columns stand above each piece of a table
        body, room = body.removeprefix(head), room - count(head)
    pieces = chunk_text(body, Cutting(room, min(overlap, room // 2)))
    return [section._replace(text=head + piece if is_cut else piece) for piece in pieces]


# --- Which files

_SKIPPED = {"node_modules": "packages of others", "__pycache__": "compiled code",
            "site-packages": "packages of others"}  # fmt: skip


class _Found(NamedTuple):
    """A file: its path, its name in ids, the folder that it must lie in, as it really is called.

    And whether it was named itself, and why it is left out.
    """

    path: Path
    name: str
    folder: Path
    is_given: bool = False
    left_out: str = ""


def _find(paths: Iterable[Path | str]) -> list[_Found]:
    """The files of paths and folders, each with a name of its own.

    Raises:
        InputError: A path is missing, or is a file of no kind that is read.
    """
    found: dict[str, _Found] = {}
    for path in map(Path, paths):
        if path.is_dir():
            _target(path)
            files = sorted(_walk(path), key=lambda file: file.path.parts)
        elif path.is_file() and path.suffix.lower() in (*PARSERS, *ENDINGS):
            files = [_Found(_target(path), path.name, path.parent.resolve(), is_given=True)]
        else:
            there = path.exists()
            raise InputError(
                f"{path} is a {path.suffix or 'nameless'} file" if there else f"no {path}",
                expected="a folder of documents, or a file of " + _kinds(),
                remedy="check the path, or convert the file",
            )
        for file in files:
            options = (file.name, f"{path.name}/{file.name}", file.path.as_posix())
            name = next((name for name in map(sound, options) if name not in found), file.name)
            found[name] = file._replace(name=name)
    return list(found.values())


def _target(path: Path) -> Path:
    """What a path that was named leads to.

    Raises:
        InputError: It is a link that leads out of its folder, as `folder/*` may name some.
    """
    if not path.is_symlink():
        return path
    target = path.resolve()
    if not target.is_relative_to(path.parent.resolve()):
        raise InputError(
            f"{path} is {OUTSIDE} it lies in",
            expected="a file or a folder, or a link that stays there",
            remedy=f"name {target} itself, or copy it",
        )
    return target


def _kinds() -> str:
    return ", ".join(ending for ending in (*ENDINGS, *PARSERS) if ending)


def _walk(root: Path) -> Iterator[_Found]:
    rules: dict[Path, Any] = {}
    real = root.resolve()
    for top, folders, files in os.walk(root, onerror=_refused):
        at = Path(top)
        if ".gitignore" in files and (at / ".gitignore").is_file():
            lines = _bytes(at / ".gitignore", real).decode("utf-8", "replace").splitlines()
            rules[at] = require("pathspec", "search").GitIgnoreSpec.from_lines(lines)
        below = {name: _left_out(at / name, rules, real, "/") for name in folders}
        folders[:] = [name for name in folders if not below[name]]
        left = {f"{name}/": why for name, why in below.items() if why}
        left |= {name: _left_out(at / name, rules, real, "") for name in files}
        above = "" if at == root else f"{at.relative_to(root).as_posix()}/"
        for name, why in left.items():
            yield _Found(at / name, above + name, real, left_out=why)


def _bytes(path: Path, folder: Path) -> bytes:
    """The bytes of a regular file in a folder.

    A link is followed nowhere, whatever becomes one while files are read: what was opened must be
    what stands at that path, and the path must lie in the folder.

    Raises:
        InputError: It is no regular file, lies outside the folder, or is too large.
    """
    try:
        opened = os.open(path, os.O_RDONLY | _NO_LINK)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it became a link after it was found
            raise InputError(OUTSIDE) from error
        raise
    with os.fdopen(opened, "rb") as file:
        now, real = os.fstat(opened), path.resolve()
        if not stat.S_ISREG(now.st_mode):
            raise InputError("no regular file")
        if not (real.is_relative_to(folder) and os.path.samestat(now, real.stat())):
            raise InputError(OUTSIDE)
        most = _MOST_DATA if path.suffix.lower() in ENDINGS else _MOST_BYTES
        if now.st_size > most:
            raise InputError(
                f"it has {now.st_size:,} bytes", expected=f"{most:,} at most", remedy="split it"
            )
        return file.read(now.st_size)


# A pipe or a device is not waited for.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_MOST_BYTES, _MOST_DATA = 500_000_000, 20_000_000_000
OUTSIDE = "a link that leads out of the folder"


def _refused(error: OSError) -> None:
    raise refused_by_disk(error.filename, error) from error


def _left_out(path: Path, rules: dict[Path, Any], root: Path, slash: str) -> str:
    """Why a file or a folder is not to be read; empty where it is."""
    if path.name.startswith("."):
        return "hidden"
    named = False
    for above, spec in rules.items():  # the rules of a folder below come later, and win
        if path.is_relative_to(above):
            found = spec.check_file(path.relative_to(above).as_posix() + slash).include
            named = named if found is None else found
    if named:
        return "named in .gitignore"
    if path.is_symlink() and path.exists():
        if not path.resolve().is_relative_to(root):
            return OUTSIDE
        return "a link to a folder" if slash else "a link to a file of the folder"
    if not slash:
        return ""
    if (path / "pyvenv.cfg").is_file():
        return "a virtual environment"
    is_index = (path / "manifest.json").is_file() and any(path.glob("contents-*"))
    return "a stored index" if is_index else _SKIPPED.get(path.name, "")


# --- Files as passages

Status = Literal["read", "in part", "unread", "left out"]


class FileRead(BaseModel):
    """What became of a file.

    Attributes:
        name: Its path below the folder that was read; of a folder that was left out, with a slash.
        status: "read" whole, "in part", "unread", or "left out" on purpose (hidden, ignored).
        notes: Why not, and how it was read where that is no matter of course.
        ids: Its passages.
        repeated: How many more of its passages stand in a file before it.
        sha256: Of its bytes; empty where they were not read.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    status: Status = "read"
    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    repeated: int = 0
    sha256: str = ""

    def __str__(self) -> str:
        """The file on one line."""
        read = f"{len(self.ids):,} passages" if self.ids else ""
        read = "1 passage" if len(self.ids) == 1 else read
        more = f"{self.repeated:,} as in another file" if self.repeated else ""
        said = "; ".join(filter(None, (read, more, *self.notes)))
        name = self.name.replace("\n", "\\n")
        return visible(f"{name}: {self.status}{f' ({said})' if said else ''}")


class Documents(NamedTuple):
    """The passages of files and folders, and what became of each file."""

    passages: list[Passage]
    files: tuple[FileRead, ...]


Known = Callable[[str, str], tuple[FileRead, list[Passage]] | None]
"""What is known of a file by its name and the SHA-256 of its bytes: it need not be read again."""


def read_files(
    paths: Path | str | Iterable[Path | str],
    *,
    chunk_tokens: int | None = None,
    overlap: int = 0,
    strict: bool = False,
    progress: Progress = silent,
    known: Known | None = None,
) -> Documents:
    """Read passages from files and folders, and say what became of each file.

    Equal title and text count once. Of a folder, hidden files, those that a `.gitignore` in it
    names, links, virtual environments and stored indexes are left out; a file that cannot be read
    is named, and the others are read.

    Metadata of a passage: `source` (the file), `page`, `slide` or `sheet`, `heading`, what a
    document says of itself (title, author, date, tags), and the other columns of a row.

    Args:
        paths: As `read_passages`.
        chunk_tokens: The most tokens of a passage with its title; 400 where left out. A dataset's
            own paragraphs stay whole up to 800.
        overlap: Tokens that a piece of a text shares with the one before.
        strict: Stop at the first file that cannot be read whole.
        progress: Called with the stage ("reading FILE", "chunking"), files done, files in all.
        known: Gives what is known of a file that was read before.

    Raises:
        InputError: A path is missing or of no known kind, a file that was named itself cannot be
            read, `strict` and some file cannot be read whole, or a number is out of range.
        MissingExtra: What reads a file that was named itself is not installed.
    """
    cutting = Cutting(chunk_tokens or CHUNK_TOKENS, overlap)
    if cutting.chunk_tokens < 20 or not 0 <= overlap <= cutting.chunk_tokens // 2:
        raise InputError(
            f"chunk_tokens is {cutting.chunk_tokens}, overlap {overlap}",
            expected="chunk_tokens from 20, an overlap of at most half of it",
            remedy=f"pass chunk_tokens={CHUNK_TOKENS}, overlap=0",
        )
    files = _find([paths] if isinstance(paths, (str, Path)) else paths)
    units = []
    with DocumentReader() as reader:
        for number, file in enumerate(files):
            progress(f"reading {visible(file.name)}", number, len(files))
            units.append(unit := _read(file, reader, known))
            if strict and unit.read.status in ("in part", "unread"):
                raise InputError(
                    f"{file.name} was not read whole ({'; '.join(unit.read.notes)})",
                    expected="files that can be read whole",
                    remedy="mend it, name it in a .gitignore, or read without strict",
                )
    return _cut(units, cutting, progress)


class _Unit(NamedTuple):
    """What was read of a file: rows or a document, or passages that are known."""

    file: _Found
    read: FileRead
    document: Document = Document([])
    passages: Sequence[Passage] = ()

    @property
    def is_pooled(self) -> bool:
        """Whether its rows are named among those of the other data files."""
        return self.file.is_given and bool(self.document.rows)


def _read(file: _Found, reader: DocumentReader, known: Known | None) -> _Unit:
    """Read a file; what it cannot be read for is its note, or raised where it was named itself."""
    if file.left_out:
        return _Unit(file, FileRead(name=file.name, status="left out", notes=(file.left_out,)))
    sha256 = ""
    try:
        if not file.path.is_file():
            raise InputError("no regular file" if file.path.exists() else "a link to nothing")
        ending = Path(file.name).suffix.lower()
        if ending not in PARSERS and ending not in ENDINGS:
            raise InputError(f"{ending} is no kind of file that is read")
        data = _bytes(file.path, file.folder)
        sha256 = hashlib.sha256(data).hexdigest()
        is_data = ending in ENDINGS
        if known and not (is_data and file.is_given) and (before := known(file.name, sha256)):
            return _Unit(file, before[0], passages=before[1])
        document = (read_table if is_data else reader.read)(file.name, data)
    except Exception as error:  # whatever a library makes of a damaged file, the file is named
        if file.is_given:
            raise _named(file.path, error) from error
        read = FileRead(name=file.name, status="unread", notes=(_why(error),), sha256=sha256)
        return _Unit(file, read)
    is_empty = not document.rows and not document.sections
    status: Status = "unread" if is_empty else "read" if document.whole else "in part"
    notes = document.notes or ("no text",) if is_empty else document.notes
    return _Unit(
        file, FileRead(name=file.name, status=status, notes=notes, sha256=sha256), document
    )


def _why(error: Exception) -> str:
    if isinstance(error, MissingExtra):
        return error.remedy
    said = " ".join(str(getattr(error, "strerror", None) or error).split())[:100]
    return error.found if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


def _named(path: Path, error: Exception) -> Exception:
    return error if isinstance(error, MissingExtra) else InputError(
        f"{path} does not read as {path.suffix[1:] or 'text'} ({_why(error)})",
        expected=getattr(error, "expected", "") or "a whole file",
        remedy=getattr(error, "remedy", "") or "check the file, or fetch it again",
    )  # fmt: skip


def _cut(units: Sequence[_Unit], cutting: Cutting, progress: Progress) -> Documents:
    """Cut what was read into passages, name them, and drop what stands in two files."""
    pooled = _titles(row for unit in units if unit.is_pooled for row in unit.document.rows)
    owners: dict[tuple[str, str], str] = {}
    passages: list[Passage] = []
    files = []
    for number, unit in enumerate(units):
        progress("chunking", number, len(units))
        name, found = unit.file.name, list(unit.passages)
        titles = pooled if unit.is_pooled else _titles(unit.document.rows)
        prefix = "" if unit.is_pooled else f"{name}#"
        once: dict[tuple[str, str], Row] = {}
        for row in unit.document.rows:
            if once.setdefault((row.title, row.text), row) is row:
                found += _of_row(row, titles, cutting, name, prefix)
        found += _of_document(unit.document, name, cutting)
        kept = [p for p in found if owners.setdefault((p.title, p.text), name) == name]
        passages += kept
        held = {"ids": tuple(p.id for p in kept), "repeated": len(found) - len(kept)}
        files.append(unit.read.model_copy(update=held))
    return Documents(passages, tuple(files))


def _of_document(document: Document, name: str, cutting: Cutting) -> Iterator[Passage]:
    found = []
    for section in gather(document.sections, cutting):
        about = Metadata({"source": name, **section.metadata, **document.metadata})
        found += _pieces(section._replace(metadata=about), cutting)
    return _numbered(name, found)


def _numbered(id: str, pieces: Sequence[Section]) -> Iterator[Passage]:
    for number, piece in enumerate(pieces, start=1):
        numbered = id if len(pieces) == 1 else f"{id}#{number}"
        yield Passage(id=numbered, title=piece.title, text=piece.text, metadata=piece.metadata)


def _titles(rows: Iterable[Row]) -> dict[str, set[str]]:
    texts: dict[str, set[str]] = {}
    for row in rows:
        texts.setdefault(row.title, set()).add(row.text)
    return texts


def _of_row(
    row: Row, texts: dict[str, set[str]], cutting: Cutting, name: str, prefix: str
) -> Iterator[Passage]:
    digest = content_hash(row.title, row.text)
    id = row.id or row.title or digest
    if row.title and not row.id and len(texts[row.title]) > 1:
        id = f"{row.title} [{digest[:8]}]"
    section = Section((row.title,), row.text, Metadata({"source": name, **row.metadata}))
    if not row.is_paragraph:
        return _numbered(prefix + id, _pieces(section, cutting))
    texts_of = chunk_text(row.text, Cutting(PARAGRAPH_TOKENS))
    return _numbered(
        prefix + id, [section._replace(text=text, metadata=row.metadata) for text in texts_of]
    )


# --- The door in Python

_LOG = logging.getLogger("ga_dspy")
_NAMED = 10


def read_passages(
    paths: Path | str | Iterable[Path | str],
    *,
    chunk_tokens: int | None = None,
    overlap: int = 0,
    strict: bool = False,
) -> list[Passage]:
    """Read passages from files and folders, in order, equal title and text once.

    Files that could not be read whole are logged; `read_files` says what became of each.

    A passage's id is its row's id; else its title, with a short hash where the title has several
    texts; else a hash of the text. For documents it is the path below the folder, which also stands
    before the ids of rows of a data file in a folder. Long texts are cut at headings, then at
    sentences, and numbered: `Title#1`, `Title#2`.

    Args:
        paths: A dataset file in its official format (HotpotQA, 2WikiMultiHopQA, MuSiQue), a
            .json, .jsonl, .csv, .tsv or .parquet file with a text and maybe `title` and `id`, a
            document (.txt, .md, .html, .rst, .eml, .epub and more; .pdf, .docx, .pptx and .xlsx
            with the extra `files`), a folder of all these, or several.
        chunk_tokens: The most tokens of a passage with its title; 400 where left out.
        overlap: Tokens that a piece of a text shares with the one before.
        strict: Stop at the first file that cannot be read whole.

    Raises:
        InputError: Nothing could be used, a path is missing or of no known kind, a file that was
            named itself does not parse, or `strict` and some file cannot be read whole.
    """
    found = read_files(paths, chunk_tokens=chunk_tokens, overlap=overlap, strict=strict)
    partly = [str(file) for file in found.files if file.status in ("in part", "unread")]
    said = listed(partly, _NAMED, "; ")
    if not found.passages:
        raise nothing_read(paths, said)
    if partly:
        _LOG.warning("%d of %d files were not read whole: %s", len(partly), len(found.files), said)
    return found.passages


def nothing_read(paths: Path | str | Iterable[Path | str], said: str) -> InputError:
    """The error where files hold no passage."""
    every = [paths] if isinstance(paths, (str, Path)) else paths
    return InputError(
        f"no passages in {listed(every)}{f' ({said})' if said else ''}",
        expected="dataset rows, rows with 'title' and 'text', or documents",
        remedy=f"point at files of {_kinds()}, or a folder of documents",
    )
