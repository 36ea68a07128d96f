"""How sure a mean is, and whether two programs differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ga_dspy.errors import InputError, MissingExtra

_RESAMPLES = 9_999
_SEED = 20_240_601


class Paired(NamedTuple):
    """Two runs over the questions they share.

    `difference` is the mean of the first less that of the second, in percent points; `p_value`
    is two-sided: how often a random swap of the two answers of each question gives a difference
    at least as large.
    """

    n: int
    difference: float
    p_value: float


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm-Bonferroni adjusted p-values, in the order given.

    Each is the smallest family-wise error rate at which that comparison would be called a
    difference when all of them are made (Holm 1979).

    Raises:
        InputError: a p-value is not from 0 to 1.

    >>> holm([0.04, 0.01, 0.5])
    (0.08, 0.03, 0.5)
    """
    for p_value in p_values:
        if not 0.0 <= p_value <= 1.0:
            raise InputError(
                f"a p-value of {p_value}",
                expected="from 0 to 1",
                remedy="pass the p-values of the tests themselves",
            )
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return tuple(adjusted)


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean, from 9,999 resamples of a fixed seed.

    Raises:
        InputError: there are no values.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    (0.5, 0.5)
    """
    if not values:
        raise InputError(
            "an interval of no scores",
            expected="at least one score",
            remedy="leave the interval out where nothing was scored",
        )
    return _interval(tuple(values))


@lru_cache(maxsize=1024)
def _interval(values: tuple[float, ...]) -> tuple[float, float]:
    """Kept, since a report shows one interval in several tables and pictures."""
    import numpy as np

    scores = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    # One resample at a time: all at once would take gigabytes for a full dev set.
    means = [scores[random.integers(0, len(scores), len(scores))].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def paired_permutation(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Paired permutation test on the mean difference of two lists of scores from 0 to 1.

    Exact where there are few enough questions, else from 9,999 permutations of a fixed seed.

    Raises:
        InputError: the lists are empty or not of one length.
        MissingExtra: scipy is not installed.
    """
    if not first or len(first) != len(second):
        raise InputError(
            f"{len(first)} and {len(second)} scores",
            expected="as many of the one as of the other, and at least one",
            remedy="pair the scores by question",
        )
    if len(first) == 1:  # scipy wants two; of one pair, swapped or not, all ways are as extreme
        return Paired(1, 100.0 * (first[0] - second[0]), 1.0)
    try:
        import numpy as np
        from scipy.stats import permutation_test
    except ImportError as error:
        raise MissingExtra("scipy", "retrieval") from error
    test = permutation_test(
        (np.asarray(first), np.asarray(second)),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=500,
        rng=np.random.default_rng(_SEED),
    )
    return Paired(len(first), 100.0 * float(test.statistic), float(test.pvalue))
