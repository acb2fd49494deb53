"""Read Parquet and Arrow IPC files a few rows at a time, and class names of Hugging Face's library.

`datasets` stores its features in the schema's metadata under "huggingface"
(`datasets/features/features.py`, `arrow_writer.py`):

    {"info": {"features": {"image": {"_type": "Image"},
                           "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.format.decoded_sizes import check_decoded, cut, decoded_bytes
from shardwright.format.json_text import load_json
from shardwright.format.parquet import ParquetRows
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions

ROWS_AT_A_TIME = 64  # their images are in memory at once
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_METADATA = b"huggingface"
_FILE_MAGIC = b"ARROW1"


def is_embedded_name(name: str) -> bool:
    """Return whether a file name is that of a Parquet or Arrow IPC file."""
    return name.lower().endswith(_PARQUET + _ARROW) and not name.startswith("_")


def is_arrow_name(name: str) -> bool:
    """Return whether a file name is that of an Arrow IPC file, which no other source reads."""
    return name.lower().endswith(_ARROW)


class DamagedFileError(BuildError):
    """A Parquet or Arrow file that cannot be read to its end."""


@contextmanager
def open_rows(
    uri: str, storage: StorageOptions
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open a file and yield its schema and its rows, at most `ROWS_AT_A_TIME` per batch.

    Raises:
        DamagedFileError: The file cannot be read, on opening or later.
        StorageError: The store fails.
    """
    try:
        with files_of(uri, storage).open_input(uri) as file:
            if uri.lower().endswith(_PARQUET):
                with ParquetRows(file, uri, threads=False) as parquet:
                    yield parquet.schema, _checked(parquet.batches(ROWS_AT_A_TIME))
            else:
                schema, rows = _open_arrow(file)
                yield schema, _cut(uri, file.size(), _checked(rows))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            f"{uri} cannot be read as a Parquet or Arrow file: {error}"
        ) from error


def _checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        # Nothing else checks offsets, lengths and UTF-8; Arrow ends the process where it relies on
        # them, so this comes before anything that looks at values.
        batch.validate(full=True)
        yield batch


def _open_arrow(file: pa.NativeFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open an IPC file (also Feather version 2) or stream, which Hugging Face's library writes."""
    is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    file.seek(0)
    if is_file:
        reader = pa.ipc.open_file(file)
        return reader.schema, map(reader.get_batch, range(reader.num_record_batches))
    stream = pa.ipc.open_stream(file)
    return stream.schema, iter(stream)


def _cut(uri: str, num_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in small batches; raise `TooLargeError` as `ParquetRows.batches`."""
    decoded = 0
    for batch in batches:
        decoded += decoded_bytes(batch)
        check_decoded(uri, num_bytes, decoded, streamed=True)
        for start in range(0, batch.num_rows, ROWS_AT_A_TIME):
            yield from cut(batch.slice(start, ROWS_AT_A_TIME))


def stated_class_names(schema: pa.Schema) -> Mapping[str, tuple[str, ...]]:
    """Return column -> class names, as Hugging Face's library states them.

    The columns hold class numbers, or lists of them.
    """
    try:
        features = load_json((schema.metadata or {})[_METADATA])["info"]["features"]
        return {
            name: names for name, feature in features.items() if (names := _class_names(feature))
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _class_names(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, list):  # a sequence, in one of its spellings
        return _class_names(feature[0])
    if feature.get("_type") in ("Sequence", "List", "LargeList"):
        return _class_names(feature["feature"])
    if feature.get("_type") != "ClassLabel":
        return ()
    return tuple(map(str, feature.get("names") or range(feature.get("num_classes") or 0)))
