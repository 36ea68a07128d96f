"""A caller's wishes as a mask over edges: relations, years, confidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.sources import relation_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_YEAR: Final = re.compile(r"\b\d{4}\b")


def wanted_edges(edges: Any, access: Access) -> NDArray[np.bool_]:
    """Which rows of an edge table a caller wants, shape (edges,)."""
    import numpy as np

    wanted = np.ones(edges.num_rows, dtype=np.bool_)
    if access.relations is not None:
        plain = {relation_key(name) for name in access.relations}
        wanted &= [relation_key(name) in plain for name in edges["relation"].to_pylist()]
    if access.time is not None:
        wanted &= [within(text, access.time) for text in edges["time"].to_pylist()]
    if access.min_confidence > 0:
        stated = edges["confidence"].to_pylist()
        wanted &= [value is None or value >= access.min_confidence for value in stated]
    return wanted


def within(time: str | None, years: tuple[int, int]) -> bool:
    """Whether the years that a time states meet a range; a time without years is in any.

    Two years are the ends of a span.

    >>> [within(text, (1980, 1989)) for text in ("1984", "from 1970 to 1999", "May 2001", None)]
    [True, True, False, True]
    """
    stated = [int(year) for year in _YEAR.findall(time or "")]
    return not stated or (min(stated) <= years[1] and max(stated) >= years[0])
