"""Join references with a table of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import apache_beam as beam
import pyarrow as pa

from shardwright.transforms.inputs.formats.tables import TableSource, list_table
from shardwright.transforms.labels.label_table import LabelRules, join_bucket, spread
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import Route, Routed

_BUCKET_BYTES = 16 << 20
_FEWEST_BUCKETS, _MOST_BUCKETS = 8, 1024
# Shuffles move batches as bytes, as in PlanShards.
_PackedPiece = tuple[int, bytes]
_IMAGES, _ROWS = "Images", "Rows"


class JoinLabels(beam.PTransform):
    """A transform that adds a table's label, split, group and features to every reference.

    References and rows are joined by key, in buckets that fit into a worker.

    Args:
        table: The table, from `open_label_table`.
    """

    def __init__(self, table: TableSource) -> None:
        super().__init__()
        self._table = table

    def expand(self, references: beam.PCollection) -> Routed:
        layout = self._table.layout
        rules = LabelRules.of(layout)
        # A power of two; the bytes of one bucket bound a worker's memory.
        wanted = min(max(layout.num_bytes // _BUCKET_BYTES, _FEWEST_BUCKETS), _MOST_BUCKETS)
        num_buckets = 1 << (wanted - 1).bit_length()
        rows = (
            references.pipeline
            | "Labels" >> beam.Create([self._table])
            | "Parts" >> beam.FlatMap(lambda source: source.parts())  # file name
            | "Spread" >> beam.Reshuffle()
            | "ReadLabels" >> Route(partial(list_table, layout), pa.RecordBatch)
        )  # rows with their key as id
        sides = {
            side: batches
            | f"Spread{side}"
            >> beam.FlatMap(_spread, keys_of, num_buckets).with_output_types(_PackedPiece)
            for side, batches, keys_of in (
                (_IMAGES, references, rules.keys_of),
                (_ROWS, rows.main, lambda batch: batch.column("id")),
            )
        }
        buckets = sides | "Buckets" >> beam.CoGroupByKey()  # (bucket, side -> [packed pieces])
        joined = buckets | "Join" >> Route(_join_bucket, pa.RecordBatch, rules=rules)
        return Routed(joined.main, (rows.rejects, joined.rejects) | "Rejects" >> beam.Flatten())


def _spread(
    batch: pa.RecordBatch, keys_of: Callable[[pa.RecordBatch], pa.Array], num_buckets: int
) -> Iterator[_PackedPiece]:
    for bucket, piece in spread(batch, keys_of(batch), num_buckets):
        yield bucket, to_ipc(piece)


def _join_bucket(
    bucket: tuple[int, Mapping[str, Iterable[bytes]]], rules: LabelRules
) -> Iterator[pa.RecordBatch | Reject]:
    _, sides = bucket
    rows = [from_ipc(piece) for piece in sides[_ROWS]]
    yield from join_bucket(map(from_ipc, sides[_IMAGES]), rows, rules)
