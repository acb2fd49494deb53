"""Build with `--writer beam`: Beam's stock `WriteToTFRecord` writes the planned writer's records.

`WriteToTFRecord` takes its number of shards when the graph is built, so the plan is first made on
this machine. The build plans again on its own runner and fails if the two plans differ. Limits:
see `shardwright.transforms.write.write_stock`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace

import apache_beam as beam

from shardwright.errors import BuildError, UsageError
from shardwright.format import naming
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.job.graph import plan_graph
from shardwright.pipelines.local.build import BuildState, plan_locally
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.terminal import say
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import Layout, ShardCuts
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.promotion import finish_promotion
from shardwright.transforms.publish.publish_dataset import PublishDataset
from shardwright.transforms.write.clear_output import ClearOutput
from shardwright.transforms.write.write_stock import WriteWithBeam, remove_leftovers


def run_stock_build(job: BuildJob) -> None:
    """Plan, and write the dataset unless it is up to date. An unfinished build starts over.

    Raises:
        UsageError: Beam cannot write to the path of OUTPUT.
        BuildError: As in a planned build, or INPUT changed between the two plans.
    """
    root = job.options.root
    if root.is_remote:
        raise UsageError(
            f"--writer beam writes only to local folders, and OUTPUT is {root}: use --writer "
            "planned"
        )
    if found := re.search(r"[*?[]", root.uri):
        raise UsageError(
            f"OUTPUT {root} has {found[0]!r} in its path, which Beam's WriteToTFRecord reads as a "
            "pattern: choose another OUTPUT, or use --writer planned"
        )
    finish_promotion(root)
    planned = plan_locally(job)
    cuts = planned.shards.layout.cuts
    num_shards = planned.shards.layout.num_shards
    if planned.state == BuildState.REFUSED:
        raise BuildError(planned.reason)
    if planned.state == BuildState.UP_TO_DATE:
        PROGRESS.start(total_images=planned.shards.layout.num_records, total_shards=num_shards)
        PROGRESS.add_reused(images=planned.shards.layout.num_records, shards=num_shards)
        return
    if planned.state == BuildState.RESTART:
        say("Beam's WriteToTFRecord cannot resume an unfinished build: starting over")
    # `WriteToTFRecord` takes its folder, too, when the graph is built.
    folder = "" if root.num_bytes_of(naming.MANIFEST) is None else naming.NEXT_DIR
    written = root.below(folder).own_path()
    remove_leftovers(written)
    try:
        run_pipeline(functools.partial(stock_graph, planned=cuts, folder=folder), job)
    finally:
        remove_leftovers(written)


def stock_graph(
    pipeline: beam.Pipeline, job: BuildJob, *, planned: Mapping[str, ShardCuts], folder: str = ""
) -> beam.PCollection:
    """Add all steps of a build and return one Manifest, which is written last.

    Args:
        planned: Cuts of each split in the plan made before the graph.
        folder: The folder below OUTPUT to write to, "" for OUTPUT.
    """
    plan = plan_graph(pipeline, job)
    layout = plan.layout | "AsPlanned" >> beam.Map(_check_planned, planned)  # one Layout
    clearance = plan.shards | "ClearOutput" >> ClearOutput(
        # Nothing is resumed, and the records of a published shard must not change under its
        # manifest.
        replace(job.output_request, if_exists="overwrite", resumable=False),
        layout=layout,
        vocabularies=plan.vocabularies,
        rejects=plan.rejects,
        limits=job.options.limits,
        near_duplicates=plan.near_duplicates,
    )
    clearance = clearance | "SameFolder" >> beam.Map(_check_folder, folder)  # one Clearance
    shards = {split: cuts.num_shards for split, cuts in planned.items()}
    write_job = replace(job.write_job, root=job.options.root.below(folder))
    write = WriteWithBeam(write_job, name=job.options.name, shards=shards, clearance=clearance)
    written = plan.shards | "WriteWithBeam" >> write  # ShardSummary
    return written.main | "PublishDataset" >> PublishDataset(
        job.publication, layout=layout, clearance=clearance
    )


def _check_folder(clearance: Clearance, folder: str) -> Clearance:
    if clearance.folder != folder:
        raise BuildError("another build has published a dataset in OUTPUT: run the build again")
    return clearance


def _check_planned(layout: Layout, planned: Mapping[str, ShardCuts]) -> Layout:
    if dict(layout.cuts) != dict(planned):
        raise BuildError(
            "INPUT changed during planning (files added, removed or changed): run the build again"
        )
    return layout
