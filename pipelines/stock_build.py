"""`shardwright build --writer beam`: Beam's stock `WriteToTFRecord`, fed with the records of the planned writer.

`WriteToTFRecord` takes its number of shards when the graph is built, so the plan is made on this machine first; the
build plans again on its own runner and stops where that plan is another one. Its limits: `transforms.write_stock`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace

import apache_beam as beam

from pipelines.graphs import plan_graph
from pipelines.job import BuildJob
from pipelines.local_plan import BuildState, plan_locally
from pipelines.running import run_pipeline, say
from shardwright.errors import BuildError, UsageError
from shardwright.storage import is_remote
from transforms.clear_output import ClearOutput
from transforms.planning.packing import Layout, ShardCuts
from transforms.progress import PROGRESS
from transforms.publish import PublishDataset
from transforms.write_stock import WriteWithBeam, remove_leftovers


def run_stock_build(job: BuildJob) -> None:
    """Plan, and write what is not there yet. An unfinished build of this kind starts over.

    Raises:
        UsageError: OUTPUT's path cannot be written by Beam.
        BuildError: As the planned build; or INPUT changed between the two plans.
    """
    root = job.options.root
    _check_root(root.uri)
    planned = plan_locally(job)
    cuts = planned.layout.cuts
    num_shards = planned.layout.num_shards
    if planned.state == BuildState.REFUSED:
        raise BuildError(planned.reason)
    if planned.state == BuildState.UP_TO_DATE:
        PROGRESS.start(total_images=planned.layout.num_records, total_shards=num_shards)
        PROGRESS.add_reused(images=planned.layout.num_records, shards=num_shards)
        return
    if planned.state == BuildState.RESTART:
        say("Beam's WriteToTFRecord cannot go on with an unfinished build: starting over")
    remove_leftovers(root.uri)
    try:
        run_pipeline(functools.partial(stock_graph, planned=cuts), job)
    finally:
        remove_leftovers(root.uri)


def _check_root(root: str) -> None:
    if is_remote(root):
        raise UsageError(
            f"--writer beam writes to local folders only, and OUTPUT is {root}: use --writer planned, which writes to any store"
        )
    found = re.search(r"[*?[]", root)
    if found:
        raise UsageError(
            f"OUTPUT {root} has {found[0]!r} in its path, which Beam's WriteToTFRecord takes for a pattern: "
            "give another OUTPUT, or use --writer planned"
        )


def stock_graph(
    pipeline: beam.Pipeline, job: BuildJob, *, planned: Mapping[str, ShardCuts]
) -> beam.PCollection:
    """The whole build: one Manifest, written last.

    Args:
        planned: How each split was cut when the graph was built.
    """
    plan = plan_graph(pipeline, job)
    layout = plan.layout | "AsPlanned" >> beam.Map(_check_planned, planned)  # one Layout
    clearance = plan.shards | "ClearOutput" >> ClearOutput(
        # Nothing is resumed, and the records of a published shard must not be swapped under its manifest.
        replace(job.output_request, if_exists="overwrite", resumable=False),
        layout=layout,
        vocabularies=plan.vocabularies,
        rejects=plan.rejects,
        max_reject_fraction=job.options.max_reject_fraction,
    )  # one Clearance
    shards = {split: cuts.num_shards for split, cuts in planned.items()}
    write = WriteWithBeam(job.write_job, name=job.options.name, shards=shards, clearance=clearance)
    written = plan.shards | "WriteWithBeam" >> write  # ShardSummary
    return written.main | "PublishDataset" >> PublishDataset(
        job.publication, layout=layout, clearance=clearance
    )


def _check_planned(layout: Layout, planned: Mapping[str, ShardCuts]) -> Layout:
    if dict(layout.cuts) != dict(planned):
        raise BuildError(
            "INPUT changed while it was planned (files added, removed or changed): run the build again"
        )
    return layout
