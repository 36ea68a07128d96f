"""A part of a graph as a picture, coloured by community."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ga_dspy.drawing import GREY, INK, MUTED, PALE, canvas, head, save
from ga_dspy.errors import InputError, require
from ga_dspy.graph import KnowledgeGraph, Relation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# --- A part of a graph as a picture, coloured by community.

MOST_NODES: Final = 60
"""More would not be legible; those with the fewest relations are left out, and counted."""

COLOURS: Final = (
    "#1f6feb", "#c2570c", "#3f9b6c", "#8a4fbf", "#d4a017", "#5ab4d6", "#a33b52", "#7b8794",
)  # fmt: skip
"""One for each of the largest communities; the others are grey."""

_WORDED_EDGES: Final = 30
_LINE, _LETTERS, _SIZE = 0.15, 18, 8
_ROUNDS: Final = 400


def draw_graph(
    graph: KnowledgeGraph,
    path: Path,
    *,
    title: str = "",
    subtitle: str = "",
    marked: Collection[str] = (),
    communities: Mapping[str, int] | None = None,
) -> Path:
    """Draw entities and relations into a png; the same graph gives the same bytes.

    Args:
        graph: What to draw, at most `MOST_NODES` entities of it.
        path: The file.
        title: Above the picture.
        subtitle: Below the title.
        marked: Names of entities to mark with a ring: those that a question names.
        communities: The community of each entity by name; by default those that short random
            walks find, whose probabilities are computed and not drawn.

    Raises:
        InputError: The graph has no entities.
        MissingExtra: matplotlib or igraph is not installed.
    """
    linked = Counter(end for relation in graph.relations for end in (relation.head, relation.tail))
    every = dict.fromkeys((*(entity.name for entity in graph.entities), *linked))
    if not every:
        raise InputError(
            "the part of the graph has no entities",
            expected="at least one entity",
            remedy="ask about something that the graph knows",
        )
    names = sorted(every, key=lambda name: (name not in marked, -linked[name]))[:MOST_NODES]
    place = {name: i for i, name in enumerate(names)}
    relations = [r for r in graph.relations if r.head in place and r.tail in place]
    pairs = [(place[r.head], place[r.tail]) for r in relations]
    network = require("igraph", "graph").Graph(n=len(names), edges=pairs).simplify()
    if communities:
        groups = [communities.get(name, -1) for name in names]
    else:
        groups = network.community_walktrap().as_clustering().membership
    labels = [textwrap.fill(name, _LETTERS) for name in names]
    at = _layout(network, labels)
    width, height = (float(side) for side in at.max(axis=0) - at.min(axis=0) + (2.2, 1.4))
    figure, (axes,) = canvas(max(width, 5.0), max(height + 0.8, 3.5))
    _draw_edges(axes, at, relations, pairs)
    _draw_nodes(axes, at, labels, groups, [name in marked for name in names])
    # An inch is an inch, and there are no axes.
    (x, y), width, height = (at.max(axis=0) + at.min(axis=0)) / 2, max(width, 5.0), max(height, 2.7)
    axes.set(xlim=(x - width / 2, x + width / 2), ylim=(y - height / 2 - 0.2, y + height / 2 - 0.2))
    axes.set_axis_off()
    left_out = len(every) - len(names)
    caption = f"{left_out} entities with fewer relations are left out." if left_out else ""
    counted = f"{len(names)} entities, {len(relations)} relations; colours are communities"
    head(figure, title or "Knowledge graph", subtitle or counted, caption)
    return save(figure, path)


def _layout(network: Any, labels: Sequence[str]) -> NDArray[np.float64]:
    """Places in inches, shape (nodes, 2), so that no label lies over another.

    Kamada and Kawai's springs from a circle, at about an inch an edge; then labels are pushed
    apart.
    """
    count = network.vcount()
    springs = network.layout_kamada_kawai(seed=network.layout_circle(), maxiter=50 * count)
    at = np.asarray(springs.coords, dtype=np.float64).reshape(count, 2) * 0.95
    lines = [label.split("\n") for label in labels]
    size = np.array([(0.075 * max(map(len, n)) + 0.15, 0.3 + _LINE * len(n)) for n in lines])
    room = (size[:, None] + size[None, :]) / 2
    upper = np.triu(np.ones((count, count), dtype=np.bool_), k=1)
    for _ in range(_ROUNDS):
        apart = at[:, None] - at[None, :]
        over = room - np.abs(apart)
        one, other = np.nonzero((over > 1e-6).all(axis=2) & upper)
        if not len(one):
            break
        axis = np.argmin(over[one, other], axis=1)
        sign = np.where(apart[one, other, axis] < 0, -1.0, 1.0)
        shift = sign * (over[one, other, axis] / 2 + 0.005)
        np.add.at(at, (one, axis), shift)
        np.add.at(at, (other, axis), -shift)
    return at


def _draw_edges(
    axes: Axes,
    at: NDArray[np.float64],
    relations: Sequence[Relation],
    pairs: Sequence[tuple[int, int]],
) -> None:
    wordings: dict[tuple[int, int], list[str]] = {}
    for pair, relation in zip(pairs, relations, strict=True):
        wordings.setdefault(pair, []).append(relation.relation)
    for (one, other), worded in wordings.items():
        axes.annotate(
            "", at[other], at[one],
            arrowprops={"arrowstyle": "-|>", "color": PALE, "shrinkA": 6, "shrinkB": 6, "lw": 0.9},
            zorder=1,
        )  # fmt: skip
        if len(wordings) <= _WORDED_EDGES:
            text = textwrap.fill(", ".join(dict.fromkeys(worded)), 2 * _LETTERS)
            x, y = ((at[one] + at[other]) / 2).tolist()
            axes.text(x, y, text, fontsize=_SIZE - 2, color=MUTED, ha="center", va="center",
                      bbox=_box(0.85), zorder=2)  # fmt: skip


def _draw_nodes(
    axes: Axes,
    at: NDArray[np.float64],
    labels: Sequence[str],
    groups: Sequence[int],
    marked: Sequence[bool],
) -> None:
    sizes = Counter(group for group in groups if group >= 0)
    ranked = sorted(sizes, key=lambda group: (-sizes[group], group))
    colour = dict(zip(ranked, COLOURS, strict=False))
    axes.scatter(
        at[:, 0], at[:, 1], s=[110 if mark else 60 for mark in marked],
        c=[colour.get(group, GREY) for group in groups],
        edgecolors=[INK if mark else "white" for mark in marked], linewidths=1.4, zorder=3,
    )  # fmt: skip
    for (x, y), label, mark in zip(at, labels, marked, strict=True):
        axes.annotate(
            label, (x, y), xytext=(0, -7), textcoords="offset points", ha="center", va="top",
            fontsize=_SIZE, color=INK, weight="bold" if mark else "normal", bbox=_box(0.7),
            zorder=4, linespacing=1.05,
        )  # fmt: skip


def _box(alpha: float) -> dict[str, Any]:
    """The box behind a text."""
    return {"facecolor": "white", "edgecolor": "none", "alpha": alpha, "pad": 0.8}
