"""Plan a build on this machine, and predict what the build would do with the state of OUTPUT.

Digests need all columns of the references in order, so they are computed only if OUTPUT holds a
build to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from shardwright.errors import BuildError, ShardwrightError, TooManyRejectsError
from shardwright.format import naming
from shardwright.format.index import read_summary
from shardwright.format.json_files import read_json
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.plan_file import OutputFile
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.even_sample import EvenSample
from shardwright.pipelines.local.shards import LocalShards
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import (
    check_fingerprint,
    check_output,
    fingerprint_of,
    is_earlier_try,
)
from shardwright.transforms.plan.packing import Layout
from shardwright.transforms.reject_files import unpack_rejects, with_examples
from shardwright.transforms.reject_limits import check_rejects


class BuildState(StrEnum):
    """The action that a build would take."""

    NEW = "new"  # OUTPUT holds no build
    RESUME = "resume"  # resume an unfinished build
    RESTART = "restart"  # start over: Beam's stock writer cannot resume
    UP_TO_DATE = "up_to_date"  # nothing to do
    OVERWRITE = "overwrite"  # replace the dataset, with --if-exists overwrite
    REFUSED = "refused"  # fail: OUTPUT holds another build
    FAILED = "failed"  # fail: no images, an incomplete input, or too many rejects


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """A plan, compared with OUTPUT.

    Attributes:
        layout: The shards of each split.
        bytes_per_shard: Bytes of each shard by split, estimated as in the layout.
        vocabularies: Feature name -> class names or words, in index order.
        rejects: Number of rejects so far, by reason; images have not been checked yet.
        fingerprint: Hash of the whole plan, or None if there is nothing to compare it with.
        shards_done: Number of finished shards that a build would keep.
        state: Action that a build would take.
        reason: Why a build would fail, or "".
        known_bytes: Bytes of all images and features, as they are read.
    """

    layout: Layout
    bytes_per_shard: Mapping[str, Sequence[int]]
    vocabularies: Mapping[str, tuple[str, ...]]
    rejects: Mapping[str, int]
    fingerprint: str | None
    shards_done: int
    state: BuildState
    reason: str = ""
    known_bytes: int = 0


def plan_locally(job: BuildJob, sample: EvenSample | None = None) -> LocalPlan:
    """Plan a build on this machine, whatever its own runner. Nothing is written to OUTPUT.

    Args:
        job: The build to plan.
        sample: Is shown all references.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    refusal = _refusal(job)
    manifest, plan = (None, None) if refusal else _read_output(job.options.root)
    replaces = job.options.if_exists == "overwrite" and manifest is not None
    place = job.options.root.below(naming.NEXT_DIR if replaces else "")
    if replaces:  # an earlier try may have left shards beside the dataset
        plan = read_json(place, naming.PLAN, OutputFile)
    compare = (plan if replaces else manifest or plan) is not None
    shards = LocalShards(job, with_plans=compare, sample=sample)
    states = list(shards.states(place, unpublished=manifest is None or replaces))
    planned = LocalPlan(
        layout=shards.layout,
        bytes_per_shard=shards.bytes_per_shard,
        vocabularies=shards.vocabularies,
        rejects=shards.rejects.tally.reasons,
        fingerprint=fingerprint_of(state[:2] for state in states) if compare else None,
        shards_done=sum(state.finished is not None for state in states),
        state=BuildState.NEW,
        known_bytes=shards.known_bytes,
    )
    if refusal:
        return replace(planned, state=BuildState.REFUSED, reason=refusal)
    try:
        shards.rejects.tally.check_complete(planned.vocabularies)
        check_rejects(planned.rejects, planned.layout.num_records, job.options.limits)
    except TooManyRejectsError as error:  # a build lists them in files
        named = with_examples(str(error), map(unpack_rejects, shards.rejects.packed))
        return replace(planned, state=BuildState.FAILED, reason=str(named))
    except BuildError as error:
        return replace(planned, state=BuildState.FAILED, reason=str(error))
    return _judge(job, planned, manifest, plan)


def _refusal(job: BuildJob) -> str:
    try:
        check_output(job.output_request)
    except ShardwrightError as error:
        return str(error)
    return ""


def _read_output(root: Folder) -> tuple[OutputFile | None, OutputFile | None]:
    manifest = read_json(root, naming.MANIFEST, OutputFile)
    return manifest, read_json(root, naming.PLAN, OutputFile)


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
    resumes = _is_earlier_try(job, plan, planned)
    if options.if_exists == "overwrite" and (manifest is not None or not resumes):
        done = planned.shards_done if resumes else 0
        return replace(planned, state=BuildState.OVERWRITE, shards_done=done)
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


def _is_earlier_try(job: BuildJob, plan: OutputFile | None, planned: LocalPlan) -> bool:
    return job.options.writer == "planned" and is_earlier_try(
        job.output_request, plan, planned.fingerprint or ""
    )


def _count_in_place(root: Folder) -> int:
    """Count the shards of a finished dataset that exist in full length, whatever their digest."""
    manifest = read_manifest(root)
    folder = root.below(manifest.folder)
    return sum(
        _is_in_place(folder, name)
        for split in manifest.splits
        for name in manifest.shard_names(split)
    )


def _is_in_place(root: Folder, name: ShardName) -> bool:
    summary = read_summary(root, name)
    return summary is not None and root.num_bytes_of(name.shard) == summary.num_bytes
