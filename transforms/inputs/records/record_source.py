"""Python records as input. Their images go to the spool, unless they are paths."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.detection import refuse_image_options
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.records.record_columns import URI, Record
from shardwright.transforms.inputs.records.record_facts import RecordFacts, facts_of
from shardwright.transforms.inputs.records.record_forms import records_of
from shardwright.transforms.inputs.records.record_rows import list_records
from shardwright.transforms.inputs.source import InputSource, Rows, SourceFormat, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, read_listing, spool_name, write_spool


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
    facts = facts_of(sample, request, "Python records", RecordFacts)
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
