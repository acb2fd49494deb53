"""Follow the shards of one plan by their sidecars, without reading one twice.

Sidecars hold no times. When a shard was finished is known from the listing of `index/`; when it was
begun, from the note of its attempt (`ShardName.attempt`), which is there while it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shardwright.errors import NotADatasetError
from shardwright.format import naming
from shardwright.format.index import read_summary_end
from shardwright.format.json_files import read_json
from shardwright.format.naming import ShardName
from shardwright.format.plan_file import PlanFile, PlannedSplit
from shardwright.inspect.build_progress import (
    Amount,
    BuildPhase,
    BuildProgress,
    FinishedShard,
    overall_rate,
    recent_rate,
    slowest_of,
    time_left,
)
from shardwright.inspect.reject_counts import by_number, count_reasons, is_reason
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.storage.stamps import FileStamp

MOST_READS = 200  # of new sidecars, in one look
MOST_REJECT_FILES = 4  # of the plan, in one look; each has at most 250,000 rows
_READS_AT_ONCE = 16


class _Read(NamedTuple):
    """The content of a sidecar that a watcher needs."""

    num_records: int
    num_bytes: int
    rejects: Mapping[str, int]


class WatchedPlan:
    """A plan in OUTPUT, and what is known about its shards.

    Args:
        root: The folder that the build writes to.
        stamp: The stamp of its plan, which every run of the build writes again.

    Attributes:
        root: As given.
        stamp: As given.
        planned: Planned shards, records and bytes.

    Raises:
        NotADatasetError: The plan is damaged.
        StorageError: The plan cannot be read.
    """

    def __init__(self, root: Folder, stamp: FileStamp) -> None:
        self.root, self.stamp = root, stamp
        splits = _read_plan(root)
        self.planned = Amount(
            sum(each.num_shards for each in splits.values()),
            sum(each.num_records for each in splits.values()),
            sum(each.num_bytes for each in splits.values()),
        )
        # All by the file name of a sidecar.
        self._splits: dict[str, PlannedSplit] = {}
        self._found: dict[str, FileStamp] = {}
        self._read: dict[str, _Read | None] = {}  # None if it is damaged
        self._begun: dict[str, float] = {}
        self._writing: dict[str, float] = {}
        self._sidecar_of: dict[str, str] = {}  # file name of a note -> of the sidecar
        self._plan_rejects: dict[str, Counter[str]] = {}  # file name -> counts
        self._last_change = stamp.modified
        for split, planned in splits.items():
            for index in range(planned.num_shards):
                name = ShardName("", split, index, planned.num_shards)
                sidecar = _last(name.sidecar)
                self._splits[sidecar] = planned
                self._sidecar_of[_last(name.attempt)] = sidecar
        self._order = sorted(self._splits)
        self._num_leading = 0  # of `_order`: all finished by this run of the build

    def look(self, rejects: Mapping[str, FileStamp]) -> None:
        """Find and read new sidecars, and files of rejects.

        Args:
            rejects: Stamps of the files in `rejects/`.

        Raises:
            StorageError: OUTPUT cannot be read.
        """
        self._find_shards()
        # Those with rejects first: the others change no count but records and bytes, by a little.
        new = [name for name in self._found if name not in self._read]
        new.sort(key=lambda name: (name not in rejects, name))
        wanted = new[:MOST_READS]
        self._read.update(
            zip(wanted, map_reads(self._read_sidecar, wanted, _READS_AT_ONCE), strict=True)
        )
        of_plan = (name for name in sorted(rejects) if name not in self._splits)
        unread = [name for name in of_plan if self._is_new_reject_file(name)]
        for name in unread[:MOST_REJECT_FILES]:
            self._plan_rejects[name] = count_reasons(self.root, f"{naming.REJECTS_DIR}/{name}")

    def _is_new_reject_file(self, name: str) -> bool:
        is_failed = naming.is_failed_rejects(f"{naming.REJECTS_DIR}/{name}")
        return name.endswith(".parquet") and not is_failed and name not in self._plan_rejects

    def _find_shards(self) -> None:
        """List the sidecars and the notes of attempts."""
        after = self._order[self._num_leading - 1] if self._num_leading else ""
        listed = self.root.stamps(naming.INDEX_DIR, after=after)
        found = {name: stamp for name, stamp in self._found.items() if name <= after}
        found.update((name, stamp) for name, stamp in listed.items() if name in self._splits)
        for name, stamp in found.items():
            if self._found.get(name, stamp) != stamp:  # written again
                self._read.pop(name, None)
        self._found = found
        self._writing = {
            self._sidecar_of[name]: stamp.modified
            for name, stamp in listed.items()
            if name in self._sidecar_of
        }
        self._begun.update(self._writing)
        changes = (stamp.modified for stamp in listed.values())
        self._last_change = max(self._last_change, *changes, self.stamp.modified)
        while self._num_leading < len(self._order):
            last = found.get(self._order[self._num_leading])
            if last is None or last.modified < self.stamp.modified:
                break
            self._num_leading += 1

    def _read_sidecar(self, name: str) -> _Read | None:
        path = f"{naming.INDEX_DIR}/{name}"
        summary = read_summary_end(self.root, path, self._found[name].num_bytes)
        if summary is None or not all(map(is_reason, summary.rejects)):
            return None
        return _Read(summary.num_records, summary.num_bytes, summary.rejects)

    def _finished(self) -> Iterator[FinishedShard]:
        for name, stamp in self._found.items():
            read, split = self._read.get(name), self._splits[name]
            begun = self._begun.get(name)
            yield FinishedShard(
                _shard(name),
                stamp.modified,
                read.num_records if read else split.num_records / split.num_shards,
                read.num_bytes if read else split.num_bytes / split.num_shards,
                stamp.modified - begun if begun is not None and begun <= stamp.modified else None,
            )

    def progress(self, now: float) -> BuildProgress:
        """Return the state that the looks have found, at a time in seconds since 1970."""
        shards, start = list(self._finished()), self.stamp.modified
        done = Amount(
            len(shards),
            round(sum(shard.num_records for shard in shards)),
            round(sum(shard.num_bytes for shard in shards)),
        )
        recent, overall = recent_rate(shards, start, now), overall_rate(shards, start, now)
        rejects = Counter[str]()
        for read in self._read.values():
            rejects.update(read.rejects if read else {})
        records_left = self.planned.records - done.records - rejects.total()
        is_whole = done.shards == self.planned.shards
        return BuildProgress(
            BuildPhase.PUBLISHING if is_whole else BuildPhase.WRITING,
            planned=self.planned,
            done=done,
            num_reused=sum(shard.modified < start for shard in shards),
            num_unread=len(self._found.keys() - self._read.keys()),
            rejects=by_number(sum(self._plan_rejects.values(), rejects)),
            recent=recent,
            overall=overall,
            seconds_left=None if is_whole else time_left(records_left, recent or overall),
            slowest=slowest_of(shards),
            writing=self._in_work(now),
            seconds=max(0.0, now - start),
            idle_seconds=max(0.0, now - self._last_change),
        )

    def _in_work(self, now: float) -> list[tuple[str, float]]:
        in_work = (
            (_shard(name), max(0.0, now - begun))
            for name, begun in self._writing.items()
            if name not in self._found
        )
        return sorted(in_work, key=lambda pair: (-pair[1], pair[0]))


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _shard(sidecar: str) -> str:
    return sidecar.removesuffix(".parquet")


def _read_plan(root: Folder) -> dict[str, PlannedSplit]:
    plan = read_json(root, naming.PLAN, PlanFile, fix="run the build again")
    if plan is None:
        raise NotADatasetError(f"{root.path(naming.PLAN)} is gone: run the build again")
    return plan.splits
