"""Plan the shards of a build in this process, without Beam.

The functions are those of `PlanShards` and `ClearOutput`, so both make the same plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from shardwright.format.index import ShardSummary
from shardwright.format.naming import ShardName
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.batches import HeldBatches, HeldRejects
from shardwright.pipelines.local.even_sample import EvenSample
from shardwright.pipelines.local.references import PLAIN_BYTES, LocalReferences
from shardwright.pipelines.runners.garbage import no_collections
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.batch_file import BatchFile
from shardwright.transforms.features.vocabularies import Vocabularies
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan import layouts, packing
from shardwright.transforms.plan.packing import KNOWN_BYTES, Layout
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.references import set_column
from shardwright.transforms.write.clearance import clear_here, judge
from shardwright.transforms.write.shard_writing import find_finished

# A bucket at a time is in memory and sorted.
_MIN_BUCKETS, _BUCKET_BYTES = 8, 64 << 20
# Shards looked up in a store at once; at most twice as many plans are held.
_LOOKUPS = 16
_SIZE_COLUMNS = ["split", KNOWN_BYTES]
_COUNTED_COLUMNS = ["id", "uri", "row", "split"]


class ShardState(NamedTuple):
    """A planned shard, and its summary if OUTPUT holds it as planned."""

    shard: str
    digest: str
    finished: ShardSummary | None


class LocalShards:
    """The layout, the shards' sizes by split, and the shards of a job.

    Args:
        job: The build to plan.
        with_plans: Keep what `plans` needs. Otherwise only columns that decide the layout are
            sorted, and there are no plans.
        sample: Is shown all references.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """

    def __init__(
        self, job: BuildJob, *, with_plans: bool, sample: EvenSample | None = None
    ) -> None:
        with no_collections():  # they would take a fifth of the time
            self._make(job, sample, with_plans=with_plans)

    def _make(self, job: BuildJob, sample: EvenSample | None, *, with_plans: bool) -> None:
        references = LocalReferences(job)
        batches: Iterable[pa.RecordBatch] = references.batches()
        if sample is not None:
            batches = sample.watch(batches)
        estimate = None
        if job.options.samples_sizes:
            batches = list(batches)
            estimate = references.estimate(batches)
        self._job = job
        self._buckets: list[int] = []
        self._ordered = HeldBatches(PLAIN_BYTES)
        num_bytes = references.num_bytes if with_plans else 0
        num_buckets = max(_MIN_BUCKETS, 1 << (num_bytes // _BUCKET_BYTES).bit_length())
        narrow = batches if with_plans else map(_narrow, batches)
        pieces = _spread(narrow, job.options.seed, num_buckets)
        sizes = list(self._sort(pieces, references.rejects, with_plans=with_plans))
        counts = map(layouts.count_bucket, sizes)
        draft = layouts.draft_layout(counts, job.options.policy, estimate)
        placed = [layouts.place_bucket(bucket, draft) for bucket in sizes]
        self.layout: Layout = layouts.lay_out(draft, placed)
        self.bytes_per_shard = layouts.shard_bytes(sizes, self.layout)
        self.known_bytes = sum(
            int(each.sum()) for found in sizes for each in found.by_split.values()
        )
        self.vocabularies: Vocabularies = references.vocabularies
        self.rejects: HeldRejects = references.rejects
        self.near_duplicates = references.near_duplicates
        self.seen = references.seen
        self.rejects.pack()

    def _sort(
        self, pieces: dict[int, HeldBatches], rejects: HeldRejects, *, with_plans: bool
    ) -> Iterator[layouts.BucketSizes]:
        """Sort each bucket, keep it for `plans` if asked, and yield the sizes of its records."""
        for bucket in sorted(pieces):
            columns = () if with_plans else _SIZE_COLUMNS
            ordered, again = packing.sort_bucket(list(pieces.pop(bucket).take()), columns)
            rejects.add(again)
            if with_plans:
                self._buckets.append(bucket)
                self._ordered.add(ordered)
            yield layouts.size_bucket(bucket, ordered)

    def plans(self) -> Iterator[ShardPlan]:
        """Yield all shards. Of a split only one shard at a time is incomplete."""
        pending: dict[tuple[str, int], list[tuple[int, pa.RecordBatch]]] = defaultdict(list)
        ends = {split: cuts.starts[1:] for split, cuts in self.layout.cuts.items()}
        for bucket, ordered in zip(self._buckets, self._ordered.read(), strict=True):
            for shard, (start, rows) in packing.cut_bucket(bucket, ordered, self.layout):
                pending[shard].append((start, rows))
                split, index = shard
                if start + rows.num_rows == ends[split][index]:
                    yield self._plan(split, index, packing.assemble(pending.pop(shard)))

    def states(self, root: Folder, *, unpublished: bool) -> Iterator[ShardState]:
        """Yield the states of all shards in a folder; `unpublished` as in `find_finished`.

        Raises:
            StorageError: The folder cannot be read.
        """

        def look(plan: ShardPlan) -> ShardState:
            finished = find_finished(root, plan, unpublished=unpublished)
            return ShardState(plan.name.shard, plan.digest, finished)

        return (
            map_reads(look, self.plans(), _LOOKUPS) if root.is_remote else map(look, self.plans())
        )

    def clear(self, digests: Sequence[tuple[str, str]]) -> Clearance:
        """Check the plan against OUTPUT, record it there and permit writing.

        Args:
            digests: As in `judge`.

        Raises:
            BuildError: OUTPUT holds another build, or there are too many rejects.
        """
        verdict = judge(
            digests,
            request=self._job.output_request,
            layout=self.layout,
            vocabularies=self.vocabularies,
            tally=self.rejects.tally,
            limits=self._job.options.limits,
            seen=self.seen,
            append=self._job.append,
        )
        return clear_here(verdict, self.rejects.packed, self.near_duplicates)

    def _plan(self, split: str, index: int, references: pa.RecordBatch) -> ShardPlan:
        name = ShardName(self._job.options.name, split, index, self.layout.cuts[split].num_shards)
        return ShardPlan.make(name, references, self._job.digest_settings)


def _spread(
    batches: Iterable[pa.RecordBatch], seed: int, num_buckets: int
) -> dict[int, HeldBatches]:
    """Return the pieces of each bucket."""
    file, plain_bytes = BatchFile(), PLAIN_BYTES // num_buckets
    pieces: dict[int, HeldBatches] = defaultdict(lambda: HeldBatches(plain_bytes, file))
    for batch in batches:
        for bucket, rows in packing.spread(batch, seed, num_buckets):
            pieces[bucket].add(rows)
    return pieces


def _narrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that decide order and counts."""
    sizes = packing.known_sizes(batch)
    return set_column(batch.select(_COUNTED_COLUMNS), KNOWN_BYTES, sizes)
