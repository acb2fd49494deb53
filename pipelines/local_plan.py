"""Plan a build on this machine, and predict what the build would do with the state of OUTPUT.

Digests need a second shuffle of all references, so they are computed only if OUTPUT holds a build
to compare with.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from pipelines.beam_running import run_pipeline
from pipelines.graphs import plan_graph, reference_graph, size_estimate
from pipelines.job import BuildJob
from pipelines.runners import is_local
from shardwright.errors import BuildError, ShardwrightError
from shardwright.format import naming
from shardwright.format.index import read_summary
from shardwright.format.manifest import read_json, read_manifest
from shardwright.format.naming import ShardName
from shardwright.storage import Folder
from transforms.output_state import (
    check_fingerprint,
    check_output,
    check_rejects,
    fingerprint_of,
    is_earlier_try,
)
from transforms.plan.packing import KNOWN_BYTES, Layout, ShardCuts, known_sizes
from transforms.plan.plan_shards import LayOutShards
from transforms.plan.shard_plans import ShardPlan
from transforms.plan.size_estimate import SizeEstimate
from transforms.references import set_column
from transforms.rejects import Reject
from transforms.write.shard_writing import find_finished

_COUNTED_COLUMNS = ["id", "uri", "row", "split"]


class BuildState(StrEnum):
    """The action that a build would take."""

    NEW = "new"  # OUTPUT holds no build
    RESUME = "resume"  # resume an unfinished build
    RESTART = "restart"  # start over: Beam's stock writer cannot resume
    UP_TO_DATE = "up_to_date"  # nothing to do
    OVERWRITE = "overwrite"  # replace the dataset, with --if-exists overwrite
    REFUSED = "refused"  # fail: OUTPUT holds another build
    FAILED = "failed"  # fail: no images, or too many rejects


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """A plan, compared with OUTPUT.

    Attributes:
        layout: The shards of each split, without `first_positions`.
        vocabularies: Feature name -> class names or words, in index order.
        rejects: Number of rejects so far, by reason; images have not been checked yet.
        fingerprint: Hash of the whole plan, or None if there is nothing to compare it with.
        shards_done: Number of finished shards that a build would keep.
        state: Action that a build would take.
        reason: Why a build would fail, or "".
    """

    layout: Layout
    vocabularies: Mapping[str, tuple[str, ...]]
    rejects: Mapping[str, int]
    fingerprint: str | None
    shards_done: int
    state: BuildState
    reason: str = ""


def plan_locally(job: BuildJob) -> LocalPlan:
    """Plan a build on this machine, whatever its own runner. Nothing is written to OUTPUT.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    refusal = _refusal(job)
    manifest, plan = (None, None) if refusal else _read_output(job.options.root)
    replaces = job.options.if_exists == "overwrite" and manifest is not None
    compare = not replaces and (manifest or plan) is not None
    found = _run(job, with_digests=compare, retry=manifest is None)
    cuts = {split: ShardCuts(**values) for split, values in found["cuts"].items()}
    planned = LocalPlan(
        layout=Layout(
            cuts,
            found["num_bytes"],
            {},
            SizeEstimate.from_json(found["estimate"]) if found["estimate"] else None,
        ),
        vocabularies={name: tuple(words) for name, words in found["vocabularies"].items()},
        rejects=dict(found["rejects"]),
        fingerprint=found["fingerprint"],
        shards_done=found["shards_done"],
        state=BuildState.NEW,
    )
    if refusal:
        return replace(planned, state=BuildState.REFUSED, reason=refusal)
    return _judge(job, planned, manifest, plan)


def _refusal(job: BuildJob) -> str:
    try:
        check_output(job.output_request)
    except ShardwrightError as error:
        return str(error)
    return ""


def _read_output(root: Folder) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return read_json(root, naming.MANIFEST), read_json(root, naming.PLAN)


def _judge(
    job: BuildJob,
    planned: LocalPlan,
    manifest: Mapping[str, Any] | None,
    plan: Mapping[str, Any] | None,
) -> LocalPlan:
    """Return the plan with its state; the checks are in the same order as in a build."""
    options = job.options
    try:
        check_rejects(planned.rejects, planned.layout.num_records, options.max_reject_fraction)
    except BuildError as error:
        return replace(planned, state=BuildState.FAILED, reason=str(error))
    if manifest is None and plan is None:
        return planned
    if options.if_exists == "overwrite" and (
        manifest is not None or not _is_earlier_try(job, plan, planned)
    ):
        return replace(planned, state=BuildState.OVERWRITE, shards_done=0)
    if manifest is not None:
        try:
            check_fingerprint(job.output_request, manifest, planned.fingerprint or "")
        except BuildError as error:
            return replace(planned, state=BuildState.REFUSED, reason=str(error))
        if options.writer == "beam":
            planned = replace(planned, shards_done=_count_in_place(options.root))
        if planned.shards_done == planned.layout.num_shards:
            return replace(planned, state=BuildState.UP_TO_DATE)
    if options.writer == "beam":
        return replace(planned, state=BuildState.RESTART, shards_done=0)
    return replace(planned, state=BuildState.RESUME)


def _is_earlier_try(job: BuildJob, plan: Mapping[str, Any] | None, planned: LocalPlan) -> bool:
    return job.options.writer == "planned" and is_earlier_try(
        job.output_request, plan, planned.fingerprint or ""
    )


def _count_in_place(root: Folder) -> int:
    """Count the shards of a finished dataset that exist in full length, whatever their digest."""
    manifest = read_manifest(root)
    return sum(
        _is_in_place(root, name)
        for split in manifest.splits
        for name in manifest.shard_names(split)
    )


def _is_in_place(root: Folder, name: ShardName) -> bool:
    summary = read_summary(root, name)
    return summary is not None and root.num_bytes_of(name.shard) == summary.num_bytes


def _run(job: BuildJob, *, with_digests: bool, retry: bool) -> dict[str, Any]:
    local = (
        job
        if is_local(job.options.beam_args)
        else replace(job, options=replace(job.options, beam_args=()))
    )
    with tempfile.TemporaryDirectory(prefix="shardwright-plan-") as folder:
        place = Folder(folder)
        run_pipeline(
            functools.partial(_graph, place=place, with_digests=with_digests, retry=retry), local
        )
        found: dict[str, Any] = json.loads(place.read_bytes(naming.PLAN))
    return found


def _graph(
    pipeline: beam.Pipeline, job: BuildJob, *, place: Folder, with_digests: bool, retry: bool
) -> None:
    if with_digests:
        plan = plan_graph(pipeline, job)
        layout, vocabularies, rejects = plan.layout, plan.vocabularies, plan.rejects
        find = beam.Map(_state_of, job.options.root, retry=retry)
        states = plan.shards | "States" >> find  # (shard name, digest, finished)
    else:
        listed = reference_graph(pipeline, job)
        lay_out = LayOutShards(
            policy=job.options.policy,
            seed=job.options.seed,
            num_buckets=job.num_buckets,
            estimate=size_estimate(listed, job),
        )
        narrow = beam.Map(_narrow).with_output_types(pa.RecordBatch)
        laid_out = listed.references | "Narrow" >> narrow | "LayOutShards" >> lay_out
        layout, vocabularies = laid_out.layout, listed.vocabularies
        rejects = (listed.rejects, laid_out.rejects) | "PlanRejects" >> beam.Flatten()
        states = pipeline | "NoStates" >> beam.Create([])
    reasons = (
        rejects
        | "Reason" >> beam.Map(_reason).with_output_types(str)
        | "CountReasons" >> beam.combiners.Count.PerElement()  # (reason, number)
    )
    _ = layout | "Write" >> beam.Map(
        _write,
        place,
        vocabularies=AsSingleton(vocabularies),
        reasons=AsList(reasons),
        states=AsList(states),
        with_digests=with_digests,
    )


def _narrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that decide order and counts: nothing else has to be shuffled."""
    return set_column(batch.select(_COUNTED_COLUMNS), KNOWN_BYTES, known_sizes(batch))


def _reason(reject: Reject) -> str:
    return str(reject.reason)


def _state_of(plan: ShardPlan, root: Folder, *, retry: bool) -> tuple[str, str, bool]:
    return plan.name.shard, plan.digest, find_finished(root, plan, retry=retry) is not None


def _write(
    layout: Layout,
    place: Folder,
    *,
    vocabularies: Mapping[str, tuple[str, ...]],
    reasons: Sequence[tuple[str, int]],
    states: Sequence[tuple[str, str, bool]],
    with_digests: bool,
) -> None:
    found = {
        "cuts": {split: asdict(cuts) for split, cuts in layout.cuts.items()},
        "num_bytes": dict(layout.num_bytes),
        "estimate": layout.estimate and layout.estimate.to_json(),
        "vocabularies": vocabularies,
        "rejects": sorted(reasons),
        "fingerprint": fingerprint_of(state[:2] for state in states) if with_digests else None,
        "shards_done": sum(finished for _, _, finished in states),
    }
    place.write_bytes(naming.PLAN, json.dumps(found).encode())
