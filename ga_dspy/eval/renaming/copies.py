"""Renamed copies on disk: the copy in its source's format, and what is known about it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval.files import WrongFormat, check_dataset, dataset_name, detect_rows, read_rows
from ga_dspy.eval.protocol import file_digest
from ga_dspy.eval.renaming.rename import RenameReport, Renaming, rename_rows

_SUFFIX = ".rename.json"


class CopyChanged(GaDspyError):
    """A renamed copy is not the file that its record describes."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__(
            f"{path} has the digest {found[:12]}…; expected {expected[:12]}…, as recorded beside "
            f"it in {record_path(path).name}; make the copy again, or delete the record if "
            "the file is no renamed copy any more"
        )
        self.path, self.found, self.expected = path, found, expected


class Provenance(BaseModel):
    """Where a renamed copy comes from: stored beside it, without text of any row.

    Attributes:
        source: File name of the source.
        source_sha256: Digest of the source's bytes.
        sha256: Digest of the copy's bytes.
        dataset: Whose layout both have.
        seed: What the invented names were drawn with.
        questions: Number of questions in both.
        renamed: Number of names renamed, by kind.
        derivable_in_source: Share of questions whose answer can be read in the source, 0 to 1.
        derivable_in_copy: The same in the copy.
        unchanged_answers: Gold answers that stayed as they are, by reason.
        leaks: Rows that still show an old name.
        kept_words: Words left alone because an answer would have got lost.
        version: Version of this library.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    source_sha256: str
    sha256: str
    dataset: str
    seed: int
    questions: int
    renamed: dict[str, int]
    derivable_in_source: float
    derivable_in_copy: float
    unchanged_answers: dict[str, int]
    leaks: int
    kept_words: int
    version: str


def rename_file(
    path: Path | str,
    out: Path | str,
    seed: int,
    dataset: str | None = None,
    mapping: Path | str | None = None,
) -> RenameReport:
    """Write a renamed copy of a dataset file, and its record beside it (`OUT.rename.json`).

    The copy has the source's format (JSON array or JSON lines), fields, ids and order, so that
    results on both pair by id; only 2WikiMultiHopQA's Wikidata ids are emptied.

    Args:
        path: An official question file.
        out: Where the copy goes; a file there is replaced.
        seed: Decides the invented names.
        dataset: Whose layout the file has; by default told from its fields.
        mapping: Where to write old and new names as CSV (old, new, kind), to look at.

    Raises:
        WrongFormat: the file cannot be read, or is another dataset's.
        NothingToRead: no row has a context (Bamboogle).
        AnswersLost: an answer that the source holds is not held by the copy; nothing is written.
        InputError: `out` or `mapping` is the source itself.
    """
    path, out = Path(path), Path(out)
    _refuse_source(path, [out, *([Path(mapping)] if mapping else [])])
    rows = _records(path)
    name = dataset_name(dataset) if dataset else detect_rows(rows, path)
    check_dataset(name, rows, path)
    renamed = rename_rows(rows, name, seed)
    _write(out, _like(path, renamed.rows))
    _write(record_path(out), _record(path, out, renamed.report))
    if mapping:
        _write(Path(mapping), _table(renamed.mapping))
    return renamed.report


def provenance(path: Path | str) -> Provenance | None:
    """The record of a renamed copy; None for a file without one.

    Raises:
        CopyChanged: the file is not as it was when it was recorded.
        InputError: the record cannot be read.
    """
    path = Path(path)
    record = record_path(path)
    if not record.exists():
        return None
    try:
        known = Provenance.model_validate_json(record.read_bytes())
    except (ValidationError, OSError) as error:
        raise InputError(
            f"{record} cannot be read as the record of a renamed copy",
            expected="the file that was written with the copy",
            remedy="make the copy again",
        ) from error
    found = file_digest(path)
    if found != known.sha256:
        raise CopyChanged(path, found, known.sha256)
    return known


def record_path(path: Path | str) -> Path:
    """Where the record of a copy lies: beside it.

    >>> record_path("copies/dev.json").name
    'dev.json.rename.json'
    """
    path = Path(path)
    return path.with_name(path.name + _SUFFIX)


def _refuse_source(path: Path, targets: Sequence[Path]) -> None:
    for target in targets:
        if target.resolve() == path.resolve():
            raise InputError(
                f"{target} is the source itself",
                expected="another file to write to",
                remedy="pass another path; the source is never written to",
            )


def _records(path: Path) -> list[Mapping[str, Any]]:
    rows = read_rows(path)
    records = [row for row in rows if isinstance(row, Mapping)]
    if len(records) < len(rows):
        raise WrongFormat(
            f"{path}: {len(rows) - len(records)} of {len(rows)} rows are no objects",
            expected="one JSON object a question",
            remedy="mend the file, so that the copy can hold the same rows",
        )
    return records


def _like(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if path.read_text(encoding="utf-8-sig").lstrip().startswith("["):
        return "[\n" + ",\n".join(lines) + "\n]\n"
    return "\n".join(lines) + "\n"


def _record(path: Path, out: Path, report: RenameReport) -> str:
    known = Provenance(
        source=path.name,
        source_sha256=file_digest(path),
        sha256=file_digest(out),
        dataset=report.dataset,
        seed=report.seed,
        questions=report.questions,
        renamed=report.renamed,
        derivable_in_source=report.derivable_in_source,
        derivable_in_copy=report.derivable_in_copy,
        unchanged_answers=report.unchanged,
        leaks=report.leaks,
        kept_words=report.kept,
        version=version("ga-dspy"),
    )
    return known.model_dump_json(indent=2) + "\n"


def _table(mapping: Sequence[Renaming]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Renaming._fields)
    writer.writerows(mapping)
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    # A lone surrogate, which JSON can spell, comes out as JSON spells it.
    partial.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    partial.replace(path)
