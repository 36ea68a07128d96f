"""Fit the coarse stage of the fact ranker from questions and the edges that helped to answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.features import NAMES
from ga_dspy.graphrag.search import GraphSearch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TREES: Final = 100
_PARAMETERS: Final[dict[str, Any]] = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "lambda_l2": 5.0,
    "verbose": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
}


class Judged(NamedTuple):
    """An edge of the graph that a caller sees, and whether it helps to answer a question."""

    question: str
    edge: int
    useful: bool


def fit(
    search: GraphSearch,
    rows: Iterable[Judged],
    out: Path,
    *,
    access: Access | None = None,
    trees: int = TREES,
) -> Path:
    """Fit LightGBM weights that `GraphSearch(ranker=out)` ranks with; the same rows, the same file.

    Args:
        search: Finds the neighbourhoods; the edges in them that no row names count as useless.
        rows: Judged edges; those outside the neighbourhood of their question are passed over.
        out: The file to write.
        access: Whose view the edges are numbered in.
        trees: Boosting rounds.

    Raises:
        InputError: No useful edge lies in the neighbourhood of its question.
        MissingExtra: lightgbm is not installed.
    """
    import numpy as np

    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtra("lightgbm", "offline") from error
    useful: dict[str, set[int]] = {}
    for row in rows:
        useful.setdefault(row.question, set()).update([row.edge] if row.useful else [])
    groups = [_group(search, question, edges, access) for question, edges in useful.items()]
    groups = [(values, label) for values, label in groups if label.any()]
    if not groups:
        raise InputError(
            f"none of {len(useful)} questions has a useful edge in its neighbourhood",
            expected="edges that lie within reach of what their question names",
            remedy="judge edges of `Found.edges`, or search with more hops",
        )
    data = lightgbm.Dataset(
        np.concatenate([values for values, _ in groups]),
        label=np.concatenate([label for _, label in groups]),
        group=[len(label) for _, label in groups],
        feature_name=list(NAMES),
    )
    lightgbm.train(_PARAMETERS, data, num_boost_round=trees).save_model(str(out))
    return out


def _group(
    search: GraphSearch, question: str, useful: set[int], access: Access | None
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    import numpy as np

    edges, values = search.described(question, access=access)
    return values, np.isin(edges, sorted(useful)).astype(np.int32)
