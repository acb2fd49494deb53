"""List the records of a finished dataset from its index; no shard is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.index import read_index_of
from shardwright.transforms.inputs.datasets.dataset_look import DatasetFacts, look
from shardwright.transforms.inputs.input_files import FileState, state_of
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.references import (
    BATCH_ROWS,
    COPIED_SCHEMA,
    HASH,
    ORIGIN,
    ORIGIN_TYPE,
    RECORD_CRC,
    SUFFIX,
    keep_rows,
    reject_rows,
)
from shardwright.transforms.rejects import RejectReason


def list_part(facts: DatasetFacts, part: str) -> Rows:
    """Yield the records of a shard, and a reject for each one beyond the end of its file.

    Raises:
        StorageError: The shard is missing, or its sidecar is missing or damaged.
    """
    name, info = facts.shards[int(part)]
    uri, options = facts.root.own_path(name.shard), facts.root.options
    state = state_of(uri, options)
    index = read_index_of(facts.root, name, info)
    index = index.append_column("row", pa.array(np.arange(index.num_rows)))
    live = info.live_rows
    index = index if live is None else index.take(live)
    for batch in index.combine_chunks().to_batches(BATCH_ROWS):
        listed = _references(batch, facts, uri=uri, etag=state.etag, split=name.split)
        yield from _inside(listed, state)


def _references(
    rows: pa.RecordBatch, facts: DatasetFacts, *, uri: str, etag: str | None, split: str
) -> pa.RecordBatch:
    num_rows, names = rows.num_rows, pa.array(facts.copied_schema.class_names, pa.string())
    columns = {
        "id": rows["id"],
        "uri": pa.repeat(uri, num_rows),
        "offset": rows["image_offset"],
        "num_bytes": rows["image_length"],
        "etag": pa.repeat(pa.scalar(etag, pa.string()), num_rows),
        "row": rows["row"],
        "split": pa.repeat(split, num_rows),
        "group": pa.nulls(num_rows, pa.string()),
        "label": names.take(rows["label"]),
        ORIGIN: pa.StructArray.from_arrays(
            [rows[field.name] for field in ORIGIN_TYPE], fields=list(ORIGIN_TYPE)
        ),
        HASH: rows[HASH],
        SUFFIX: rows[SUFFIX],
        RECORD_CRC: rows[RECORD_CRC],
    }
    return pa.RecordBatch.from_pydict(columns, schema=COPIED_SCHEMA)


def _inside(batch: pa.RecordBatch, state: FileState) -> Rows:
    """Yield the records inside a file of this state, and a reject for each other one."""
    origins = batch.column(ORIGIN)
    ends = pc.add(pc.struct_field(origins, "offset"), pc.struct_field(origins, "length"))
    beyond = ends.to_numpy() > state.num_bytes
    detail = "record {row} of the shard is beyond the end of its file: run `shardwright verify`"
    yield from reject_rows(batch, beyond, RejectReason.TRUNCATED, detail)
    yield from _not_empty(keep_rows(batch, ~beyond))


def _not_empty(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows:
        yield batch


FORMAT = SourceFormat(
    "a finished dataset of shardwright: its records are copied unchanged",
    look,
    list_part,
    rank=15,
    reads_records=True,
)
