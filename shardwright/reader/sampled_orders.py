"""Draw some records more often than others: by class, or by dataset.

Groups (classes, or mixed datasets) share the places of the whole run in blocks. Each block has the
same whole number of slots for each group; a keyed permutation of the block decides which places
they are. So the shares are exact in every block, and each place knows the number of its draw within
its group: a group's records come in turn, in another order each pass, give or take one block. It is
all arithmetic, with no random generator and no memory: any host can compute any place.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.reader.order import I64, Order
from shardwright.reader.permutation import derive_key, derive_keys, permute

SLOT_ORDER, MEMBER_ORDER = 4, 5  # purposes of keys, after `order` and `places`

_TOLERANCE = 1e-3  # relative error of a group's share
_BLOCK_SIZES = (64, 8192)  # block lengths to try; if none fits, the rarest group decides
_AT_A_TIME = 64  # block lengths tried in one array operation
_MAX_RATIO = 1e12


@dataclass(frozen=True, eq=False)
class Shares:
    """The division of a run's places among groups.

    Attributes:
        slots: Slots of each group in a block, [groups], at least 1.
        seed: Seed of the slots' order within each block.
    """

    slots: I64
    seed: int

    @classmethod
    def of(cls, weights: Sequence[float], seed: int) -> Shares:
        """Return shares within 0.1 % of weights above 0, in the shortest block that allows it.

        Raises:
            UsageError: The weights differ by a factor of more than 10**12.
        """
        if max(weights) / min(weights) > _MAX_RATIO:
            raise UsageError(
                f"the weights {min(weights)} and {max(weights)} differ by a factor of more than "
                "10**12: leave out what should never be drawn"
            )
        # `fsum` is exact, so every machine finds the same slots.
        total = math.fsum(weights)
        fractions = np.array([weight / total for weight in weights])
        shortest = max(_BLOCK_SIZES[0], len(weights))
        for first in range(shortest, max(_BLOCK_SIZES[1], shortest + 1), _AT_A_TIME):
            # Rounded shares need not add up to the length tried: the sum of the slots is the
            # length.
            slots = np.rint(fractions * np.arange(first, first + _AT_A_TIME)[:, None])
            # Relative to the share, so that a rare group gets at least one slot: none would be an
            # error of 100 %.
            errors = np.abs(slots / slots.sum(axis=1, keepdims=True) - fractions)
            close = np.flatnonzero((errors <= _TOLERANCE * fractions).all(axis=1))
            if len(close):
                return cls(slots[close[0]].astype(np.int64), seed)
        # The rarest group gets 1,000 slots, so rounding changes no share by more than 0.1 %.
        return cls(np.rint(fractions / (_TOLERANCE * fractions.min())).astype(np.int64), seed)

    def assign(self, positions: I64) -> tuple[I64, I64]:
        """Return (group, number of the group's earlier draws) of each position [n] of the run."""
        ends = np.cumsum(self.slots)
        blocks, ranks = np.divmod(positions, ends[-1])
        keys = derive_keys(derive_key(self.seed, SLOT_ORDER), blocks.astype(np.uint64))
        slots = permute(ranks.astype(np.uint64), np.uint64(ends[-1]), keys).astype(np.int64)
        # After the permutation, slot numbers below `ends[0]` are of the first group, and so on.
        groups = np.searchsorted(ends, slots, side="right")
        # Every block has the same slots of a group, so earlier blocks count without a look at them.
        return groups, blocks * self.slots[groups] + slots - (ends - self.slots)[groups]


class _AnyShard:
    """The base of orders that may need any shard at any time.

    An epoch has as many places as there are records, as without sampling.

    Args:
        sizes: Selected records of each shard, [shards].

    Attributes:
        fingerprint: A hash of the records and how often they are drawn.
    """

    fingerprint: bytes

    def __init__(self, sizes: I64) -> None:
        self.sizes = sizes
        self.size = int(sizes.sum())

    def windows(self, epoch: int, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ARG002
        # Every draw may be of any shard: all of them are needed now, and none is next.
        return tuple(np.flatnonzero(self.sizes).tolist()), ()

    def upcoming(self, epoch: int, place: int) -> Iterator[int]:
        return cycle(self.windows(epoch, place)[0])

    def _find(self, records: I64) -> tuple[I64, I64]:
        """Return (shard, row) of records numbered through all shards."""
        ends = np.cumsum(self.sizes)
        shards = np.searchsorted(ends, records, side="right")
        return shards, records - (ends - self.sizes)[shards]


class ClassOrder(_AnyShard):
    """Classes by weight. Takes 4 bytes a record, and 16 while it is made.

    Args:
        labels: Labels of all selected records, shard after shard, [records]; -1 for none.
        sizes: Selected records of each shard, [shards].
        weights: Label -> weight above 0, for labels that have records; others are never drawn.
        seed: Any whole number.
    """

    def __init__(
        self, labels: NDArray[np.int32], sizes: I64, weights: Mapping[int, float], seed: int
    ) -> None:
        super().__init__(sizes)
        self.seed = seed
        # Records sorted by label; stable, so that equal labels have one order on every machine.
        # They stay in memory for the reader's life: 4 bytes a record instead of 8, if they fit.
        kind = np.uint32 if len(labels) <= 2**32 else np.uint64
        self.members = np.argsort(labels, kind="stable").astype(kind)
        ordered, wanted = labels[self.members], np.array(sorted(weights), labels.dtype)
        # Where each drawn class begins in them, and its number of records.
        self.starts, ends = (
            np.searchsorted(ordered, wanted, side=side).astype(np.int64)
            for side in ("left", "right")
        )
        self.counts = ends - self.starts
        self.shares = Shares.of([weights[label] for label in wanted.tolist()], seed)
        self.fingerprint = _digest(self.shares.slots, self.starts, self.counts, self.members)

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        # By the place in the whole run, because a class's passes do not end where epochs do.
        groups, draws = self.shares.assign(epochs * self.size + places)
        counts = self.counts[groups]
        # Each pass over a class has a key of its own, and so another order of its records.
        passes, ranks = np.divmod(draws, counts)
        keys = derive_keys(
            derive_keys(derive_key(self.seed, MEMBER_ORDER), groups.astype(np.uint64)),
            passes.astype(np.uint64),
        )
        nths = permute(ranks.astype(np.uint64), counts.astype(np.uint64), keys).astype(np.int64)
        return self._find(self.members[self.starts[groups] + nths].astype(np.int64))


class MixedOrder(_AnyShard):
    """Several datasets by weight, each in its own order and with its own epochs.

    Args:
        orders: One per dataset. Use different seeds: with equal ones, datasets of equal sizes
            have equal orders.
        sizes: Selected records of each dataset's shards; shards are numbered through, dataset
            after dataset.
        weights: Weight of each dataset, above 0.
        seed: Any whole number.

    Raises:
        UsageError: A dataset has no records.
    """

    def __init__(
        self, orders: Sequence[Order], sizes: Sequence[I64], weights: Sequence[float], seed: int
    ) -> None:
        super().__init__(np.concatenate(sizes))
        empty = [number for number, order in enumerate(orders) if not order.size]
        if empty:
            raise UsageError(
                f"dataset {empty[0] + 1} of {len(orders)} has no records to read: leave it out"
            )
        self.orders = orders
        self.first_shards = np.cumsum([0, *(len(part) for part in sizes[:-1])])
        self.shares = Shares.of(weights, seed)
        self.fingerprint = _digest(
            self.shares.slots, *(getattr(order, "fingerprint", b"") for order in orders)
        )

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        shards, rows = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        # As in `ClassOrder`, over the whole run.
        groups, draws = self.shares.assign(epochs * self.size + places)
        for number, order in enumerate(self.orders):
            chosen = np.flatnonzero(groups == number)
            # A dataset's draws count its own epochs, which end at other places than the run's.
            inner, rows[chosen] = order.locate(*np.divmod(draws[chosen], order.size))
            shards[chosen] = inner + self.first_shards[number]
        return shards, rows


def _digest(*parts: NDArray[np.generic] | bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        # With the length, or bytes could move from one part to the next unnoticed.
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
