"""Digests of all that determines an answer: programs, LMs, retrievers and their code.

A run is resumed only if all of them are the same. It is not resumed if it depends on something that
cannot be compared, such as a connection or a lock. An object can have a string `fingerprint`, which
is then compared instead.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import dspy
import pydantic

from ga_dspy.graphrag import GraphIndex
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.lm.wrapper import unwrapped
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.protocol import AdaptedRetriever

# Settings of an LM that do not affect answers; the address has a digest of its own.
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
    """Something cannot be compared between processes."""


def digest(value: Any) -> str:
    """Return twelve hexadecimal digits for a value, or `UNKNOWN` and what cannot be compared."""
    try:
        text = json.dumps(_Description().of(value), sort_keys=True)
    except _Unknown as unknown:
        return f"{UNKNOWN}{unknown}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digests_of(program: MultiHopProgram, **more: Any) -> dict[str, str]:
    """Return the digests of the parts of a program, and of more values by name."""
    parts = {f"predictor {name}": part for name, part in program.named_predictors()}
    left_out = {"retriever", *_RECORDS}
    own = {name: part for name, part in vars(program).items() if name not in left_out}
    adapter = dspy.settings.adapter
    parts |= {
        "program": [type(program), own],
        "retriever": vars(program).get("retriever"),
        "adapter": None if type(adapter) is PlainAdapter else adapter,  # the default
        **more,
    }
    return {name: digest(part) for name, part in parts.items()}


class _Description:
    """Describes values as JSON; a repeated object is described by the place of the first."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        # Constants may or may not be shared; all else is described once, as it may contain itself.
        if not isinstance(value, tuple | frozenset | bytes | CodeType):
            if id(value) in self._seen:
                return {"again": self._seen[id(value)][0]}
            self._seen[id(value)] = len(self._seen), value  # kept alive, so that no id is reused
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
        """Describe the code of a class; that of a library is known by its version."""
        if issubclass(kind, dspy.Signature):
            fields = [
                [name, str(f.annotation), f.json_schema_extra] for name, f in kind.fields.items()
            ]
            return [kind.instructions, self.of(fields)]
        if _is_library(kind):
            return _name(kind)
        own = {name: part for name, part in vars(kind).items() if _is_relevant(name, part)}
        return [_name(kind), *map(self.of, kind.__bases__), self.of(own)]

    def _function(self, function: FunctionType) -> Any:
        code = function.__code__
        if _is_library(function) and not function.__closure__:
            return [_name(function), code.co_code.hex()]
        scope = function.__globals__
        used = {name: scope[name] for name in _names(code) if name in scope}
        held = inspect.getclosurevars(function).nonlocals
        given = function.__defaults__, function.__kwdefaults__
        return [self.of(part) for part in (code, held, given, used)]

    def _lm(self, lm: Any) -> Any:
        lm = unwrapped(lm)
        engine = getattr(lm, "engine", None)
        settings = {name: part for name, part in lm.kwargs.items() if name not in _IRRELEVANT}
        engine = engine if isinstance(engine, str) else _name(type(engine))
        about = type(lm), lm.model, lm.model_type, engine, endpoint_digest(lm), settings
        return [self.of(part) for part in about]

    def _index(self, index: Index) -> Any:
        # A sum, because it does not depend on the order, and holds no passage in memory.
        metadata = sum(
            int(hashlib.sha256(repr((p.id, sorted(p.metadata.items()))).encode()).hexdigest(), 16)
            for p in index
        )
        encoder = index.encoder and (index.encoder.name, index.encoder.fingerprint)
        described = index.description, index.fingerprint, metadata, encoder
        return [*described, self.of([index.scope, index.reranker])]

    def _instance(self, value: Any) -> Any:
        """Describe an object by its class and its attributes or its `fingerprint`."""
        kind = type(value)
        mark = None if kind is dspy.Predict else getattr(value, "fingerprint", None)
        if isinstance(mark, str):
            return [self.of(kind), mark]
        if isinstance(value, dspy.Example):
            return self.of(dict(value.items()))
        if not hasattr(value, "__dict__"):
            return self._pickled(value)
        known = dspy.Module | dspy.Adapter | pydantic.BaseModel | enum.Enum
        if _is_library(kind) and not (isinstance(value, known) or is_dataclass(value)):
            raise _Unknown(f"an object of {_name(kind)}")
        held = {n: p for n, p in vars(value).items() if n not in _RECORDS}
        return [self.of(kind), self.of(held)]

    def _pickled(self, value: Any) -> Any:
        """Describe an object without attributes, such as a date or an array, as pickle does."""
        registered = copyreg.dispatch_table.get(type(value))
        try:
            parts = registered(value) if registered else value.__reduce_ex__(4)
        except Exception as error:  # an object may refuse in any way
            raise _Unknown(f"an object of {_name(type(value))}") from error
        # Elements come as an iterator over the object, which is described already.
        return [self.of(list(part) if isinstance(part, Iterator) else part) for part in parts]


def _is_relevant(name: str, part: Any) -> bool:
    """Return whether a part of a class affects behaviour; what Python and Pydantic add does not."""
    is_code = isinstance(part, FunctionType | property | classmethod | staticmethod | type)
    is_plain = part is None or isinstance(
        part, bool | int | float | str | tuple | list | dict | set
    )
    return is_code or (is_plain and not name.startswith(("__", "_abc_", "model_")))


def _names(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _name(value: Any) -> str:
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"{module}.{name or type(value).__qualname__}"


def _is_library(value: Any) -> bool:
    """Return whether code is Python's, an installed package's or ours, known by its version."""
    module = value.__module__ or ""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module.partition(".")[0] in _KNOWN or bool(_INSTALLED.intersection(Path(file).parts))
