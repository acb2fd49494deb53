"""Python records as input. Their images go to the spool, unless they are paths."""

from __future__ import annotations

import itertools
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.columns import said_kinds
from shardwright.transforms.inputs.detection import refuse_image_options
from shardwright.transforms.inputs.formats.record_columns import (
    SAMPLE_RECORDS,
    URI,
    Record,
    RecordColumns,
    infer_columns,
    records_of,
)
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.rows import RawRows, RowsSource, columns_of, list_rows
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, read_listing, spool_name, write_spool
from shardwright.transforms.progress import PROGRESS

_ID = "id"
_PYTHON = InputFile(URI, URI)
R = TypeVar("R", bound="RecordSource")


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
