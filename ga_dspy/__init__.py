"""Multi-hop question answering in DSPy over an evolving, grounded knowledge graph.

Names and subpackages are imported on first use, so that `import ga_dspy` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from extractive_lm.engine import extractive_lm as extractive_lm
    from ga_dspy.artifact import load as load
    from ga_dspy.artifact import save as save
    from ga_dspy.cli.config import from_config as from_config
    from ga_dspy.errors import GaDspyError as GaDspyError
    from ga_dspy.graph import KnowledgeGraph as KnowledgeGraph
    from ga_dspy.graph import Schema as Schema
    from ga_dspy.lm.adapters import PlainAdapter as PlainAdapter
    from ga_dspy.lm.adapters import SchemaAdapter as SchemaAdapter
    from ga_dspy.lm.patience import Patience as Patience
    from ga_dspy.lm.patience import patient as patient
    from ga_dspy.passage import Passage as Passage
    from ga_dspy.programs import GapLog as GapLog
    from ga_dspy.programs import GraphAnchor as GraphAnchor
    from ga_dspy.programs import VanillaRAG as VanillaRAG
    from ga_dspy.retrieval import Index as Index
    from ga_dspy.retrieval import as_retriever as as_retriever
    from ga_dspy.retrieval import read_passages as read_passages
    from ga_dspy.tracing import track as track

__version__ = "0.1.0"

_NAMES = {
    "extractive_lm": ("extractive_lm",),
    "ga_dspy.artifact": ("load", "save"),
    "ga_dspy.cli.config": ("from_config",),
    "ga_dspy.errors": ("GaDspyError",),
    "ga_dspy.graph": ("KnowledgeGraph", "Schema"),
    "ga_dspy.lm.adapters": ("PlainAdapter", "SchemaAdapter"),
    "ga_dspy.lm.patience": ("Patience", "patient"),
    "ga_dspy.passage": ("Passage",),
    "ga_dspy.programs": ("GapLog", "GraphAnchor", "VanillaRAG"),
    "ga_dspy.retrieval": ("Index", "as_retriever", "read_passages"),
    "ga_dspy.tracing": ("track",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

_MODULES = (
    "artifact", "eval", "graph", "graphrag", "grounding", "lm", "optimize", "programs",
    "retrieval", "serve", "signatures", "testing", "tracing", "viewer",
)  # fmt: skip

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"ga_dspy.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'ga_dspy' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
