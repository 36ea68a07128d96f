"""A part of a graph as a picture, coloured by community."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ga_dspy.drawing import GREY, INK, MUTED, PALE, canvas, head, save
from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.graph import KnowledgeGraph, Relation

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

MOST_NODES: Final = 60
"""More would not be legible; those with the fewest relations are left out, and counted."""

COLOURS: Final = (
    "#1f6feb", "#c2570c", "#3f9b6c", "#8a4fbf", "#d4a017", "#5ab4d6", "#a33b52", "#7b8794",
)  # fmt: skip
"""One for each of the largest communities; the others are grey."""

_WORDED_EDGES: Final = 30
_LINE, _LETTERS, _SIZE = 0.15, 18, 8
_ROUNDS: Final = 400


class NothingToDraw(InputError):
    """The part of the graph is empty."""

    def __init__(self) -> None:
        super().__init__(
            "the part of the graph has no things",
            expected="at least one thing",
            remedy="ask about something that the graph knows",
        )


def draw_graph(
    graph: KnowledgeGraph,
    path: Path,
    *,
    title: str = "",
    subtitle: str = "",
    marked: Collection[str] = (),
    communities: Mapping[str, int] | None = None,
) -> Path:
    """Draw things and relations into a png; the same graph gives the same bytes.

    Args:
        graph: What to draw, at most `MOST_NODES` things of it.
        path: The file.
        title: Above the picture.
        subtitle: Below the title.
        marked: Names of things to mark with a ring: those that a question names.
        communities: The community of each thing by name; found here by random walks if not given.

    Raises:
        NothingToDraw: The graph has no things.
        MissingExtra: matplotlib or igraph is not installed.
    """
    names, left_out = _drawn(graph, marked)
    if not names:
        raise NothingToDraw
    relations = [r for r in graph.relations if r.head in names and r.tail in names]
    place = {name: i for i, name in enumerate(names)}
    pairs = [(place[r.head], place[r.tail]) for r in relations]
    network = _igraph().Graph(n=len(names), edges=pairs).simplify()
    groups = [communities.get(name, -1) for name in names] if communities else _walked(network)
    labels = [textwrap.fill(name, _LETTERS) for name in names]
    at = _spread(_layout(network), labels)
    width, height = (float(side) for side in at.max(axis=0) - at.min(axis=0) + (2.2, 1.4))
    figure, (axes,) = canvas(max(width, 5.0), max(height + 0.8, 3.5))
    _edges(axes, at, relations, pairs)
    _nodes(axes, at, labels, _colours(groups), [name in marked for name in names])
    _frame(axes, at, (width, height))
    caption = f"{left_out} things with fewer relations are left out." if left_out else ""
    head(figure, title or "Knowledge graph", subtitle or _counted(names, relations), caption)
    return save(figure, path)


def _drawn(graph: KnowledgeGraph, marked: Collection[str]) -> tuple[list[str], int]:
    """The things to draw, marked ones first, then the most linked; and how many are not drawn."""
    links = Counter(end for relation in graph.relations for end in (relation.head, relation.tail))
    every = dict.fromkeys((*(entity.name for entity in graph.entities), *links))
    ranked = sorted(every, key=lambda name: (name not in marked, -links[name]))
    return ranked[:MOST_NODES], max(len(ranked) - MOST_NODES, 0)


def _walked(network: Any) -> list[int]:
    """Communities by short random walks, whose probabilities are computed, not drawn."""
    return list(network.community_walktrap().as_clustering().membership)


def _layout(network: Any) -> NDArray[np.float64]:
    """Places by Kamada and Kawai's springs from a circle, at about an inch an edge."""
    import numpy as np

    count = network.vcount()
    springs = network.layout_kamada_kawai(seed=network.layout_circle(), maxiter=50 * count)
    return np.asarray(springs.coords, dtype=np.float64).reshape(count, 2) * 0.95


def _spread(at: NDArray[np.float64], labels: Sequence[str]) -> NDArray[np.float64]:
    """Push things apart until no label lies over another; in inches, shape (things, 2)."""
    import numpy as np

    lines = [label.split("\n") for label in labels]
    wide = [0.075 * max(map(len, each)) + 0.15 for each in lines]
    size = np.array([(w, 0.3 + _LINE * len(each)) for w, each in zip(wide, lines, strict=True)])
    room = (size[:, None] + size[None, :]) / 2
    upper = np.triu(np.ones((len(at), len(at)), dtype=np.bool_), k=1)
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


def _edges(
    axes: Axes,
    at: NDArray[np.float64],
    relations: Sequence[Relation],
    pairs: Sequence[tuple[int, int]],
) -> None:
    told: dict[tuple[int, int], list[str]] = {}
    for (one, other), relation in zip(pairs, relations, strict=True):
        told.setdefault((one, other), []).append(relation.relation)
    for (one, other), wordings in told.items():
        axes.annotate(
            "", at[other], at[one],
            arrowprops={"arrowstyle": "-|>", "color": PALE, "shrinkA": 6, "shrinkB": 6, "lw": 0.9},
            zorder=1,
        )  # fmt: skip
        if len(told) <= _WORDED_EDGES:
            text = textwrap.fill(", ".join(dict.fromkeys(wordings)), 2 * _LETTERS)
            x, y = ((at[one] + at[other]) / 2).tolist()
            axes.text(x, y, text, fontsize=_SIZE - 2, color=MUTED, ha="center", va="center",
                      bbox=_behind(0.85), zorder=2)  # fmt: skip


def _nodes(
    axes: Axes,
    at: NDArray[np.float64],
    labels: Sequence[str],
    colours: Sequence[str],
    marked: Sequence[bool],
) -> None:
    rings = [INK if mark else "white" for mark in marked]
    sizes = [110 if mark else 60 for mark in marked]
    axes.scatter(at[:, 0], at[:, 1], s=sizes, c=list(colours), edgecolors=rings, linewidths=1.4,
                 zorder=3)  # fmt: skip
    for (x, y), label, mark in zip(at, labels, marked, strict=True):
        axes.annotate(
            label, (x, y), xytext=(0, -7), textcoords="offset points", ha="center", va="top",
            fontsize=_SIZE, color=INK, weight="bold" if mark else "normal", bbox=_behind(0.7),
            zorder=4, linespacing=1.05,
        )  # fmt: skip


def _frame(axes: Axes, at: NDArray[np.float64], size: tuple[float, float]) -> None:
    """Limits around the things, an inch being an inch, and no axes."""
    x, y = (at.max(axis=0) + at.min(axis=0)) / 2
    width, height = max(size[0], 5.0), max(size[1], 2.7)
    axes.set(xlim=(x - width / 2, x + width / 2), ylim=(y - height / 2 - 0.2, y + height / 2 - 0.2))
    axes.set_axis_off()


def _colours(groups: Sequence[int]) -> list[str]:
    sizes = Counter(group for group in groups if group >= 0)
    ranked = sorted(sizes, key=lambda group: (-sizes[group], group))
    colour = dict(zip(ranked, COLOURS, strict=False))
    return [colour.get(group, GREY) for group in groups]


def _counted(names: Sequence[str], relations: Sequence[Relation]) -> str:
    return f"{len(names)} things, {len(relations)} relations; colours are communities"


def _behind(alpha: float) -> dict[str, Any]:
    return {"facecolor": "white", "edgecolor": "none", "alpha": alpha, "pad": 0.8}


def _igraph() -> Any:
    try:
        import igraph
    except ImportError as error:
        raise MissingExtra("igraph", "graph") from error
    return igraph
