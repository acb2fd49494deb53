"""Stable 64-bit hashes of text, and arrays of numbers from several parts.

Python's own `hash` of text differs between processes, so it must never decide an order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import google_crc32c
import numpy as np
import pyarrow as pa


def hash64(texts: pa.Array, salt: str) -> np.ndarray:
    """Return the salted BLAKE2b of each text as uint64 [len(texts)]; null hashes like ""."""
    start = hashlib.blake2b(salt.encode(), digest_size=8)
    copy = start.copy
    digests = bytearray()
    for text in texts.cast(pa.binary()).to_pylist():
        # The salt is hashed once, not once for each text.
        state = copy()
        state.update(text or b"")
        digests += state.digest()
    return np.frombuffer(bytes(digests), dtype=">u8").astype(np.uint64)


def joined(parts: Iterable[np.ndarray], dtype: type) -> np.ndarray:
    """Return all parts as one array, empty without parts."""
    return np.concatenate([np.zeros(0, dtype), *parts])


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values, sorted; `np.unique` of NumPy 2.4 takes 50 times as long."""
    ordered = np.sort(values)
    return ordered[_begins(ordered)]


def _begins(ordered: np.ndarray) -> np.ndarray:
    """Return whether each value is the first of its run of equal ones, bool [len(ordered)]."""
    return np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]


def sort_pairs(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order that sorts pairs, and where in it each distinct pair begins."""
    order = np.lexsort((second, first))
    begins = _begins(first[order]) | _begins(second[order])
    return order, np.flatnonzero(begins)


def runs_of(ordered: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield (value, start, stop) of each run of equal values in a sorted array."""
    starts = np.flatnonzero(_begins(ordered))
    stops = np.append(starts, len(ordered))[1:]
    yield from zip(ordered[starts].tolist(), starts.tolist(), stops.tolist(), strict=True)


def spread_rows(
    batch: pa.RecordBatch, hashes: np.ndarray, num_buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (bucket, rows) by the top bits of each row's hash; `num_buckets` is a power of two."""
    # In two steps: NumPy does not shift by 64, for a single bucket.
    buckets = hashes >> np.uint64(1) >> np.uint64(64 - num_buckets.bit_length())
    # Stable, so that rows keep their order inside a bucket.
    order = np.argsort(buckets, kind="stable")
    batch = batch.take(pa.array(order))
    for bucket, start, stop in runs_of(buckets[order]):
        yield bucket, batch.slice(start, stop - start)


def content_hash(data: bytes) -> str:
    """Return 96 bits of an image: its CRC32C, and the sum of its 8-byte words.

    A cryptographic hash, or a CRC32 beside the CRC32C, would take several times as long.
    """
    words = np.frombuffer(data, "<u8", len(data) // 8)
    return f"{google_crc32c.value(data):08x}{int(words.sum()):016x}"


def is_among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return whether each value is in a sorted array, as bool in the shape of `values`."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
