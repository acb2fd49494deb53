"""Publish a dataset: write the manifest and its companions once all shards are finished."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from shardwright.format.index import ShardSummary
from shardwright.transforms.publish.publication import Publication, publish
from shardwright.transforms.publish.written_shards import WrittenShards


class PublishDataset(beam.PTransform):
    """A transform that writes the manifest and its companions, and returns the single Manifest.

    Args:
        publication: The inputs that are known before the build.
        layout: The single Layout.
        clearance: The single Clearance.
        seen: The single SeenRecords, if the build adds to a dataset.
    """

    def __init__(
        self,
        publication: Publication,
        *,
        layout: beam.PCollection,
        clearance: beam.PCollection,
        seen: beam.PCollection | None = None,
    ) -> None:
        super().__init__()
        self._publication = publication
        self._layout = layout
        self._clearance = clearance
        self._seen = seen

    def expand(self, summaries: beam.PCollection) -> beam.PCollection:
        return (
            summaries
            | "Gather" >> beam.CombineGlobally(_GatherFn())  # one WrittenShards
            | "Publish"
            >> beam.Map(
                publish,
                self._publication,
                layout=AsSingleton(self._layout),
                clearance=AsSingleton(self._clearance),
                seen=None if self._seen is None else AsSingleton(self._seen),
            )  # Manifest
        )


class _GatherFn(beam.CombineFn):
    """A CombineFn of summaries; workers sum those of their bundles."""

    def create_accumulator(self) -> WrittenShards:
        return WrittenShards()

    def add_input(self, shards: WrittenShards, summary: ShardSummary) -> WrittenShards:
        shards.add(summary)
        return shards

    def merge_accumulators(self, parts: Iterable[WrittenShards]) -> WrittenShards:
        merged = WrittenShards()
        for part in parts:
            merged.add_all(part)
        return merged

    def extract_output(self, shards: WrittenShards) -> WrittenShards:
        return shards
