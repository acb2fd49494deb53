"""`Reader.jax(sharding)`: batches as arrays on JAX's devices, each going there while the one before it is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.reader.batches import Batch
from shardwright.reader.reader import Reader


class JaxBatches:
    """A reader's batches on devices: `for batch in batches`, dicts of `jax.Array` by feature name.

    With a sharding, an array is the whole global batch [B, ...], of which each process holds its devices' part, made of the rows
    that its reader gives. Without one it is what this host has, on the default device.

    Integers of 64 bits become 32 bits wide unless `jax_enable_x64` is set. What JAX has no type for stays in NumPy on the host:
    texts, bytes, lists, images of different sizes and `SparseColumn`s.

    Iterating goes on from where the reader is. `state()`, and that of the reader itself, is always that of the batches that were
    given, not of those on their way.

    Args:
        reader: Where batches come from.
        sharding: How the batch is divided among the devices of all processes, along its first axis; None for the default device.
        ahead: Batches on the devices beside the one that is given: 1 is double buffering.

    Raises:
        UsageError: Batches may be of different lengths, cannot be divided so, or another process's rows are wanted here.
    """

    def __init__(
        self, reader: Reader, sharding: jax.sharding.Sharding | None, *, ahead: int = 1
    ) -> None:
        if type(ahead) is not int or ahead < 0:
            raise UsageError(
                f"ahead={ahead!r} must be a whole number, 0 or more: how many batches wait on the devices"
            )
        self._reader = reader
        self._sharding = sharding
        self._ahead = ahead
        self._first_row = reader.options.host_index * reader.steps.host_batch_size
        if sharding is not None:
            _check_rows(reader, sharding, self._first_row)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        reader, waiting = self._reader, deque[tuple[dict[str, Any], int]]()
        batches = iter(reader)
        given = reader.position
        failure: Exception | None = None
        while True:
            try:
                while (
                    failure is None
                    and len(waiting) <= self._ahead
                    and (batch := next(batches, None)) is not None
                ):
                    waiting.append((self._put(batch), reader.position))
            except Exception as error:  # what was read before it comes first
                failure = error
            reader.position = given
            if not waiting:
                break
            arrays, given = waiting.popleft()
            reader.position = given
            yield arrays
        if failure is not None:
            raise failure

    def __len__(self) -> int:
        """As of the reader."""
        return len(self._reader)

    def state(self) -> dict[str, Any]:
        """Where the reading is, after the batch that was given last: see `Reader.state`."""
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
            part: NDArray[Any] = known[(slice(start - first, stop - first), *index[1:])]
            return part

        return jax.make_array_from_callback((rows, *known.shape[1:]), self._sharding, local_part)


def as_jax(
    reader: Reader, sharding: jax.sharding.Sharding | None = None, *, ahead: int = 1
) -> JaxBatches:
    """See `JaxBatches`."""
    return JaxBatches(reader, sharding, ahead=ahead)


def _check_rows(reader: Reader, sharding: jax.sharding.Sharding, first_row: int) -> None:
    """Whether every process's rows are those that its devices take."""
    options = reader.options
    rows = options.global_batch_size
    if not reader.has_static_rows:
        raise UsageError(
            f"with remainder={str(options.remainder)!r} and max_bad_records={options.max_bad_records} a batch may have fewer than {rows} "
            "rows, which a sharding cannot divide: give remainder='pad', which fills it up and marks the fillers in `mask`, or 'drop'"
        )
    try:
        indices: Mapping[Any, tuple[slice, ...]] = sharding.addressable_devices_indices_map((rows,))
    except ValueError as error:
        raise UsageError(
            f"{sharding} cannot divide a batch of global_batch_size={rows} rows along its first axis: {error}"
        ) from error
    stop_row = first_row + reader.steps.host_batch_size
    for device, (part,) in indices.items():
        start, stop, _ = part.indices(rows)
        if start < first_row or stop > stop_row:
            raise UsageError(
                f"{device} takes rows {start} to {stop} of each global batch, and this reader, host_index={options.host_index} of "
                f"host_count={options.host_count}, has rows {first_row} to {stop_row}: with one host for each process along the batch "
                "axis give host_index=jax.process_index() and host_count=jax.process_count(), and a mesh in the order of processes"
            )


def _in_jax_type(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Numbers in the type that JAX will give them."""
    dtype = jax.dtypes.canonicalize_dtype(column.dtype)
    if dtype == column.dtype or column.size == 0 or column.dtype.kind not in "iu":
        return column.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    if column.min() < limits.min or column.max() > limits.max:
        raise UsageError(
            f"feature {name!r} holds {column.min()} to {column.max()}, which {dtype} cannot: set jax.config.update('jax_enable_x64', "
            "True), or leave it out by features="
        )
    return column.astype(dtype)
