"""The gradient-boosted ranker: loads the trees, scores candidates, turns scores into odds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from extractive_lm.features import FEATURES
from extractive_lm.text import ExtractiveError, Idf

MODEL_FILES = ("ranker-0.txt", "ranker-1.txt", "ranker-2.txt")
_CONSIDERED = 15


class Ranker(NamedTuple):
    """The fitted parts: word rarities, boosters whose scores are averaged, and the scale.

    `temperature` turns score differences into odds; `bias` and `slope` turn the expected F1 of
    the winner into the probability that it is right.
    """

    idf: Idf
    boosters: tuple[Any, ...]
    temperature: float
    bias: float
    slope: float

    @classmethod
    def from_files(cls, files: Mapping[str, str]) -> Ranker:
        """Make a ranker of the texts of the weight files by file name."""
        try:
            import lightgbm
        except ImportError as error:
            raise ExtractiveError(
                "lightgbm is not installed; run: pip install -e '.[offline]' (in a clone)"
            ) from error
        boosters = tuple(lightgbm.Booster(model_str=files[name]) for name in MODEL_FILES)
        fitted = {b.num_feature() for b in boosters}
        if fitted != {len(FEATURES)}:
            raise ExtractiveError(
                f"the ranker's weights were fitted for {sorted(fitted)} features, the code has "
                f"{len(FEATURES)}; fit them again with: python tests/fit_ranker.py (in a clone)"
            )
        return cls(Idf.from_json(files["idf.json"]), boosters, **json.loads(files["scale.json"]))

    def scores(self, values: np.ndarray) -> list[float]:
        """One score a row, higher is better; comparable within a question only."""
        each = [booster.predict(values, num_threads=1) for booster in self.boosters]
        scores: list[float] = np.mean(each, axis=0).tolist()
        return scores

    def probability(self, expected: float) -> float:
        """The calibrated chance that an answer with this expected F1 is right."""
        return 1 / (1 + math.exp(-(self.bias + self.slope * expected)))


@lru_cache(maxsize=1)
def shipped_ranker() -> Ranker:
    """The ranker with the weights in the package."""
    folder = resources.files("extractive_lm") / "weights"
    names = ("idf.json", "scale.json", *MODEL_FILES)
    return Ranker.from_files({name: (folder / name).read_text("utf-8") for name in names})


def best_rows(norm: Sequence[str], scores: Sequence[float]) -> dict[str, int]:
    """The first row with the best score of each normalised string."""
    best: dict[str, int] = {}
    for row, text in enumerate(norm):
        if text not in best or scores[row] > scores[best[text]]:
            best[text] = row
    return best


def expected_f1(scored: Mapping[str, float], temperature: float) -> list[tuple[str, float]]:
    """Rank normalised strings by their F1 against one another, weighed by their odds.

    A string that shares words with other likely ones is the safer answer (minimum Bayes risk).
    Strings after the fifteen with the best scores keep their order with expectation 0.
    """
    ranked = sorted(scored.items(), key=lambda pair: (-pair[1], pair[0]))
    head = ranked[:_CONSIDERED]
    if not head:
        return []
    odds = [math.exp((score - head[0][1]) / temperature) for _, score in head]
    total = sum(odds)
    words = [Counter(text.split()) for text, _ in head]
    expected = [
        sum(o * word_f1(own, other) for o, other in zip(odds, words, strict=True)) / total
        for own in words
    ]
    order = sorted(range(len(head)), key=lambda i: (-expected[i], i))
    return [(head[i][0], expected[i]) for i in order] + [(t, 0.0) for t, _ in ranked[_CONSIDERED:]]


def word_f1(ours: Counter[str], theirs: Counter[str]) -> float:
    """F1 of two bags of words."""
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0
