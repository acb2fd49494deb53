"""Plan and build a dataset in this process, or publish a finished one, without Beam.

The functions are those of the steps of the graph, so both make the same plan and write the same
bytes. Importing Beam, and making and starting its graph, takes longer than writing thousands of
photographs. Builds of the command line run on Beam, on any runner.

A plan predicts what the build would do with the state of OUTPUT. Digests need all columns of the
references in order, so they are computed only if OUTPUT holds a build to compare with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

from shardwright.errors import BuildError, ShardwrightError, TooManyRejectsError
from shardwright.format import naming
from shardwright.format.index import ShardSummary, read_summary
from shardwright.format.json_files import read_json
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.plan_file import OutputFile
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.references import Buckets, HeldBatches, LocalReferences
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.pipelines.runners.processes import no_collections, reporting_death
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.output_state import (
    Clearance,
    check_fingerprint,
    check_output,
    fingerprint_of,
    is_earlier_try,
)
from shardwright.transforms.plan import packing
from shardwright.transforms.plan.packing import KNOWN_BYTES, Layout, ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.publish.publication import publish
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.references import set_column
from shardwright.transforms.reject_files import unpack_rejects, with_examples
from shardwright.transforms.reject_limits import check_rejects
from shardwright.transforms.write.clearance import clear_here, judge
from shardwright.transforms.write.shard_writing import ShardsInTurn, find_finished
from shardwright.transforms.write.write_job import WriteJob

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


class LocalShards(LocalReferences):
    """The references of a job with their layout, the shards' sizes by split, and the shards.

    Args:
        job: The build to plan.
        with_plans: Keep what `plans` needs. Otherwise only columns that decide the layout are
            sorted, and there are no plans.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """

    @no_collections()  # they would take a fifth of the time
    def __init__(self, job: BuildJob, *, with_plans: bool) -> None:
        super().__init__(job)
        batches: Iterable[pa.RecordBatch] = self.batches()
        estimate = None
        if job.options.samples_sizes:
            # Read twice: for the estimate, which decides the layout, and for the layout.
            batches = list(batches)
            estimate = self.estimate(batches)
        self._buckets: list[int] = []
        self._ordered = HeldBatches()
        # Without plans a few columns are sorted, for which the fewest buckets do.
        num_bytes = self.num_bytes if with_plans else 0
        num_buckets = max(_MIN_BUCKETS, 1 << (num_bytes // _BUCKET_BYTES).bit_length())
        if not with_plans:
            batches = (
                set_column(batch.select(_COUNTED_COLUMNS), KNOWN_BYTES, packing.known_sizes(batch))
                for batch in batches
            )
        pieces = Buckets(num_buckets)
        for batch in batches:
            pieces.add(packing.spread(batch, job.options.seed, num_buckets))
        sizes = list(self._sort(pieces, with_plans=with_plans))
        counts = map(packing.count_bucket, sizes)
        draft = packing.draft_layout(counts, job.options.policy, estimate)
        placed = [packing.place_bucket(bucket, draft) for bucket in sizes]
        self.layout: Layout = packing.lay_out(draft, placed)
        self.bytes_per_shard = packing.shard_bytes(sizes, self.layout)
        self.rejects.pack()

    def _sort(self, pieces: Buckets, *, with_plans: bool) -> Iterator[packing.BucketSizes]:
        """Sort each bucket, keep it for `plans` if asked, and yield the sizes of its records."""
        # In the order of the buckets, which is that of the keys: together they are one sorted list.
        for bucket in sorted(pieces):
            columns = () if with_plans else _SIZE_COLUMNS
            # Not held by a name, so that a bucket is in memory once, either unsorted or sorted.
            ordered, again = packing.sort_bucket(pieces.take(bucket), columns)
            self.rejects.add(again)
            if with_plans:
                self._buckets.append(bucket)
                self._ordered.add(ordered)
            yield packing.size_bucket(bucket, ordered)

    def plans(self) -> Iterator[ShardPlan]:
        """Yield all shards. Of a split only one shard at a time is incomplete."""
        pending: dict[tuple[str, int], list[tuple[int, pa.RecordBatch]]] = defaultdict(list)
        ends = {split: cuts.starts[1:] for split, cuts in self.layout.cuts.items()}
        for bucket, ordered in zip(self._buckets, self._ordered.read(), strict=True):
            for shard, (start, rows) in packing.cut_bucket(bucket, ordered, self.layout):
                pending[shard].append((start, rows))
                split, index = shard
                # Buckets come in order, so the piece that reaches the shard's end is its last.
                if start + rows.num_rows == ends[split][index]:
                    name = ShardName(self._job.options.name, split, index, len(ends[split]))
                    references = packing.assemble(pending.pop(shard))
                    yield ShardPlan.make(name, references, self._job.digest_settings)

    def states(self, root: Folder, *, unpublished: bool) -> Iterator[ShardState]:
        """Yield the states of all shards in a folder; `unpublished` as in `find_finished`.

        Raises:
            StorageError: The folder cannot be read.
        """

        def look(plan: ShardPlan) -> ShardState:
            finished = find_finished(root, plan, unpublished=unpublished)
            return ShardState(plan.name.shard, plan.digest, finished)

        return (
            # On a disk there is no latency to hide.
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
            checks=self._job.plan_checks,
        )
        return clear_here(verdict, self.rejects.packed, self.near_duplicates)


class BuildState(StrEnum):
    """The action that a build would take."""

    NEW = "new"  # OUTPUT holds no build
    RESUME = "resume"  # resume an unfinished build
    RESTART = "restart"  # start over: Beam's stock writer cannot resume
    UP_TO_DATE = "up_to_date"  # nothing to do
    OVERWRITE = "overwrite"  # replace the dataset, with --if-exists overwrite
    REFUSED = "refused"  # fail: OUTPUT holds another build
    FAILED = "failed"  # fail: no images, an incomplete input, or too many rejects


class LocalPlan(NamedTuple):
    """A plan, compared with OUTPUT.

    Attributes:
        shards: The shards, class names and rejects so far; images have not been checked yet.
        fingerprint: Hash of the whole plan, or None if there is nothing to compare it with.
        shards_done: Number of finished shards that a build would keep.
        state: Action that a build would take.
        reason: Why a build would fail, or "".
    """

    shards: LocalShards
    fingerprint: str | None
    shards_done: int
    state: BuildState = BuildState.NEW
    reason: str = ""


def plan_locally(job: BuildJob) -> LocalPlan:
    """Plan a build on this machine, whatever its own runner. Nothing is written to OUTPUT.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    refusal = ""
    try:
        manifest, plan = check_output(job.output_request)
    except ShardwrightError as error:
        # The plan is still made: its user wants to see the shards, too.
        manifest, plan, refusal = None, None, str(error)
    replaces = job.options.if_exists == "overwrite" and manifest is not None
    place = job.options.root.below(naming.NEXT_DIR if replaces else "")
    if replaces:  # an earlier try may have left shards beside the dataset
        plan = read_json(place, naming.PLAN, OutputFile)
    compare = (plan if replaces else manifest or plan) is not None
    shards = LocalShards(job, with_plans=compare)
    states = list(shards.states(place, unpublished=manifest is None or replaces))
    planned = LocalPlan(
        shards,
        fingerprint_of(state[:2] for state in states) if compare else None,
        sum(state.finished is not None for state in states),
    )
    if refusal:
        return planned._replace(state=BuildState.REFUSED, reason=refusal)
    try:
        # In the order of a build, so that both name the same reason.
        tally = shards.rejects.tally
        tally.check_complete(shards.vocabularies)
        check_rejects(tally.reasons, shards.layout.num_records, job.options.limits)
    except BuildError as error:
        if isinstance(error, TooManyRejectsError):  # a build lists them in files
            error = with_examples(str(error), map(unpack_rejects, shards.rejects.packed))
        return planned._replace(state=BuildState.FAILED, reason=str(error))
    return _judge(job, planned, manifest, plan)


def _judge(
    job: BuildJob,
    planned: LocalPlan,
    manifest: OutputFile | None,
    plan: OutputFile | None,
) -> LocalPlan:
    """Return the plan with its state; the checks are in the same order as in a build."""
    options = job.options
    if manifest is None and plan is None:
        return planned
    resumes = options.writer == "planned" and is_earlier_try(
        job.output_request, plan, planned.fingerprint or ""
    )
    if options.if_exists == "overwrite" and (manifest is not None or not resumes):
        done = planned.shards_done if resumes else 0
        return planned._replace(state=BuildState.OVERWRITE, shards_done=done)
    if manifest is not None:
        try:
            check_fingerprint(job.output_request, manifest, planned.fingerprint or "")
        except BuildError as error:
            return planned._replace(state=BuildState.REFUSED, reason=str(error))
        if options.writer == "beam":
            # Those that exist in full length, whatever their digest.
            published = read_manifest(options.root)
            folder = options.root.below(published.folder)
            in_place = sum(
                summary.num_bytes == folder.num_bytes_of(name.shard)
                for name, _ in published.named_shards()
                if (summary := read_summary(folder, name)) is not None
            )
            planned = planned._replace(shards_done=in_place)
        if planned.shards_done == planned.shards.layout.num_shards:
            return planned._replace(state=BuildState.UP_TO_DATE)
    if options.writer == "beam":
        return planned._replace(state=BuildState.RESTART, shards_done=0)
    return planned._replace(state=BuildState.RESUME)


def build_here(job: BuildJob, planned: LocalShards | None = None) -> None:
    """Build the dataset of a job.

    Args:
        job: The build.
        planned: Its shards with plans, if INPUT is listed already.

    Raises:
        ShardwrightError: There are too many rejects, or OUTPUT cannot be written.
    """
    with reporting_death():
        shards = planned or LocalShards(job, with_plans=True)
        # The plans are made twice, here for their digests alone: held together they would fill the
        # memory.
        clearance = shards.clear([(plan.name.shard, plan.digest) for plan in shards.plans()])
        written = WrittenShards(_write_all(shards.plans(), job.write_job.cleared(clearance)))
        publish(written, job.publication, shards.layout, clearance, shards.seen)


def _write_all(plans: Iterable[ShardPlan], job: WriteJob) -> Iterator[ShardSummary]:
    """Write all shards that are not finished yet, and yield the summaries of all."""
    with ThreadPoolExecutor(1, thread_name_prefix="shardwright-finish") as thread:
        shards = ShardsInTurn(thread)
        for plan in plans:
            finished = find_finished(job.root, plan, unpublished=job.unpublished)
            if finished is None:
                for summary, _ in shards.write(plan, job):
                    PROGRESS.add(shards=1)
                    yield summary
            else:
                PROGRESS.add_reused(images=plan.references.num_rows, shards=1)
                yield finished
        for summary, _ in shards.finish():
            PROGRESS.add(shards=1)
            yield summary


def publish_finished(job: BuildJob) -> bool:
    """Publish a finished dataset whose shards are all in place; return False if there is none.

    Its INPUT is planned in this process, so a build on other machines leaves that to its runner.

    Raises:
        ShardwrightError: As in the build: INPUT has changed, or there are too many rejects.
    """
    options = job.options
    if (
        not is_local(options.beam_args)
        or options.if_exists != "resume"
        or options.root.num_bytes_of(naming.MANIFEST) is None
    ):
        return False
    # If a shard is missing, the graph plans anyway. Two listings show that, where planning takes as
    # long as listing INPUT.
    shown = options.root.names(naming.INDEX_DIR)
    there = {*options.root.names(), *(f"{naming.INDEX_DIR}/{name}" for name in shown)}
    for shard, _ in read_manifest(options.root).named_shards():
        if shard.shard not in there or shard.sidecar not in there:
            return False
    shards = LocalShards(job, with_plans=True)
    digests, finished, all_finished = [], WrittenShards(), True
    for state in shards.states(options.root, unpublished=False):
        digests.append(state[:2])
        if state.finished is None:
            all_finished = False
        else:
            finished.add(state.finished)
    clearance = shards.clear(digests)
    if not all_finished:
        return False
    PROGRESS.add_reused(images=shards.layout.num_records, shards=shards.layout.num_shards)
    publish(finished, job.publication, shards.layout, clearance)
    return True
