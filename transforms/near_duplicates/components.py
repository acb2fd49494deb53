"""Join pairs of hashes into groups: the connected components of the graph of all pairs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardwright.transforms.hashing import distinct
from shardwright.transforms.near_duplicates.pairs import Pairs

_MAX_WAITING = 1 << 22  # pairs in memory before they are reduced to one for each hash


def join_pairs(parts: Iterable[Pairs]) -> Pairs:
    """Return all hashes of the pairs, ascending, and the least hash of the group of each.

    The result is pairs, too, so that results of parts can be joined in turn. Memory holds one pair
    for each hash, however many pairs there are.

    Args:
        parts: uint64 [pairs] twice, in any order; a hash paired with itself is a group of its own.
    """
    hashes, roots = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    waiting: list[Pairs] = []
    num_waiting = 0
    for part in parts:
        waiting.append(part)
        num_waiting += len(part[0])
        if num_waiting > _MAX_WAITING:
            hashes, roots = _join([(hashes, roots), *waiting])
            waiting, num_waiting = [], 0
    return _join([(hashes, roots), *waiting])


def _join(parts: list[Pairs]) -> Pairs:
    left, right = (np.concatenate(side) for side in zip(*parts, strict=True))
    hashes = distinct(np.concatenate([left, right]))
    labels = _label(len(hashes), np.searchsorted(hashes, left), np.searchsorted(hashes, right))
    return hashes, hashes[labels]


def _label(num_nodes: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the least node of each node's component, int64 [num_nodes].

    Each round hooks every root to the least root that a pair joins it to, and then lets all nodes
    point to their root. Source: Y. Shiloach, U. Vishkin, "An O(log n) parallel connectivity
    algorithm", Journal of Algorithms 3, 1982.
    """
    labels = np.arange(num_nodes)
    while True:
        left, right = labels[left], labels[right]
        apart = left != right
        if not apart.any():
            return labels
        left, right = left[apart], right[apart]
        # A larger root is hooked to a smaller one only, so no cycle can arise.
        np.minimum.at(labels, np.maximum(left, right), np.minimum(left, right))
        # Doubles the distance that a label looks ahead: chains of any length take few rounds.
        while not np.array_equal(nearer := labels[labels], labels):
            labels = nearer
