"""List the references of a build in this process, without Beam.

The steps, their order and functions are those of `reference_graph` (job/graph.py), so both give
the same references. Importing Beam takes longer than a small plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa

from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.options.build import BuildOptions
from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.changes.seen_records import (
    mark_rows,
    no_rows,
    take_changed,
)
from shardwright.transforms.duplicates import contents
from shardwright.transforms.features.rows import FeatureHashes, index_references
from shardwright.transforms.features.vocabularies import (
    Counts,
    Vocabularies,
    add_counts,
    count_values,
    order_vocabularies,
)
from shardwright.transforms.inputs.formats.tables import TableSource, list_table
from shardwright.transforms.labels.label_table import LabelRules, join_bucket, spread
from shardwright.transforms.near_duplicates.groups import (
    PHASH,
    HashGroups,
    choose_keepers,
    hash_batch,
    leave_out_copies,
    listed_rows,
)
from shardwright.transforms.output_state import SeenRecords
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.plan.packing import SizeEstimate
from shardwright.transforms.plan.sizing import ReferenceSample, estimate_sizes
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.references import BATCH_ROWS, concat
from shardwright.transforms.reject_files import pack_rejects
from shardwright.transforms.reject_tally import RejectTally
from shardwright.transforms.rejects import Reject, rejects_to_table
from shardwright.transforms.row_keys import leave_out, sorted_keys
from shardwright.transforms.splits import split_lists
from shardwright.transforms.splits.split_rules import assign_splits

# About a million references; more are in a temporary file.
PLAIN_BYTES = 256 << 20


class HeldBatches:
    """Batches in memory, and those after the first `PLAIN_BYTES` in a temporary file.

    Args:
        file: The file, which several may share; by default one of its own.
        share: The part of `PLAIN_BYTES` that these batches may take, as one of so many.

    Attributes:
        num_bytes: The bytes of all batches that were added.
    """

    def __init__(self, file: BatchFile | None = None, share: int = 1) -> None:
        self.num_bytes = 0
        self._plain_bytes = PLAIN_BYTES // share
        self._file = file or BatchFile()
        self._held: list[pa.RecordBatch | Place] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold a batch; raise BuildError if the disk is full."""
        self.num_bytes += batch.nbytes
        is_plain = self.num_bytes <= self._plain_bytes
        self._held.append(batch if is_plain else self._file.add(batch))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order."""
        yield from map(self._batch_of, self._held)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order, once; each is let go when the next one is taken."""
        # `pop` from the end takes constant time, and drops the only reference to the batch.
        self._held.reverse()
        while self._held:
            yield self._batch_of(self._held.pop())

    def _batch_of(self, held: pa.RecordBatch | Place) -> pa.RecordBatch:
        return self._file.read(held) if isinstance(held, Place) else held


class Buckets(defaultdict[int, HeldBatches]):
    """Batches by the number of their bucket, of which there may be `num_buckets`."""

    def __init__(self, num_buckets: int) -> None:
        # One file for all buckets, whatever their number: a process may open few.
        file = BatchFile()
        super().__init__(lambda: HeldBatches(file, num_buckets))

    def add(self, pieces: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Hold each batch in its bucket; raise BuildError if the disk is full."""
        for bucket, piece in pieces:
            self[bucket].add(piece)

    def take(self, bucket: int) -> list[pa.RecordBatch]:
        """Return the batches of a bucket, once, in order."""
        return [*self[bucket].take()]


class HeldRejects:
    """Rejects in memory, packed and counted.

    Args:
        partial: The incomplete files and folders of INPUT that the build accepts.

    Attributes:
        tally: The facts about them that decide on the build.
        packed: All of them, once `pack` was called.
    """

    def __init__(self, partial: PartialInputs) -> None:
        self.tally = RejectTally(partial)
        self._few: list[Reject] = []
        self.packed: list[bytes] = []

    def add(self, rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            self._few.append(reject)
            if len(self._few) == BATCH_ROWS:
                self.pack()

    def pack(self) -> None:
        """Count and pack the latest rejects; to be called after the last."""
        if self._few:
            rows = rejects_to_table(self._few)
            self.tally.add(rows)
            self.packed.append(pack_rejects(rows))
            self._few = []


_Batches = Iterable[pa.RecordBatch]
_T = TypeVar("_T")


class LocalReferences:
    """The references of a job with final features, and what is known about all of them.

    Args:
        job: The build to list.

    Attributes:
        vocabularies: Class names and words by feature name.
        rejects: Rejects so far; complete once `batches` has ended.

    Raises:
        ShardwrightError: INPUT cannot be listed, or has too few records for its splits.
    """

    def __init__(self, job: BuildJob) -> None:
        self._job = job
        self.rejects = HeldRejects(job.output_request.partial)
        # The parts of the list of near-duplicates: (number, rows).
        self.near_duplicates: list[tuple[int, pa.RecordBatch]] = []
        known = job.known_file
        self._changes = None if known is None else LocalChanges(known, job.feature_hashes)
        self._settled = HeldBatches()
        self.vocabularies: Vocabularies = order_vocabularies(
            # This lists all of INPUT: the number of a name follows from the names of all
            # references.
            add_counts(self._settle()),
            job.schema,
            **job.vocabulary_rules,
        )

    @property
    def seen(self) -> SeenRecords | None:
        """The records of the dataset that the build adds to, as far as INPUT has them."""
        return None if self._changes is None else self._changes.seen

    @property
    def num_bytes(self) -> int:
        """The bytes of all references."""
        return self._settled.num_bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the references, once."""
        # Let go one by one: what follows holds the references again.
        for settled in self._settled.take():
            yield from self._keep(index_references(settled, self._job.schema, self.vocabularies))

    def _settle(self) -> Iterator[Counts]:
        """List and settle all references, and yield what is to be learned from each batch."""
        for listed in self._listed():
            for batch in self._keep(self._job.feature_hashes.settle(listed)):
                self._settled.add(batch)
                yield count_values(batch, self._job.schema)

    def estimate(self, batches: _Batches) -> SizeEstimate | None:
        """Estimate the sizes of re-encoded images, if the job needs that."""
        job = self._job
        seed = job.options.seed
        sample = ReferenceSample.merged(ReferenceSample.of(batch, seed) for batch in batches)
        return estimate_sizes(sample, job.write_job, job.digest_settings, self.vocabularies)

    def _keep(self, results: Iterable[_T | Reject]) -> Iterator[_T]:
        """Yield results, and add rejects to `rejects`."""
        for result in results:
            if isinstance(result, Reject):
                self.rejects.add([result])
            else:
                yield result

    def _listed(self) -> Iterator[pa.RecordBatch]:
        """Yield references with a split; of a dataset's own records only those that changed."""
        if self._changes is None:
            yield from self._split(self._distinct())
            return
        lists, given = self._job.split_lists, self._job.splits_given
        ids = split_lists.read_lists(lists) if lists else None
        stated = (
            split_lists.stated_splits(each, ids, given=given, grouped=self._job.group_rule)
            for each in self._distinct()
        )
        # Exhausted first: only then does `changed` know which ids are unchanged.
        yield from self._split(self._changes.new_of(stated))
        changed = self._keep(self._changes.changed())
        # If INPUT states no splits, a changed record keeps the split that it has in the dataset.
        yield from self._split(changed) if given else changed

    def _distinct(self) -> Iterator[pa.RecordBatch]:
        """Yield references without duplicates that are to be left out."""
        options = self._job.options
        source = self._job.source
        listed = (PROGRESS.count_listed(source.list_part(part)) for part in source.parts())
        batches = self._keep(chain.from_iterable(listed))
        if self._job.label_table is not None:
            batches = self._join_labels(batches, self._job.label_table)
        # Before near-duplicates: equal images would be groups there, and would be decoded for
        # nothing.
        if options.duplicates != "keep":
            batches = self._drop_duplicates(list(batches), options)
        if options.near.is_on:
            batches = self._leave_out_near_duplicates(batches, options)
        return batches

    def _split(self, batches: _Batches) -> Iterator[pa.RecordBatch]:
        lists = self._job.split_lists
        if lists is None:
            yield from self._draw_splits(batches)
            return
        # All of them, because an id of the lists that no reference has is known only at the end.
        ids = split_lists.read_lists(lists)
        marked = [split_lists.stated_splits(batch, ids) for batch in batches]
        listed, others = (
            [rows for batch in marked for rows in split_lists.take_listed(batch, listed=is_listed)]
            for is_listed in (True, False)
        )
        used = set(chain.from_iterable(map(split_lists.ids_of, listed)))
        self.rejects.add(split_lists.reject_unused(used, ids, self._job.known_file))
        yield from listed
        if self._job.split_rule is not None:
            yield from self._draw_splits(others)
            return
        for batch in others:
            yield from self._keep(split_lists.reject_others(batch))

    def _join_labels(self, batches: _Batches, table: TableSource) -> Iterator[pa.RecordBatch]:
        rules = LabelRules.of(table.layout)
        # One bucket up to 16 MB, then 16 to 32 MB of the table in each.
        num_buckets = 1 << (table.layout.num_bytes >> 24).bit_length()
        images, rows = Buckets(num_buckets), Buckets(num_buckets)
        for batch in batches:
            images.add(spread(batch, rules.keys_of(batch), num_buckets))
        listed = (row for part in table.parts() for row in list_table(table.layout, part))
        for batch in self._keep(listed):
            rows.add(spread(batch, batch.column("id"), num_buckets))
        # Of both: a bucket without rows still has images without a label, and the reverse.
        for bucket in sorted({*images, *rows}):
            # As one batch, because the rows are hashed again for each batch.
            pieces = images.take(bucket)
            whole = [concat(pieces)] if pieces else []
            yield from self._keep(join_bucket(whole, rows.take(bucket), rules))

    def _drop_duplicates(
        self, batches: Sequence[pa.RecordBatch], options: BuildOptions
    ) -> Iterator[pa.RecordBatch]:
        # Only images of equal length can be equal: no other is read.
        lengths = contents.merge_lengths(map(contents.count_lengths, batches))
        buckets = Buckets(contents.NUM_BUCKETS)
        for batch in batches:
            for candidates in contents.take_candidates(batch, lengths):
                hashed = contents.hash_images(candidates, options.storage, options.threads)
                buckets.add(contents.spread_hashed(hashed))
        found = (
            contents.find_duplicates(buckets.take(number), options.duplicates) for number in buckets
        )
        keys = sorted_keys(self._keep(chain.from_iterable(found)))
        return (kept for batch in batches for kept in leave_out(batch, keys))

    def _leave_out_near_duplicates(
        self, batches: _Batches, options: BuildOptions
    ) -> Iterator[pa.RecordBatch]:
        near, held, hashed = options.near, HeldBatches(), HeldBatches()
        hashes: list[np.ndarray] = []
        for batch in batches:
            held.add(batch)
            rows = hash_batch(batch, self._job.spool, options.storage, options.threads)
            hashes.append(rows.column(PHASH).to_numpy())
            hashed.add(rows)
        groups = HashGroups.find(hashes, near.distance)
        parts = Buckets(groups.num_parts)
        for rows in hashed.take():
            parts.add(groups.rows_in_groups(rows))
        dropped: list[np.ndarray] = []
        # Sorted by the number of a part, so that the list is the same in every run.
        for part in sorted(parts):
            chosen = choose_keepers(parts.take(part), near.distance)
            self.near_duplicates.append((part, listed_rows(chosen)))
            dropped += self._keep(leave_out_copies(chosen, near.policy))
        keys = sorted_keys(dropped)
        return (kept for batch in held.take() for kept in leave_out(batch, keys))

    def _draw_splits(self, batches: _Batches) -> Iterator[pa.RecordBatch]:
        rule, draw, given = self._job.split_rule, self._job.split_draw, self._job.splits_given
        if draw is None:
            for batch in batches:
                yield from self._keep(assign_splits(batch, rule, given=given))
            return
        held = list(batches)
        drawn = draw.decide(map(draw.hashes_of, held))
        yield from map(drawn.split, held)


class LocalChanges:
    """The differences between a listing and the records of a dataset.

    Args:
        file: The file of the records.
        features: The rule for the hashes of features.

    Attributes:
        seen: The records that the listing has; complete once `changed` has ended.
    """

    def __init__(self, file: KnownFile, features: FeatureHashes) -> None:
        self._known, self._features = file.open(), features
        self._held = HeldBatches()
        self.seen = SeenRecords(no_rows(file.num_rows), no_rows(file.num_rows))

    def new_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the references whose ids the dataset does not have; splits as in `FindChanges`."""
        for batch in batches:
            compared = self._known.compare(batch, self._features)
            mark_rows(self.seen.unchanged, compared.unchanged_rows)
            if compared.changed.num_rows:
                self._held.add(compared.changed)
            if compared.new.num_rows:
                yield compared.new

    def changed(self) -> Iterator[pa.RecordBatch | Reject]:
        """Yield changed references and rejects, after `new_of` has ended."""
        for batch in self._held.take():
            for taken in take_changed(batch, self._known, self.seen.unchanged):
                if not isinstance(taken, Reject):
                    rows = self._known.rows_at(self._known.find(taken.column("id")))
                    # Marked only if taken: a reject leaves the dataset's own record as it is.
                    mark_rows(self.seen.changed, rows)
                yield taken
