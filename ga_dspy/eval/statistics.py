"""Confidence intervals of mean scores, and significance tests between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from ga_dspy.errors import require

_RESAMPLES = 9_999
_SEED = 20_240_601


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if all are."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


class Paired(NamedTuple):
    """Two runs compared over their shared questions.

    `difference` is the mean of the first minus that of the second, in percent points. `p_value` is
    two-sided: how often randomly swapping the two scores of each question gives a difference at
    least as large.
    """

    n: int
    difference: float
    p_value: float

    @property
    def better(self) -> bool:
        """Whether the first is significantly better, at the 5 % level."""
        return self.difference > 0 and self.p_value < 0.05


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean, from 9,999 seeded resamples.

    The interval of a single value is the whole scale, because it says nothing about the mean.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    (0.5, 0.5)
    """
    n = len(values)
    if n == 1:
        return 0.0, 1.0
    # Scores have few distinct values: draw how often each of them occurs in a resample.
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    resamples = np.random.default_rng(_SEED).multinomial(n, counts / n, _RESAMPLES)
    low, high = np.percentile(resamples @ distinct / n, [2.5, 97.5])
    return float(low), float(high)


def paired_permutation(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Test the mean difference of two lists of scores with a paired permutation test.

    The test is exact if at most 13 pairs differ, else from 9,999 seeded permutations.

    Raises:
        ValueError: The lists differ in length.
        MissingExtra: scipy is not installed.
    """
    differences = np.array([one - other for one, other in zip(first, second, strict=True)])
    mean = 100.0 * float(differences.mean())
    # Equal scores do not affect the test. With one pair, both permutations are equally extreme.
    differing = differences[differences != 0]
    if len(differing) < 2:
        return Paired(len(first), mean, 1.0)
    # Flip the signs of differences instead of swapping scores: the rounding of two means varies
    # between equal permutations, so that some would count as less extreme.
    test = require("scipy.stats", "search").permutation_test(
        (differing,),
        np.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=500,
        rng=np.random.default_rng(_SEED),
    )
    return Paired(len(first), mean, float(test.pvalue))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm-Bonferroni adjusted p-values, in the order given (Holm 1979).

    >>> holm([0.04, 0.01, 0.5])
    (0.08, 0.03, 0.5)
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    scaled = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return tuple(adjusted.tolist())
