"""The protocol of a run: everything that determines its numbers."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, JsonValue, field_validator
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError, InputError

ScoreVariant = Literal["official", "squad"]

UNKNOWN = "unknown: "
"""Prefix of the digest of something that cannot be compared."""


class ProtocolMismatch(GaDspyError):
    """The run in the output folder was begun under another protocol."""

    def __init__(self, differences: Sequence[str], where: Path) -> None:
        super().__init__(
            f"{where} holds a run under another protocol",
            expected=f"the same protocol to resume; different: {'; '.join(differences)}",
            remedy="run with the saved settings, or choose another output directory; an object of "
            "your own can have a string `fingerprint`",
        )
        self.differences, self.where = tuple(differences), where


class Protocol(BaseModel):
    """Everything that determines a run's numbers, stored with every run.

    Attributes:
        dataset: Name of the dataset.
        split: The file's name without its extension, or the hub's split.
        source: File name, or the name of the rows on the hub.
        sha256: Digest of the file; None for rows that are from no file.
        questions_sha256: Digest of the questions asked, with ids and accepted answers, in order.
        n: Number of questions asked.
        limit: The maximum number that was asked for; None for all.
        seed: Seed of the sample; None for questions in file order.
        program: Name of the program.
        prompts: Digest of its instructions, field wordings and demos; None if unknown.
        settings: Its settings as JSON values, without keys.
        lm: Name of the LM.
        lms: Names of the LMs of single steps, by predictor.
        endpoint: Digest of the LM's address; None for the provider's default.
        sampling: Sampling parameters of the LM and a custom adapter, as JSON values.
        retriever: Description of the retriever and its corpus.
        graph: Digest of the graph that is searched too; None without one.
        corpus: Digest of the passages that are searched; None if unknown.
        encoder: Name of the encoder; empty without one.
        k: Passages per query; None if nothing is retrieved.
        steps: Maximum number of retrieval rounds; None without a limit.
        score: Which F1 counts: "official" (HotpotQA's script) or "squad".
        versions: Versions of the code that computes the numbers.
        judge: Name of the LM that judges answers; None without one.
        digests: Digests of all that determines an answer, by part: code, predictors, retriever with
            its conditions and metadata, LM, adapter; empty if unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    split: str
    source: str
    sha256: str | None
    questions_sha256: str
    n: int
    limit: int | None = None
    seed: int | None = None
    program: str
    prompts: str | None = None
    settings: dict[str, JsonValue] = {}
    lm: str
    lms: dict[str, str] = {}
    endpoint: str | None = None
    sampling: dict[str, JsonValue] = {}
    retriever: str = ""
    graph: str | None = None
    corpus: str | None = None
    encoder: str = ""
    k: int | None = None
    steps: int | None = None
    score: ScoreVariant = "official"
    versions: dict[str, str]
    judge: str | None = None
    digests: dict[str, str] = {}

    @field_validator("settings", "sampling", mode="before")
    @classmethod
    def _as_json(cls, values: Mapping[str, object] | None) -> Any:
        return to_jsonable_python(dict(values or {}), inf_nan_mode="strings")

    @classmethod
    def of(cls, examples: Sequence[dspy.Example], *, source: Path | str, **fields: Any) -> Protocol:
        """Return the protocol of a run over `examples`, with digests and versions.

        Args:
            examples: The questions, in order.
            source: Of a `Path`, the digest and the name are stored, so a moved file is the same
                file; a `str` is stored unchanged (the name of the rows on the hub).
            fields: The other fields: `dataset`, `program` and `lm`, and what else is known.
        """
        path = source if isinstance(source, Path) else None
        computed = {
            "split": path.stem if path else "",
            "source": path.name if path else source,
            "sha256": file_digest(path) if path else None,
            "questions_sha256": questions_digest(examples),
            "n": len(examples),
            "versions": {
                "dspy": version("dspy"),
                "ga_dspy": version("ga-dspy"),
                "python": ".".join(platform.python_version_tuple()[:2]),
            },
        }
        return cls(**{**computed, **fields})

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the protocol."""
        # So that hashes of earlier versions stay the same.
        left_out = {name for name in ("judge", "digests", "lms") if not getattr(self, name)}
        record = self.model_dump(mode="json", exclude=left_out)
        text = json.dumps(record, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def lm_names(self) -> str:
        """The names of all LMs.

        >>> protocol = Protocol.model_construct(lm="openai/small", lms={"answer": "openai/big"})
        >>> protocol.lm_names
        'openai/small, answer: openai/big'
        """
        return ", ".join([self.lm, *(f"{step}: {name}" for step, name in self.lms.items())])

    def lm_of(self, step: str) -> str:
        """Return the name of the LM of a step."""
        own = (name for predictor, name in self.lms.items() if predictor.split(".")[0] == step)
        return next(own, self.lm)

    @property
    def basis(self) -> dict[str, JsonValue]:
        """What two runs must share to be in one table."""
        return {
            "data": f"{self.dataset} {self.questions_sha256[:12]}",
            "corpus": self.corpus,
            "score": self.score,
            "n": self.n,
        }

    def differences(self, current: Protocol) -> tuple[str, ...]:
        """Return one phrase per differing field, the saved value first."""
        saved, now = _flat(self.model_dump(mode="json")), _flat(current.model_dump(mode="json"))
        new = {"prompts", "endpoint", "digests", "lms"} - self.model_fields_set
        found = []
        # Digests last, as they only say that something differs.
        fields = sorted(saved.keys() | now.keys(), key=lambda f: (f.startswith("digests."), f))
        for field in fields:
            was, value = saved.get(field), now.get(field)
            if str(value).startswith(UNKNOWN):
                what = str(value).removeprefix(UNKNOWN)
                found.append(
                    f"{field} holds {what}, which cannot be compared without a fingerprint"
                )
            elif was != value and field.partition(".")[0] in new:
                found.append(f"{field} was not recorded yet by the version that began the run")
            elif was != value:
                found.append(f"{field} was {_as_text(was)}, is {_as_text(value)}")
        return tuple(found)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    Raises:
        InputError: The file cannot be read.
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
    """Return the SHA-256 of ids, questions, accepted answers and gold titles, in order."""
    digest = hashlib.sha256()
    for example in examples:
        fields = [example.get(name) for name in ("id", "question", "answers", "gold_titles")]
        digest.update(json.dumps([*fields, example.get("answer")]).encode())
    return digest.hexdigest()


def fingerprint(program: dspy.Module) -> str:
    """Return the SHA-256 of a program's instructions, field wordings, demos and LM names."""
    parts = [
        [
            name,
            predictor.signature.instructions,
            [str(field.json_schema_extra) for field in predictor.signature.fields.values()],
            [sorted(demo.items()) for demo in predictor.demos],
            getattr(predictor.lm, "model", None),
        ]
        for name, predictor in program.named_predictors()
    ]
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(fields)
    for name in ("settings", "sampling", "versions", "digests", "lms"):
        flat |= {f"{name}.{key}": part for key, part in flat.pop(name).items()}
    return flat


def _as_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
