"""Digests of all that determines an answer: programs, LMs, retrievers and their code.

A run is resumed only if all of them are the same. It is not resumed if it depends on something that
cannot be compared, such as a connection or a lock. An object can have a string `fingerprint`, which
is then compared instead.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import json
import sys
import sysconfig
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import dspy
import numpy as np
import pydantic

from ga_dspy.eval.protocol import UNKNOWN
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
_STANDARD = sysconfig.get_path("stdlib")


_INSTALLED = {"site-packages", "dist-packages"}


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
        if isinstance(value, bytes | date | time | timedelta | Decimal | Path | complex):
            return repr(value)
        if isinstance(value, np.ndarray | np.generic):
            return [str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()]
        if isinstance(value, ModuleType | enum.Enum | BuiltinFunctionType):
            return [_name(value), str(value)] if isinstance(value, enum.Enum) else _name(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, CodeType | FunctionType | MethodType | functools.partial):
            return self._code(value)
        if isinstance(value, functools._lru_cache_wrapper):
            return self.of(value.__wrapped__)
        if isinstance(value, property | classmethod | staticmethod):
            return [self.of(getattr(value, name, None)) for name in ("fget", "__func__")]
        if isinstance(value, dspy.BaseLM):
            return self._lm(value)
        if isinstance(value, Index | GraphIndex | AdaptedRetriever):
            return self._retriever(value)
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
        left_out = {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"}
        own = {n: p for n, p in vars(kind).items() if n not in left_out and _is_relevant(n, p)}
        return [_name(kind), *map(self.of, kind.__bases__), self.of(own)]

    def _code(self, code: Any) -> Any:
        if isinstance(code, functools.partial):
            return [self.of(part) for part in (code.func, code.args, code.keywords)]
        if isinstance(code, MethodType):
            return [self.of(code.__func__), self.of(code.__self__)]
        if isinstance(code, CodeType):
            consts = [self.of(part) for part in code.co_consts]
            return [code.co_code.hex(), consts, code.co_names, code.co_varnames, code.co_freevars]
        if _is_library(code) and not code.__closure__:
            return [_name(code), code.__code__.co_code.hex()]
        used = {n: code.__globals__[n] for n in _names(code.__code__) if n in code.__globals__}
        held = inspect.getclosurevars(code).nonlocals
        given = code.__defaults__, code.__kwdefaults__
        return [self.of(part) for part in (code.__code__, held, given, used)]

    def _lm(self, lm: Any) -> Any:
        lm = unwrapped(lm)
        engine = getattr(lm, "engine", None)
        settings = {name: part for name, part in lm.kwargs.items() if name not in _IRRELEVANT}
        engine = engine if isinstance(engine, str) else _name(type(engine))
        about = type(lm), lm.model, lm.model_type, engine, endpoint_digest(lm), settings
        return [self.of(part) for part in about]

    def _retriever(self, retriever: Any) -> Any:
        if isinstance(retriever, AdaptedRetriever):
            return self.of(retriever.source)
        if isinstance(retriever, GraphIndex):
            labels = sorted(retriever.access.labels)
            reranker = self.of(retriever.path_reranker)
            return [retriever.fingerprint, self.of(retriever.index), labels, reranker]
        about = {p.id: hashlib.sha256(repr(sorted(p.metadata.items())).encode()).hexdigest()
                 for p in retriever}  # fmt: skip
        metadata = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        encoder = retriever.encoder
        described = retriever.description, retriever.fingerprint, metadata
        made_by = encoder and (encoder.name, encoder.fingerprint)
        return [*described, self.of(retriever.scope), made_by, self.of(retriever.reranker)]

    def _instance(self, value: Any) -> Any:
        """Describe an object by its class and its attributes or its `fingerprint`."""
        kind = type(value)
        mark = None if kind is dspy.Predict else getattr(value, "fingerprint", None)
        if isinstance(mark, str):
            return [self.of(kind), mark]
        if isinstance(value, pydantic.BaseModel):
            return [self.of(kind), self.of(dict(value))]
        if isinstance(value, dspy.Example):
            return self.of(dict(value.items()))
        is_known = isinstance(value, dspy.Module | dspy.Adapter) or hasattr(
            value, "__dataclass_fields__"
        )
        if not hasattr(value, "__dict__") or (_is_library(kind) and not is_known):
            raise _Unknown(f"an object of {_name(kind)}")
        held = {n: p for n, p in vars(value).items() if n not in _RECORDS}
        return [self.of(kind), self.of(held)]


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
    if module.partition(".")[0] in ("ga_dspy", "extractive_lm", "builtins"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in sys.builtin_module_names
    return file.startswith(_STANDARD) or bool(_INSTALLED.intersection(Path(file).parts))
