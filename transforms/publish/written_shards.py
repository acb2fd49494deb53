"""Gather what publishing needs of all shards, in memory that one process has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary
from shardwright.format.splits import ShardInfo
from shardwright.transforms.publish.number_sums import add_part
from shardwright.transforms.reject_files import EXAMPLES


class WrittenShards:
    """The finished shards of a dataset.

    A summary counts the classes of its shard. Here these counts are summed, because those of
    50,000 shards of 1,000 records take gigabytes.

    Attributes:
        infos: The manifest's entries by split, in any order.
        stats: The summed statistics by split, as `add_part` makes them.
        rejects: Number of rejects by split and reason.
        files: Contents of the shards' files of rejects and of signals, by name.
        examples: Some names of files of rejects by reason, enough for the examples of an error.
    """

    def __init__(self, summaries: Iterable[ShardSummary] = ()) -> None:
        self.infos: defaultdict[str, list[ShardInfo]] = defaultdict(list)
        self.stats: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.rejects: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.files: dict[str, FileContent] = {}
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        for summary in summaries:
            self.add(summary)

    def add(self, summary: ShardSummary) -> None:
        split = summary.name.split
        assert summary.sidecar is not None, "it is written, so its summary has it"
        info = ShardInfo(
            summary.name.index,
            summary.num_records,
            summary.num_bytes,
            summary.crc32c,
            summary.digest,
            *summary.sidecar,
            summary.etag,
        )
        self.infos[split].append(info)
        # Added at once, not kept: see above.
        add_part(self.stats[split], summary.stats)
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
            add_part(self.stats[split], other.stats[split])
            self.rejects[split].update(other.rejects[split])
        self.files |= other.files
        for reason, names in other.examples.items():
            self._add_examples(reason, names)

    def _add_examples(self, reason: str, names: list[str]) -> None:
        # The first ones by name, so that the order of arrival does not matter.
        self.examples[reason] = sorted([*self.examples[reason], *names])[:EXAMPLES]
