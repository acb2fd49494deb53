"""Join references with a table of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.hashing import union
from shardwright.transforms.inputs.formats.tables import TableSource, list_table
from shardwright.transforms.labels.label_table import LabelRules, LabelTable, join_bucket, spread
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import Route, Routed

# A table that every worker holds and looks up again for every batch: about 200,000 rows.
BROADCAST_BYTES = 16 << 20
_BUCKET_BYTES = 16 << 20
_FEWEST_BUCKETS, _MOST_BUCKETS = 8, 1024
# Shuffles move batches as bytes, as in PlanShards.
_PackedPiece = tuple[int, bytes]


class JoinLabels(beam.PTransform):
    """A transform that adds a table's label, split, group and features to every reference.

    A small table goes to every worker. A large one is joined by key in buckets that fit into a
    worker, with the same result. A join by stem always uses buckets, because only there all images
    of one stem meet.

    Args:
        table: The table, from `open_label_table`.
        broadcast_bytes: Largest table that every worker holds in memory, in bytes.
    """

    def __init__(self, table: TableSource, *, broadcast_bytes: int = BROADCAST_BYTES) -> None:
        super().__init__()
        self._table = table
        self._broadcast_bytes = broadcast_bytes

    def expand(self, references: beam.PCollection) -> Routed:
        table = self._table
        listed = (
            references.pipeline
            | "Labels" >> beam.Create([table])
            | "Parts" >> beam.FlatMap(lambda source: source.parts())  # file name
            | "Spread" >> beam.Reshuffle()
            | "ReadLabels"
            >> Route(partial(list_table, table.layout), pa.RecordBatch)  # rows with their key as id
        )
        is_small = table.layout.num_bytes <= self._broadcast_bytes and table.layout.key != "stem"
        join = _broadcast if is_small else _join_by_key
        joined, rejects = join(references, listed.main, table)
        return Routed(joined, (listed.rejects, *rejects) | "Rejects" >> beam.Flatten())


def _broadcast(
    references: beam.PCollection, rows: beam.PCollection, table: TableSource
) -> tuple[beam.PCollection, list[beam.PCollection]]:
    loaded = (
        rows
        | "AllRows" >> beam.combiners.ToList()
        | "Load" >> beam.Map(LabelTable, LabelRules.of(table.layout))
    )  # one LabelTable
    joined = references | "Join" >> Route(
        lambda batch, table: table.join(batch), pa.RecordBatch, table=AsSingleton(loaded)
    )
    matched = (
        references
        | "Matched"
        >> beam.Map(
            lambda batch, table: table.matched(batch), table=AsSingleton(loaded)
        )  # row numbers of the table
        | "AllMatched" >> beam.CombineGlobally(union)
    )
    unmatched = loaded | "Unmatched" >> Route(
        LabelTable.unmatched, Reject, matched=AsSingleton(matched)
    )
    return joined.main, [joined.rejects, unmatched.rejects]


def _join_by_key(
    references: beam.PCollection, rows: beam.PCollection, table: TableSource
) -> tuple[beam.PCollection, list[beam.PCollection]]:
    rules = LabelRules.of(table.layout)
    # A power of two; the bytes of one bucket bound a worker's memory.
    wanted = min(max(table.layout.num_bytes // _BUCKET_BYTES, _FEWEST_BUCKETS), _MOST_BUCKETS)
    num_buckets = 1 << (wanted - 1).bit_length()
    sides = {
        "references": references
        | "SpreadImages"
        >> beam.FlatMap(_spread_references, rules, num_buckets).with_output_types(_PackedPiece),
        "rows": rows
        | "SpreadRows" >> beam.FlatMap(_spread_rows, num_buckets).with_output_types(_PackedPiece),
    }
    buckets = sides | "Buckets" >> beam.CoGroupByKey()  # (bucket, side -> [packed pieces])
    joined = buckets | "Join" >> Route(_join_bucket, pa.RecordBatch, rules=rules)
    return joined.main, [joined.rejects]


def _spread_references(
    batch: pa.RecordBatch, rules: LabelRules, num_buckets: int
) -> Iterator[_PackedPiece]:
    for bucket, piece in spread(batch, rules.keys_of(batch), num_buckets):
        yield bucket, to_ipc(piece)


def _spread_rows(batch: pa.RecordBatch, num_buckets: int) -> Iterator[_PackedPiece]:
    for bucket, piece in spread(batch, batch.column("id"), num_buckets):
        yield bucket, to_ipc(piece)


def _join_bucket(
    bucket: tuple[int, Mapping[str, Sequence[bytes]]], rules: LabelRules
) -> Iterator[pa.RecordBatch | Reject]:
    _, sides = bucket
    yield from join_bucket(
        map(from_ipc, sides["references"]), [from_ipc(piece) for piece in sides["rows"]], rules
    )
