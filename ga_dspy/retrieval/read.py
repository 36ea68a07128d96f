"""Reading passages from files: datasets, tables of titled texts, folders of documents."""

from __future__ import annotations

import csv
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html.parser import HTMLParser
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from ga_dspy.errors import InputError, require
from ga_dspy.passage import Passage, sound
from ga_dspy.retrieval.protocol import content_hash
from ga_dspy.text import TokenCounter, estimate_tokens

# --- Rows of data files

ENDINGS = (".json", ".jsonl", ".csv", ".parquet")

_TEXT_KEYS = ("text", "paragraph_text", "contents", "content", "passage", "long_text")


class Row(NamedTuple):
    """A titled text; `id` is empty where the file gives none."""

    title: str
    text: str
    id: str = ""


def _unreadable(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path} does not read as {path.suffix[1:]} ({cause})",
        expected=f"a whole file of {', '.join(ENDINGS)}",
        remedy="check the file, or fetch it again",
    )


def read_rows(path: Path, flaws: Counter[str]) -> Iterator[Row]:
    """Yield the titled texts of a data file; what cannot be used is counted in `flaws`.

    HotpotQA and 2WikiMultiHopQA rows give the paragraphs of their `context`, MuSiQue rows their
    `paragraphs`; any other row needs `text`, and may have `title` and `id`.

    Raises:
        InputError: The file does not parse.
    """
    for record in _records(path, flaws):
        if not isinstance(record, Mapping):
            flaws["row is no object"] += 1
            continue
        for row in _row_texts(record, flaws):
            if row.text:
                yield row
            else:
                flaws["no text"] += 1


def _row_texts(record: Mapping[str, Any], flaws: Counter[str]) -> Iterator[Row]:
    if "context" in record:
        yield from _contexts(record["context"], flaws)
    elif "paragraphs" in record:
        yield from _paragraphs(record["paragraphs"], flaws)
    else:
        text = next((record[key] for key in _TEXT_KEYS if record.get(key)), "")
        yield Row(_clean(record.get("title")), _clean(text), _clean(record.get("id")))


def _contexts(context: Any, flaws: Counter[str]) -> Iterator[Row]:
    """Read `[[title, [sentence, …]], …]`, or the hub's columns `title` and `sentences`."""
    if isinstance(context, Mapping):
        pairs = zip(context.get("title") or (), context.get("sentences") or (), strict=False)
        context = [list(pair) for pair in pairs]
    for entry in context if isinstance(context, Sequence) else ():
        if isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[1], Sequence):
            yield Row(_clean(entry[0]), join_sentences(entry[1]))
        else:
            flaws["paragraph is not [title, sentences]"] += 1
    if not context:
        flaws["no paragraphs"] += 1


def _paragraphs(paragraphs: Any, flaws: Counter[str]) -> Iterator[Row]:
    for entry in paragraphs or ():
        if isinstance(entry, Mapping):
            yield Row(_clean(entry.get("title")), _clean(entry.get("paragraph_text")))
        else:
            flaws["paragraph is no object"] += 1
    if not paragraphs:
        flaws["no paragraphs"] += 1


def join_sentences(sentences: Sequence[Any] | str) -> str:
    """Join sentences with one space, unless they bring their own.

    >>> join_sentences(["One.", " Two.", "Three."])
    'One. Two. Three.'
    """
    joined = ""
    for sentence in [sentences] if isinstance(sentences, str) else sentences:
        apart = not joined or joined[-1].isspace() or str(sentence)[:1].isspace()
        joined += str(sentence) if apart else f" {sentence}"
    return sound(joined).strip()


def _clean(value: Any) -> str:
    return "" if value is None else sound(str(value)).strip()


def _records(path: Path, flaws: Counter[str]) -> Iterator[Any]:
    ending = path.suffix.lower()
    if ending == ".parquet":
        return _parquet(path)
    if ending == ".csv":
        return _csv(path)
    return _lines(path, flaws) if ending == ".jsonl" else _json(path)


def _json(path: Path) -> Iterator[Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if isinstance(content, Mapping):
        content = content.get("data")
    if not isinstance(content, list):
        raise _unreadable(path, "it holds no list of rows")
    yield from content


def _lines(path: Path, flaws: Counter[str]) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                flaws["line is no JSON"] += 1


def _csv(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.DictReader(file)
        except (csv.Error, UnicodeDecodeError) as error:
            raise _unreadable(path, str(error)) from error


def _parquet(path: Path) -> Iterator[Any]:
    pyarrow = require("pyarrow", "retrieval")
    try:
        for batch in require("pyarrow.parquet", "retrieval").ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise _unreadable(path, str(error)) from error


# --- Cutting documents: at headings first, then at sentences.

FEWEST_TOKENS, MOST_TOKENS = 400, 800


class Section(NamedTuple):
    """The text under a heading, and the headings above it, outermost first."""

    path: tuple[str, ...]
    text: str

    @property
    def title(self) -> str:
        """The headings joined as `Guide > Install`."""
        return " > ".join(self.path)


def chunk_text(text: str, count_tokens: TokenCounter = estimate_tokens) -> list[str]:
    """Cut a text at sentences into pieces of about equal size, each at most 800 tokens.

    A text of up to 800 tokens is one piece; longer ones give pieces from about 400 up.
    """
    text = text.strip()
    tokens = count_tokens(text)
    if tokens <= MOST_TOKENS:
        return [text] if text else []
    # A fifth above equal shares, because sentences do not end where the share does.
    share = math.ceil(1.2 * tokens / math.ceil(1.2 * tokens / MOST_TOKENS))
    return [piece.strip() for piece in _chunker(count_tokens, min(share, MOST_TOKENS))(text)]


def gather(
    sections: Sequence[Section], count_tokens: TokenCounter = estimate_tokens
) -> list[Section]:
    r"""Join neighbouring short sections, up to 400 tokens, under the headings they share.

    The headings of joined sections stand in the text, above theirs.

    >>> parts = [Section(("Guide", "Install"), "Run pip."), Section(("Guide", "Use"), "Call it.")]
    >>> gather(parts)
    [Section(path=('Guide',), text='Install\nRun pip.\n\nUse\nCall it.')]
    """
    groups: list[list[Section]] = []
    size = 0
    for section in sections:
        tokens = count_tokens(section.text)
        if groups and size + tokens <= FEWEST_TOKENS and _shared([*groups[-1], section]):
            groups[-1].append(section)
            size += tokens
        else:
            groups.append([section])
            size = tokens
    return [_joined(group) for group in groups]


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
    return Section(path, "\n\n".join(parts))


@lru_cache(maxsize=32)
def _chunker(count_tokens: TokenCounter, size: int) -> Any:
    return require("semchunk", "retrieval").chunkerify(count_tokens, size, memoize=False)


# --- Text, Markdown and HTML as sections

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_UNSEEN = frozenset({"script", "style", "template", "noscript", "head", "nav"})
_BLOCKS = frozenset(
    {"p", "div", "li", "ul", "ol", "br", "tr", "table", "section", "article", "pre", "blockquote"}
)


def read_sections(path: Path, text: str) -> list[Section]:
    """Return the sections of a document, by the ending of its name; sections without text go.

    The name of the file stands in for a missing top heading.
    """
    parse = PARSERS[path.suffix.lower()]
    sections = [
        Section(section.path or (path.stem,), section.text.strip()) for section in parse(text)
    ]
    return [section for section in sections if section.text]


def _markdown(text: str) -> list[Section]:
    lines = text.splitlines()
    outline = _Outline()
    done = 0
    tokens = MarkdownIt().parse(text)
    for opening, inline in pairwise(tokens):
        # Headings inside lists and quotes are no divisions of the document.
        if opening.type != "heading_open" or opening.level or opening.map is None:
            continue
        outline.add("\n".join(lines[done : opening.map[0]]))
        outline.enter(int(opening.tag[1]), inline.content)
        done = opening.map[1]
    outline.add("\n".join(lines[done:]))
    return outline.sections


def _html(text: str) -> list[Section]:
    parser = _HtmlSections()
    parser.feed(text)
    parser.close()
    parser.flush()
    return parser.outline.sections


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


class _HtmlSections(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.outline = _Outline()
        self._text: list[str] = []
        self._unseen: list[str] = []
        self._heading = 0

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag in _HEADINGS:
            self.flush()
            self._heading = _HEADINGS[tag]
        elif tag in _BLOCKS:
            self._text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            # An unclosed tag inside closes with the one around it.
            del self._unseen[self._unseen.index(tag) :]
        elif tag in _HEADINGS and self._heading:
            self.outline.enter(self._heading, "".join(self._text))
            self._text, self._heading = [], 0
        elif tag in _BLOCKS:
            self._text.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._text.append(data)

    def flush(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self._text).split("\n"))
        self.outline.add("\n".join(line for line in lines if line))
        self._text = []


PARSERS: dict[str, Callable[[str], list[Section]]] = {
    ".txt": lambda text: [Section((), text)],
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
}
"""What reads a document, by the ending of its name."""


# --- Files and folders

_log = logging.getLogger(__name__)


def read_passages(
    paths: Path | str | Iterable[Path | str], *, count_tokens: TokenCounter = estimate_tokens
) -> list[Passage]:
    """Read passages from files and folders, in order, equal title and text once.

    How often a row or file could not be used is logged, by reason.

    A passage's id is its row's id; else its title, with a short hash where the title has several
    texts; else a hash of the text. For documents it is the path below the folder. Texts over 800
    tokens are cut at sentences and numbered: `Title#1`, `Title#2`.

    Args:
        paths: A dataset file in its official format (HotpotQA, 2WikiMultiHopQA, MuSiQue), a
            .json, .jsonl, .csv or .parquet file with `title` and `text`, a .txt, .md or .html
            document, a folder that is searched for documents, or several of these.
        count_tokens: Measures a text in tokens.

    Raises:
        InputError: Nothing could be used, a path is missing or of no known kind, or a data file
            does not parse.
    """
    listed = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    flaws: Counter[str] = Counter()
    rows: dict[tuple[str, str], Row] = {}
    for path in listed:
        for row in _rows(path, flaws, count_tokens):
            rows.setdefault((row.title, row.text), row)
    reasons = ", ".join(f"{reason}: {count}" for reason, count in flaws.most_common())
    if not rows:
        seen = f" ({reasons})" if flaws else ""
        raise InputError(
            f"no passages in {', '.join(map(str, listed[:5]))}{seen}",
            expected="dataset rows, rows with 'title' and 'text', or documents",
            remedy=f"point at files of {', '.join((*ENDINGS, *PARSERS))}, or a folder of documents",
        )
    if flaws:
        _log.warning("left out while reading passages: %s", reasons)
    return list(_passages(list(rows.values()), count_tokens))


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
        found = f"{path} is a {path.suffix or 'nameless'} file" if path.exists() else f"no {path}"
        raise InputError(
            found,
            expected=f"a folder of documents, or a file of {', '.join((*ENDINGS, *PARSERS))}",
            remedy="check the path, or convert the file",
        )


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
        digest = content_hash(row.title, row.text)
        id = row.id or row.title or digest
        if row.title and not row.id and len(texts[row.title]) > 1:
            id = f"{row.title} [{digest[:8]}]"
        for number, piece in enumerate(pieces, start=1):
            numbered = id if len(pieces) == 1 else f"{id}#{number}"
            yield Passage(id=numbered, title=row.title, text=piece)
