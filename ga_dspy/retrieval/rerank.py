"""Rerankers: a second, closer look at the passages that a search found first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ga_dspy.errors import InputError
from ga_dspy.retrieval.encoders import load_model

Reranker = Callable[[str, Sequence[str]], Sequence[float]]
"""Scores texts for a query, higher is better: shape (texts,)."""

AMONG: Final = 50
"""Passages that are looked at again, where fewer are asked for."""


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers, such as "cross-encoder/ms-marco-MiniLM-L6-v2".

    It is loaded when first needed, onto a GPU where there is one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loaded: Any = None
        self._lock = threading.Lock()

    def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score each text together with the query."""
        with self._lock:
            if self._loaded is None:
                self._loaded = load_model("CrossEncoder", self.name, "retrieval")
            pairs = [(query, text) for text in texts]
            scores = self._loaded.predict(pairs, show_progress_bar=False)
        return [float(score) for score in scores]


def as_reranker(given: str | Reranker) -> Reranker:
    """A reranker of a name, or a function as it is."""
    return CrossEncoderReranker(given) if isinstance(given, str) else given


def order(reranker: Reranker, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Places of the texts with their scores, best first, equal ones as they were.

    Raises:
        InputError: The reranker did not give a number for each text.
    """
    given: Any = reranker(query, texts)
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
