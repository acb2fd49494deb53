"""Publish a dataset: write the manifest and its companions once all shards are finished."""

from __future__ import annotations

from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from shardwright.format.index import ShardSummary
from shardwright.format.manifest import Manifest
from transforms.output_state import Clearance
from transforms.plan.packing import Layout
from transforms.publish.publication import Publication, publish


class PublishDataset(beam.PTransform):
    """A transform that writes the manifest and its companions, and returns the single Manifest.

    Args:
        publication: The inputs that are known before the build.
        layout: The single Layout.
        clearance: The single Clearance.
    """

    def __init__(
        self, publication: Publication, *, layout: beam.PCollection, clearance: beam.PCollection
    ) -> None:
        super().__init__()
        self._publication = publication
        self._layout = layout
        self._clearance = clearance

    def expand(self, summaries: beam.PCollection) -> beam.PCollection:
        return (
            summaries.pipeline
            | "Once" >> beam.Create([self._publication])
            | "Publish"
            >> beam.Map(
                _publish,
                summaries=AsList(summaries),
                layout=AsSingleton(self._layout),
                clearance=AsSingleton(self._clearance),
            )  # Manifest
        )


def _publish(
    publication: Publication,
    summaries: Sequence[ShardSummary],
    layout: Layout,
    clearance: Clearance,
) -> Manifest:
    return publish(publication, summaries, layout, clearance)
