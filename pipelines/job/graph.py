"""The Beam graphs of the application. Every step is a public PTransform of `transforms`.

ListImages -> [JoinLabels] -> [DropDuplicates] -> [FindNearDuplicates] -> [FindChanges]
    -> AssignSplits -> EncodeFeatures -> PlanShards -> ClearOutput -> WriteShards -> PublishDataset
    -> [CommitVersion]
"""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.transforms.changes.find_changes import Changes, FindChanges
from shardwright.transforms.duplicates.drop_duplicates import DropDuplicates
from shardwright.transforms.features.encode_features import EncodeFeatures
from shardwright.transforms.inputs.list_images import ListImages
from shardwright.transforms.labels.join_labels import JoinLabels
from shardwright.transforms.near_duplicates.find_near_duplicates import (
    FindNearDuplicates,
    NearDuplicates,
)
from shardwright.transforms.plan.plan_shards import EstimateSizes, PlanShards
from shardwright.transforms.publish.publish_dataset import PublishDataset
from shardwright.transforms.routing import Routed
from shardwright.transforms.splits.assign_splits import AssignSplits, DrawSplits
from shardwright.transforms.splits.list_splits import ListSplits
from shardwright.transforms.splits.split_lists import read_lists, stated_splits
from shardwright.transforms.versions.commit_version import CommitVersion
from shardwright.transforms.write.clear_output import ClearOutput
from shardwright.transforms.write.write_shards import WriteShards


class ReferenceGraph(NamedTuple):
    """The graph before planning: references with features, one dict of vocabularies, rejects.

    A build that adds to a dataset also has one SeenRecords.
    """

    references: beam.PCollection
    vocabularies: beam.PCollection
    rejects: beam.PCollection
    near_duplicates: beam.PCollection | None = None
    seen: beam.PCollection | None = None


class PlanGraph(NamedTuple):
    """The graph after planning: shard plans, one Layout, and the rest as in ReferenceGraph."""

    shards: beam.PCollection
    layout: beam.PCollection
    vocabularies: beam.PCollection
    rejects: beam.PCollection
    near_duplicates: beam.PCollection | None = None
    seen: beam.PCollection | None = None


def reference_graph(
    pipeline: beam.Pipeline, job: BuildJob, listed: Routed | None = None
) -> ReferenceGraph:
    """Add the steps from listing to references with split and features; metadata only.

    Args:
        pipeline: The pipeline.
        job: The build.
        listed: The references and rejects of INPUT, if another step lists them.
    """
    if listed is None:
        # Many small parts balance the work of many machines, and cost time on one.
        one_machine = is_local(job.options.beam_args)
        listed = pipeline | "ListImages" >> ListImages(job.source, one_machine=one_machine)
    found: Routed | NearDuplicates = listed
    options, rejects = job.options, [listed.rejects]
    if job.label_table is not None:
        found = found.main | "JoinLabels" >> JoinLabels(job.label_table)
        rejects.append(found.rejects)
    if options.duplicates != "keep":
        found = found.main | "DropDuplicates" >> DropDuplicates(
            options.duplicates, storage=options.storage, threads=options.threads
        )
        rejects.append(found.rejects)
    if options.near.is_on:
        found = found.main | "FindNearDuplicates" >> FindNearDuplicates(
            options.near, spool=job.spool, storage=options.storage, threads=options.threads
        )
        rejects.append(found.rejects)
    changes = None
    if job.known_file is not None:
        stated = _stated(found.main, job)
        changes = stated | "FindChanges" >> FindChanges(job.known_file, job.feature_hashes)
        rejects.append(changes.rejects)
    split = _split(found if changes is None else changes, job)
    encoded = split.main | "EncodeFeatures" >> EncodeFeatures(
        job.schema,
        hash_labels=job.feature_hashes.labels,
        **job.vocabulary_rules,
    )  # references with final features
    rejects += [split.rejects, encoded.rejects]
    return ReferenceGraph(
        encoded.main,
        encoded.vocabularies,
        rejects | "ReferenceRejects" >> beam.Flatten(),
        getattr(found, "listed", None),
        None if changes is None else changes.seen,
    )


def _stated(references: beam.PCollection, job: BuildJob) -> beam.PCollection:
    """Add the step after which references have a split only where something states it."""
    ids = None
    if job.split_lists is not None:
        lists = references.pipeline | "Lists" >> beam.Create([job.split_lists])
        ids = AsSingleton(lists | "ReadLists" >> beam.Map(read_lists))
    return references | "StatedSplits" >> beam.Map(
        stated_splits, ids, given=job.splits_given, grouped=job.group_rule
    ).with_output_types(pa.RecordBatch)


def _split(found: Routed | NearDuplicates | Changes, job: BuildJob) -> Routed:
    """Add the step that assigns splits; a changed record keeps its own unless INPUT states one."""
    drawn = found.new if isinstance(found, Changes) else found.main
    if isinstance(found, Changes) and job.splits_given:
        # Then a changed record can also have moved to another split.
        drawn = (found.new, found.changed) | "NewOrChanged" >> beam.Flatten()
    split: Routed = drawn | "AssignSplits" >> _split_step(job)  # references with a split
    if not isinstance(found, Changes) or job.splits_given:
        return split
    return split._replace(main=(split.main, found.changed) | "WithChanged" >> beam.Flatten())


def _split_step(job: BuildJob) -> beam.PTransform:
    rule, draw = job.split_rule, job.split_draw
    drawn: beam.PTransform
    if draw is None:
        drawn = AssignSplits(rule, given=job.splits_given)
    else:
        drawn = DrawSplits(draw.rule, stratify=draw.stratify, grouped=draw.grouped)
    if job.split_lists is None:
        return drawn
    others = None if rule is None else drawn
    return ListSplits(job.split_lists, others, known=job.known_file)


def plan_graph(pipeline: beam.Pipeline, job: BuildJob, listed: Routed | None = None) -> PlanGraph:
    """Add the steps from listing to shard plans; metadata only."""
    found = reference_graph(pipeline, job, listed)
    estimate = None
    if job.options.samples_sizes:
        estimate = found.references | "EstimateSizes" >> EstimateSizes(
            job.write_job,
            seed=job.options.seed,
            settings=job.digest_settings,
            vocabularies=found.vocabularies,
        )
    planned = found.references | "PlanShards" >> PlanShards(
        name=job.options.name,
        policy=job.options.policy,
        seed=job.options.seed,
        settings=job.digest_settings,
        num_buckets=job.num_buckets,
        estimate=estimate,
    )  # ShardPlan
    rejects = (found.rejects, planned.rejects) | "PlanRejects" >> beam.Flatten()
    return PlanGraph(
        planned.shards,
        planned.layout,
        found.vocabularies,
        rejects,
        found.near_duplicates,
        found.seen,
    )


def build_graph(
    pipeline: beam.Pipeline, job: BuildJob, listed: Routed | None = None
) -> beam.PCollection:
    """Add all steps of a build and return one Manifest, which is written last.

    It is that of the new version if the build adds to a dataset.
    """
    plan = plan_graph(pipeline, job, listed)
    clearance = plan.shards | "ClearOutput" >> ClearOutput(
        job.output_request,
        layout=plan.layout,
        vocabularies=plan.vocabularies,
        rejects=plan.rejects,
        limits=job.options.limits,
        near_duplicates=plan.near_duplicates,
        seen=plan.seen,
        checks=job.plan_checks,
    )  # one Clearance
    shards = plan.shards
    # Keys hash unevenly to workers: without this, one of four got three times another's shards.
    if not is_local(job.options.beam_args):
        shards = shards | "SpreadShards" >> beam.Reshuffle()
    written = shards | "WriteShards" >> WriteShards(
        job.write_job, clearance=clearance
    )  # ShardSummary
    published = written.main | "PublishDataset" >> PublishDataset(
        job.publication, layout=plan.layout, clearance=clearance, seen=plan.seen
    )  # Manifest
    if job.append is None:
        return published
    return published | "CommitVersion" >> CommitVersion(job.append, seen=plan.seen)
