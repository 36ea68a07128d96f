"""Commands on an index: build it from files, keep it up to date, inspect it."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from rich.table import Table
from typer import Argument, Exit, Option

from ga_dspy.cli.choices import IndexDir, Json, Ray, WhereFilters, Yes, only
from ga_dspy.cli.console import Console, columns, key_values, number, show_progress
from ga_dspy.cluster import on_ray
from ga_dspy.errors import InputError, listed
from ga_dspy.retrieval import Changes, Documents, FileRead, Index, load_encoder
from ga_dspy.retrieval.read import CHUNK_TOKENS, Sources, Status
from ga_dspy.retrieval.redact import load_redactor
from ga_dspy.storage import MANIFEST
from ga_dspy.text import json_text

_FILES = "Files or folders: documents, or .jsonl, .json, .csv and .parquet files with texts."
_CHUNK_TOKENS = "Maximum tokens per passage; by default what the encoder reads, up to 400."
_REDACT = (
    "Remove personal data from documents before they are indexed: presidio, or your own "
    "module:function, which you then pass to every command that adds documents."
)
_ENCODER = "auto, hash-256, minilm, openai/… (any API), or a sentence-transformers model."
_REQUIRE = "Metadata field that every search must filter on. Repeatable."
_URI = "Address of the Milvus server, or a file ending in .db."
_UNCHANGED = "As in `index build`; by default as when the index was built."
_MOST_LINES, _NAMED = 60, 3
_WORDPIECES = 0.8
"""Tokens of this library per token of an encoder, chosen so that 95 % of texts fit."""

Files = Annotated[list[Path], Argument(help=_FILES)]
Redaction = Annotated[str | None, Option("--redact", help=_REDACT)]
Strict = Annotated[bool, Option("--strict", help="Stop at a file that cannot be read completely.")]


def build(
    files: Files,
    out: Annotated[Path, Option(help="Folder for the index.")],
    kind: Annotated[str, Option(help="Ranking: linked, hybrid, dense or sparse.")] = "linked",
    encoder: Annotated[str, Option(help=_ENCODER)] = "auto",
    reranker: Annotated[str | None, Option(help="Cross-encoder that reranks the results.")] = None,
    chunk_tokens: Annotated[int | None, Option(help=_CHUNK_TOKENS)] = None,
    overlap: Annotated[int, Option(help="Tokens that neighbouring passages share.")] = 0,
    strict: Strict = False,
    require: Annotated[list[str] | None, Option(help=_REQUIRE)] = None,
    redact: Redaction = None,
    engine: Annotated[Literal["local", "milvus"], Option(help="Search engine.")] = "local",
    uri: Annotated[str | None, Option(help=_URI)] = None,
    ray: Ray = None,
) -> None:
    """Build an index from files. Run the same command again to resume.

    Examples:
        ga-dspy index build docs minutes.jsonl --out my-index
        ga-dspy index build tickets.csv --out my-index --redact presidio
    """
    console = Console()
    if (engine == "milvus") != (uri is not None):
        wrong = f"--engine {engine} {'with' if uri else 'without'} --uri"
        raise InputError(wrong, remedy="pass --engine milvus --uri http://HOST:19530, or neither")
    model = None if kind == "sparse" else load_encoder(encoder)
    if chunk_tokens is None and (most := getattr(model, "max_tokens", None)):
        chunk_tokens = min(CHUNK_TOKENS, int(most * _WORDPIECES))
    sources = Sources(chunk_tokens=chunk_tokens, overlap=overlap).with_paths(out, files)
    redactor = load_redactor(importable(redact))
    with show_progress(console) as progress:
        found = sources.read(out, strict=strict, progress=progress, redact=redactor)
    show_files(console, found.files)
    with on_ray(ray) if ray else nullcontext(), show_progress(console) as progress:
        index = Index.build(
            found, out, kind=kind, encoder=model, progress=progress, reranker=reranker,
            require=require or (), redact=redactor, milvus=uri,
        )  # fmt: skip
    sources.save(out, found.files)
    console.print(f"{out}: {index.description}")


def sync(
    index: IndexDir,
    files: Annotated[list[Path] | None, Argument(help=_UNCHANGED)] = None,
    chunk_tokens: Annotated[int | None, Option(help=_UNCHANGED)] = None,
    overlap: Annotated[int | None, Option(help=_UNCHANGED)] = None,
    strict: Strict = False,
    redact: Redaction = None,
    yes: Yes = False,
) -> None:
    """Update an index to the current contents of its files; only changed files are read.

    An index that does not exist is built. Passages of deleted files are deleted, after confirmation
    if these are more than half. Documents added over HTTP and imported facts stay.

    Examples:
        ga-dspy index sync --index my-index
    """
    if files and not (index / MANIFEST).exists():
        cutting: dict[str, Any] = {"chunk_tokens": chunk_tokens, "overlap": overlap or 0}
        build(files, index, **cutting, strict=strict, redact=redact)
        return
    console, opened = Console(), Index.open(index, redact=importable(redact))
    sources = Sources.of(index, chunk_tokens=chunk_tokens, overlap=overlap)
    if files:
        sources = sources.with_paths(index, files)
    with show_progress(console) as progress:
        found = sources.read(index, opened, strict=strict, progress=progress)
    found = found.with_uploads(opened)
    deleted = found.deleted_from(opened)
    if 2 * deleted > len(opened) and not yes:
        question = f"{deleted} of {len(opened)} passages of {index} would be deleted; continue?"
        if not console.confirm(question, remedy="check the files, or add --yes"):
            raise Exit(1)
    _change(console, index, opened, sources, found, opened.sync)


def add(files: Files, index: IndexDir, strict: Strict = False, redact: Redaction = None) -> None:
    """Add files to an index, replacing passages with the same ids and of the same files.

    Examples:
        ga-dspy index add more-docs --index my-index
    """
    console, opened = Console(), Index.open(index, redact=importable(redact))
    sources = Sources.of(index).with_paths(index, files, add=True)
    with show_progress(console) as progress:
        found = sources.read(index, opened, strict=strict, progress=progress)
    before = {file.name: file.ids for file in sources.files}
    old = (before.get(file.name, ()) for file in found.files if file.ids)
    delete = opened.ids.intersection(set[str]().union(*old))
    _change(console, index, opened, sources, found, partial(opened.upsert, delete=delete))


def delete(
    ids: Annotated[list[str], Argument(help="File names, or ids of documents or passages.")],
    index: IndexDir,
) -> None:
    """Delete documents and passages; `index sync` adds back those that are still in the files.

    Examples:
        ga-dspy index delete old.md --index my-index
    """
    opened = Index.open(index)
    ids_of = {file.name: file.ids for file in Sources.of(index).files}
    gone = list[str]()
    for id in ids:
        if id not in ids_of and id not in opened and (found := opened.document(id)):
            gone += [passage.id for passage in found.passages]
        else:
            gone += ids_of.get(id) or (id,)
    if len(gone) >= len(opened) and opened.ids <= {*gone}:
        remedy = "add other documents first, or delete the folder of the index"
        raise InputError(f"this would delete all passages of {index}", remedy=remedy)
    Console().print(f"{index}: deleted {number(opened.delete(gone), 'passage')}")


def info(index: IndexDir) -> None:
    """Show the size, settings and files of an index.

    Examples:
        ga-dspy index info --index my-index
    """
    console, opened, sources = Console(), Index.open(index), Sources.of(index)
    about, size = opened.manifest, sum(f.stat().st_size for f in index.rglob("*") if f.is_file())
    rows = [
        ("passages", f"{len(opened):,}"),
        ("kind", about.kind),
        ("encoder", about.encoder.name if about.encoder else ""),
        ("on disk", f"{size / 1e6:,.2f} MB"),
        ("changes", f"{about.generation} since it was built"),
        ("requires", ", ".join(opened.require)),
        ("redacted by", about.redact or ""),
        ("from", ", ".join(sources.paths)),
        ("passage size", f"{sources.chunk_tokens or CHUNK_TOKENS} tokens"),
        ("overlap", f"{sources.overlap} tokens"),
    ]
    console.print(key_values(rows))
    show_files(console, sources.files)


def search(
    query: Annotated[str, Argument(help="Search query.")],
    index: IndexDir,
    k: Annotated[int, Option(help="Number of passages to retrieve.")] = 5,
    where: WhereFilters = None,
    json_only: Json = False,
) -> None:
    """Search an index, and print passages with scores and sources.

    Examples:
        ga-dspy index search "bridges of steel" --index my-index --where lang=en
    """
    hits = only(Index.open(index), where).search(query, k)
    if json_only:
        found = [{"score": hit.score, **hit.passage.model_dump(mode="json")} for hit in hits]
        print(json_text(found, 2))  # noqa: T201 - the output itself
        return
    table = columns("score", "passage", "from", right=("score",))
    for passage, score in hits:
        text = " ".join(passage.text.split())
        if len(text) > 200:
            text = f"{text[:200]}…"
        table.add_row(f"{score:.3f}", f"{passage.title}\n{text}", passage.source or passage.id)
    Console().print(table)


def verify(index: IndexDir) -> None:
    """Check every byte of an index against its checksums.

    Examples:
        ga-dspy index verify --index my-index
    """
    Index.open(index).verify()
    Console().print(f"{index} is intact")


def importable(redact: str | None) -> str | None:
    """Return the name of a redactor, and let its module be imported from the working directory."""
    if redact and ":" in redact:
        sys.path.append(str(Path.cwd()))
    return redact


def show_files(console: Console, files: Sequence[FileRead]) -> None:
    """Print the status of files: counts, then a line per file or group of files."""
    if not files:
        return
    counts = Counter(file.status for file in files)
    summary = ", ".join(f"{counts[one]:,} {one}" for one in get_args(Status) if counts[one])
    console.print(f"files: {summary}", style="bold")
    lines, without_passages = list[str](), defaultdict[tuple[str, ...], list[str]](list)
    for file in files:
        if file.ids or file.repeated:
            lines.append(str(file))
        else:
            without_passages[file.status, *file.notes].append(file.name)
    for (status, *notes), names in without_passages.items():
        lines.append(f"{listed(names, _NAMED)}: {status} ({'; '.join(notes)})")
    lines.sort()
    if len(lines) > _MOST_LINES:
        lines.sort(key=lambda line: ": read (" in line)  # files with problems first
        rest = f"… and {len(lines) - _MOST_LINES:,} more (ga-dspy index info)"
        lines = [*lines[:_MOST_LINES], rest]
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)


def _change(
    console: Console, index: Path, opened: Index, sources: Sources, found: Documents,
    change: Callable[..., Changes],
) -> None:  # fmt: skip
    """Apply the documents that were read to an index, and print the changes."""
    with show_progress(console) as progress:
        changes = change(found, progress=progress)
    sources.save(index, found.files)
    digests = {file.name: file.sha256 for file in sources.files}
    show_files(console, [file for file in found.files if digests.get(file.name) != file.sha256])
    old = {file.name: file.sha256 for file in sources.files if file.ids}
    new = {file.name: file.sha256 for file in found.files if file.ids}
    unchanged = len(old.items() & new.items())
    files = {
        "added": len(new.keys() - old.keys()),
        "changed": len(new.keys() & old.keys()) - unchanged,
        "removed": len(old.keys() - new.keys()),
        "unchanged": unchanged,
    }
    table = Table.grid(padding=(0, 2))
    for what, ids in changes._asdict().items():
        table.add_row(what, number(files[what], "file"), number(len(ids), "passage"))
    console.print(table)
    console.print(f"{index}: {opened.description}")
