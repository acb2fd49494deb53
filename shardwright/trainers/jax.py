"""Put a reader's batches on JAX devices, each copied while the previous one is in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.reader.batches import Batch
from shardwright.reader.reader import Reader
from shardwright.reader.state import Pass
from shardwright.sizes import check_whole


class JaxBatches:
    """A reader's batches on devices, as dicts of `jax.Array` by feature name.

    With a sharding, an array is the global batch [B, ...]; each process holds the part of its own
    devices, taken from the rows that its reader yields. Without one it is this host's part, on the
    default device.

    64-bit integers become 32-bit unless `jax_enable_x64` is set. Values that JAX has no type for
    stay in NumPy on the host: text, bytes, lists, images of different sizes and `SparseColumn`s.

    `iter()` begins the reader's next pass. `state()`, here and of the reader, covers the batches
    yielded, not those prefetched.

    Args:
        reader: Source of the batches.
        sharding: Sharding of the batch over the devices of all processes, along its first axis;
            None for the default device.
        ahead: Batches on the devices besides the current one; 1 is double buffering.

    Raises:
        UsageError: Batches may differ in length, the sharding cannot divide them, or it assigns
            rows of another process to this one.
    """

    def __init__(
        self, reader: Reader, sharding: jax.sharding.Sharding | None, *, ahead: int = 1
    ) -> None:
        check_whole("ahead", ahead, 0)
        self._reader = reader
        self._sharding = sharding
        self._ahead = ahead
        self._first_row = reader.options.host_index * reader.steps.host_batch_size
        if sharding is not None:
            _check_rows(reader, sharding, self._first_row)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._iterate(self._reader._begin_pass())

    def _iterate(self, of: Pass) -> Iterator[dict[str, Any]]:
        making = replace(of)  # runs ahead of the pass, whose position is what was yielded
        batches = self._reader._iterate(making)
        waiting = deque[tuple[dict[str, Any], int]]()
        failure: Exception | None = None
        while True:
            try:
                while (
                    failure is None
                    and len(waiting) <= self._ahead
                    and (batch := next(batches, None)) is not None
                ):
                    waiting.append((self._put(batch), making.position))
            except Exception as error:  # raised only after the batches read before it
                failure = error
            if not waiting:
                break
            arrays, of.position = waiting.popleft()
            yield arrays
        if failure is not None:
            raise failure

    def __len__(self) -> int:
        """Return `len` of the reader."""
        return len(self._reader)

    def state(self) -> dict[str, Any]:
        """Return the reader's state after the last batch yielded: see `Reader.state`."""
        return self._reader.state()

    def _put(self, batch: Batch) -> dict[str, Any]:
        return {name: self._put_column(name, column) for name, column in batch.items()}

    def _put_column(self, name: str, column: Any) -> Any:
        if not isinstance(column, np.ndarray) or column.dtype == object:
            return column
        known = _in_jax_type(name, column)
        if self._sharding is None:
            return jax.device_put(known)
        first, rows = self._first_row, self._reader.options.global_batch_size

        def local_part(index: tuple[slice, ...]) -> NDArray[Any]:
            start, stop, _ = index[0].indices(rows)
            # JAX asks for rows of the global batch, of which this process has only its own.
            part: NDArray[Any] = known[(slice(start - first, stop - first), *index[1:])]
            return part

        return jax.make_array_from_callback((rows, *known.shape[1:]), self._sharding, local_part)


def _check_rows(reader: Reader, sharding: jax.sharding.Sharding, first_row: int) -> None:
    """Raise `UsageError` unless each process's devices take rows that its reader yields."""
    options = reader.options
    rows = options.global_batch_size
    if not reader.has_static_rows:
        raise UsageError(
            f"remainder={str(options.remainder)!r} and max_bad_records={options.max_bad_records} "
            f"may give batches of fewer than {rows} rows, which a sharding cannot divide: "
            "set remainder='pad' (adds a `mask`), or 'drop' with max_bad_records=0"
        )
    try:
        indices: Mapping[Any, tuple[slice, ...]] = sharding.addressable_devices_indices_map((rows,))
    except ValueError as error:
        raise UsageError(
            f"{sharding} cannot divide a batch of global_batch_size={rows} rows "
            f"along its first axis: {error}"
        ) from error
    stop_row = first_row + reader.steps.host_batch_size
    for device, (part,) in indices.items():
        start, stop, _ = part.indices(rows)
        if start < first_row or stop > stop_row:
            raise UsageError(
                f"{device} takes rows {start} to {stop} of each global batch, but this reader, "
                f"host_index={options.host_index} of host_count={options.host_count}, has rows "
                f"{first_row} to {stop_row}: with one host per process along the batch axis, set "
                "host_index=jax.process_index(), host_count=jax.process_count() and a mesh "
                "in process order"
            )


def _in_jax_type(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return the column in JAX's dtype; raise `UsageError` if its integers do not fit."""
    dtype = jax.dtypes.canonicalize_dtype(column.dtype)
    if dtype == column.dtype or column.size == 0 or column.dtype.kind not in "iu":
        return column.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    if column.min() < limits.min or column.max() > limits.max:
        raise UsageError(
            f"feature {name!r} holds {column.min()} to {column.max()}, out of range for {dtype}: "
            "set jax.config.update('jax_enable_x64', True), or leave it out of features="
        )
    return column.astype(dtype)
