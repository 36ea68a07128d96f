"""The paper's methods by name, each a program with settings.

GraphAnchor's ablations and the depths of vanilla RAG are settings, not separate programs. GraphRAG,
which is not in the paper, searches a graph that was built in advance.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ga_dspy import programs
from ga_dspy.errors import InputError, unknown
from ga_dspy.graphrag import GraphRAG
from ga_dspy.programs import IterativeProgram, MultiHopProgram
from ga_dspy.programs.program import ANSWER_TOKENS

Group = Literal["methods", "ablations", "depths", "steps", "graphrag"]
_BUDGETED_STEPS, _BUDGETED_PASSAGES = 12, 50


class Method(NamedTuple):
    """A program with settings that have a name.

    Attributes:
        name: The name in commands and folders.
        label: The name in tables and figures, which is the paper's.
        program: The class.
        settings: The settings that differ from the program's defaults.
        group: The paper's tables that show it: methods (1, 5), ablations (2), depths (4), or steps
            (Figure 3); graphrag for programs that search a graph built in advance.
    """

    name: str
    label: str
    program: type[MultiHopProgram]
    settings: dict[str, Any]
    group: Group

    def make(self, retriever: Any, **overrides: Any) -> MultiHopProgram:
        """Return the program over a retriever.

        Args:
            retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
            overrides: More settings; those that the program does not have are ignored.

        Raises:
            InputError: An override contradicts the method's name.
        """
        for name, value in self.settings.items():
            if name in overrides and overrides[name] != value:
                wrong = f"{self.name} with {name}={overrides[name]!r}"
                raise InputError(wrong, expected=f"{name}={value!r}, as the method's name says")
        declared = self.program.declared()
        fitting = {name: value for name, value in overrides.items() if name in declared}
        return self.program(retriever, **{**fitting, **self.settings})

    @property
    def needs_graph(self) -> bool:
        """Whether it searches a graph that was built in advance."""
        return issubclass(self.program, GraphRAG)

    def within(self, tokens: int) -> dict[str, Any]:
        """Return settings for a budget of about `tokens` tokens per question.

        The budget replaces the limit on steps, and one-shot retrieval reads as many passages as
        fit. A method that is named for its number of steps or passages keeps that number.
        """
        room = {"token_budget": tokens, "passage_tokens": max(tokens - ANSWER_TOKENS, 50)}
        is_loop = issubclass(self.program, IterativeProgram)
        bound, maximum = ("max_steps", _BUDGETED_STEPS) if is_loop else ("k", _BUDGETED_PASSAGES)
        return room if bound in self.settings else {**room, bound: maximum}


def _graph_rag(name: str, label: str, **settings: Any) -> Method:
    return Method(name, label, GraphRAG, settings, "graphrag")


def _graph_anchor(name: str, label: str, group: Group, **settings: Any) -> Method:
    return Method(name, label, programs.GraphAnchor, settings, group)


_ALL = (
    Method("closed-book", "No retrieval", programs.ClosedBook, {}, "methods"),
    Method("vanilla-rag", "Vanilla RAG", programs.VanillaRAG, {}, "methods"),
    Method("ircot", "IRCoT", programs.IRCoT, {}, "methods"),
    Method("iter-retgen", "Iter-RetGen", programs.IterRetGen, {}, "methods"),
    Method("search-r1", "Search-R1", programs.SearchR1, {}, "methods"),
    Method("deep-note", "DeepNote", programs.DeepNote, {}, "methods"),
    _graph_anchor("graph-anchor", "GraphAnchor", "methods"),
    _graph_anchor("as-published", "GraphAnchor as published", "methods", as_published=True),
    _graph_anchor("qa-docs", "GraphAnchor (QA w/ Docs)", "ablations", answer_from="passages"),
    _graph_anchor("qa-graph", "GraphAnchor (QA w/ Graph)", "ablations", answer_from="graph"),
    _graph_anchor("text-index", "GraphAnchor w/ Text Index", "ablations", index="text"),
    _graph_anchor("one-step", "w/o Iterative Retrieval", "ablations", max_steps=1),
    _graph_anchor("no-graph", "w/o Graph", "ablations", index=None),
    _graph_rag("graph-rag-passages", "GraphRAG, passages only", facts=0, paths=0),
    _graph_rag("graph-rag-facts", "GraphRAG, passages and facts", paths=0),
    _graph_rag("graph-rag", "GraphRAG (local)", mode="local"),
    _graph_rag("graph-rag-graph", "GraphRAG (graph only)", mode="graph"),
    _graph_rag("graph-rag-hybrid", "GraphRAG (hybrid)", mode="hybrid"),
    _graph_rag("graph-rag-global", "GraphRAG (global)", mode="global"),
    Method("vanilla-rag-10", "Vanilla RAG (top 10)", programs.VanillaRAG, {"k": 10}, "depths"),
    Method("vanilla-rag-15", "Vanilla RAG (top 15)", programs.VanillaRAG, {"k": 15}, "depths"),
    Method("vanilla-rag-20", "Vanilla RAG (top 20)", programs.VanillaRAG, {"k": 20}, "depths"),
    _graph_anchor("graph-anchor-2", "GraphAnchor, 2 steps", "steps", max_steps=2),
    _graph_anchor("graph-anchor-3", "GraphAnchor, 3 steps", "steps", max_steps=3),
    _graph_anchor("qa-docs-1", "QA w/ Docs, 1 step", "steps", answer_from="passages", max_steps=1),
    _graph_anchor("qa-docs-2", "QA w/ Docs, 2 steps", "steps", answer_from="passages", max_steps=2),
    _graph_anchor("qa-docs-3", "QA w/ Docs, 3 steps", "steps", answer_from="passages", max_steps=3),
)

METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""Methods by name, in the order of the paper's tables."""


def method(name: str) -> Method:
    """Return the method of that name.

    Raises:
        InputError: There is no such method.
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def methods(names: str) -> tuple[Method, ...]:
    """Return the methods in a comma-separated list of names and groups; "all" is every method.

    Raises:
        InputError: A name is neither a method nor a group.

    >>> [method.name for method in methods("depths,ircot")]
    ['ircot', 'vanilla-rag-10', 'vanilla-rag-15', 'vanilla-rag-20']
    """
    asked = {name.strip() for name in names.split(",") if name.strip()}
    groups = {method.group for method in _ALL}
    for name in sorted(asked - groups - {"all"}):
        method(name)
    return tuple(m for m in _ALL if "all" in asked or m.name in asked or m.group in asked)
