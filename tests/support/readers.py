"""Helpers of the tests of `sw.Reader`: the batches of several hosts, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import shardwright as sw


def ids_of(batches: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids of all rows that are records, in order."""
    return [name for batch in batches for name in rows_of(batch)]


def rows_of(batch: dict[str, Any]) -> list[str]:
    kept = batch.get("mask", np.ones(len(batch["id"]), np.bool_))
    return list(batch["id"][kept])


def take(reader: sw.Reader, num_steps: int) -> list[dict[str, Any]]:
    """Return the next batches; the reader stays after the last of them."""
    return [batch for _, batch in zip(range(num_steps), reader, strict=False)]


def global_batches(readers: Sequence[sw.Reader], num_steps: int | None = None) -> list[list[str]]:
    """Return the ids of each global batch over all hosts, which must go in step; None for all."""
    iterators = [iter(reader) for reader in readers]
    batches = []
    while num_steps is None or len(batches) < num_steps:
        found = [next(iterator, None) for iterator in iterators]
        if all(batch is None for batch in found):
            break
        assert all(batch is not None for batch in found), "hosts have different numbers of steps"
        batches.append(ids_of(batch for batch in found if batch is not None))
    return batches


def hosts(dataset: str, host_count: int, **options: Any) -> list[sw.Reader]:
    """Return a reader for each host."""
    return [
        sw.Reader(dataset, host_index=host, host_count=host_count, **options)
        for host in range(host_count)
    ]


def check_equal(first: Iterable[dict[str, Any]], second: Iterable[dict[str, Any]]) -> None:
    """Check that batches are equal to the bit, in names, types and shapes."""
    for batch, other in zip(first, second, strict=True):
        assert list(batch) == list(other)
        for name, column in batch.items():
            its = other[name]
            assert (type(column), column.dtype, column.shape) == (type(its), its.dtype, its.shape)
            for one, two in zip(column, its, strict=True):
                np.testing.assert_array_equal(one, two)
