"""Commit the next version of a dataset that grows, as the last step of the graph."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from shardwright.format.manifest import Manifest
from shardwright.transforms.output_state import SeenRecords
from shardwright.transforms.versions.additions import Additions, Append, commit_additions


class CommitVersion(beam.PTransform):
    """A transform of the single Manifest of additions into that of the dataset's new version.

    It is the current version if nothing has changed. A worker commits, so that a template, or a job
    whose launcher is gone, needs no other process.

    Args:
        append: The append.
        seen: The single SeenRecords.
    """

    def __init__(self, append: Append, *, seen: beam.PCollection) -> None:
        super().__init__()
        self._append = append
        self._seen = seen

    def expand(self, additions: beam.PCollection) -> beam.PCollection:
        return additions | "Commit" >> beam.Map(_commit, self._append, AsSingleton(self._seen))


def _commit(manifest: Manifest, append: Append, seen: SeenRecords) -> Manifest:
    return commit_additions(append, append.read_base(), Additions.of(manifest, seen))
