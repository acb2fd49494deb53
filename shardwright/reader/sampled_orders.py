"""Orders that draw some records more often than others, as arithmetic: by class, by dataset, or by a weight of each record.

Groups (classes, or datasets that are mixed) share the places of the whole run, epoch after epoch, in blocks. In each block a group
has the same whole number of slots; which places those are is a keyed permutation of the block. So the shares are exact in every
block, and each place of a block knows which draw of its group it is: the records of a group come in turn, in another order each
time, give or take those of one block. Nothing is drawn from a random generator, and nothing remembered: every place is worked out
alone, on any host.
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
from shardwright.reader.permutation import U64, derive_key, derive_keys, permute

SLOT_ORDER, MEMBER_ORDER, RECORD_DRAW = (
    4,
    5,
    6,
)  # purposes of keys, beside those of `order` and `places`

_TOLERANCE = 1e-3  # how far a group's share may be from its weight, of that share
_BLOCK_SIZES = (
    64,
    8192,
)  # where whole numbers of slots are looked for; beyond it a block is as long as the rarest group needs
_AT_A_TIME = 64
_MAX_RATIO = 1e12


@dataclass(frozen=True, eq=False)
class Shares:
    """How the places of a run are shared out.

    Attributes:
        slots: Of each group in a block, [groups], each 1 or more.
        seed: Of the slots' order within each block.
    """

    slots: I64
    seed: int

    @classmethod
    def of(cls, weights: Sequence[float], seed: int) -> Shares:
        """Shares within 0.1 % of weights above 0, in a block as short as that allows.

        Raises:
            UsageError: The weights differ by more than 10**12.
        """
        if max(weights) / min(weights) > _MAX_RATIO:
            raise UsageError(
                f"the weights {min(weights)} and {max(weights)} differ by more than 10**12: leave out what is never to be drawn"
            )
        # `fsum` is exact, so that every machine finds the same slots.
        total = math.fsum(weights)
        fractions = np.array([weight / total for weight in weights])
        shortest = max(_BLOCK_SIZES[0], len(weights))
        for first in range(shortest, max(_BLOCK_SIZES[1], shortest + 1), _AT_A_TIME):
            slots = np.rint(fractions * np.arange(first, first + _AT_A_TIME)[:, None])
            errors = np.abs(slots / slots.sum(axis=1, keepdims=True) - fractions)
            close = np.flatnonzero((errors <= _TOLERANCE * fractions).all(axis=1))
            if len(close):
                return cls(slots[close[0]].astype(np.int64), seed)
        return cls(np.rint(fractions / (_TOLERANCE * fractions.min())).astype(np.int64), seed)

    def assign(self, positions: I64) -> tuple[I64, I64]:
        """(group, how many draws of that group lie before it) of each position [n] of the run."""
        ends = np.cumsum(self.slots)
        blocks, ranks = np.divmod(positions, ends[-1])
        keys = derive_keys(derive_key(self.seed, SLOT_ORDER), blocks.astype(np.uint64))
        slots = permute(ranks.astype(np.uint64), np.uint64(ends[-1]), keys).astype(np.int64)
        groups = np.searchsorted(ends, slots, side="right")
        return groups, blocks * self.slots[groups] + slots - (ends - self.slots)[groups]


@dataclass(frozen=True, eq=False)
class _AnyShard:
    """What orders have in common that may need any shard at any time.

    Attributes:
        sizes: Selected records of each shard, [shards].
    """

    sizes: I64

    @property
    def size(self) -> int:
        """Places in an epoch: as many as there are records, so that an epoch takes as long as one without sampling."""
        return int(self.sizes.sum())

    def windows(self, epoch: int, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ARG002
        return tuple(np.flatnonzero(self.sizes).tolist()), ()

    def upcoming(self, epoch: int, place: int) -> Iterator[int]:
        return cycle(self.windows(epoch, place)[0])

    def _find(self, records: I64) -> tuple[I64, I64]:
        """(shard, row) of records that are counted through all shards."""
        ends = np.cumsum(self.sizes)
        shards = np.searchsorted(ends, records, side="right")
        return shards, records - (ends - self.sizes)[shards]


@dataclass(frozen=True, eq=False)
class ClassOrder(_AnyShard):
    """Classes by weight. Holds 4 bytes a record, and takes 16 while it is made.

    Attributes:
        shares: Of the classes that are drawn.
        members: Records in the order of their labels, [records], uint32 where that holds them.
        starts: Where each class that is drawn begins among `members`, [groups].
        counts: Records of each class that is drawn, [groups].
        seed: Of the order within each class.
    """

    shares: Shares
    members: NDArray[np.unsignedinteger]
    starts: I64
    counts: I64
    seed: int

    @classmethod
    def of(
        cls, labels: NDArray[np.int32], sizes: I64, weights: Mapping[int, float], seed: int
    ) -> ClassOrder:
        """The order of records with these labels.

        Args:
            labels: Of every selected record, shard after shard, [records]; -1 for none.
            sizes: Selected records of each shard, [shards].
            weights: Label -> weight above 0; each of these labels has records, and the others are never drawn.
            seed: Any whole number.
        """
        order = np.argsort(labels, kind="stable")
        members: NDArray[np.unsignedinteger] = (
            order.astype(np.uint32) if len(labels) <= 2**32 else order.astype(np.uint64)
        )
        ordered = labels[members]
        wanted = np.array(sorted(weights), labels.dtype)
        starts, ends = (
            np.searchsorted(ordered, wanted, side=side).astype(np.int64)
            for side in ("left", "right")
        )
        shares = Shares.of([weights[label] for label in wanted.tolist()], seed)
        return cls(sizes, shares, members, starts, ends - starts, seed)

    @property
    def fingerprint(self) -> bytes:
        """Equal where the same records are drawn as often."""
        return _digest(self.shares.slots, self.starts, self.counts, self.members)

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        groups, draws = self.shares.assign(epochs * self.size + places)
        counts = self.counts[groups]
        passes, ranks = np.divmod(draws, counts)
        keys = derive_keys(
            derive_keys(derive_key(self.seed, MEMBER_ORDER), groups.astype(np.uint64)),
            passes.astype(np.uint64),
        )
        nths = permute(ranks.astype(np.uint64), counts.astype(np.uint64), keys).astype(np.int64)
        return self._find(self.members[self.starts[groups] + nths].astype(np.int64))


@dataclass(frozen=True, eq=False)
class MixedOrder(_AnyShard):
    """Several datasets by weight, each in its own order: an epoch of it is over when its last record has come.

    Attributes:
        shares: Of the datasets.
        orders: Of each dataset, whatever they are.
        first_shards: The number of each dataset's first shard, [datasets].
    """

    shares: Shares
    orders: tuple[Order, ...]
    first_shards: I64

    @classmethod
    def of(
        cls, orders: Sequence[Order], sizes: Sequence[I64], weights: Sequence[float], seed: int
    ) -> MixedOrder:
        """The mixture of some datasets.

        Args:
            orders: Of each. They are best made of seeds that differ: equal ones give datasets of equal sizes the same order.
            sizes: Selected records of each dataset's shards; the shards are numbered through, dataset after dataset.
            weights: Of each, above 0.
            seed: Any whole number.

        Raises:
            UsageError: One has no records.
        """
        empty = [number for number, order in enumerate(orders) if not order.size]
        if empty:
            raise UsageError(
                f"of {len(orders)} datasets to mix, number {empty[0] + 1} has no records that are read: leave it out"
            )
        first_shards = np.cumsum([0, *(len(part) for part in sizes[:-1])])
        return cls(np.concatenate(sizes), Shares.of(weights, seed), tuple(orders), first_shards)

    @property
    def fingerprint(self) -> bytes:
        """Equal where the same records are drawn as often."""
        return _digest(
            self.shares.slots, *(getattr(order, "fingerprint", b"") for order in self.orders)
        )

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        shards, rows = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        groups, draws = self.shares.assign(epochs * self.size + places)
        for number, order in enumerate(self.orders):
            chosen = np.flatnonzero(groups == number)
            inner, rows[chosen] = order.locate(*np.divmod(draws[chosen], order.size))
            shards[chosen] = inner + self.first_shards[number]
        return shards, rows


@dataclass(frozen=True, eq=False)
class WeightedOrder(_AnyShard):
    """Each place draws any record with a chance in proportion to its weight, whatever came before. Holds 8 bytes a record.

    Attributes:
        ends: Sum of the weights up to and with each record, in units of the largest, [records].
        seed: Of the draws.
    """

    ends: NDArray[np.float64]
    seed: int

    @classmethod
    def of(cls, weights: NDArray[np.float64], sizes: I64, seed: int) -> WeightedOrder:
        """The order of records with these weights, 0 or more, shard after shard: [records].

        Raises:
            UsageError: None is above 0.
        """
        largest = weights.max(initial=0.0)
        if not largest > 0:
            raise UsageError(
                f"RecordWeights gave every one of {len(weights):,} records the weight 0: one at least must be above it"
            )
        return cls(
            sizes, np.cumsum(weights / largest), seed
        )  # divided, so that sums are neither too large for a float nor too small

    @property
    def fingerprint(self) -> bytes:
        """Equal where the same records are drawn as often."""
        return _digest(self.ends)

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        keys = derive_keys(
            derive_key(self.seed, RECORD_DRAW), (epochs * self.size + places).astype(np.uint64)
        )
        # Below 1 by 2**-53 at least, so the product is below the last end; and "right" passes over weights of 0.
        return self._find(
            np.searchsorted(self.ends, _fractions(keys) * self.ends[-1], side="right")
        )


def _fractions(keys: U64) -> NDArray[np.float64]:
    """Numbers in [0, 1) of 53 bits."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _digest(*parts: NDArray[np.generic] | bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
