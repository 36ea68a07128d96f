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
from pydantic import BaseModel, JsonValue, field_validator
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError
from ga_dspy.eval.identity import UNKNOWN, digests_of
from ga_dspy.graphrag import GraphIndex
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval import Index
from ga_dspy.secrets import check_addresses
from ga_dspy.storage import sha256_of

ScoreVariant = Literal["official", "squad"]


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


class Protocol(BaseModel, frozen=True, extra="forbid"):
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
            "sha256": sha256_of(path) if path else None,
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
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
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
            "questions": f"{self.n:,} with hash {self.questions_sha256[:8]}",
            "corpus": self.corpus,
            "retriever": self.retriever,
            "score": self.score,
        }

    def differences(self, current: Protocol) -> tuple[str, ...]:
        """Return one phrase per differing field, the saved value first."""
        saved, now = _flat(self), _flat(current)
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
            elif was != value:
                found.append(f"{field} was {_as_text(was)}, is {_as_text(value)}")
        return tuple(found)


def _flat(protocol: Protocol) -> dict[str, Any]:
    """Return the fields with those of a record apart, as in "settings.k"."""
    flat = dict[str, Any]()
    for name, value in protocol.model_dump(mode="json").items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat


def _as_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


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


# --- The protocol of a program with its retriever and its LM

_SAMPLING = (
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "min_p", "n", "seed",
    "stop", "presence_penalty", "frequency_penalty", "reasoning_effort", "rollout_id",
)  # fmt: skip


def protocol_of(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    *,
    name: str,
    source: Path | str,
    lm: dspy.BaseLM,
    judge: dspy.BaseLM | None = None,
    **fields: Any,
) -> Protocol:
    """Return the protocol of a run: everything that determines its numbers.

    Args:
        program: The program.
        examples: The questions, from `load`.
        name: The program's name in reports.
        source: The file of the questions, or the name of the rows on the hub.
        lm: The LM; of its settings, those that affect sampling are stored. The LMs of single steps
            are the program's own.
        judge: The LM that judges answers in addition to the scores; None for none.
        fields: `dataset`, and what else is known: `score`, `limit`, `seed`.

    Raises:
        InputError: The address of an LM contains a password.
    """
    own = program.step_lms()
    check_addresses(lm, *own.values())
    program.check_ready()
    settings, adapter = program.settings(), dspy.settings.adapter
    sampling = {key: lm.kwargs[key] for key in _SAMPLING if lm.kwargs.get(key) is not None}
    if adapter and not isinstance(adapter, PlainAdapter):  # which is the default
        sampling["adapter"] = type(adapter).__name__
    return Protocol.of(
        examples,
        source=source,
        program=name,
        prompts=fingerprint(program),
        lm=str(lm.model),
        lms={name: str(one.model) for name, one in own.items()},
        endpoint=endpoint_digest(lm),
        sampling=sampling,
        **_retrieval_fields(program.retriever),
        k=settings.get("k"),
        steps=settings.get("max_steps"),
        settings=settings,
        judge=str(judge.model) if judge else None,
        digests=digests_of(program, lm=lm, **({"judge": judge} if judge else {})),
        **fields,
    )


def _retrieval_fields(retriever: Any) -> dict[str, Any]:
    source = getattr(retriever, "source", retriever)
    index = source.index if isinstance(source, GraphIndex) else source
    digest = getattr(source, "fingerprint", None)
    if isinstance(index, Index):
        return {
            "retriever": index.description,
            "graph": digest if isinstance(source, GraphIndex) else None,
            "corpus": index.fingerprint,
            "encoder": index.encoder.name if index.encoder else "",
        }
    return {
        "retriever": getattr(source, "__qualname__", type(source).__qualname__),
        "corpus": digest if isinstance(digest, str) else None,
    }
