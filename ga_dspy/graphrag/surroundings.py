"""What surrounds some things, whatever is asked about them."""

from __future__ import annotations

from collections.abc import Iterable

from ga_dspy.graphrag.corpus_graph import View
from ga_dspy.graphrag.expansion import Neighbourhood, Wiring, expand


def around(
    view: View, nodes: Iterable[int], *, hops: int = 2, max_nodes: int = 200, max_edges: int = 400
) -> Neighbourhood:
    """The neighbourhood of some things, as far as a caller sees and wants it; see `expand`."""
    import numpy as np

    wiring = Wiring(view.graph)
    # Where nothing is asked, every edge fits alike.
    fit = np.ones(len(wiring.heads))
    starts = dict.fromkeys(nodes, 1.0)
    return expand(
        wiring, starts, view.edges, fit, hops=hops, max_nodes=max_nodes, max_edges=max_edges
    )
