"""Hash many texts at once, with NumPy: four times as fast as one by one.

The algorithm is MurmurHash3_x64_128 with seed 0, by Austin Appleby (public domain). Texts are
hashed longest first, so that those with a further block of 16 bytes are always the first ones.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROWS_AT_ONCE = 1 << 14  # their state stays in the processor's cache
_BLOCK_BYTES, _WORD_BYTES = 16, 8
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_M1, _M2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ADD1, _ADD2, _FIVE = np.uint64(0x52DCE729), np.uint64(0x38495AB5), np.uint64(5)
_BITS, _HALF = np.uint64(64), np.uint64(33)
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(_WORD_BYTES + 1)], np.uint64)


def hash128(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return both halves of each hash of texts or bytes, uint64 [len(texts)]; null is like ""."""
    halves = np.empty((2, len(texts)), np.uint64)
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        part = texts.slice(start, _ROWS_AT_ONCE)
        halves[:, start : start + len(part)] = _hash_part(part)
    return halves[0], halves[1]


def combined(first: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Return one hash of several hashes of a row, uint64 [rows]; their order matters."""
    total = _final(first)
    for each in others:
        total = _final(total + each)
    return total


def _hash_part(texts: pa.Array) -> np.ndarray:
    starts, lengths, words = _buffers(texts)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    blocks = lengths // _BLOCK_BYTES
    halves = np.zeros((2, len(order)), np.uint64)
    for block in range(int(blocks.max(initial=0))):
        num_rows = int(np.count_nonzero(blocks > block))
        at = starts[:num_rows] + block * _BLOCK_BYTES
        _add_block(halves[:, :num_rows], words[at], words[at + _WORD_BYTES])
    _add_rest(halves, words, starts + blocks * _BLOCK_BYTES, lengths % _BLOCK_BYTES)
    _finish(halves, lengths.astype(np.uint64))
    in_order = np.empty_like(halves)
    in_order[:, order] = halves
    return in_order


def _buffers(texts: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first byte and the length of each text, and the 8 bytes from every byte on."""
    if not len(texts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)
    texts = texts.cast(pa.binary())
    texts = pc.fill_null(texts, b"") if texts.null_count else texts
    _, offsets_buffer, data = texts.buffers()
    # A slice shares its parent's buffers, so the offset is applied here.
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset :][: len(texts) + 1]
    offsets = offsets.astype(np.int64)
    num_bytes = int(offsets[-1] - offsets[0])
    # Zeros behind the data, so that the last words can be read without a test.
    padded = np.zeros(num_bytes + _BLOCK_BYTES + _WORD_BYTES, np.uint8)
    if num_bytes:
        padded[:num_bytes] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    # Overlapping words, one from each byte on: texts begin anywhere, and nothing is copied.
    words: np.ndarray = np.ndarray(num_bytes + _BLOCK_BYTES + 1, "<u8", padded, strides=(1,))
    return offsets[:-1] - offsets[0], np.diff(offsets), words


def _add_block(halves: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    one, two = halves
    one ^= _scrambled(first, _C1, 31, _C2)
    one[:] = (_rotated(one, 27) + two) * _FIVE + _ADD1
    two ^= _scrambled(second, _C2, 33, _C1)
    two[:] = (_rotated(two, 31) + one) * _FIVE + _ADD2


def _add_rest(halves: np.ndarray, words: np.ndarray, at: np.ndarray, rest: np.ndarray) -> None:
    """Add the last 0 to 15 bytes of each text: missing ones count as 0, which changes nothing."""
    if not len(at):
        return
    first = words[at] & _MASKS[np.minimum(rest, _WORD_BYTES)]
    second = words[at + _WORD_BYTES] & _MASKS[np.maximum(rest - _WORD_BYTES, 0)]
    halves[1] ^= _scrambled(second, _C2, 33, _C1)
    halves[0] ^= _scrambled(first, _C1, 31, _C2)


def _finish(halves: np.ndarray, lengths: np.ndarray) -> None:
    one, two = halves
    halves ^= lengths
    one += two
    two += one
    one[:], two[:] = _final(one), _final(two)
    one += two
    two += one


def _scrambled(words: np.ndarray, first: np.uint64, turn: int, second: np.uint64) -> np.ndarray:
    return _rotated(words * first, turn) * second


def _rotated(values: np.ndarray, turn: int) -> np.ndarray:
    left = np.uint64(turn)
    return (values << left) | (values >> (_BITS - left))


def _final(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> _HALF)) * _M1
    values = (values ^ (values >> _HALF)) * _M2
    return values ^ (values >> _HALF)
