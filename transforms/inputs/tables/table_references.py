"""Turn a table's raw rows into references: the place of each image, and the values of its row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage.addresses import HIDDEN
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.boundary import keep_inside
from shardwright.transforms.inputs.file_lookups import look_up, look_up_batch
from shardwright.transforms.inputs.image_paths import (
    SCHEME,
    STORE,
    has_addresses,
    resolve_paths,
    split_queries,
    stems_of,
)
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.inputs.tables.table_columns import (
    as_text,
    canonical_splits,
    empty_as_null,
    escaped,
    settle_sizes,
)
from shardwright.transforms.inputs.tables.table_files import read_table_file
from shardwright.transforms.inputs.tables.table_layout import TableFacts, TableLayout
from shardwright.transforms.inputs.tables.table_look import look
from shardwright.transforms.references import (
    PICTURE_TYPE,
    QUERY,
    extra_name,
    keep_rows,
    reject_rows,
    set_column,
)
from shardwright.transforms.rejects import Reject, RejectReason

_OBJECT = rf"(?s){STORE}[^/@]+/+([^/])"  # a bucket and a key: only such an address can be read
_HIDDEN_QUERY = f"?{HIDDEN}"  # left by `resolve_paths`


def list_part(facts: TableFacts, part: str) -> Rows:
    """Yield the rows of one of a table's files."""
    return list_table(facts.layout, part)


def list_table(table: TableLayout, name: str = "") -> Rows:
    """Yield the rows of one of the table's files as reference batches, and rejects of bad rows.

    Args:
        name: One of `table.files`; "" for a table in one file. Rows are numbered per file.
    """
    first_row = 0
    for part in read_table_file(table.path_of(name), table.format, table.columns, table.storage):
        if isinstance(part, Reject):
            yield part
            continue
        for found in _references(table, part, first_row, name):
            if isinstance(found, Reject) or (found.num_rows and not table.pictures):
                yield found
            elif found.num_rows:
                folder = table.folder_of(name)
                pictures = look_up_pictures(found, table.pictures, folder, table.storage)
                yield from keep_inside(pictures, table.folders) if table.folders else pictures
        first_row += part.num_rows


def _references(table: TableLayout, raw: pa.RecordBatch, first_row: int, name: str) -> Rows:
    """Yield references whose extra columns still have the table's types."""
    where = escaped(f"{name}: ") if name else ""
    batch = _raw_references(table, raw, first_row, name)
    for column, is_bad, reason, detail in _text_rules(table, where):
        mask = is_bad(batch.column(column)).to_numpy(zero_copy_only=False)
        yield from reject_rows(batch, mask, reason, detail)
        batch = keep_rows(batch, ~mask)
    if table.may_lack_images and table.names_files:
        absent = pc.equal(batch.column("uri"), "").to_numpy(zero_copy_only=False)
        yield _without_images(keep_rows(batch, absent), table.path_of(name))
        batch = keep_rows(batch, ~absent)
    if table.size is not None:
        yield from settle_sizes(batch, where)
    elif table.names_files:
        problems, batch = look_up_batch(batch, table.storage, folder=table.folder_of(name))
        yield from problems
        yield batch
    else:  # a row of labels is found by its table, not by an image's path
        yield set_column(batch, "uri", pa.repeat(table.path_of(name), batch.num_rows))


def _without_images(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return rows as references to no bytes of their table."""
    nothing = pa.array(np.zeros(batch.num_rows, np.int64))
    batch = set_column(batch, "uri", pa.repeat(path, batch.num_rows))
    return set_column(set_column(batch, "offset", nothing), "num_bytes", nothing)


def _is_empty(texts: pa.Array) -> pa.Array:
    return pc.equal(texts, "")


def _is_unreadable(uris: pa.Array) -> pa.Array:
    """Return which addresses are not of objects."""
    hidden = pc.ends_with(uris, _HIDDEN_QUERY)
    if not has_addresses(uris):
        return hidden
    keys = pc.replace_substring_regex(uris, _OBJECT, r"/\2")
    return pc.or_(hidden, pc.match_substring_regex(keys, SCHEME))


def _text_rules(
    table: TableLayout, where: str
) -> Iterator[tuple[str, Callable[[pa.Array], pa.Array], RejectReason, str]]:
    """Yield (column, test for bad values, reason, detail); details begin with `where`."""
    if not table.may_lack_images and (table.names_files or table.id is None or table.key != "id"):
        yield (
            "uri",
            _is_empty,
            RejectReason.BAD_VALUE,
            f"{where}row {{row}}: the image column {escaped(repr(table.image))} is empty",
        )
    yield "id", _is_empty, RejectReason.BAD_ID, f"{where}row {{row}}: the id is empty"
    if table.names_files:
        yield (
            "uri",
            _is_unreadable,
            RejectReason.BAD_VALUE,
            f"{where}row {{row}}: {{uri}} is not an object's address "
            "(s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH, "
            "without a password)",
        )


def _raw_references(
    table: TableLayout, raw: pa.RecordBatch, first_row: int, name: str
) -> pa.RecordBatch:
    def text(column: str | None) -> pa.Array:
        return (
            pa.nulls(raw.num_rows, pa.string())
            if column is None
            else as_text(raw.column(column), column)
        )

    rows = pa.array(np.arange(first_row, first_row + raw.num_rows))
    folder = table.folder_of(name)
    written, queries = split_queries(pc.fill_null(text(table.image), ""))
    relative, uris = resolve_paths(written, folder)
    if folder != table.root:  # two folders may each have their a.png
        relative, _ = resolve_paths(uris, table.root)
    columns = {
        "id": _ids(table, relative, text(table.id), rows, name),
        "uri": uris,
        "offset": pa.nulls(raw.num_rows, pa.int64()),
        "num_bytes": pa.nulls(raw.num_rows, pa.int64())
        if table.size is None
        else raw.column(table.size),
        "etag": pa.nulls(raw.num_rows, pa.string()),
        "row": rows,
        "split": canonical_splits(text(table.split)),
        "group": empty_as_null(text(table.group)),
        "label": empty_as_null(text(table.label)),
        **{extra_name(name): raw.column(name) for name in table.extra_columns},
    }
    if queries is not None and table.names_files:
        columns[QUERY] = queries
    return pa.RecordBatch.from_pydict(columns)


def _ids(
    table: TableLayout, paths: pa.Array, stated: pa.Array, rows: pa.Array, name: str
) -> pa.Array:
    """Return the id of each row; for a table of labels, its join key."""
    if table.key == "stem":
        return stems_of(paths)
    if table.may_lack_images:
        file = name or os.path.basename(table.path)
        numbered = pc.binary_join_element_wise(f"{file}#", rows.cast(pa.string()), "")
        paths = pc.if_else(pc.equal(paths, ""), numbered, paths)
    return paths if table.id is None or table.key == "path" else pc.fill_null(stated, "")


# One file, several that a wildcard matches, or a folder of nothing else.
FORMAT = SourceFormat(
    "a .csv, .tsv, .jsonl or .parquet with image paths, a wildcard such as part-*.csv.gz, "
    "or a folder of them",
    look,
    list_part,
    rank=30,
    reads_records=True,
)


def look_up_pictures(
    batch: pa.RecordBatch, names: Sequence[str], folder: str, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with their path columns `x/NAME` converted to `PICTURE_TYPE`.

    A row with a missing file, or with one that cannot be an image, is a reject.

    Args:
        batch: References.
        names: The columns.
        folder: The folder that relative paths start from.
        storage: Options of the images' stores.
    """
    keep = np.ones(batch.num_rows, bool)
    for name in names:
        paths = empty_as_null(as_text(batch.column(extra_name(name)), name))
        _, uris = resolve_paths(pc.fill_null(paths, ""), folder)
        there = paths.is_valid().to_numpy(zero_copy_only=False)
        places: list[dict[str, object] | None] = [None] * batch.num_rows
        rows = np.flatnonzero(there).tolist()
        found = look_up(uris.filter(paths.is_valid()).to_pylist(), storage, folder=folder)
        for row, lookup in zip(rows, found, strict=True):
            uri = uris[row].as_py()
            places[row] = lookup.as_picture(uri)
            if lookup.problem and keep[row]:
                reason, detail = lookup.problem
                keep[row] = False
                yield Reject(batch.column("id")[row].as_py(), uri, reason, f"{name}: {detail}")
        batch = set_column(batch, extra_name(name), pa.array(places, PICTURE_TYPE))
    batch = keep_rows(batch, keep)
    if batch.num_rows:
        yield batch
