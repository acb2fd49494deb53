"""Bound what Arrow decodes from files of others, in proportion to the size of the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import TooLargeError
from shardwright.sizes import show_bytes

MAX_BYTES = 256 << 20  # decoded at a time, and allowed for every file
# Decoded bytes for each byte of a file: indexes have up to 30, tables with a common prompt 500.
_MAX_RATIO, _MAX_STREAMED_RATIO = 64, 1000


def most_of(num_bytes: int, *, streamed: bool = False) -> int:
    """Return how many bytes a file may decode to: at a time, or if `streamed` one after another."""
    return max(MAX_BYTES, num_bytes * (_MAX_STREAMED_RATIO if streamed else _MAX_RATIO))


def check_decoded(path: str, num_bytes: int, decoded: int, *, streamed: bool) -> None:
    """Raise `TooLargeError` if a file decodes to too much.

    Args:
        path: Its address.
        num_bytes: Its length.
        decoded: Bytes that it decodes to, so far or at least.
        streamed: Only some rows are in memory at a time.
    """
    allowed = most_of(num_bytes, streamed=streamed)
    if decoded > allowed:
        raise TooLargeError(
            f"{path} has {show_bytes(num_bytes)} and decodes to more than {show_bytes(allowed)}, "
            "the limit for its size: many of its rows share very long values"
        )


def decoded_bytes(values: pa.Array | pa.RecordBatch) -> int:
    """Return the bytes that values take without dictionary encoding, and with none shared."""
    if isinstance(values, pa.RecordBatch):
        return sum(map(decoded_bytes, values.columns))
    kind: Any = values.type
    if isinstance(values, pa.ExtensionArray):
        return decoded_bytes(values.storage)
    if pa.types.is_dictionary(kind):
        return 8 * len(values) + _shared_bytes(values)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # The first of four int32 of a view is the length of its text.
        views = np.frombuffer(values.buffers()[1], np.int32)[values.offset * 4 :: 4]
        return 16 * len(values) + int(views[: len(values)].sum(dtype=np.int64))
    if pa.types.is_struct(kind):
        return sum(map(decoded_bytes, values.flatten()))
    if pa.types.is_map(kind):
        start, stop = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        parts = (each.slice(start, stop - start) for each in (values.keys, values.items))
        return 8 * len(values) + sum(map(decoded_bytes, parts))
    if any(is_kind(kind) for is_kind in _LISTS):
        return 8 * len(values) + decoded_bytes(values.flatten())
    return int(values.nbytes)


_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)


def _shared_bytes(values: pa.DictionaryArray) -> int:
    shared = values.dictionary
    if not len(shared):
        return 0
    try:
        lengths = pc.binary_length(shared)
    except pa.ArrowNotImplementedError:  # numbers, and what has a length for all
        return len(values) * (1 + shared.nbytes // len(shared))
    return int(pc.sum(lengths.take(values.indices)).as_py() or 0)


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch that decode to at most `MAX_BYTES`, unless they have one row."""
    if batch.num_rows > 1 and decoded_bytes(batch) > MAX_BYTES:
        half = batch.num_rows // 2
        yield from cut(batch.slice(0, half))
        yield from cut(batch.slice(half))
    else:
        yield batch
