"""The maths: shares, entropy and perplexity from attention weights and logits.

Attention here is an array `[queries, keys]`: a row for each query token, already a mean over heads
and layers; keys are all tokens of the prompt. The sets of tokens are positions among the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Weight(NamedTuple):
    """What a set of tokens gets of the attention that a larger set gets.

    `share` is its part of that attention, 0 to 1. `lift` is that share over the set's part of the
    tokens: 1 where its tokens get as much as the others, whatever their number.
    """

    share: float
    lift: float


def share(attention: NDArray[np.floating], keys: Sequence[int]) -> float:
    """The part of all attention of these queries, on whatever token, that falls on the keys."""
    return float(attention[:, list(keys)].sum() / attention.sum())


def weight(
    attention: NDArray[np.floating], keys: Sequence[int], among: Sequence[int]
) -> Weight | None:
    """What `keys` get of the attention on `among`, which holds them.

    None where there are no keys, or where nothing of `among` is attended to.
    """
    whole = share(attention, among)
    if not keys or whole == 0.0:
        return None
    part = share(attention, keys) / whole
    return Weight(part, part * len(among) / len(keys))


def entropy(attention: NDArray[np.floating], keys: Sequence[int]) -> float | None:
    """Mean over the query tokens of the entropy of their attention over the keys, in nats.

    Each query's weights are first renormalised over the keys, so that it lies between 0 (all on
    one key) and ln(keys) (all alike). It is taken token by token and then averaged: the entropy of
    the pooled attention would grow with the number of query tokens, and later graphs are longer.
    Queries that attend to none of the keys do not count; None where that is all of them.
    """
    import numpy as np

    rows = attention[:, list(keys)].astype(np.float64)
    rows = rows[rows.sum(axis=1) > 0.0]
    if not len(rows):
        return None
    rows /= rows.sum(axis=1, keepdims=True)
    # 0 ln 0 is 0.
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0.0)
    return float(-(rows * logs).sum(axis=1).mean())


def perplexity(logits: NDArray[np.floating], targets: Sequence[int]) -> float:
    """How unlikely the targets are: exp of their mean negative log-likelihood.

    Args:
        logits: `[targets, vocabulary]`; row i is what the model says where target i comes next.
        targets: Vocabulary ids.
    """
    import numpy as np

    scores = logits.astype(np.float64)
    top = scores.max(axis=1)
    normaliser = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    said = scores[np.arange(len(targets)), list(targets)]
    return float(np.exp((normaliser - said).mean()))
