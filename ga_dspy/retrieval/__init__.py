"""Retrieval: any retriever of yours, or an index of passages kept in one folder.

Names are loaded when first used: `import ga_dspy.retrieval` imports no search library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ga_dspy.retrieval.encoders import Encoder as Encoder
    from ga_dspy.retrieval.encoders import load_encoder as load_encoder
    from ga_dspy.retrieval.index import Changes as Changes
    from ga_dspy.retrieval.index import Hit as Hit
    from ga_dspy.retrieval.index import Index as Index
    from ga_dspy.retrieval.protocol import Retriever as Retriever
    from ga_dspy.retrieval.protocol import as_retriever as as_retriever
    from ga_dspy.retrieval.read import Documents as Documents
    from ga_dspy.retrieval.read import FileRead as FileRead
    from ga_dspy.retrieval.read import read_files as read_files
    from ga_dspy.retrieval.read import read_passages as read_passages
    from ga_dspy.retrieval.where import Where as Where

_NAMES = {
    "encoders": ("Encoder", "load_encoder"),
    "index": ("Changes", "Hit", "Index"),
    "protocol": ("Retriever", "as_retriever"),
    "read": ("Documents", "FileRead", "read_files", "read_passages"),
    "where": ("Where",),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ga_dspy.retrieval' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
