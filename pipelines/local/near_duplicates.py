"""Find near-duplicates in this process, without Beam, by the functions of `FindNearDuplicates`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.batches import HeldBatches, HeldRejects
from shardwright.transforms.duplicates.contents import leave_out
from shardwright.transforms.hashing import joined
from shardwright.transforms.near_duplicates.components import join_pairs
from shardwright.transforms.near_duplicates.groups import (
    HashGroups,
    choose_keepers,
    collapse,
    leave_out_copies,
    listed_rows,
)
from shardwright.transforms.near_duplicates.hash_files import PHASH, hash_batch
from shardwright.transforms.near_duplicates.pairs import Pairs, find_pairs


class LocalNearDuplicates:
    """The near-duplicates of a job.

    Args:
        job: The build, with `--near-duplicates`.
        plain_bytes: Bytes of batches that are held in memory; more are in a temporary file.

    Attributes:
        listed: The parts of their list: (number, rows).
    """

    def __init__(self, job: BuildJob, plain_bytes: int) -> None:
        self._job = job
        self._plain_bytes = plain_bytes
        self.listed: list[tuple[int, pa.RecordBatch]] = []

    def passed(
        self, batches: Iterable[pa.RecordBatch], rejects: HeldRejects
    ) -> Iterator[pa.RecordBatch]:
        """Yield the references that pass, after all were hashed; add rejects of the others."""
        near, held = self._job.options.near, HeldBatches(self._plain_bytes)
        dropped = []
        for number, rows in self._find(batches, held):
            chosen = choose_keepers(rows, near.distance)
            self.listed.append((number, listed_rows(chosen)))
            if near.policy != "report":
                keys, copies = leave_out_copies(chosen, near.policy)
                dropped.append(keys)
                rejects.add(copies)
        keys = np.sort(joined(dropped, np.uint64))
        return (kept for batch in held.take() if (kept := leave_out(batch, keys)).num_rows)

    def _find(
        self, batches: Iterable[pa.RecordBatch], held: HeldBatches
    ) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
        """Hold all batches, and yield the rows in groups, part by part."""
        options, hashed = self._job.options, HeldBatches(self._plain_bytes)
        hashes = [np.zeros(0, np.uint64)]
        for batch in batches:
            held.add(batch)
            rows = hash_batch(batch, self._job.spool, options.storage, options.threads)
            hashes.append(rows.column(PHASH).to_numpy())
            hashed.add(rows)
        distinct, repeated = collapse(hashes)
        del hashes
        groups = HashGroups.of(join_pairs(_pairs(distinct, repeated, options.near.distance)))
        parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for rows in hashed.take():
            for part, found in groups.rows_in_groups(rows):
                parts[part].append(found)
        yield from sorted(parts.items())


def _pairs(distinct: np.ndarray, repeated: np.ndarray, distance: int) -> Iterator[Pairs]:
    yield repeated, repeated
    yield from find_pairs(distinct, distance)
