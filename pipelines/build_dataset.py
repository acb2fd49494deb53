"""The main application: `shardwright build`, and the graph it runs.

    ListImages -> JoinLabels -> AssignSplits -> PlanShards -> ClearOutput -> WriteShards -> PublishDataset
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import apache_beam as beam

from pipelines.job import BuildJob, prepare_job
from pipelines.options import parse_options
from pipelines.running import run_build
from transforms.assign_splits import AssignSplits
from transforms.join_labels import JoinLabels
from transforms.list_images import ListImages
from transforms.plan_shards import PlanShards
from transforms.publish import ClearOutput, PublishDataset
from transforms.write_shards import WriteShards


class PlanGraph(NamedTuple):
    """What the planning half of the graph gives: shard plans, one Layout, one tuple of class names, and rejects."""

    shards: beam.PCollection
    layout: beam.PCollection
    class_names: beam.PCollection
    rejects: beam.PCollection


def plan_graph(pipeline: beam.Pipeline, job: BuildJob) -> PlanGraph:
    """Metadata only: from listing to shard plans."""
    listed = pipeline | "ListImages" >> ListImages(job.source)  # references
    labelled = listed.main | "JoinLabels" >> JoinLabels(
        table=job.label_table, class_names=job.class_names, integer_labels=job.integer_labels
    )  # references with a label index
    split = labelled.main | "AssignSplits" >> AssignSplits(job.options.split, given=job.splits_given)
    planned = split.main | "PlanShards" >> PlanShards(
        name=job.options.name,
        policy=job.options.policy,
        seed=job.options.seed,
        settings=job.digest_settings,
        num_buckets=job.num_buckets,
    )  # ShardPlan
    rejects = (listed.rejects, labelled.rejects, split.rejects, planned.rejects) | "PlanRejects" >> beam.Flatten()
    return PlanGraph(planned.shards, planned.layout, labelled.class_names, rejects)


def build_graph(pipeline: beam.Pipeline, job: BuildJob) -> beam.PCollection:
    """The whole build: one Manifest, written last."""
    plan = plan_graph(pipeline, job)
    clearance = plan.shards | "ClearOutput" >> ClearOutput(
        job.output_request,
        layout=plan.layout,
        class_names=plan.class_names,
        rejects=plan.rejects,
        max_reject_fraction=job.options.max_reject_fraction,
    )  # one Clearance
    written = plan.shards | "WriteShards" >> WriteShards(job.write_job, clearance=clearance)  # ShardSummary
    return written.main | "PublishDataset" >> PublishDataset(job.publication, layout=plan.layout, clearance=clearance)


def main(argv: Sequence[str] | None = None) -> int:
    """`shardwright build`: exit code 0 done, 1 the build failed, 2 wrong usage."""
    return run_build(build_graph, lambda: prepare_job(parse_options(sys.argv[1:] if argv is None else argv)))


if __name__ == "__main__":
    sys.exit(main())
