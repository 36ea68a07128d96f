"""How sure a mean is, and whether two programs differ."""

from __future__ import annotations

from collections.abc import Sequence
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


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean, from 9,999 resamples of a fixed seed.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    (0.5, 0.5)
    """
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
