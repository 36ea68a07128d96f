"""Rerankers: a second, closer look at the passages that a search found first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from ga_dspy.errors import InputError
from ga_dspy.retrieval.encoders import load_model

Reranker = Callable[[str, Sequence[str]], Sequence[float]]
"""Scores texts for a query, higher is better: shape (texts,)."""

AMONG: Final = 50
"""Passages that are looked at again, where fewer are asked for."""


_predicting = threading.Lock()


def _scores(name: str, query: str, texts: Sequence[str]) -> list[float]:
    """What a cross-encoder of sentence-transformers makes of each text together with the query."""
    with _predicting:
        pairs = [(query, text) for text in texts]
        scores = _cross_encoder(name).predict(pairs, show_progress_bar=False)
    return [float(score) for score in scores]


@lru_cache(maxsize=2)
def _cross_encoder(name: str) -> Any:
    return load_model("CrossEncoder", name, "retrieval")


def order(reranker: str | Reranker, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Places of the texts with their scores, best first, equal ones as they were.

    Args:
        reranker: The name of a cross-encoder, such as "cross-encoder/ms-marco-MiniLM-L6-v2", or a
            function.
        query: The query.
        texts: What is ordered.

    Raises:
        InputError: The cross-encoder cannot be loaded, or no number was given for each text.
    """
    score = partial(_scores, reranker) if isinstance(reranker, str) else reranker
    given: Any = score(query, texts)
    try:
        scores = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        scores = np.array(np.nan)
    if scores.shape != (len(texts),) or not np.isfinite(scores).all():
        raise InputError(
            f"the reranker gave {given!r:.60} for {len(texts)} texts",
            expected="one finite number a text",
            remedy="return a list of floats as long as the list of texts",
        )
    return [(place, float(scores[place])) for place in np.argsort(-scores, kind="stable").tolist()]
