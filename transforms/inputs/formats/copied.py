"""List the records of a finished dataset from its index; no shard is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import NotADatasetError, UsageError
from shardwright.format import naming
from shardwright.format.index import read_index_of
from shardwright.format.json_files import read_json
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import read_version
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.known_records import without_suffixes
from shardwright.transforms.inputs.folder_contents import has_wildcard
from shardwright.transforms.inputs.input_files import find_files, state_of
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.references import (
    BATCH_ROWS,
    COPIED_SCHEMA,
    HASH,
    ORIGIN,
    ORIGIN_TYPE,
    RECORD_CRC,
    SUFFIX,
    reject_rows,
    rows_left,
)
from shardwright.transforms.rejects import RejectReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedSource(InputSource):
    """A finished dataset.

    Attributes:
        root: The folder of its shards.
        shards: Its shards in order. A part is the number of one of them.
        copied_schema: The features of its records.
        without: Ids of records to leave out, or of the inputs that they were made of.
    """

    summary = "a finished dataset of shardwright: its records are copied unchanged"
    rank = 15
    reads_records = True

    root: Folder
    shards: tuple[tuple[ShardName, ShardInfo], ...]
    copied_schema: ExampleSchema
    without: frozenset[str] = frozenset()

    def parts(self) -> Iterator[str]:
        yield from map(str, range(len(self.shards)))

    @classmethod
    def look(cls, request: SourceRequest) -> CopiedSource | None:
        """Return a finished dataset as a source; None if INPUT is something else.

        Also None if an option changes records: then the dataset is an input like other TFRecord
        files.

        Raises:
            UsageError: The format is forced, and INPUT is not a dataset or an option changes
                records.
            NotADatasetError: The manifest is damaged, or of another format version.
            StorageError: The manifest cannot be read.
        """
        if request.changes:
            request.refuse_if_forced(
                "is a dataset whose records are copied unchanged: leave "
                f"{request.changes[0]} out, or --input-format dataset"
            )
            return None
        manifest = _manifest_of(request)
        if manifest is None:
            request.refuse_if_forced(f"is not a finished dataset: it has no {naming.MANIFEST}")
            return None
        return source_of(request, manifest)

    def references(self, part: str) -> Rows:
        """Yield the records of a shard, and a reject for each one beyond the end of its file.

        Raises:
            StorageError: The shard is missing, or its sidecar is missing or damaged.
        """
        name, info = self.shards[int(part)]
        uri, options = self.root.own_path(name.shard), self.root.options
        state = state_of(uri, options)
        index = read_index_of(self.root, name, info)
        # Before rows are left out, because versions name records by their row in the file.
        index = index.append_column("row", pa.array(np.arange(index.num_rows)))
        live = info.live_rows
        index = index if live is None else index.take(live)
        if self.without:
            index = index.filter(pc.invert(has_ids(index, pa.array(sorted(self.without)))))
        for batch in index.combine_chunks().to_batches(BATCH_ROWS):
            listed = _references(batch, self, uri=uri, etag=state.etag, split=name.split)
            origins = listed.column(ORIGIN)
            ends = pc.add(pc.struct_field(origins, "offset"), pc.struct_field(origins, "length"))
            beyond = ends.to_numpy() > state.num_bytes
            detail = "record {row} of the shard is beyond the end of its file: run "
            detail += "`shardwright verify`"
            yield from reject_rows(listed, beyond, RejectReason.TRUNCATED, detail)
            yield from rows_left(listed, ~beyond)


def _manifest_of(request: SourceRequest) -> Manifest | None:
    """Return the manifest in INPUT, None if INPUT is no folder with one of this project."""
    if has_wildcard(request.uri):
        return None
    root, filename = _root_of(request), naming.MANIFEST
    found = find_files(request, naming.MANIFEST.__eq__)
    if not any(file.name == naming.MANIFEST and file.uri != request.uri for file in found):
        # `gc` removes the manifest with version 1; the files of the later versions stay.
        if naming.VERSIONS_DIR not in request.listings.look_in(request.uri).folders:
            return None
        filename = naming.version_file(2)
    try:
        content = read_json(Folder(root.uri, root.options, None), filename, dict[str, Any])
    except NotADatasetError:  # another program's file
        return None
    return read_version(root) if "format_version" in (content or {}) else None


def source_of(
    request: SourceRequest, manifest: Manifest, without: frozenset[str] = frozenset()
) -> CopiedSource:
    """Return a version of the dataset in INPUT as a source, without records of some ids."""
    shards = tuple(manifest.named_shards())
    if not manifest.num_records:
        raise UsageError(f"{request.argument} {request.uri} is a dataset without records")
    schema = manifest.schema
    return CopiedSource(
        f"a finished dataset at {request.uri}, {counted(manifest.num_records, 'record')} in "
        f"{counted(len(shards), 'shard')}, copied unchanged",
        COPIED_SCHEMA,
        states_splits=True,
        splits_can_be_redrawn=True,
        may_have_labels=schema.label is not None,
        labels_from="the dataset",
        class_names=schema.class_names if schema.label is not None else None,
        root=_root_of(request).below(manifest.folder),
        shards=shards,
        copied_schema=schema,
        is_made="transforms" in manifest.settings,
        without=without,
    )


def _root_of(request: SourceRequest) -> Folder:
    return Folder(request.uri.rstrip("/"), request.storage)


def has_ids(index: pa.Table, ids: pa.Array) -> pa.ChunkedArray:
    """Return which index rows are of these ids, or of records made of inputs with them, bool."""
    made = pa.chunked_array([ids_of_inputs(index)])
    return pc.or_(pc.is_in(index["id"], value_set=ids), pc.is_in(made, value_set=ids))


def ids_of_inputs(index: pa.Table) -> pa.Array:
    """Return the ids of the inputs of index rows, string [rows]: a `--transform` adds to them."""
    ids, suffixes = (index[name].combine_chunks() for name in ("id", SUFFIX))
    return without_suffixes(ids, suffixes)


def _references(
    rows: pa.RecordBatch, source: CopiedSource, *, uri: str, etag: str | None, split: str
) -> pa.RecordBatch:
    num_rows, names = rows.num_rows, pa.array(source.copied_schema.class_names, pa.string())
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
