"""The part of a graph that answers a question, as a prompt shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ga_dspy.graph import KnowledgeGraph, linearise, prune
from ga_dspy.graphrag.found import Found
from ga_dspy.signatures.prompt import EMPTY
from ga_dspy.tokens import TokenCounter


def portion(found: Found, *, facts: bool, paths: bool) -> KnowledgeGraph:
    """The facts and paths that were found, as a graph; relations of one subject stand together.

    Args:
        found: What was found.
        facts: Whether the ranked facts are in it.
        paths: Whether the paths between linked things are.
    """
    if not facts and not paths:
        return KnowledgeGraph()
    ranked = [fact.edge for fact in found.facts] if facts else []
    walked = [edge for path in found.paths for edge in path.edges] if paths else []
    linked = [link.node for link in found.linked if link.how != "vector"] if facts else []
    return found.view.subgraph(linked, _by_subject(found, [*ranked, *walked]))


def _by_subject(found: Found, edges: Sequence[int]) -> list[int]:
    heads = found.view.graph.heads
    subjects: dict[int, list[int]] = {}
    for edge in dict.fromkeys(edges):
        subjects.setdefault(int(heads[edge]), []).append(edge)
    return [edge for group in subjects.values() for edge in group]


def portion_text(
    graph: KnowledgeGraph,
    chains: str,
    question: str,
    budget: int,
    count: TokenCounter,
    labels: Mapping[str, int],
) -> str:
    """The graph in the compact form, pruned to what a budget leaves beside the chains."""
    left = max(budget - count(chains), 0) if chains else budget
    pruned = prune(graph, question, left, count, labels=labels)
    text = linearise(pruned.graph, labels=labels)
    return "\n".join(part for part in (text, chains) if part and part != EMPTY) or EMPTY


def chains_text(found: Found, labels: Mapping[str, int], *, least: int) -> str:
    """The paths between linked things, one a line under a heading; "" where there are none.

    Arrows are drawn as "→" and "←", unlike those of the relations listed before them: a chain is
    a way to read them, not one more relation.

    Args:
        found: What was found.
        labels: The number of each passage in the prompt.
        least: The fewest relations of a path that is worth a line.
    """
    lines = []
    for path in found.paths:
        if len(path.edges) >= least:
            arrows = path.text.replace(" -> ", " → ").replace(" <- ", " ← ")
            stated = (p for edge in path.edges for p in found.view.graph.passages_of_edge(edge))
            numbers = sorted({labels[p] for p in stated if p in labels})
            lines.append(arrows + (f" [{','.join(map(str, numbers))}]" if numbers else ""))
    return "\n".join(["Paths:", *dict.fromkeys(lines)]) if lines else ""
