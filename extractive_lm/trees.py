"""Score rows with a LightGBM model without LightGBM, whose import can take seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Trees(NamedTuple):
    """The trees of a model, of at most 31 leaves each.

    The bits of a mask are the leaves of a tree, from left to right. A node whose condition fails
    excludes the leaves on its left; the first leaf that no node excludes is the one reached
    (QuickScorer, Lucchese et al. 2015).

    Attributes:
        features: The feature that each node compares, shape (trees, nodes).
        thresholds: The largest value that meets the node's condition, same shape.
        masks: The leaves that are left if the condition fails, same shape.
        values: The value of each leaf, shape (trees, leaves).
    """

    features: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    masks: NDArray[np.uint32]
    values: NDArray[np.float64]

    @classmethod
    def parse(cls, model: str) -> Self:
        """Parse a model's text: numeric conditions, at most 31 leaves a tree, no missing values."""
        trees = [dict(_LINE.findall(tree)) for tree in model.split("\nTree=")[1:]]
        most = max(int(tree["num_leaves"]) for tree in trees)
        shape = len(trees), most - 1
        features, masks = np.zeros(shape, np.int64), np.full(shape, 2**most - 1, np.uint32)
        thresholds, values = np.full(shape, np.inf), np.zeros((len(trees), most))
        for row, tree in enumerate(trees):
            left = [*map(int, tree["left_child"].split())]
            right = [*map(int, tree["right_child"].split())]
            leaves = _leaves(left, right, masks[row])
            features[row, : len(left)] = [*map(int, tree["split_feature"].split())]
            thresholds[row, : len(left)] = [*map(float, tree["threshold"].split())]
            values[row, : len(leaves)] = np.array(tree["leaf_value"].split(), float)[leaves]
        return cls(features, thresholds, masks, values)

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the score of each row, shape (rows,)."""
        holds = rows[:, self.features] <= self.thresholds
        leaves = np.bitwise_and.reduce(np.where(holds, ~np.uint32(0), self.masks), axis=2)
        reached = np.log2(leaves & -leaves).astype(np.int64)
        values = self.values[np.arange(len(self.values)), reached]
        # A running sum adds in the order of the trees, as LightGBM does.
        return np.asarray(values.cumsum(axis=1)[:, -1])


_LINE = re.compile(r"^(\w+)=(.*)$", re.M)


def _leaves(
    left: Sequence[int], right: Sequence[int], masks: NDArray[np.uint32],
    node: int = 0, first: int = 0,
) -> list[int]:  # fmt: skip
    """Return the leaves under a node, left to right; clear its left subtree in its mask."""
    if node < 0:
        return [~node]
    before = _leaves(left, right, masks, left[node], first)
    then = first + len(before)
    masks[node] ^= 2**then - 2**first
    return before + _leaves(left, right, masks, right[node], then)
