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
from shardwright.transforms.near_duplicates.components import join_pairs
from shardwright.transforms.near_duplicates.groups import (
    HashGroups,
    choose_keepers,
    collapse,
    leave_out_copies,
    listed_rows,
)
from shardwright.transforms.near_duplicates.hash_files import PHASH, hash_batch
from shardwright.transforms.near_duplicates.options import NearDuplicateOptions
from shardwright.transforms.near_duplicates.pairs import (
    Pairs,
    find_in_table,
    spread_hashes,
    spread_table,
)
from shardwright.transforms.near_duplicates.tables import make_tables
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import LeaveOut, Route

_NUM_PARTS = 256  # of each table, which bounds the hashes that one worker sorts

_Hashes = tuple[np.ndarray, np.ndarray]  # the distinct ones, and those of several images


class NearDuplicates(NamedTuple):
    """The outputs of the step: references, rejects, and the parts of the list of groups."""

    main: beam.PCollection
    rejects: beam.PCollection
    listed: beam.PCollection


class FindNearDuplicates(beam.PTransform):
    """A transform that groups images whose perceptual hashes differ in at most a few bits.

    Every image is read and decoded once, and its hash is kept in the spool. A worker holds the
    hashes of all near-duplicates, 16 bytes each.

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
            | "Hash" >> beam.FlatMap(_hash, *self._hashing).with_output_types(pa.RecordBatch)
            | "Keep" >> beam.Reshuffle()  # two steps take them, and no image is decoded twice
        )
        chosen = (
            hashed
            | "InGroups"
            >> beam.FlatMap(_in_groups, AsSingleton(self._groups(hashed))).with_output_types(
                tuple[int, bytes]
            )
            | "Group" >> beam.GroupByKey()  # (part, [packed rows])
            | "ChooseKeepers"
            >> beam.Map(_choose, self._distance).with_output_types(tuple[int, pa.RecordBatch])
        )
        listed = chosen | "List" >> beam.Map(_list).with_output_types(tuple[int, pa.RecordBatch])
        found = chosen | "Find" >> Route(_find, np.ndarray, policy=self._policy)  # keys of rows
        if self._policy == "report":
            return NearDuplicates(references, found.rejects, listed)
        kept = references | "LeaveOut" >> LeaveOut(found.main)
        return NearDuplicates(kept, found.rejects, listed)

    def _groups(self, hashed: beam.PCollection) -> beam.PCollection:
        """Return one HashGroups."""
        hashes = (
            hashed
            | "Spread" >> beam.FlatMap(_spread)
            | "SameHash" >> beam.GroupByKey()
            | "Collapse" >> beam.Map(_collapse)  # _Hashes
        )
        number = (
            hashes
            | "Count" >> beam.Map(_count)
            | "Sum" >> beam.CombineGlobally(sum)  # distinct hashes
        )
        pairs = (
            hashes
            | "SpreadTables" >> beam.FlatMap(_spread_tables, AsSingleton(number), self._distance)
            | "SamePart" >> beam.GroupByKey()  # ((table, part), [hashes])
            | "Pairs" >> beam.Map(_find_pairs, AsSingleton(number), self._distance)  # Pairs
        )
        equal = hashes | "Equal" >> beam.Map(_pair_equal)
        return (
            (pairs, equal)
            | "AllPairs" >> beam.Flatten()
            | "JoinPairs" >> beam.CombineGlobally(join_pairs)
            | "Groups" >> beam.Map(HashGroups.of)
        )


def _hash(
    batch: pa.RecordBatch, spool: Folder, storage: StorageOptions, threads: int | None
) -> Iterator[pa.RecordBatch]:
    hashed = hash_batch(batch, spool, storage, threads)
    if hashed.num_rows:
        yield hashed


def _spread(hashed: pa.RecordBatch) -> Iterator[tuple[int, np.ndarray]]:
    yield from spread_hashes(hashed.column(PHASH).to_numpy(), _NUM_PARTS)


def _collapse(part: tuple[int, Iterable[np.ndarray]]) -> _Hashes:
    return collapse(list(part[1]))


def _count(hashes: _Hashes) -> int:
    return len(hashes[0])


def _spread_tables(
    hashes: _Hashes, number: int, distance: int
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    for index, table in enumerate(make_tables(number, distance)):
        for part, found in spread_table(hashes[0], table, _NUM_PARTS):
            yield (index, part), found


def _find_pairs(
    part: tuple[tuple[int, int], Iterable[np.ndarray]], number: int, distance: int
) -> Pairs:
    (index, _), hashes = part
    table = make_tables(number, distance)[index]
    return join_pairs(find_in_table(np.concatenate(list(hashes)), table, distance))


def _pair_equal(hashes: _Hashes) -> Pairs:
    return hashes[1], hashes[1]


def _in_groups(hashed: pa.RecordBatch, groups: HashGroups) -> Iterator[tuple[int, bytes]]:
    for part, rows in groups.rows_in_groups(hashed):
        yield part, to_ipc(rows)


def _choose(part: tuple[int, Iterable[bytes]], distance: int) -> tuple[int, pa.RecordBatch]:
    return part[0], choose_keepers([from_ipc(rows) for rows in part[1]], distance)


def _list(part: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
    return part[0], listed_rows(part[1])


def _find(part: tuple[int, pa.RecordBatch], *, policy: str) -> Iterator[np.ndarray | Reject]:
    if policy != "report":
        keys, rejects = leave_out_copies(part[1], policy)
        yield from rejects
        yield keys
