"""Write and read the quality signals of a shard: `signals/SPLIT-00000-of-00012.parquet`.

A file has one row per record, in the order of the shard's index: the id, and one float32 column
per signal of `shardwright.images.signals.SIGNALS`. Values of a record without an image, or with one
that does not decode, are null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import MissingError, StorageError
from shardwright.format.contents import FileContent
from shardwright.format.naming import ShardName
from shardwright.format.parquet import ParquetRows, parquet_bytes
from shardwright.images.signals import SIGNALS
from shardwright.storage.folder import Folder

_ADVICE = "copy the dataset again, or run `shardwright repair` on it"

SIGNALS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        *(pa.field(signal.name, pa.float32()) for signal in SIGNALS),
    ]
)


def write_signals(root: Folder, name: ShardName, rows: pa.Table) -> FileContent:
    """Write the signals of a shard, and return the content of the file.

    Args:
        root: The dataset's folder.
        name: The shard.
        rows: One row per record in file order, with the columns of `SIGNALS_SCHEMA`.
    """
    data = parquet_bytes(rows.cast(SIGNALS_SCHEMA), write_page_checksum=True)
    root.write_if_new(name.signals, data)
    return FileContent.of(data)


def signal_values(rows: pa.Table) -> NDArray[np.float32]:
    """Return the signals of the rows that have them, float32 [rows, signals]."""
    columns = [rows[signal.name].drop_null().to_numpy() for signal in SIGNALS]
    return np.stack(columns, axis=1)


def read_signals(root: Folder, name: ShardName, content: FileContent | None) -> pa.Table:
    """Return the signals of a shard, in file order.

    Args:
        root: The dataset's folder.
        name: The shard.
        content: The file's content in the manifest, which it must have; None for no check.

    Raises:
        StorageError: The file is missing, damaged or not a file of signals.
    """
    path = root.path(name.signals)
    try:
        data = root.read_bytes(name.signals)
    except MissingError as error:
        raise StorageError(f"{path} is missing: {_ADVICE}") from error
    fault = content and FileContent.of(data).fault(content)
    if fault:
        raise StorageError(f"{path} is damaged ({fault}): {_ADVICE}")
    try:
        with ParquetRows(pa.BufferReader(data), path, checksums=True) as file:
            table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if not set(SIGNALS_SCHEMA.names) <= set(table.column_names):
        raise StorageError(
            f"{path} is not a file of signals: its columns are {', '.join(table.column_names)}"
        )
    return table
