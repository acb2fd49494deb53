"""Python records as input. Their images go to the spool, unless they are paths.

Tables, data sets and arrays are records without an import of their libraries.
"""

from __future__ import annotations

import itertools
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.columns import check_width, first_doubled, said_kinds
from shardwright.transforms.inputs.detection import refuse_image_options
from shardwright.transforms.inputs.file_rules import has_image_magic
from shardwright.transforms.inputs.formats.record_columns import (
    SAMPLE_RECORDS,
    URI,
    Record,
    RecordColumns,
    infer_columns,
    input_key,
    simple_value,
)
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.rows import RawRows, RowsSource, columns_of, list_rows
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, read_listing, spool_name, write_spool
from shardwright.transforms.progress import PROGRESS

_LABEL = "label"
_ID = "id"
_PYTHON = InputFile(URI, URI)
R = TypeVar("R", bound="RecordSource")


def records_of(source: Any) -> Iterator[Record]:
    """Yield the records of a source, with simple values.

    Args:
        source: An iterable of dicts or (input, label) pairs, a pandas DataFrame, an Arrow table, an
            object with `__len__` and `__getitem__`, a `tf.data.Dataset`, or one NumPy array, a
            pair or a dict of them of one length.

    Raises:
        UsageError: It is none of these, or an item is no record.
    """
    return itertools.starmap(_numbered, enumerate(_items_of(source)))


def _numbered(number: int, item: Any) -> Record:
    """Return a record with simple values; an error says its number."""
    try:
        return simple_record(item)
    except UsageError as error:
        raise UsageError(f"record {number}: {error}") from error


def simple_record(item: Any) -> Record:
    """Return a record with simple values.

    Raises:
        UsageError: The item is neither a dict nor a pair of input and label.
    """
    if isinstance(item, tuple) and len(item) == 2:
        inputs, label = map(simple_value, item)
        return {input_key(inputs): inputs, _LABEL: label}
    if not isinstance(item, Mapping):
        raise UsageError(
            f"a record must be a dict, or a pair of input and label, got {type(item).__name__}"
        )
    return {name: simple_value(value) for name, value in item.items()}


def _items_of(source: Any) -> Iterable[Any]:
    if isinstance(source, np.ndarray) and not source.ndim:
        source = source.item()
    if isinstance(source, str | bytes | os.PathLike):
        raise UsageError(
            f"records must be an iterable of dicts, a table, a data set or arrays, got {source!r}; "
            "`shardwright build` reads files and folders"
        )
    if isinstance(source, np.ndarray):
        names = source.dtype.names
        columns = {name: source[name] for name in names} if names else _named([source])
        return _rows_of_arrays(columns, len(columns))
    if isinstance(source, tuple) and all(isinstance(each, np.ndarray) for each in source):
        return _rows_of_arrays(_named(source), len(source))
    if isinstance(source, Mapping):
        return _rows_of_arrays(source, len(source))
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return _rows_of_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _rows_of_arrow(source)
    if hasattr(source, "as_numpy_iterator"):
        return map(_with_texts, source.as_numpy_iterator())
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[index] for index in range(len(source)))
    if isinstance(source, Iterable):
        return source
    raise UsageError(
        "records must be an iterable of dicts, a table, a data set or arrays, got "
        f"{type(source).__name__}; for a function that makes them, pass shards="
    )


def _named(arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the first array by the key of its rows, and the second as the label."""
    keys = [*(input_key(np.empty(one.shape[1:], one.dtype)) for one in arrays[:1]), _LABEL]
    return dict(zip(keys, arrays, strict=False))


def _rows_of_arrays(columns: Mapping[str, Any], number: int) -> Iterator[Record]:
    """Yield a record for each row of arrays of the same length."""
    if any(isinstance(one, str | bytes) or not hasattr(one, "__len__") for one in columns.values()):
        raise UsageError(
            "records must be an iterable of dicts, or a dict of arrays, got one dict of single "
            "values: put it in a list"
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(columns) < number or len(set(lengths.values())) != 1:
        raise UsageError(
            f"arrays must be (inputs, labels) or a dict, of one length, got "
            f"{counted(number, 'array')} of lengths {sorted(set(lengths.values()))}"
        )
    for row in range(next(iter(lengths.values()))):
        yield {name: column[row] for name, column in columns.items()}


def _rows_of_arrow(source: Any) -> Iterator[Record]:
    """Yield the rows of what has Arrow's interface: tables and readers of it, Polars, DuckDB."""
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"records must be a table, got one column ({type(source).__name__}): name it, as in "
            '{"key": column}'
        ) from error
    _check_names(reader.schema.names)
    for batch in reader:
        for start in range(0, batch.num_rows, SAMPLE_RECORDS):
            yield from batch.slice(start, SAMPLE_RECORDS).to_pylist()


def _rows_of_pandas(table: Any) -> Iterator[Record]:
    _check_names(list(table.columns))
    for start in range(0, len(table), SAMPLE_RECORDS):
        rows = table.iloc[start : start + SAMPLE_RECORDS]
        # A missing text is NaN, a float, which Arrow would not take for one.
        yield from rows.astype(object).where(rows.notna(), None).to_dict("records")


def _check_names(names: Sequence[Any]) -> None:
    doubled = first_doubled(names)
    if doubled is not None:
        raise UsageError(f"the table has two columns called {doubled!r}: rename one of them")
    check_width("the table", names)


def _with_texts(item: Any) -> Any:
    """Return an element of tf.data with texts in place of bytes that are UTF-8 and no image."""
    if isinstance(item, Mapping):
        return {name: _as_text(value) for name, value in item.items()}
    return tuple(map(_as_text, item)) if isinstance(item, tuple) else item


def _as_text(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _as_text(value.tolist())
    if isinstance(value, list):
        return list(map(_as_text, value))
    if not isinstance(value, bytes) or has_image_magic(value):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource(RowsSource):
    """Python records.

    Attributes:
        records: Their columns.
        maker: A pickled function that makes the records of a shard from its number; b"" if the
            records are in the spool before the build lists them.
        shards: Number of shards; each is a part.
    """

    records: RecordColumns
    maker: bytes = b""
    shards: int = 1

    def parts(self) -> Iterator[str]:
        yield from map(str, range(self.shards))

    def references(self, part: str) -> Rows:
        """Yield the references of a part; records of a shard are made first if they are not."""
        folder, name = _spool_of(self), _name_of(part)
        if self.maker and folder.num_bytes_of(f"{name}.parquet") is None:
            _spool_part(self, part, records_of(pickle.loads(self.maker)(int(part))))
        yield from read_listing(folder, name)

    def spool(self, records: Sequence[Any]) -> Rows:
        """Put the images of some records into a file of the spool, and yield references."""
        folder = _spool_of(self)
        # Another name in each attempt: a worker that was given up may still write its file.
        name = f"{uuid.uuid4().hex}.bin"
        with folder.open_sink(name, sync=False) as sink:
            writer = SpoolWriter(folder.path(name), None, sink.write)
            rows = list(list_records(self, records_of(records), "", writer))
            writer.flush()
        yield from rows


def open_records(
    sample: Sequence[Record], request: SourceRequest, *, maker: bytes = b"", shards: int = 1
) -> RecordSource:
    """Return records as the source of a build.

    Args:
        sample: The first records; they decide the columns.
        request: The request for INPUT, with its columns, kinds and spool.
        maker, shards: As in `RecordSource`.

    Raises:
        UsageError: There are no records, no key holds the schema's images, or an option names a
            missing key.
    """
    refuse_image_options(request)
    request = replace(request, uri=URI, image_root=request.image_root or os.getcwd())
    source = source_of(RecordSource, sample, request, "Python records")
    return replace(source, maker=maker, shards=shards, name="records")


def source_of(kind: type[R], sample: Sequence[Record], request: SourceRequest, what: str) -> R:
    """Return records as a source of a kind. Arguments and errors as of `open_records`.

    Args:
        what: The start of the log line and of messages.
    """
    if not sample:
        raise UsageError(f"{what}: there are no records, so there is nothing to write")
    said = said_kinds(request.columns, request.kinds)
    find_images = request.image is not None
    records = infer_columns(sample, said, shapes=request.shapes, find_images=find_images)
    first = records.plain_columns(sample)
    layout = columns_of(first, records.pictures, request, "the records")
    assert layout is not None  # forced
    schema, numbered = records.schema, ""
    if layout.id is None:  # the ids of records without one are their numbers
        if _ID in schema.names:
            raise UsageError(
                f"key {_ID!r} holds {schema.field(_ID).type}: an id must be a text or a whole "
                "number"
            )
        schema, numbered = schema.append(pa.field(_ID, pa.string())), _ID
    name = layout.id or _ID
    layout = replace(layout, columns=schema, id=name, known=records.tensors)
    return layout.source_as(
        kind,
        f"{what}: {layout.describe()}",
        columns=tuple(name for name in schema.names if name not in (layout.image, numbered)),
        request=request,
        base="",
        layout=layout,
        records=replace(records, schema=schema, numbered=numbered),
    )


def list_records(
    source: RecordSource,
    records: Iterable[Record],
    prefix: str,
    writer: SpoolWriter,
    file: InputFile = _PYTHON,
) -> Rows:
    """Yield references to records, and rejects; images without a path go to the spool.

    Args:
        source: The records as a source.
        records: The records, with simple values.
        prefix: The start of the ids of records without one; their number follows.
        writer: The writer of the spool.
        file: The place of the records.
    """

    def batches(pool: ThreadPoolExecutor) -> Iterator[RawRows]:
        given, first = iter(records), 0
        while some := list(itertools.islice(given, SAMPLE_RECORDS)):
            ids = [f"{prefix}{first + place}" for place in range(len(some))]
            first += len(some)
            PROGRESS.add_read(len(some))
            yield source.records.rows(some, ids, pool)

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="shardwright-records") as pool:
        yield from list_rows(source.layout, source.request, file, batches(pool), writer)


def spool_records(source: InputSource, records: Iterable[Record]) -> None:
    """Write records to the spool before a build lists them, and replace those of an earlier build.

    Raises:
        UsageError: A record is no mapping.
        StorageError: The spool cannot be written.
    """
    assert isinstance(source, RecordSource)
    _spool_part(source, next(source.parts()), records)


def forget_records(source: InputSource, *, with_bytes: bool = False) -> None:
    """Remove the listings of records, which every build makes anew, and perhaps their images."""
    assert isinstance(source, RecordSource)
    ends = (".parquet", ".bin") if with_bytes else (".parquet",)
    spool = _spool_of(source)
    spool.remove_all([_name_of(part) + end for part in source.parts() for end in ends])
    spool.remove_empty()


def _spool_of(source: RecordSource) -> Folder:
    assert source.request.spool is not None
    return source.request.spool


def _spool_part(source: RecordSource, part: str, records: Iterable[Record]) -> None:
    def make(writer: SpoolWriter) -> Rows:
        prefix = f"{part}/" if source.maker else ""
        return list_records(source, records, prefix, writer)

    write_spool(_spool_of(source), _name_of(part), None, make)


def _name_of(part: str) -> str:
    return spool_name(URI, part)
