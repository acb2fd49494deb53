"""Stable 64-bit hashes of text. Python's own `hash` differs from process to process and must never decide an order."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa


def hash64(texts: pa.Array, salt: str) -> np.ndarray:
    """BLAKE2b of each text under a salt, as uint64 (shape [len(texts)]); nulls hash as the empty text."""
    start = hashlib.blake2b(salt.encode(), digest_size=8)
    copy = start.copy
    digests = bytearray()
    for text in texts.cast(pa.binary()).to_pylist():
        state = copy()
        state.update(text or b"")
        digests += state.digest()
    return np.frombuffer(bytes(digests), dtype=">u8").astype(np.uint64)
