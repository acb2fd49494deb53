"""The graphs of the application, each on one screen. Every step is a public PTransform of `transforms`.

ListImages -> JoinLabels -> AssignSplits -> PlanShards -> ClearOutput -> WriteShards -> PublishDataset
"""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam

from pipelines.job import BuildJob
from transforms.assign_splits import AssignSplits
from transforms.clear_output import ClearOutput
from transforms.join_labels import JoinLabels
from transforms.list_images import ListImages
from transforms.plan_shards import PlanShards
from transforms.publish import PublishDataset
from transforms.write_shards import WriteShards


class ReferenceGraph(NamedTuple):
    """What is known before the order is made: references with a split, one tuple of class names, and rejects."""

    references: beam.PCollection
    class_names: beam.PCollection
    rejects: beam.PCollection


class PlanGraph(NamedTuple):
    """What the planning half of the graph gives: shard plans, one Layout, one tuple of class names, and rejects."""

    shards: beam.PCollection
    layout: beam.PCollection
    class_names: beam.PCollection
    rejects: beam.PCollection


def reference_graph(pipeline: beam.Pipeline, job: BuildJob) -> ReferenceGraph:
    """Metadata only: from listing to references that know their label and split."""
    listed = pipeline | "ListImages" >> ListImages(job.source)  # references
    labelled = listed.main | "JoinLabels" >> JoinLabels(
        table=job.label_table, class_names=job.class_names, integer_labels=job.integer_labels
    )  # references with a label index
    split = labelled.main | "AssignSplits" >> AssignSplits(job.options.split, given=job.splits_given)
    rejects = (listed.rejects, labelled.rejects, split.rejects) | "ReferenceRejects" >> beam.Flatten()
    return ReferenceGraph(split.main, labelled.class_names, rejects)


def plan_graph(pipeline: beam.Pipeline, job: BuildJob) -> PlanGraph:
    """Metadata only: from listing to shard plans."""
    listed = reference_graph(pipeline, job)
    planned = listed.references | "PlanShards" >> PlanShards(
        name=job.options.name,
        policy=job.options.policy,
        seed=job.options.seed,
        settings=job.digest_settings,
        num_buckets=job.num_buckets,
    )  # ShardPlan
    rejects = (listed.rejects, planned.rejects) | "PlanRejects" >> beam.Flatten()
    return PlanGraph(planned.shards, planned.layout, listed.class_names, rejects)


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
