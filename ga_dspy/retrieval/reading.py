"""Reading passages from files: datasets, tables of titled texts, folders of documents."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval.chunking import TokenCounter, chunk_text, gather
from ga_dspy.retrieval.documents import PARSERS, read_sections
from ga_dspy.retrieval.results import content_hash
from ga_dspy.retrieval.rows import ENDINGS, Row, read_rows
from ga_dspy.tokens import estimate_tokens

_log = logging.getLogger(__name__)


class Corpus(NamedTuple):
    """Passages, and how often a row or file could not be used, by reason."""

    passages: list[Passage]
    flaws: Counter[str]


class NoPassages(InputError):
    """The files hold no passage."""

    def __init__(self, paths: list[Path], flaws: Counter[str]) -> None:
        seen = f" ({_listed(flaws)})" if flaws else ""
        super().__init__(
            f"no passages in {', '.join(map(str, paths[:5]))}{seen}",
            expected="dataset rows, rows with 'title' and 'text', or documents",
            remedy=f"point at files of {', '.join((*ENDINGS, *PARSERS))}, or a folder of documents",
        )
        self.flaws = flaws


class UnknownEnding(InputError):
    """A file is of no kind that is read here."""

    def __init__(self, path: Path) -> None:
        found = f"{path} is a {path.suffix or 'nameless'} file" if path.exists() else f"no {path}"
        super().__init__(
            found,
            expected=f"a folder of documents, or a file of {', '.join((*ENDINGS, *PARSERS))}",
            remedy="check the path, or convert the file",
        )
        self.path = path


def read_passages(
    paths: Path | str | Iterable[Path | str], *, count_tokens: TokenCounter = estimate_tokens
) -> list[Passage]:
    """Read passages from files and folders; rows that cannot be used are logged by reason.

    See `read_corpus`, which returns the counts as well.
    """
    corpus = read_corpus(paths, count_tokens=count_tokens)
    if corpus.flaws:
        _log.warning("left out while reading passages: %s", _listed(corpus.flaws))
    return corpus.passages


def read_corpus(
    paths: Path | str | Iterable[Path | str], *, count_tokens: TokenCounter = estimate_tokens
) -> Corpus:
    """Read passages from files and folders, in order, equal title and text once.

    A passage's id is its row's id; else its title, with a short hash where the title has several
    texts; else a hash of the text. For documents it is the path below the folder. Texts over 800
    tokens are cut at sentences and numbered: `Title#1`, `Title#2`.

    Args:
        paths: A dataset file in its official format (HotpotQA, 2WikiMultiHopQA, MuSiQue), a
            .json, .jsonl, .csv or .parquet file with `title` and `text`, a .txt, .md or .html
            document, a folder that is searched for documents, or several of these.
        count_tokens: Measures a text in tokens.

    Raises:
        NoPassages: Nothing could be used.
        UnknownEnding: A path is missing or of no known kind.
        UnreadableFile: A data file does not parse.
    """
    listed = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    flaws: Counter[str] = Counter()
    rows: dict[tuple[str, str], Row] = {}
    for path in listed:
        for row in _rows(path, flaws, count_tokens):
            rows.setdefault((row.title, row.text), row)
    if not rows:
        raise NoPassages(listed, flaws)
    return Corpus(list(_passages(list(rows.values()), count_tokens)), flaws)


def _rows(path: Path, flaws: Counter[str], count_tokens: TokenCounter) -> Iterator[Row]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.suffix.lower() in PARSERS:
                yield from _document(file, file.relative_to(path).as_posix(), flaws, count_tokens)
    elif path.is_file() and path.suffix.lower() in PARSERS:
        yield from _document(path, path.name, flaws, count_tokens)
    elif path.is_file() and path.suffix.lower() in ENDINGS:
        yield from read_rows(path, flaws)
    else:
        raise UnknownEnding(path)


def _document(
    file: Path, name: str, flaws: Counter[str], count_tokens: TokenCounter
) -> Iterator[Row]:
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    if "\ufffd" in text:
        flaws["document not wholly UTF-8, read with replacements"] += 1
    sections = gather(read_sections(file, text), count_tokens)
    if not sections:
        flaws["document without text"] += 1
    pieces = [(s.title, piece) for s in sections for piece in chunk_text(s.text, count_tokens)]
    for number, (title, piece) in enumerate(pieces, start=1):
        yield Row(title, piece, name if len(pieces) == 1 else f"{name}#{number}")


def _passages(rows: list[Row], count_tokens: TokenCounter) -> Iterator[Passage]:
    texts: dict[str, set[str]] = {}
    for row in rows:
        texts.setdefault(row.title, set()).add(row.text)
    for row in rows:
        pieces = chunk_text(row.text, count_tokens)
        id = row.id or _title_id(row, several=len(texts[row.title]) > 1)
        for number, piece in enumerate(pieces, start=1):
            numbered = id if len(pieces) == 1 else f"{id}#{number}"
            yield Passage(id=numbered, title=row.title, text=piece)


def _title_id(row: Row, *, several: bool) -> str:
    digest = content_hash(row.title, row.text)
    if not row.title:
        return digest
    return f"{row.title} [{digest[:8]}]" if several else row.title


def _listed(flaws: Counter[str]) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in flaws.most_common())
