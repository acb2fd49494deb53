"""Parquet files with encoded images in a column as input, as on the Hugging Face hub.

The images lie in compressed pages and cannot be read by offset, so they go through the spool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.format.json_files import load_json
from shardwright.format.parquet import ParquetRows
from shardwright.format.schema import PICTURES
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.lists import is_any, is_list, is_number, value_type
from shardwright.transforms.inputs.columns import Columns, said_kinds
from shardwright.transforms.inputs.file_rules import has_image_magic
from shardwright.transforms.inputs.input_files import (
    InputFile,
    base_of,
    describe_files,
    files_state_splits,
    find_files,
    state_of,
)
from shardwright.transforms.inputs.rows import (
    RawRows,
    RowsSource,
    columns_of,
    list_rows,
    picture_parts,
)
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, spooled_part
from shardwright.transforms.rejects import Reject, incomplete

ROWS_AT_A_TIME = 64  # their images are in memory at once
_METADATA = b"huggingface"
_ODD_METADATA = (KeyError, TypeError, ValueError, AttributeError)
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def is_embedded_name(name: str) -> bool:
    """Return whether a file name is that of a Parquet file."""
    return name.lower().endswith((".parquet", ".pq")) and not name.startswith("_")


def read_rows(uri: str, storage: StorageOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, at most `ROWS_AT_A_TIME` per batch.

    Raises:
        BuildError: The file cannot be read to its end.
        StorageError: The store fails.
    """
    try:
        with (
            files_of(uri, storage).open_input(uri) as file,
            ParquetRows(file, uri, threads=False) as parquet,
        ):
            for batch in parquet.batches(ROWS_AT_A_TIME):
                # Nothing else checks offsets, lengths and UTF-8; Arrow ends the process where it
                # relies on them, so this comes before anything that looks at values.
                batch.validate(full=True)
                yield batch
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{uri} cannot be read as a Parquet file: {error}") from error


def stated_class_names(schema: pa.Schema) -> Mapping[str, tuple[str, ...]]:
    """Return column of class numbers, or of lists of them -> class names.

    Hugging Face's `datasets` stores its features in the schema's metadata under "huggingface"
    (`datasets/features/features.py`, `arrow_writer.py`):

        {"info": {"features": {"image": {"_type": "Image"},
                               "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    """
    try:
        features = _stated_features(schema)
        found = {name: _class_names(feature) for name, feature in features.items()}
    except _ODD_METADATA:
        return {}
    kinds = {one.name: value_type(one.type) for one in schema}
    return {
        name: names
        for name, names in found.items()
        if names and name in kinds and is_number(kinds[name])  # pandas makes floats of a gap
    }


def _stated_features(schema: pa.Schema) -> Any:
    return load_json((schema.metadata or {})[_METADATA])["info"]["features"]


def stated_object_names(schema: pa.Schema, column: str, field: str) -> tuple[str, ...]:
    """Return the class names of a field of a sequence of structs; () if none are stated."""
    try:
        feature = _stated_features(schema)[column]
        feature = feature[0] if isinstance(feature, list) else feature
        return _class_names(feature.get("feature", feature)[field])
    except _ODD_METADATA:
        return ()


def _class_names(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, list):  # a sequence, in one of its spellings
        return _class_names(feature[0])
    if feature.get("_type") in ("Sequence", "List", "LargeList"):
        return _class_names(feature["feature"])
    if feature.get("_type") != "ClassLabel":
        return ()
    return tuple(map(str, feature.get("names") or range(feature.get("num_classes") or 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSource(RowsSource):
    """Parquet files with images in a column; tables of paths are for `TableSource`."""

    summary = (
        "Parquet files with encoded images in a column (Hugging Face hub): "
        "a file, a wildcard or a folder"
    )
    rank = 25

    @classmethod
    def look(cls, request: SourceRequest) -> EmbeddedSource | None:
        """Return files with images in a column as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and there are no such files, or an option does not fit.
            BuildError: The format is forced, and a file is invalid.
            StorageError: A file cannot be read.
        """
        files = find_files(request, is_embedded_name)
        if request.image is None and not request.forced:
            return None  # a Parquet file is a table
        if not files:
            request.refuse_if_forced("holds no Parquet files (.parquet)")
            return None
        try:
            layout = _layout_of(files, request)
        except BuildError:
            if request.forced:
                raise
            return None  # it may be a table: `table` reports the error
        if layout is None:
            return None
        request.refuse_columns("made of Parquet files with images", "size")
        return layout.source_as(
            EmbeddedSource,
            f"{describe_files(request, files, 'Parquet file')}, columns {layout.describe()}",
            states_splits=layout.split is not None or files_state_splits(request, files),
            request=request,
            base=base_of(files),
            is_part=is_embedded_name,
            layout=layout,
        )

    def references(self, part: str) -> Rows:
        """Yield the rows of a file; embedded images go to the spool."""
        file, request = self.file_of(part), self.request
        state = state_of(part, request.storage)

        def rows() -> Iterator[RawRows | Reject]:
            num_rows = 0
            try:
                for batch in read_rows(part, request.storage):
                    num_rows += batch.num_rows
                    yield RawRows(batch)
            except BuildError as error:
                yield incomplete(file.name, part, error, num_rows)

        def make(writer: SpoolWriter) -> Rows:
            return list_rows(self.layout, request, file, rows(), writer)

        found = spooled_part(request, file, state, make, columns=self.layout.to_json())
        structs = self.layout.structs
        yield from found if structs is None else structs.in_rows(found, request.storage)


def _layout_of(files: tuple[InputFile, ...], request: SourceRequest) -> Columns | None:
    """Return the layout of the first file with rows; None if no column holds images."""
    there = (file.uri for file in files if state_of(file.uri, request.storage).num_bytes)
    batches = ((uri, batch) for uri in there for batch in read_rows(uri, request.storage))
    uri, rows = next(((uri, batch) for uri, batch in batches if batch.num_rows), ("", None))
    if rows is None:
        request.refuse_if_forced("has files without rows")
        return None
    said = said_kinds(request.columns, request.kinds)
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    return columns_of(
        rows,
        [  # by an option or `--schema`, else by the values
            name
            for name, one in columns.items()
            if (
                said[name] in PICTURES and _can_hold_pictures(one.type)
                if name in said
                else _holds_pictures(one)
            )
        ],
        request,
        uri,
        lists=[
            name
            for name, one in columns.items()
            if is_list(one.type) and _holds_pictures(one.flatten())
        ],
        class_names=stated_class_names(rows.schema),
        object_names=partial(stated_object_names, rows.schema),
        forced=request.forced,
    )


def _holds_pictures(column: pa.Array) -> bool:
    """Return whether a column can hold images, and does in some row."""
    if not _can_hold_pictures(column.type):
        return False
    return any(
        has_image_magic(data) if data else bool(path) for data, path in picture_parts(column)
    )


def _can_hold_pictures(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and is_any(kind.field("bytes").type, _BINARY)
    return is_any(kind, _BINARY)
