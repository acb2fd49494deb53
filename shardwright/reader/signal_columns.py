"""Join the signals of a shard's images to its index rows, for conditions."""

from __future__ import annotations

import re

import pyarrow as pa

from shardwright.errors import StorageError
from shardwright.images.signals import SIGNALS
from shardwright.images.signals_file import read_signals
from shardwright.reader.corpus import ShardRef


def with_signals(shard: ShardRef, rows: pa.Table) -> pa.Table:
    """Return a shard's index rows with the columns of its signals, if the dataset has them.

    Raises:
        StorageError: The file of signals cannot be read, or is not of these rows.
    """
    content = shard.source.manifest.files.get(shard.name.signals)
    if content is None:
        return rows
    signals = read_signals(shard.source.root, shard.name, content)
    if not signals["id"].equals(rows["id"]):
        raise StorageError(
            f"{shard.source.root.path(shard.name.signals)} and the index have other ids: "
            "run `shardwright verify`"
        )
    for name in signals.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(signals.schema.field(name), signals[name])
    return rows


def advice_for(rows: pa.Table, condition: str) -> str:
    """Return the fix if a condition names signals that the rows do not have, else ""."""
    names = [signal.name for signal in SIGNALS]
    named = [name for name in names if re.search(rf"\b{name}\b", condition)]
    missing = [name for name in named if name not in rows.column_names]
    if not missing:
        return ""
    return f"; it has no {missing[0]}: build the dataset with --signals"
