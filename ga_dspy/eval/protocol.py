"""What a run is: no number without it, and no resuming under another one."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError, InputError


class ProtocolMismatch(GaDspyError):
    """The journal in the output directory was begun under another protocol."""

    def __init__(self, differences: Sequence[str], where: Path) -> None:
        super().__init__(
            f"{where} holds a run under another protocol; expected the same one to go on with; "
            f"different: {'; '.join(differences)}; run with the saved settings, or choose another "
            "output directory"
        )
        self.differences, self.where = tuple(differences), where


class Protocol(BaseModel):
    """Everything that decides a run's numbers, stored with every result.

    Attributes:
        dataset: Name of the dataset.
        source: File name, or the hub's name of the rows.
        sha256: Digest of the file; None for rows that come from no file.
        questions_sha256: Digest of the questions asked, with ids and accepted answers, in order.
        n: Number of questions asked.
        limit: How many were asked for; None for all.
        seed: Seed of the sample; None where the questions are in file order.
        program: Name of the program.
        settings: Its settings, as JSON values. Never a key: this is written to disk.
        lm: Name of the language model.
        retriever: The retriever and its corpus, in words.
        k: Passages a query; None where nothing is retrieved.
        versions: Versions of what computes the numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    source: str
    sha256: str | None
    questions_sha256: str
    n: int
    limit: int | None
    seed: int | None
    program: str
    settings: dict[str, JsonValue]
    lm: str
    retriever: str
    k: int | None
    versions: dict[str, str]

    @classmethod
    def of(
        cls,
        examples: Sequence[dspy.Example],
        *,
        dataset: str,
        source: Path | str,
        program: str,
        lm: str,
        retriever: str = "",
        k: int | None = None,
        settings: Mapping[str, object] | None = None,
        limit: int | None = None,
        seed: int | None = None,
    ) -> Protocol:
        """The protocol of a run over `examples`, with digests and versions filled in.

        A `Path` as source is digested and only its name is kept, so a moved file is still the
        same file; a `str` is kept as it is (the hub's name of the rows).
        """
        is_file = isinstance(source, Path)
        return cls(
            dataset=dataset,
            source=source.name if isinstance(source, Path) else source,
            sha256=file_digest(Path(source)) if is_file else None,
            questions_sha256=questions_digest(examples),
            n=len(examples),
            limit=limit,
            seed=seed,
            program=program,
            settings=to_jsonable_python(dict(settings or {}), inf_nan_mode="strings"),
            lm=lm,
            retriever=retriever,
            k=k,
            versions=current_versions(),
        )

    def differences(self, current: Protocol) -> tuple[str, ...]:
        """One phrase a differing field, saved value first; empty where nothing differs."""
        saved, now = _flat(self.model_dump(mode="json")), _flat(current.model_dump(mode="json"))
        return tuple(
            f"{field} was {_shown(saved.get(field))}, is {_shown(now.get(field))}"
            for field in sorted(saved.keys() | now.keys())
            if saved.get(field) != now.get(field)
        )


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror})",
            expected="the file that the questions are from",
            remedy="pass its path, or a str naming another source",
        ) from error


def questions_digest(examples: Sequence[dspy.Example]) -> str:
    """SHA-256 over id, question, accepted answers and gold titles, in order."""
    digest = hashlib.sha256()
    for example in examples:
        fields = [example.get(name) for name in ("id", "question", "answers", "gold_titles")]
        digest.update(json.dumps([*fields, example.get("answer")]).encode())
    return digest.hexdigest()


def current_versions() -> dict[str, str]:
    """Versions of this library, of DSPy and of Python (major and minor)."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"dspy": version("dspy"), "ga_dspy": version("ga-dspy"), "python": python}


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("settings", "versions"):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
