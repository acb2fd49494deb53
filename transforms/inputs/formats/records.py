"""Python records as input. Their images go to the spool, unless they are paths."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.columns import Columns, said_kinds
from shardwright.transforms.inputs.detection import refuse_image_options
from shardwright.transforms.inputs.formats.record_columns import URI, RecordColumns, infer_columns
from shardwright.transforms.inputs.formats.record_forms import SAMPLE_RECORDS, Record, records_of
from shardwright.transforms.inputs.input_files import FilesSource, InputFile
from shardwright.transforms.inputs.rows import RawRows, RowsSource, columns_of, list_rows
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, read_listing, spool_name, write_spool
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.rejects import Reject

_ID = "id"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource(RowsSource):
    """Python records.

    Attributes:
        records: Their columns.
        maker: A pickled function that makes the records of a shard from its number; b"" if the
            records are in the spool before the build lists them.
        shards: Number of shards; each is a part, unless files are.
    """

    records: RecordColumns
    maker: bytes = b""
    shards: int = 1

    def parts(self) -> Iterator[str]:
        shards = map(str, range(self.shards))
        return FilesSource.parts(self) if self.is_part else shards

    def references(self, part: str) -> Rows:
        """Yield the references of a part; records of a shard are made first if they are not."""
        folder, name = _spool_of(self), _name_of(part)
        if self.maker and folder.num_bytes_of(f"{name}.parquet") is None:
            _spool_part(self, part, records_of(pickle.loads(self.maker)(int(part))))
        yield from read_listing(folder, name)

    @classmethod
    def of(cls, sample: Sequence[Record], request: SourceRequest, what: str) -> Self:
        """Return records as a source.

        Args:
            sample: The first records.
            request: The request for INPUT.
            what: The start of the log line, such as "Python records".

        Raises:
            UsageError: As `open_records`.
        """
        if not sample:
            raise UsageError(f"{what}: there are no records, so there is nothing to write")
        said = said_kinds(request.columns, request.kinds)
        find_images = request.image is not None
        records = infer_columns(sample, said, shapes=request.shapes, find_images=find_images)
        first = records.plain_columns(sample)
        found = columns_of(first, records.pictures, request, "the records")
        assert found is not None  # forced
        if found.id is None:
            records, found = _with_numbers(records, found)
        layout = replace(found, known=records.tensors)
        source = layout.source_as(
            cls,
            f"{what}: {layout.describe()}",
            columns=tuple(
                name
                for name in records.schema.names
                if name not in (layout.image, records.numbered)
            ),
            request=request,
            base="",
            layout=layout,
            records=replace(records, id=layout.id or ""),
        )
        shown = ", ".join(
            f"{feature.name} {feature.kind}{list(feature.shape) or ''}"
            for feature in source.features
        )
        end = f"; features {shown}" if shown else ""
        return replace(source, description=source.description + end)


def _with_numbers(records: RecordColumns, layout: Columns) -> tuple[RecordColumns, Columns]:
    """Return both with a column of numbers as the ids of records without one."""
    if _ID in records.schema.names:
        raise UsageError(
            f"key {_ID!r} holds {records.schema.field(_ID).type}: an id must be a text or a whole "
            "number"
        )
    schema = records.schema.append(pa.field(_ID, pa.string()))
    return replace(records, schema=schema, numbered=_ID), replace(layout, columns=schema, id=_ID)


def list_records(
    source: RecordSource,
    records: Iterable[Record],
    file: InputFile,
    prefix: str,
    writer: SpoolWriter,
) -> Rows:
    """Yield references to records, and rejects; images without a path go to the spool.

    Args:
        source: The records as a source.
        records: The records, with simple values.
        file: Their place.
        prefix: The start of the ids of records without one; their number follows.
        writer: The writer of the spool.
    """

    def batches(pool: ThreadPoolExecutor) -> Iterator[RawRows | Reject]:
        given, first = iter(records), 0
        while some := list(itertools.islice(given, SAMPLE_RECORDS)):
            ids = [f"{prefix}{first + place}" for place in range(len(some))]
            first += len(some)
            rows, found = source.records.rows(some, ids, pool, file.uri)
            yield from found
            PROGRESS.add_read(len(some))
            yield rows

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="shardwright-records") as pool:
        yield from list_rows(source.layout, source.request, file, batches(pool), writer)


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
    source = RecordSource.of(sample, request, "Python records")
    return replace(source, maker=maker, shards=shards, name="records")


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
        return list_records(source, records, InputFile(URI, URI), prefix, writer)

    write_spool(_spool_of(source), _name_of(part), None, make)


def _name_of(part: str) -> str:
    return spool_name(URI, part)
