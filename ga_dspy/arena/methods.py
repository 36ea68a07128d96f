"""Every method of the paper by name: a program and the settings that make it that method.

GraphAnchor's ablations and the depths of vanilla RAG are settings, not programs of their own.
Beside the paper's methods stands GraphRAG, which searches a graph built ahead of time.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.graphrag import GraphRAG
from ga_dspy.programs import (
    ClosedBook,
    DeepNote,
    GraphAnchor,
    IRCoT,
    IterativeProgram,
    IterRetGen,
    MultiHopProgram,
    SearchR1,
    VanillaRAG,
)
from ga_dspy.programs.program import ANSWER_TOKENS

Group = Literal["methods", "ablations", "depths", "steps", "graphrag"]
_LONG_SEARCH = 12
_MANY = 50


class Method(NamedTuple):
    """A program under settings that have a name.

    Attributes:
        name: As commands and reports name it.
        label: As the paper names it.
        program: The class.
        settings: What differs from the program's defaults.
        group: The paper's tables it stands in: methods (1, 5), ablations (2), depths (4), or
            steps (Figure 3); graphrag for what searches a graph built ahead of time.
    """

    name: str
    label: str
    program: type[MultiHopProgram]
    settings: dict[str, Any]
    group: Group

    def make(self, retriever: Any, **overrides: Any) -> MultiHopProgram:
        """The program over a retriever; what the method's name says cannot be overridden.

        Args:
            retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
            overrides: Further settings; those that the program does not have are left out.

        Raises:
            InputError: An override contradicts the method.
        """
        for name, value in self.settings.items():
            if name in overrides and overrides[name] != value:
                raise InputError(
                    f"{self.name} with {name}={overrides[name]!r}",
                    expected=f"{name}={value!r}, which is what {self.name} means",
                    remedy=f"leave {name} out, or choose another method",
                )
        known = self.program(retriever).settings()
        fitting = {name: value for name, value in overrides.items() if name in known}
        return self.program(retriever, **{**fitting, **self.settings})

    @property
    def needs_graph(self) -> bool:
        """Whether it searches a graph that was built ahead of time."""
        return issubclass(self.program, GraphRAG)

    def within(self, tokens: int) -> dict[str, Any]:
        """Settings under which the method may spend about so many tokens on a question.

        Loops are bound by the budget instead of a number of steps; one-shot retrieval takes as
        many passages as fit. A method that means a number of steps or passages keeps it.
        """
        room = {"token_budget": tokens, "passage_tokens": max(tokens - ANSWER_TOKENS, 50)}
        loops = issubclass(self.program, IterativeProgram)
        bound, most = ("max_steps", _LONG_SEARCH) if loops else ("k", _MANY)
        return room if bound in self.settings else {**room, bound: most}


def _static(name: str, label: str, **settings: Any) -> Method:
    return Method(name, label, GraphRAG, settings, "graphrag")


def _anchor(name: str, label: str, group: Group, **settings: Any) -> Method:
    return Method(name, label, GraphAnchor, settings, group)


_ALL = (
    Method("closed-book", "No retrieval", ClosedBook, {}, "methods"),
    Method("vanilla-rag", "Vanilla RAG", VanillaRAG, {}, "methods"),
    Method("ircot", "IRCoT", IRCoT, {}, "methods"),
    Method("iter-retgen", "Iter-RetGen", IterRetGen, {}, "methods"),
    Method("search-r1", "Search-R1", SearchR1, {}, "methods"),
    Method("deep-note", "DeepNote", DeepNote, {}, "methods"),
    _anchor("graph-anchor", "GraphAnchor", "methods"),
    _anchor("as-published", "GraphAnchor as published", "methods", as_published=True),
    _anchor("qa-docs", "GraphAnchor (QA w/ Docs)", "ablations", answer_from="passages"),
    _anchor("qa-graph", "GraphAnchor (QA w/ Graph)", "ablations", answer_from="graph"),
    _anchor("text-index", "GraphAnchor w/ Text Index", "ablations", index="text"),
    _anchor("one-step", "w/o Iterative Retrieval", "ablations", max_steps=1),
    _anchor("no-graph", "w/o Graph", "ablations", index=None),
    _static("graph-rag-passages", "GraphRAG, passages only", facts=0, paths=0),
    _static("graph-rag-facts", "GraphRAG, passages and facts", paths=0),
    _static("graph-rag", "GraphRAG (local)", mode="local"),
    _static("graph-rag-hybrid", "GraphRAG (hybrid)", mode="hybrid"),
    _static("graph-rag-global", "GraphRAG (global)", mode="global"),
    *(
        Method(f"vanilla-rag-{k}", f"Vanilla RAG (top {k})", VanillaRAG, {"k": k}, "depths")
        for k in (10, 15, 20)
    ),
    *(
        _anchor(f"graph-anchor-{t}", f"GraphAnchor, {t} steps", "steps", max_steps=t)
        for t in (2, 3)
    ),
    *(
        _anchor(
            f"qa-docs-{t}", f"QA w/ Docs, {t} step{'s' * (t > 1)}", "steps",
            answer_from="passages", max_steps=t,
        )
        for t in (1, 2, 3)
    ),
)  # fmt: skip

METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""Name to method, in the order of the paper's tables."""


def method(name: str) -> Method:
    """The method with a name.

    Raises:
        InputError: There is none.
    """
    if name not in METHODS:
        raise InputError(
            f"there is no method {name!r}",
            expected=f"one of {', '.join(METHODS)}",
            remedy="pass one of these names",
        )
    return METHODS[name]


def methods(names: str) -> tuple[Method, ...]:
    """Methods from a comma-separated list of names and groups; "all" is every one.

    Raises:
        InputError: One of the names is neither.

    >>> [method.name for method in methods("depths,ircot")]
    ['ircot', 'vanilla-rag-10', 'vanilla-rag-15', 'vanilla-rag-20']
    """
    asked = {name.strip() for name in names.split(",") if name.strip()}
    groups = {found.group for found in _ALL}
    chosen = asked - groups - {"all"}
    for name in sorted(chosen):
        method(name)
    wanted = tuple(m for m in _ALL if "all" in asked or m.name in asked or m.group in asked)
    if not wanted:
        raise InputError(
            "no method was named",
            expected=f"all, a group ({', '.join(sorted(groups))}) or names",
            remedy="pass --programs all",
        )
    return wanted
