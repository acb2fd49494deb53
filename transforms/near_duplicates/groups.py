"""Join pairs of hashes into groups, choose the keepers of groups, and list their images.

A group is a connected component: its images are joined by pairs within the distance. In the order
of the rule (most pixels, most bytes, least id), each image becomes a keeper unless a keeper before
it is within the distance. So every image is within the distance of its keeper, also in a long
chain, such as frames of a video, whose ends are different pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.transforms.hashing import distinct as distinct_hashes
from shardwright.transforms.hashing import is_among
from shardwright.transforms.near_duplicates.hash_files import NUM_PIXELS, PHASH
from shardwright.transforms.near_duplicates.pairs import Pairs, find_pairs
from shardwright.transforms.references import concat, keep_rows, set_column
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.row_keys import reject_copies

ROOT = "root"
_REASONS = {
    "drop": RejectReason.DROPPED_NEAR_DUPLICATE,
    "reject": RejectReason.NEAR_DUPLICATE,
}
_ROWS_PER_PART = 250_000
_MAX_WAITING = 1 << 22  # pairs in memory before they are reduced to one for each hash
_RULE = [
    (ROOT, "ascending"),
    (NUM_PIXELS, "descending"),
    ("num_bytes", "descending"),
    ("id", "ascending"),
    ("row", "ascending"),
    ("uri", "ascending"),
]


@dataclass(frozen=True, slots=True)
class HashGroups:
    """The groups of hashes.

    Attributes:
        hashes: All hashes that are in a group, ascending, uint64 [hashes].
        roots: The least hash of the group of each, uint64 [hashes].
        num_parts: The number of parts in which groups are processed.
    """

    hashes: np.ndarray
    roots: np.ndarray
    num_parts: int

    @classmethod
    def find(cls, hashes: Iterable[np.ndarray], distance: int) -> HashGroups:
        """Return the groups of images.

        Memory: 8 bytes for each image, and 24 for its tables (`find_pairs`).

        Args:
            hashes: The hashes of all images, uint64, in any order.
            distance: The largest distance of a pair, in bits.
        """
        distinct, repeated = collapse([np.zeros(0, np.uint64), *hashes])
        # A hash that several images have is a pair with itself, or they would be no group.
        joined = join_pairs(chain([(repeated, repeated)], find_pairs(distinct, distance)))
        return cls(*joined, num_parts=1 + len(joined[0]) // _ROWS_PER_PART)

    def rows_in_groups(self, hashed: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (part, rows) of the rows that are in a group, with its root.

        Parts are ranges of roots, so that each group is in one part, and they do not overlap.
        """
        values = hashed.column(PHASH).to_numpy()
        rows = keep_rows(hashed, is_among(values, self.hashes))
        if not rows.num_rows:
            return
        roots = self.roots[np.searchsorted(self.hashes, rows.column(PHASH).to_numpy())]
        rows = set_column(rows, ROOT, pa.array(roots))
        # The top half of the root times the number of parts: the product fits, and its order is
        # that of the roots.
        parts = (roots >> np.uint64(32)) * np.uint64(self.num_parts) >> np.uint64(32)
        for part in np.unique(parts):
            yield int(part), keep_rows(rows, parts == part)


def collapse(hashed: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct hashes, ascending, and those of several images; uint64 each."""
    distinct, counts = np.unique(np.concatenate(hashed), return_counts=True)
    return distinct, distinct[counts > 1]


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
    hashes = distinct_hashes(np.concatenate([left, right]))
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


def choose_keepers(batches: Sequence[pa.RecordBatch], distance: int) -> pa.RecordBatch:
    """Return the rows of whole groups in the order of the rule, with their keepers.

    Args:
        batches: Rows with `ROOT`, in any order.
        distance: The largest distance to a keeper, in bits.

    Returns:
        The rows, with columns `keeper` (the row of their keeper, int64) and `distance` (uint8).
    """
    rows = concat(list(batches)).sort_by(_RULE)
    roots, hashes = rows.column(ROOT).to_numpy(), rows.column(PHASH).to_numpy()
    keepers = np.zeros(len(roots), np.int64)
    left = np.arange(len(roots))
    while len(left):
        # The first row that is left of each group is a keeper.
        starts = np.append(True, roots[left[1:]] != roots[left[:-1]])
        # For each row the first row of its group among those that are left.
        chosen = left[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
        near = np.bitwise_count(hashes[left] ^ hashes[chosen]) <= distance
        keepers[left[near]] = chosen[near]
        left = left[~near]
    distances = np.bitwise_count(hashes ^ hashes[keepers])
    rows = set_column(rows, "keeper", pa.array(keepers))
    return set_column(rows, "distance", pa.array(distances, pa.uint8()))


def listed_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return what `choose_keepers` returns in the columns of the list of near-duplicates."""
    keepers = rows.column("id").take(rows.column("keeper"))
    columns = [rows.column(name) for name in (ROOT, "id", "distance", PHASH)]
    return pa.record_batch([*columns, keepers], [ROOT, "id", "distance", PHASH, "keeper"])


def leave_out_copies(rows: pa.RecordBatch, policy: str) -> Iterator[np.ndarray | Reject]:
    """Yield a reject for each row that is no keeper, then the keys (`row_keys`) of these rows.

    Args:
        rows: What `choose_keepers` returns.
        policy: "drop" or "reject"; nothing is left out for "report".
    """
    if policy != "report":
        keepers = rows.column("keeper").to_numpy()
        yield from reject_copies(rows, keepers, _REASONS[policy], _relation)


def _relation(row: dict[str, Any]) -> str:
    bits = "bit" if row["distance"] == 1 else "bits"
    return f"differs in {row['distance']} {bits} of its hash from"
