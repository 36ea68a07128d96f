"""The files that an index was built from, so that it can follow them as they change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import InputError, listed
from ga_dspy.passage import Passage
from ga_dspy.retrieval.index import Index
from ga_dspy.retrieval.read import Documents, FileRead, nothing_read, read_files
from ga_dspy.storage import write_whole

_NAME = "files.json"


def seen_from(folder: Path, paths: Sequence[Path]) -> tuple[str, ...]:
    """Paths as they lead there from a folder, so that both can be moved together."""
    return tuple(os.path.relpath(path, folder) for path in paths)


class Sources(BaseModel):
    """What an index was built from: kept beside it, and never needed to search it.

    Attributes:
        paths: Files and folders, seen from the folder of the index.
        files: What became of each file.
        chunk_tokens: The most tokens of a passage.
        overlap: Tokens that a piece of a text shares with the one before.
    """

    model_config = ConfigDict(frozen=True)

    paths: tuple[str, ...] = ()
    files: tuple[FileRead, ...] = ()
    chunk_tokens: int | None = None
    overlap: int = 0

    @classmethod
    def of(cls, folder: Path, **cutting: int | None) -> Self:
        """What is kept in the folder of an index, with another `chunk_tokens` or `overlap`.

        What is kept is not used where it does not read: then all files are read again.
        """
        try:
            kept = cls.model_validate_json((folder / _NAME).read_bytes())
        except (OSError, ValidationError):
            kept = cls()
        changes: dict[str, Any] = {n: v for n, v in cutting.items() if v is not None}
        if any(getattr(kept, name) != value for name, value in changes.items()):
            changes["files"] = ()
        return kept.model_copy(update=changes)

    def read(self, folder: Path, index: Index | None = None, **options: Any) -> Documents:
        """Read the files; passages of those that have not changed are taken from the index.

        Args:
            folder: The folder of the index.
            index: The index.
            options: `strict` and `progress` of `read_files`.

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
            # A reader that was missing may be there by now: what was not read is read again.
            is_here = bool(file.ids) and all(id in index for id in file.ids)
            return (file, [index.get(id) for id in file.ids]) if is_here else None

        paths = [os.path.normpath(folder / path) for path in self.paths]
        found = read_files(
            paths, chunk_tokens=self.chunk_tokens, overlap=self.overlap, known=known, **options
        )
        if not found.passages:
            raise nothing_read(paths, listed(found.files, between="; "))
        return found

    def save(self, folder: Path, files: Sequence[FileRead]) -> None:
        """Keep it beside the index, with what became of the files now."""
        kept = self.model_copy(update={"files": tuple(files)})
        write_whole(folder / _NAME, kept.model_dump_json(exclude_defaults=True))
