"""Python records as input. Their images go to the spool, unless they are paths."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.columns import Columns, said_kinds
from shardwright.transforms.inputs.detection import refuse_image_options
from shardwright.transforms.inputs.input_files import FilesFacts, InputFile
from shardwright.transforms.inputs.records.record_columns import URI, RecordColumns, infer_columns
from shardwright.transforms.inputs.records.record_forms import SAMPLE_RECORDS, Record, records_of
from shardwright.transforms.inputs.rows import RawRows, RowsFacts, columns_of, list_rows
from shardwright.transforms.inputs.source import InputSource, Rows, SourceFormat, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, read_listing, spool_name, write_spool
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.rejects import Reject

_ID = "id"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts(RowsFacts):
    """The facts about Python records.

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
        return FilesFacts.parts(self) if self.is_part else shards


def facts_of(sample: Sequence[Record], request: SourceRequest, what: str) -> RecordFacts:
    """Return the facts about records.

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
    facts = layout.facts_as(
        RecordFacts,
        f"{what}: {layout.describe()}",
        columns=tuple(
            name for name in records.schema.names if name not in (layout.image, records.numbered)
        ),
        request=request,
        base="",
        layout=layout,
        records=replace(records, id=layout.id or ""),
    )
    shown = ", ".join(
        f"{feature.name} {feature.kind}{list(feature.shape) or ''}" for feature in facts.features
    )
    end = f"; features {shown}" if shown else ""
    return replace(facts, description=facts.description + end)


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
    facts: RecordFacts, records: Iterable[Record], file: InputFile, prefix: str, writer: SpoolWriter
) -> Rows:
    """Yield references to records, and rejects; images without a path go to the spool.

    Args:
        facts: The facts about the records.
        records: The records, with simple values.
        file: Their place.
        prefix: The start of the ids of records without one; their number follows.
        writer: The writer of the spool.
    """

    def batches(pool: ThreadPoolExecutor) -> Iterator[RawRows | Reject]:
        source, first = iter(records), 0
        while some := list(itertools.islice(source, SAMPLE_RECORDS)):
            ids = [f"{prefix}{first + place}" for place in range(len(some))]
            first += len(some)
            rows, found = facts.records.rows(some, ids, pool, file.uri)
            yield from found
            PROGRESS.add_read(len(some))
            yield rows

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="shardwright-records") as pool:
        yield from list_rows(facts.layout, facts.request, file, batches(pool), writer)


def open_records(
    sample: Sequence[Record], request: SourceRequest, *, maker: bytes = b"", shards: int = 1
) -> InputSource:
    """Return records as the source of a build.

    Args:
        sample: The first records; they decide the columns.
        request: The request for INPUT, with its columns, kinds and spool.
        maker, shards: As in `RecordFacts`.

    Raises:
        UsageError: There are no records, no key holds the schema's images, or an option names a
            missing key.
    """
    refuse_image_options(request)
    request = replace(request, uri=URI, image_root=request.image_root or os.getcwd())
    facts = facts_of(sample, request, "Python records")
    return InputSource("records", FORMAT, replace(facts, maker=maker, shards=shards))


def spool_records(source: InputSource, records: Iterable[Record]) -> None:
    """Write records to the spool before a build lists them, and replace those of an earlier build.

    Raises:
        UsageError: A record is no mapping.
        StorageError: The spool cannot be written.
    """
    assert isinstance(source.facts, RecordFacts)
    _spool_part(source.facts, next(source.facts.parts()), records)


def forget_records(source: InputSource, *, with_bytes: bool = False) -> None:
    """Remove the listings of records, which every build makes anew, and perhaps their images."""
    assert isinstance(source.facts, RecordFacts)
    ends = (".parquet", ".bin") if with_bytes else (".parquet",)
    spool = _spool_of(source.facts)
    spool.remove_all([_name_of(part) + end for part in source.facts.parts() for end in ends])
    spool.remove_empty()


def list_part(facts: RecordFacts, part: str) -> Rows:
    """Yield the references of a part; a shard's records are made first, if they are not there."""
    folder, name = _spool_of(facts), _name_of(part)
    if facts.maker and folder.num_bytes_of(f"{name}.parquet") is None:
        _spool_part(facts, part, records_of(pickle.loads(facts.maker)(int(part))))
    yield from read_listing(folder, name)


def _spool_of(facts: RecordFacts) -> Folder:
    assert facts.request.spool is not None
    return facts.request.spool


def _spool_part(facts: RecordFacts, part: str, records: Iterable[Record]) -> None:
    def make(writer: SpoolWriter) -> Rows:
        prefix = f"{part}/" if facts.maker else ""
        return list_records(facts, records, InputFile(URI, URI), prefix, writer)

    write_spool(_spool_of(facts), _name_of(part), None, make)


def _name_of(part: str) -> str:
    return spool_name(URI, part)


# Not an entry point: records have no address that a command line could give.
FORMAT = SourceFormat("Python records", lambda _: None, list_part)
