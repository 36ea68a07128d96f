"""The protocol of a run: everything that determines its numbers.

The protocol names the program, the LM, the questions and the corpus for people, and has digests of
all code and values that affect an answer. A run is resumed only under an equal protocol.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import inspect
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

import dspy
from pydantic import BaseModel, JsonValue, field_validator
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError
from ga_dspy.graphrag import GraphIndex
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.lm.wrapper import unwrapped
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.protocol import AdaptedRetriever
from ga_dspy.secrets import check_addresses
from ga_dspy.storage import sha256_of

ScoreVariant = Literal["official", "squad"]


class ProtocolMismatch(GaDspyError):
    """The run in the output folder was started under another protocol."""

    def __init__(self, differences: Sequence[str], where: Path) -> None:
        super().__init__(
            f"{where} holds a run under another protocol",
            expected=f"the same protocol to resume; different: {'; '.join(differences)}",
            remedy="run with the saved settings, or choose another output directory; give objects "
            "that cannot be compared a string attribute `fingerprint`",
        )
        self.differences, self.where = tuple(differences), where


class Protocol(BaseModel, frozen=True, extra="forbid"):
    """Everything that determines a run's numbers, stored with every run.

    Attributes:
        dataset: Name of the dataset.
        split: The file's name without its extension, or the hub's split.
        source: File name, or the name of the rows on the hub.
        sha256: Digest of the file; None for rows that do not come from a file.
        questions_sha256: Digest of the questions asked, with ids and accepted answers, in order.
        n: Number of questions asked.
        limit: The limit on the number of questions; None for all.
        seed: Seed of the sample; None for questions in file order.
        program: Name of the program.
        prompts: Digest of its instructions, field wordings and demos; None if unknown.
        settings: Its settings as JSON values, without keys.
        lm: Name of the LM.
        lms: Names of the LMs of single steps, by predictor.
        endpoint: Digest of the LM's address; None for the provider's default.
        sampling: Sampling parameters of the LM and a custom adapter, as JSON values.
        retriever: Description of the retriever and its corpus.
        graph: Digest of the corpus graph; None if none is searched.
        corpus: Digest of the corpus; None if unknown.
        encoder: Name of the encoder; empty without one.
        k: Passages per query; None if nothing is retrieved.
        steps: Maximum number of retrieval rounds; None without a limit.
        score: Which F1 counts: "official" (HotpotQA's script) or "squad".
        versions: Versions of the code that computes the numbers.
        judge: Name of the LM that judges answers; None without one.
        digests: Digests of everything that affects an answer, by part: code, predictors, retriever
            with its conditions and metadata, LM, adapter; empty if unknown.
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
            source: The file, of which digest and name are stored, so that it can be moved; or, as a
                `str`, the name of the rows on the hub.
            fields: The other fields: `dataset`, `program`, `lm`, and more.
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
        """The values that two runs must share to be in one table."""
        return {
            "questions": f"{self.n:,} with hash {self.questions_sha256[:8]}",
            "corpus": self.corpus,
            "retriever": self.retriever,
            "score": self.score,
        }

    def differences(self, current: Protocol) -> tuple[str, ...]:
        """Return one phrase per differing field, the saved value first."""
        saved, now = _flat(self), _flat(current)
        phrases = []
        # Digests last, because they say only that something differs.
        fields = sorted(saved.keys() | now.keys(), key=lambda f: (f.startswith("digests."), f))
        for field in fields:
            was, value = saved.get(field), now.get(field)
            if str(value).startswith(UNKNOWN):
                what = f"{field} holds {str(value).removeprefix(UNKNOWN)}"
                phrases.append(f"{what}, which cannot be compared without a fingerprint")
            elif was != value:
                phrases.append(f"{field} was {_as_text(was)}, is {_as_text(value)}")
        return tuple(phrases)


def _flat(protocol: Protocol) -> dict[str, Any]:
    """Return the fields by name, those of nested records as in "settings.k"."""
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
    parts = []
    for name, predictor in program.named_predictors():
        signature = predictor.signature
        fields = [str(field.json_schema_extra) for field in signature.fields.values()]
        demos = [sorted(demo.items()) for demo in predictor.demos]
        lm = getattr(predictor.lm, "model", None)
        parts.append([name, signature.instructions, fields, demos, lm])
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
        lm: The LM. Only its settings that affect sampling are stored. LMs of single steps are taken
            from the program.
        judge: The LM that judges answers in addition to the scores.
        fields: More fields: `dataset`, `score`, `limit`, `seed`.

    Raises:
        InputError: The address of an LM contains a password.
    """
    step_lms = program.step_lms()
    check_addresses(lm, *step_lms.values())
    program.check_ready()
    settings, adapter = program.settings(), dspy.settings.adapter
    sampling = {key: lm.kwargs[key] for key in _SAMPLING if lm.kwargs.get(key) is not None}
    if adapter and not isinstance(adapter, PlainAdapter):  # the default
        sampling["adapter"] = type(adapter).__name__
    return Protocol.of(
        examples,
        source=source,
        program=name,
        prompts=fingerprint(program),
        lm=str(lm.model),
        lms={step: str(own.model) for step, own in step_lms.items()},
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


# --- Digests of all that affects an answer: programs, LMs, retrievers and their code

# Settings of an LM that do not affect answers. The address is compared by `endpoint_digest`.
_IRRELEVANT = {
    "api_key", "api_base", "base_url", "headers", "extra_headers", "cache", "timeout",
    "num_retries", "max_retries",
}  # fmt: skip
_RECORDS = {"history", "callbacks", "traces", "train", "stage", "_compiled"}
_WRAPPERS = (
    MethodType, property, classmethod, staticmethod, functools.partial,
    functools._lru_cache_wrapper,
)  # fmt: skip
_WRAPPED = "__func__", "__self__", "__wrapped__", "fget", "func", "args", "keywords"
_KNOWN = {"ga_dspy", "extractive_lm", *sys.stdlib_module_names}
_INSTALLED = {"site-packages", "dist-packages"}

UNKNOWN = "unknown: "
"""Prefix of the digest of something that cannot be compared."""


class _Unknown(Exception):
    """A value cannot be compared between processes, such as a connection or a lock."""


def digest(value: Any) -> str:
    """Return twelve hexadecimal digits, or `UNKNOWN` with the name of what cannot be compared."""
    try:
        text = json.dumps(_Description().of(value), sort_keys=True)
    except _Unknown as unknown:
        return f"{UNKNOWN}{unknown}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digests_of(program: MultiHopProgram, **more: Any) -> dict[str, str]:
    """Return the digests of the parts of a program, and of more values by name."""
    parts = {f"predictor {name}": part for name, part in program.named_predictors()}
    left_out = {"retriever", *_RECORDS}
    attributes = {name: part for name, part in vars(program).items() if name not in left_out}
    adapter = dspy.settings.adapter
    parts |= {
        "program": [type(program), attributes],
        "retriever": vars(program).get("retriever"),
        "adapter": None if type(adapter) is PlainAdapter else adapter,  # the default
        **more,
    }
    return {name: digest(part) for name, part in parts.items()}


class _Description:
    """Describes values as JSON; a repeated object becomes a reference to its first occurrence."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        # Python may or may not share equal constants. Anything else may contain itself.
        if not isinstance(value, tuple | frozenset | bytes | CodeType):
            if id(value) in self._seen:
                return {"again": self._seen[id(value)][0]}
            # The value is kept, so that its id is not used again.
            self._seen[id(value)] = (len(self._seen), value)
        return [_name(type(value)), self._parts(value)]

    def _parts(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return [[self.of(key), self.of(part)] for key, part in value.items()]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(self.of(part), sort_keys=True) for part in value)
        if isinstance(value, list | tuple):
            return [self.of(part) for part in value]
        if isinstance(value, bytes):
            return hashlib.sha256(value).hexdigest()
        if isinstance(value, ModuleType | BuiltinFunctionType):
            return _name(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, CodeType):
            names = value.co_names, value.co_varnames, value.co_freevars
            return [value.co_code.hex(), self.of(value.co_consts), names]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, _WRAPPERS):
            return [self.of(getattr(value, name, None)) for name in _WRAPPED]
        if isinstance(value, dspy.BaseLM):
            return self._lm(value)
        if isinstance(value, AdaptedRetriever):
            return self.of(value.source)
        if isinstance(value, GraphIndex):
            labels = sorted(value.access.labels)
            return [value.fingerprint, self.of([value.index, labels, value.path_reranker])]
        if isinstance(value, Index):
            return self._index(value)
        return self._instance(value)

    def _class(self, kind: Any) -> Any:
        """Describe a class by its code, or by its name if a library's version identifies it."""
        if issubclass(kind, dspy.Signature):
            items = kind.fields.items()
            fields = [[name, str(f.annotation), f.json_schema_extra] for name, f in items]
            return [kind.instructions, self.of(fields)]
        if _is_library(kind):
            return _name(kind)
        code = {name: part for name, part in vars(kind).items() if _is_relevant(name, part)}
        return [_name(kind), *map(self.of, kind.__bases__), self.of(code)]

    def _function(self, function: FunctionType) -> Any:
        code = function.__code__
        if _is_library(function) and not function.__closure__:
            return [_name(function), code.co_code.hex()]
        scope = function.__globals__
        used = {name: scope[name] for name in _names(code) if name in scope}
        closure = inspect.getclosurevars(function).nonlocals
        defaults = function.__defaults__, function.__kwdefaults__
        return [self.of(part) for part in (code, closure, defaults, used)]

    def _lm(self, lm: Any) -> Any:
        lm = unwrapped(lm)
        engine = getattr(lm, "engine", None)
        settings = {name: part for name, part in lm.kwargs.items() if name not in _IRRELEVANT}
        engine = engine if isinstance(engine, str) else _name(type(engine))
        about = type(lm), lm.model, lm.model_type, engine, endpoint_digest(lm), settings
        return [self.of(part) for part in about]

    def _index(self, index: Index) -> Any:
        # A sum does not depend on the order of the passages, and keeps none of them in memory.
        metadata = sum(
            int(hashlib.sha256(repr((p.id, sorted(p.metadata.items()))).encode()).hexdigest(), 16)
            for p in index
        )
        encoder = index.encoder and (index.encoder.name, index.encoder.fingerprint)
        described = index.description, index.fingerprint, metadata, encoder
        return [*described, self.of([index.scope, index.reranker])]

    def _instance(self, value: Any) -> Any:
        """Describe an object by its class and its `fingerprint`, if it has one, or attributes."""
        kind = type(value)
        fingerprint = None if kind is dspy.Predict else getattr(value, "fingerprint", None)
        if isinstance(fingerprint, str):
            return [self.of(kind), fingerprint]
        if isinstance(value, dspy.Example):
            return self.of(dict(value.items()))
        if not hasattr(value, "__dict__"):
            return self._pickled(value)
        comparable = dspy.Module | dspy.Adapter | BaseModel | enum.Enum
        if _is_library(kind) and not (isinstance(value, comparable) or is_dataclass(value)):
            raise _Unknown(f"an object of {_name(kind)}")
        attributes = {name: part for name, part in vars(value).items() if name not in _RECORDS}
        return [self.of(kind), self.of(attributes)]

    def _pickled(self, value: Any) -> Any:
        """Describe an object without `__dict__`, such as a date or an array, as pickle does."""
        registered = copyreg.dispatch_table.get(type(value))
        try:
            parts = registered(value) if registered else value.__reduce_ex__(4)
        except Exception as error:  # an object may refuse in any way
            raise _Unknown(f"an object of {_name(type(value))}") from error
        # The elements of a container come as an iterator, which itself cannot be described.
        return [self.of(list(part) if isinstance(part, Iterator) else part) for part in parts]


def _is_relevant(name: str, part: Any) -> bool:
    """Return whether a class attribute affects behaviour, unlike those of Python or Pydantic."""
    is_code = isinstance(part, FunctionType | property | classmethod | staticmethod | type)
    is_plain = isinstance(part, bool | int | float | str | tuple | list | dict | set | None)
    return is_code or (is_plain and not name.startswith(("__", "_abc_", "model_")))


def _names(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _name(value: Any) -> str:
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"{module}.{name or type(value).__qualname__}"


def _is_library(value: Any) -> bool:
    """Return whether code is of Python, a package or ga_dspy, so that a version identifies it."""
    module = value.__module__ or ""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module.partition(".")[0] in _KNOWN or bool(_INSTALLED.intersection(Path(file).parts))
