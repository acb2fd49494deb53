"""Find groups of images that look nearly the same, and leave out all but their keepers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.near_duplicates.groups import (
    PHASH,
    HashGroups,
    NearDuplicateOptions,
    choose_keepers,
    hash_batch,
    leave_out_copies,
    listed_rows,
)
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import LeaveOut, Route


class NearDuplicates(NamedTuple):
    """The outputs of the step: references, rejects, and the parts of the list of groups."""

    main: beam.PCollection
    rejects: beam.PCollection
    listed: beam.PCollection


class FindNearDuplicates(beam.PTransform):
    """A transform that groups images whose perceptual hashes differ in at most a few bits.

    Every image is read and decoded once, and its hash is kept in the spool. One worker finds the
    groups among the hashes of all images, 8 bytes each and 24 for tables, and each holds
    the hashes of all near-duplicates, 16 bytes each.

    Args:
        near: The policy and the distance. "report" passes all references; "drop" and "reject" pass
            only the keepers, and decide the reason of the rejects.
        spool: The folder that keeps the hashes.
        storage: Storage options for reading images.
        threads: Images read at a time in one process; None is automatic.
    """

    def __init__(
        self,
        near: NearDuplicateOptions,
        *,
        spool: Folder,
        storage: StorageOptions = NO_OPTIONS,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self._policy = near.policy
        self._distance = near.distance
        self._hashing = (spool, storage, threads)

    def expand(self, references: beam.PCollection) -> NearDuplicates:
        hashed = (
            references
            | "Balance" >> beam.Reshuffle()
            | "Hash" >> beam.Map(hash_batch, *self._hashing).with_output_types(pa.RecordBatch)
            | "Keep" >> beam.Reshuffle()  # two steps take them, and no image is decoded twice
        )
        groups = (
            hashed
            | "Hashes"
            >> beam.Map(lambda rows: rows.column(PHASH).to_numpy()).with_output_types(np.ndarray)
            | "AllHashes" >> beam.combiners.ToList()
            | "Groups" >> beam.Map(HashGroups.find, self._distance)  # one HashGroups
        )
        chosen = (
            hashed
            | "InGroups"
            >> beam.FlatMap(_in_groups, AsSingleton(groups)).with_output_types(tuple[int, bytes])
            | "Group" >> beam.GroupByKey()  # (part, [packed rows])
            | "ChooseKeepers"
            >> beam.Map(_choose, self._distance).with_output_types(tuple[int, pa.RecordBatch])
        )
        listed = chosen | "List" >> beam.MapTuple(
            lambda part, rows: (part, listed_rows(rows))
        ).with_output_types(tuple[int, pa.RecordBatch])
        found = chosen | "Find" >> Route(_find, np.ndarray, policy=self._policy)  # keys of rows
        if self._policy == "report":
            return NearDuplicates(references, found.rejects, listed)
        kept = references | "LeaveOut" >> LeaveOut(found.main)
        return NearDuplicates(kept, found.rejects, listed)


def _in_groups(hashed: pa.RecordBatch, groups: HashGroups) -> Iterator[tuple[int, bytes]]:
    for part, rows in groups.rows_in_groups(hashed):
        yield part, to_ipc(rows)


def _choose(part: tuple[int, Iterable[bytes]], distance: int) -> tuple[int, pa.RecordBatch]:
    return part[0], choose_keepers([from_ipc(rows) for rows in part[1]], distance)


def _find(part: tuple[int, pa.RecordBatch], *, policy: str) -> Iterator[np.ndarray | Reject]:
    yield from leave_out_copies(part[1], policy)
