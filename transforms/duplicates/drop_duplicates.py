"""Drop references to images with equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.duplicates.contents import (
    count_lengths,
    find_duplicates,
    hash_images,
    merge_lengths,
    spread_hashed,
    take_candidates,
)
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import LeaveOut, Route, Routed


class DropDuplicates(beam.PTransform):
    """A transform that keeps one of the images with equal bytes, the first by id.

    Only images whose length occurs more than once are read. Every worker holds the keys of all
    dropped images, 8 bytes each.

    Args:
        policy: "drop" or "reject", which decides the reason of the rejects.
        storage: Storage options for reading images.
        threads: Images read at a time in one process; None is automatic.
    """

    def __init__(
        self, policy: str, *, storage: StorageOptions = NO_OPTIONS, threads: int | None = None
    ) -> None:
        super().__init__()
        self._policy = policy
        self._storage = storage
        self._threads = threads

    def expand(self, references: beam.PCollection) -> Routed:
        lengths = (
            references
            | "Lengths" >> beam.Map(count_lengths)  # array of lengths
            | "AllLengths" >> beam.CombineGlobally(merge_lengths)  # the same of all
        )
        found = (
            references
            | "Candidates"
            >> beam.FlatMap(take_candidates, lengths=AsSingleton(lengths)).with_output_types(
                pa.RecordBatch
            )
            | "Balance" >> beam.Reshuffle()
            | "Hash"
            >> beam.FlatMap(_hash, self._storage, self._threads).with_output_types(
                tuple[int, bytes]
            )
            | "SameContent" >> beam.GroupByKey()  # (bucket, [packed rows with their hash])
            | "Find" >> Route(_find, np.ndarray, policy=self._policy)  # keys of rows
        )
        return Routed(references | "LeaveOut" >> LeaveOut(found.main), found.rejects)


def _hash(
    batch: pa.RecordBatch, storage: StorageOptions, threads: int | None
) -> Iterator[tuple[int, bytes]]:
    for bucket, rows in spread_hashed(hash_images(batch, storage, threads)):
        yield bucket, to_ipc(rows)


def _find(bucket: tuple[int, Iterable[bytes]], *, policy: str) -> Iterator[np.ndarray | Reject]:
    yield from find_duplicates([from_ipc(rows) for rows in bucket[1]], policy)
