"""The gradient-boosted ranker: loads the shipped trees, scores candidates, turns scores to odds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import GaDspyError, MissingExtra
from ga_dspy.lm.features import NAMES
from ga_dspy.lm.idf import Idf, loads

if TYPE_CHECKING:
    import numpy as np

MODEL_FILES = ("ranker-0.txt", "ranker-1.txt", "ranker-2.txt")
_CONSIDERED = 15


class WeightsMismatch(GaDspyError):
    """The ranker's weights were fitted for other features than the code now has."""

    def __init__(self, fitted: set[int], current: int) -> None:
        super().__init__(
            f"the ranker's weights were fitted for {sorted(fitted)} features, the code has "
            f"{current}; fit them again with: ga-dspy fit-extractive"
        )
        self.fitted, self.current = fitted, current


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

    def scores(self, values: np.ndarray) -> np.ndarray:
        """One score a row, higher is better; comparable within a question only."""
        import numpy as np

        if not len(values):
            return np.zeros(0)
        each = [b.predict(values, num_threads=1) for b in self.boosters]
        return np.asarray(np.mean(each, axis=0))

    def probability(self, expected: float) -> float:
        """The calibrated chance that an answer with this expected F1 is right."""
        return 1 / (1 + math.exp(-(self.bias + self.slope * expected)))


def build(files: Mapping[str, str]) -> Ranker:
    """A ranker from the texts of the weight files by file name."""
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtra("lightgbm", "offline") from error
    scale = json.loads(files["scale.json"])
    boosters = tuple(lightgbm.Booster(model_str=files[name]) for name in MODEL_FILES)
    fitted = {b.num_feature() for b in boosters}
    if fitted != {len(NAMES)}:
        raise WeightsMismatch(fitted, len(NAMES))
    return Ranker(loads(files["idf.json"]), boosters, **scale)


@lru_cache(maxsize=1)
def shipped() -> Ranker:
    """The ranker with the weights in the package."""
    folder = resources.files("ga_dspy") / "lm" / "weights"
    names = ("idf.json", "scale.json", *MODEL_FILES)
    return build({name: (folder / name).read_text("utf-8") for name in names})


def best_by_string(norm: Sequence[str], scores: np.ndarray) -> list[tuple[str, float]]:
    """Each normalised string once with its best score, best first, ties by the string."""
    best: dict[str, float] = {}
    for text, score in zip(norm, scores.tolist(), strict=True):
        best[text] = max(best.get(text, -math.inf), score)
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))


def expected_f1(ranked: Sequence[tuple[str, float]], temperature: float) -> list[tuple[str, float]]:
    """Re-rank normalised strings by their F1 against one another, weighed by their odds.

    A string that shares words with other likely ones is the safer answer (minimum Bayes risk).
    `ranked` is best first; strings after the first fifteen keep their order with expectation 0.
    """
    head = ranked[:_CONSIDERED]
    if not head:
        return []
    odds = [math.exp((score - head[0][1]) / temperature) for _, score in head]
    total = sum(odds)
    words = [Counter(text.split()) for text, _ in head]
    expected = [
        sum(o * _overlap(words[i], other) for o, other in zip(odds, words, strict=True)) / total
        for i in range(len(head))
    ]
    order = sorted(range(len(head)), key=lambda i: (-expected[i], i))
    return [(head[i][0], expected[i]) for i in order] + [(t, 0.0) for t, _ in ranked[_CONSIDERED:]]


def _overlap(ours: Counter[str], theirs: Counter[str]) -> float:
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0
