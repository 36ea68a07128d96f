"""What a run is: no number without it, and no resuming under another one."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError, InputError

ScoreVariant = Literal["official", "squad"]


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
        split: Which part of it: the file's name without its ending, or the hub's split.
        source: File name, or the hub's name of the rows.
        sha256: Digest of the file; None for rows that come from no file.
        renamed_from: Digest of the file of which this one is a renamed copy; None for originals.
        questions_sha256: Digest of the questions asked, with ids and accepted answers, in order.
        n: Number of questions asked.
        limit: How many were asked for; None for all.
        seed: Seed of the sample; None where the questions are in file order.
        program: Name of the program.
        settings: Its settings, as JSON values. Never a key: this is written to disk.
        lm: Name of the language model.
        sampling: How it samples: temperature, tokens at most, …; JSON values.
        retriever: The retriever and its corpus, in words.
        graph: Digest of the graph that is searched as well; None where there is none.
        corpus: Digest of the passages that are searched; None where it is not known.
        encoder: Name of the encoder; empty where there is none.
        k: Passages a query; None where nothing is retrieved.
        steps: Rounds of retrieval at most; None where the program has no such limit.
        score: Which F1 counts: "official" (HotpotQA's script) or "squad".
        versions: Versions of what computes the numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    split: str
    source: str
    sha256: str | None
    renamed_from: str | None
    questions_sha256: str
    n: int
    limit: int | None
    seed: int | None
    program: str
    settings: dict[str, JsonValue]
    lm: str
    sampling: dict[str, JsonValue]
    retriever: str
    graph: str | None = None
    corpus: str | None
    encoder: str
    k: int | None
    steps: int | None
    score: ScoreVariant
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
        sampling: Mapping[str, object] | None = None,
        retriever: str = "",
        graph: str | None = None,
        corpus: str | None = None,
        encoder: str = "",
        k: int | None = None,
        steps: int | None = None,
        score: ScoreVariant = "official",
        settings: Mapping[str, object] | None = None,
        split: str | None = None,
        renamed_from: str | None = None,
        limit: int | None = None,
        seed: int | None = None,
    ) -> Protocol:
        """The protocol of a run over `examples`, with digests and versions filled in.

        A `Path` as source is digested and only its name is kept, so a moved file is still the
        same file; a `str` is kept as it is (the hub's name of the rows).
        """
        stem = source.stem if isinstance(source, Path) else ""
        return cls(
            dataset=dataset,
            split=stem if split is None else split,
            source=source.name if isinstance(source, Path) else source,
            sha256=file_digest(source) if isinstance(source, Path) else None,
            renamed_from=renamed_from,
            questions_sha256=questions_digest(examples),
            n=len(examples),
            limit=limit,
            seed=seed,
            program=program,
            settings=to_jsonable_python(dict(settings or {}), inf_nan_mode="strings"),
            lm=lm,
            sampling=to_jsonable_python(dict(sampling or {}), inf_nan_mode="strings"),
            retriever=retriever,
            graph=graph,
            corpus=corpus,
            encoder=encoder,
            k=k,
            steps=steps,
            score=score,
            versions=current_versions(),
        )

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for the whole record."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def ground(self) -> dict[str, JsonValue]:
        """What two runs must share for their numbers to stand in one table."""
        return {
            "data": f"{self.dataset} {self.questions_sha256[:12]}",
            "corpus": self.corpus,
            "score": self.score,
            "n": self.n,
        }

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
        if name in ("settings", "sampling", "versions"):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
