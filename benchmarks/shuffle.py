#!/usr/bin/env python
"""Measure the quality of a shuffle over a window of shards (`window=`).

There are two figures, over shards that are random samples of the dataset, as `shardwright build`
makes them. Both are relative to a permutation of all records, which is 1.00:

  mates   pairs of records that are batched together in two consecutive epochs
  labels  spread of the number of records of a class in a batch

With a window of one shard, its records are always batched together.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardwright.reader.order import ShuffledOrder

CLASSES = 10


def batches_of(order: ShuffledOrder, epoch: int, batch: int) -> NDArray[np.int64]:
    """Return the batch of each record, [records], in the order of shards."""
    places = np.arange(order.size)
    shards, rows = order.locate(np.full(order.size, epoch), places)
    starts = np.cumsum(order.sizes) - order.sizes
    found = np.empty(order.size, np.int64)
    found[starts[shards] + rows] = places // batch
    return found


def count_mates(first: NDArray[np.int64], second: NDArray[np.int64]) -> int:
    """Return the number of pairs of records that share a batch in both epochs."""
    _, together = np.unique(first * (second.max() + 1) + second, return_counts=True)
    return int((together * (together - 1) // 2).sum())


def label_spread(batches: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the standard deviation of the number of records of class 0 in a batch."""
    return float(np.bincount(batches[labels == 0], minlength=batches.max() + 1)[:-1].std())


def measure(
    num_shards: int, records: int, window: int, batch: int, epochs: int, seed: int
) -> tuple[float, float]:
    """Return the means over the epochs of (repeated pairs, spread of labels)."""
    order = ShuffledOrder(np.full(num_shards, records), seed, window)
    labels = np.random.default_rng(seed).integers(0, CLASSES, order.size)
    found = [batches_of(order, epoch, batch) for epoch in range(epochs)]
    mates = [count_mates(first, second) for first, second in pairwise(found)]
    return float(np.mean(mates)), float(
        np.mean([label_spread(batches, labels) for batches in found])
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument(
        "--records",
        type=int,
        default=2000,
        help="in each shard (default %(default)s: 150 MB of 80 KB images)",
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4, 16, 32])
    args = parser.parse_args()
    whole = measure(args.shards, args.records, args.shards, args.batch, args.epochs, 0)
    print(
        f"{args.shards} shards of {args.records} records, batches of {args.batch}; relative to a "
        "permutation of all records"
    )
    print(f"{'window':>8} {'mates':>8} {'labels':>8}")
    for window in [*args.windows, args.shards]:
        mates, labels = measure(args.shards, args.records, window, args.batch, args.epochs, 1)
        print(f"{window:>8} {mates / whole[0]:>8.2f} {labels / whole[1]:>8.2f}")


if __name__ == "__main__":
    main()
