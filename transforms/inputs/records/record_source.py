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
from shardwright.format.schema import FeatureKind
from shardwright.storage.folder import Folder
from transforms.inputs.embedded.embedded_layout import EmbeddedLayout, make_layout
from transforms.inputs.embedded.embedded_look import EmbeddedFacts
from transforms.inputs.embedded.embedded_references import list_rows
from transforms.inputs.image_values import said_kinds
from transforms.inputs.input_files import InputFile
from transforms.inputs.records.record_columns import (
    SAMPLE_RECORDS,
    URI,
    Record,
    RecordColumns,
    infer_columns,
)
from transforms.inputs.records.record_forms import records_of
from transforms.inputs.source import InputSource, Rows, SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter, read_listing, spool_name, write_spool
from transforms.inputs.tables.table_columns import features_or_problem
from transforms.inputs.tables.table_roles import describe_columns
from transforms.progress import PROGRESS
from transforms.references import reference_schema
from transforms.rejects import Reject

_ID = "id"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts(EmbeddedFacts):
    """The facts about Python records.

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


def open_records(
    sample: Sequence[Record], request: SourceRequest, *, maker: bytes = b"", shards: int = 1
) -> InputSource:
    """Return records as the source of a build.

    Args:
        sample: The first records; they decide the columns.
        request: The request for INPUT, with its columns, kinds and spool.
        maker, shards: As in `RecordFacts`.

    Raises:
        UsageError: There are no records, no key holds images, or an option names a missing key.
    """
    if not sample:
        raise UsageError("there are no records: nothing to write")
    request = replace(request, uri=URI, image_root=request.image_root or os.getcwd())
    columns = infer_columns(sample, said_kinds(request.columns, request.kinds))
    columns, layout = _with_ids(columns, _layout_of(columns, request))
    features, unstorable = features_or_problem(
        lambda: tuple(
            columns.tensors.get(name) or layout.feature_of(name) for name in layout.extras
        )
    )
    label = None if layout.label is None else columns.schema.field(layout.label).type
    shown = ", ".join(
        f"{feature.name} {feature.kind}{list(feature.shape) or ''}" for feature in features
    )
    facts = RecordFacts(
        description=f"Python records: {describe_columns(layout, ())}"
        + (f"; features {shown}" if shown else ""),
        schema=reference_schema((name, layout.type_of(name)) for name in layout.extras),
        features=features,
        unstorable=unstorable,
        states_splits=layout.split is not None,
        splits_can_be_redrawn=layout.split is None,
        has_integer_labels=label is not None and pa.types.is_integer(label),
        request=request,
        base="",
        layout=layout,
        records=columns,
        maker=maker,
        shards=shards,
    )
    return InputSource("records", FORMAT, facts)


def _layout_of(columns: RecordColumns, request: SourceRequest) -> EmbeddedLayout:
    kinds = {**request.kinds, **dict.fromkeys(columns.pictures, FeatureKind.IMAGE)}
    layout = make_layout(
        pa.RecordBatch.from_pylist([], columns.schema),
        columns.schema,
        request.columns,
        "the records",
        kinds=kinds,
        forced=True,
    )
    assert layout is not None  # forced
    return layout


def _with_ids(
    columns: RecordColumns, layout: EmbeddedLayout
) -> tuple[RecordColumns, EmbeddedLayout]:
    """Return both with a column of numbers for records without ids."""
    if layout.id is not None:
        return columns, layout
    if _ID in columns.schema.names:
        raise UsageError(
            f"key {_ID!r} holds {columns.schema.field(_ID).type}: an id must be a text or a whole "
            "number"
        )
    schema = columns.schema.append(pa.field(_ID, pa.string()))
    return replace(columns, schema=schema, numbered=_ID), replace(layout, columns=schema, id=_ID)


def spool_records(source: InputSource, records: Iterable[Record]) -> None:
    """Write records to the spool before a build lists them, and replace those of an earlier build.

    Raises:
        UsageError: A record is no mapping.
        StorageError: The spool cannot be written.
    """
    assert isinstance(source.facts, RecordFacts)
    _spool_part(source.facts, next(source.facts.parts()), records)


def forget_records(source: InputSource) -> None:
    """Remove listings of an earlier build, so that shards of records are made again."""
    assert isinstance(source.facts, RecordFacts)
    names = [f"{_name_of(part)}.parquet" for part in source.facts.parts()]
    _spool_of(source.facts).remove_all(names)


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
        return _rows(facts, records, part, writer)

    write_spool(_spool_of(facts), _name_of(part), None, make)


def _name_of(part: str) -> str:
    return spool_name(URI, part)


def _rows(facts: RecordFacts, records: Iterable[Record], part: str, writer: SpoolWriter) -> Rows:
    rejects: list[Reject] = []
    prefix = f"{part}/" if facts.maker else ""

    def batches(pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        source, first = iter(records), 0
        while some := list(itertools.islice(source, SAMPLE_RECORDS)):
            ids = [f"{prefix}{first + place}" for place in range(len(some))]
            first += len(some)
            batch, found = facts.records.batch(some, ids, pool)
            rejects.extend(found)
            PROGRESS.add_read(len(some))
            yield batch

    file = InputFile(URI, URI)
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="shardwright-records") as pool:
        yield from list_rows(facts, file, batches(pool), writer)
    yield from rejects


# Not an entry point: records have no address that a command line could give.
FORMAT = SourceFormat("Python records", lambda _: None, list_part)
