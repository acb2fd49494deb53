"""Beam metrics in one namespace: inputs, outputs, timings, and a counter per reject reason."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from apache_beam.metrics import Metrics

from shardwright.format.index import ShardSummary
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.rejects import Reject, count_reasons

NAMESPACE = "shardwright"


def count(name: str, number: int = 1) -> None:
    """Add to the counter `name`."""
    Metrics.counter(NAMESPACE, name).inc(number)


def count_rejects(rejects: Iterable[Reject]) -> None:
    """Add rejects to the counters of their reasons, `rejects_<reason>`."""
    for reason, number in count_reasons(rejects).items():
        count(f"rejects_{reason}", number)


def count_written(summary: ShardSummary) -> None:
    """Add a shard that was written, its records and bytes, to the counters and the progress."""
    count("shards_written")
    count("records_out", summary.num_records)
    count("bytes_out", summary.num_bytes)
    PROGRESS.add(shards=1)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Add the block's milliseconds to the distribution `name`."""
    start = time.monotonic()
    yield
    Metrics.distribution(NAMESPACE, name).update(int((time.monotonic() - start) * 1000))
