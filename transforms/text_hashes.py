"""Hash texts with MurmurHash3_x64_128 and seed 0, whose values the index of datasets keeps."""

from __future__ import annotations

import mmh3
import numpy as np
import pyarrow as pa

_ROWS_AT_ONCE = 1 << 14  # copied into Python objects
_M1, _M2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(33)


def hash128(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return both halves of each hash of texts or bytes, uint64 [len(texts)]; null is like ""."""
    halves = np.empty((len(texts), 2), np.uint64)
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        part = texts.slice(start, _ROWS_AT_ONCE).cast(pa.large_binary()).to_pylist()
        digests = b"".join(mmh3.mmh3_x64_128_digest(text or b"") for text in part)
        halves[start : start + len(part)] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def combined(first: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Return one hash of several hashes of a row, uint64 [rows]; their order matters."""
    total = _final(first)
    for each in others:
        total = _final(total + each)
    return total


def _final(values: np.ndarray) -> np.ndarray:
    """Mix each number by the last step of MurmurHash3."""
    values = (values ^ (values >> _HALF)) * _M1
    values = (values ^ (values >> _HALF)) * _M2
    return values ^ (values >> _HALF)
