"""Compute the CRC32C of concatenated parts from the checksums of the parts, without their bytes.

A CRC is linear: that of A + B is the CRC of A, advanced by as many zero bytes as B has, xor that of
B (zlib's `crc32_combine`, by Mark Adler). To advance by a number of zero bytes is to multiply by a
matrix of 32 x 32 bits. There is one for each value of each byte of a length, made at first use, and
NumPy advances many checksums at once.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli, bits reversed
_BITS = np.arange(32, dtype=np.uint32)


def combine(first: ArrayLike, second: ArrayLike, second_bytes: ArrayLike) -> np.ndarray:
    """Return the CRC32C of each two parts together, uint32.

    Args:
        first: CRC32C of each first part.
        second: CRC32C of each second part.
        second_bytes: Length of each second part in bytes.
    """
    return _advance(first, second_bytes) ^ np.asarray(second, np.uint32)


def combine_all(crcs: ArrayLike, num_bytes: ArrayLike) -> int:
    """Return the CRC32C of all parts, one after another, from their CRC32C and their lengths."""
    ends = np.cumsum(num_bytes, dtype=np.int64)
    # Each part is advanced by all bytes behind it, which replaces a chain of `combine` by one
    # operation.
    return int(np.bitwise_xor.reduce(_advance(crcs, ends[-1:] - ends)))


def _advance(crcs: ArrayLike, num_bytes: ArrayLike) -> np.ndarray:
    """Return each checksum, advanced by as many zero bytes."""
    crcs, left = np.asarray(crcs, np.uint32), np.asarray(num_bytes, np.int64)
    position = 0
    while left.any():
        # A byte of the length at a time: at most 8 products, and tables of 256 matrices (32 kB) per
        # byte.
        crcs = _times(_matrices(position)[left & 0xFF], crcs)
        left, position = left >> 8, position + 1
    return crcs


def _times(matrices: np.ndarray, crcs: np.ndarray) -> np.ndarray:
    """Return the products of matrices [..., 32 columns] and checksums [...]."""
    bits = (crcs[..., None] >> _BITS) & np.uint32(1)
    return np.asarray(np.bitwise_xor.reduce(matrices * bits, axis=-1))


@functools.cache
def _matrices(position: int) -> np.ndarray:
    """Return the matrices of 0 to 255 times 256**position zero bytes, [256, 32 columns]."""
    if position:
        # 128 * 256**(position - 1), applied twice, is 256**position.
        half = _matrices(position - 1)[128]
        power = _times(half, half)
    else:
        power = _zero_byte()
    matrices = np.uint32(1) << _BITS[None]
    for _ in range(8):
        # The first 2**n matrices, advanced by 2**n, are the next 2**n.
        matrices, power = np.concatenate([matrices, _times(power, matrices)]), _times(power, power)
    return matrices


def _zero_byte() -> np.ndarray:
    """Return the matrix of one zero byte, [32 columns]: each single bit after eight zero bits."""
    columns = np.uint32(1) << _BITS
    for _ in range(8):
        columns = (columns >> np.uint32(1)) ^ (columns & np.uint32(1)) * _POLYNOMIAL
    return columns
