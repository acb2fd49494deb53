"""Gather what publishing needs of all shards, in memory that one process has.

When they were finished is known from the modification times of their sidecars. So it holds for
every runner and for a build that was interrupted, and no worker has to report it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary
from shardwright.format.manifest import Manifest
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.statistics import StatsSum
from shardwright.transforms.reject_files import EXAMPLES

MAX_POINTS = 60  # of the chart of written records


class WrittenShards:
    """The finished shards of a dataset.

    A summary counts the classes of its shard. Here these counts are summed, because those of
    50,000 shards of 1,000 records take gigabytes.

    Attributes:
        infos: The manifest's entries by split, in any order.
        stats: Statistics by split.
        rejects: Number of rejects by split and reason.
        files: Contents of the shards' files of rejects and of signals, by name.
        examples: Some names of files of rejects by reason, enough for the examples of an error.
    """

    def __init__(self, summaries: Iterable[ShardSummary] = ()) -> None:
        self.infos: defaultdict[str, list[ShardInfo]] = defaultdict(list)
        self.stats: defaultdict[str, StatsSum] = defaultdict(StatsSum)
        self.rejects: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.files: dict[str, FileContent] = {}
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        for summary in summaries:
            self.add(summary)

    def add(self, summary: ShardSummary) -> None:
        split = summary.name.split
        info = ShardInfo(
            summary.name.index,
            summary.num_records,
            summary.num_bytes,
            summary.crc32c,
            summary.digest,
            summary.etag,
            *(summary.sidecar or (None, None)),
        )
        self.infos[split].append(info)
        # Added at once, not kept: see above.
        self.stats[split].add(StatsSum(summary.stats))
        self.rejects[split].update(summary.rejects)
        if summary.reject_file is not None:
            self.files[summary.name.rejects] = summary.reject_file
            for reason in summary.rejects:
                self._add_examples(reason, [summary.name.rejects])
        if summary.signals_file is not None:
            self.files[summary.name.signals] = summary.signals_file

    def add_all(self, other: WrittenShards) -> None:
        """Add the shards of another part of the dataset."""
        for split, infos in other.infos.items():
            self.infos[split] += infos
            self.stats[split].add(other.stats[split])
            self.rejects[split].update(other.rejects[split])
        self.files |= other.files
        for reason, names in other.examples.items():
            self._add_examples(reason, names)

    def _add_examples(self, reason: str, names: list[str]) -> None:
        # The first ones by name, so that the order of arrival does not matter.
        self.examples[reason] = sorted([*self.examples[reason], *names])[:EXAMPLES]


class Finished(NamedTuple):
    """A shard, and when it was finished, in seconds since 1970 (UTC)."""

    at: float
    num_records: int
    num_bytes: int


def with_timing(root: Folder, manifest: Manifest) -> Manifest:
    """Return the manifest with `timing` in its provenance, unless a time is not known.

    Args:
        root: The folder of the finished shards.
        manifest: Their manifest, with the time of its creation.

    Raises:
        StorageError: The folder cannot be listed.
    """
    plan, provenance = root.info(naming.PLAN), manifest.provenance
    created = provenance.get("created")
    if plan is None or created is None:
        return manifest
    stamps = root.files(naming.INDEX_DIR)
    ended = []
    for split in manifest.splits:
        for name, shard in manifest.named_shards(split):
            stamp = stamps.get(name.sidecar.rpartition("/")[2])
            if stamp is not None:
                ended.append(Finished(stamp.modified, shard.num_records, shard.num_bytes))
    begun = datetime.fromisoformat(created).timestamp()
    timing = timing_of(begun, plan.modified, ended)
    return replace(manifest, provenance={**provenance, "timing": timing})


def timing_of(begun: float, planned: float, shards: Iterable[Finished]) -> dict[str, Any]:
    """Return how long planning and writing took, and how the number of written records grew.

    Args:
        begun: When the build was begun, in seconds since 1970.
        planned: When its plan was written.
        shards: All shards. Those finished before `begun` are of an earlier, interrupted run.

    Returns:
        Planning and writing in seconds; the number of shards of earlier runs; and `written`, at
        most about `MAX_POINTS` lists of the seconds since the plan, and the records and bytes that
        this run has written until then.
    """
    found = sorted(shards)
    # Both times are compared although the store's clock stamps one of them: a wrong clock only
    # changes the chart.
    own = [shard for shard in found if shard.at >= begun]
    records = num_bytes = 0
    grown = []
    for shard in own:
        records += shard.num_records
        num_bytes += shard.num_bytes
        grown.append([round(max(0.0, shard.at - planned), 2), records, num_bytes])
    step = -(-len(grown) // MAX_POINTS) or 1
    return {
        "planning_s": round(max(0.0, planned - begun), 2),
        "writing_s": grown[-1][0] if grown else 0.0,
        "reused_shards": len(found) - len(own),
        "written": [*grown[: len(grown) - 1 : step], *grown[-1:]],
    }
