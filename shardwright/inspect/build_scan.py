"""Read the state of a build from its OUTPUT, again and again.

Sidecars hold no times. When a shard was finished is known from the listing of `index/`; when it was
begun, from the note of its attempt (`ShardName.attempt`), which is there while it is written.

One look takes a request for the manifest and one for the plan, a listing of `index/` and one of
`rejects/`, and the ends of at most 200 new sidecars. No file is read twice. Of appends to a
published dataset only those are seen that failed before they wrote shards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import MissingError, NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.index import read_summary_end
from shardwright.format.json_files import read_json
from shardwright.format.naming import ShardName
from shardwright.format.parquet import ParquetRows
from shardwright.format.plan_file import PlanFile, PlannedSplit
from shardwright.format.versions import (
    generation_folders,
    number_of,
    read_version,
    version_numbers,
)
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
from shardwright.storage.folder import Folder
from shardwright.storage.local import FileInfo
from shardwright.storage.reads import map_reads

_BATCH_ROWS = 65_536
_REASON = re.compile(r"[a-z0-9_]{1,100}")
MOST_READS = 200  # of new sidecars, in one look
MOST_REJECT_FILES = 4  # of the plan, in one look; each has at most 250,000 rows
_READS_AT_ONCE = 16
_FOLDERS = (naming.INDEX_DIR, naming.REJECTS_DIR, naming.SPOOL_DIR, naming.NEXT_DIR)
_BEAM_FOLDER = "beam-temp-"  # of Beam's own writer


def count_reasons(root: Folder, name: str) -> Counter[str]:
    """Return the number of rows of a file by reason, {} if it does not exist.

    Raises:
        StorageError: The file cannot be read.
    """
    counts: Counter[str] = Counter()
    try:
        with root.open_input(name) as source, ParquetRows(source, root.path(name)) as file:
            for batch in file.batches(_BATCH_ROWS, ["reason"]):
                for counted in pc.value_counts(batch.column("reason")).to_pylist():
                    reason = str(counted["values"])
                    counts[reason if is_reason(reason) else "unknown"] += counted["counts"]
    except MissingError:  # the build removed it meanwhile
        return Counter()
    except StorageError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise StorageError(f"{root.path(name)} cannot be read: {error}") from error
    return counts


def is_reason(text: str) -> bool:
    """Return whether a text may be a reason, and so may be printed: lower-case words and `_`."""
    return _REASON.fullmatch(text) is not None


def by_number(counts: Counter[str]) -> dict[str, int]:
    """Return counts, largest first."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


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
        settings: The options that determine the shards' bytes.
        planned: Planned shards, records and bytes.

    Raises:
        NotADatasetError: The plan is damaged.
        StorageError: The plan cannot be read.
    """

    def __init__(self, root: Folder, stamp: FileInfo) -> None:
        self.root, self.stamp = root, stamp
        plan = read_json(root, naming.PLAN, PlanFile, fix="run the build again")
        if plan is None:
            raise NotADatasetError(f"{root.path(naming.PLAN)} is gone: run the build again")
        self.settings, splits = plan.settings, plan.splits
        self.planned = Amount(
            sum(each.num_shards for each in splits.values()),
            sum(each.num_records for each in splits.values()),
            sum(each.num_bytes for each in splits.values()),
        )
        # All by the file name of a sidecar.
        self._splits: dict[str, PlannedSplit] = {}
        self._found: dict[str, FileInfo] = {}
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

    def look(self, rejects: Mapping[str, FileInfo]) -> None:
        """Find and read new sidecars, and files of rejects.

        Args:
            rejects: Stamps of the files in `rejects/`.

        Raises:
            StorageError: OUTPUT cannot be read.
        """
        self.find_shards()
        # Those with rejects first: the others change no count but records and bytes, by a little.
        new = [name for name in self._found if name not in self._read]
        new.sort(key=lambda name: (name not in rejects, name))
        wanted = new[:MOST_READS]
        self._read.update(
            zip(wanted, map_reads(self._read_sidecar, wanted, _READS_AT_ONCE), strict=True)
        )
        known = self._splits.keys() | self._plan_rejects.keys()
        unread = [
            name
            for name in sorted(rejects)
            if name not in known
            and name.endswith(".parquet")
            and not naming.is_failed_rejects(f"{naming.REJECTS_DIR}/{name}")
        ]
        for name in unread[:MOST_REJECT_FILES]:
            self._plan_rejects[name] = count_reasons(self.root, f"{naming.REJECTS_DIR}/{name}")

    def find_shards(self) -> None:
        """List the sidecars and the notes of attempts; what sidecars hold is then estimated.

        Raises:
            StorageError: OUTPUT cannot be read.
        """
        # A store lists names in order, so a look need not list what is finished, which may be
        # 100,000 names.
        after = self._order[self._num_leading - 1] if self._num_leading else ""
        listed = self.root.files(naming.INDEX_DIR, after=after)
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
        # Kept after the note is gone: the time that a shard took follows from it.
        self._begun.update(self._writing)
        changes = (stamp.modified for stamp in listed.values())
        self._last_change = max(self._last_change, *changes, self.stamp.modified)
        while self._num_leading < len(self._order):
            last = found.get(self._order[self._num_leading])
            # A shard of an earlier run may still be written again.
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
        in_work = [
            (_shard(name), max(0.0, now - begun))
            for name, begun in self._writing.items()
            if name not in self._found
        ]
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
            writing=sorted(in_work, key=lambda pair: (-pair[1], pair[0])),
            seconds=max(0.0, now - start),
            idle_seconds=max(0.0, now - self._last_change),
        )


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _shard(sidecar: str) -> str:
    return sidecar.removesuffix(".parquet")


class BuildScan:
    """The state of an OUTPUT.

    Args:
        root: OUTPUT.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._plan: WatchedPlan | None = None
        self._replaces = False  # there was a manifest at the last look

    def look(self, now: float) -> BuildProgress:
        """Return the present state.

        Args:
            now: The present time, in seconds since 1970.

        Raises:
            NotADatasetError: OUTPUT is a file, holds files that no build made, or a damaged plan.
            StorageError: OUTPUT cannot be read.
        """
        plan = self.find_plan()
        if plan is None:
            return self._published(now) if self._replaces else self._unplanned(now)
        rejects = plan.root.files(naming.REJECTS_DIR)
        failed = self._failed(now, plan.root, rejects, after=plan.stamp.modified)
        if failed is not None:
            return failed
        plan.look(rejects)
        return replace(plan.progress(now), replaces=self._replaces)

    def find_plan(self) -> WatchedPlan | None:
        """Return the plan in OUTPUT, read again only after it has changed.

        Raises:
            NotADatasetError: It is damaged.
            StorageError: OUTPUT cannot be read.
        """
        self._replaces = self._root.info(naming.MANIFEST) is not None
        # A build that replaces a dataset writes beside it.
        root = self._root.below(naming.NEXT_DIR if self._replaces else "")
        stamp = root.info(naming.PLAN)
        if stamp is None:
            return None
        if self._plan is None or (self._plan.root, self._plan.stamp) != (root, stamp):
            self._plan = WatchedPlan(root, stamp)
        return self._plan

    def _unplanned(self, now: float) -> BuildProgress:
        names = self._root.first_names()
        if not names and self._root.is_file():
            raise NotADatasetError(f"{self._root} is a file; give the OUTPUT of a build")
        if naming.VERSIONS_DIR in names and version_numbers(self._root)[-1] > 1:
            return self._published(now)  # `gc` has removed the manifest with version 1
        strangers = [
            name
            for name in names
            if name not in _FOLDERS
            and not naming.is_build_output(name)
            and not name.startswith(_BEAM_FOLDER)
        ]
        if strangers:
            raise NotADatasetError(
                f"{self._root} is not the OUTPUT of a build: it holds {strangers[0]!r}, and no "
                f"{naming.PLAN}"
            )
        spool = self._root.files(naming.SPOOL_DIR) if naming.SPOOL_DIR in names else {}
        changed = max((stamp.modified for stamp in spool.values()), default=0.0)
        if naming.REJECTS_DIR in names:
            rejects = self._root.files(naming.REJECTS_DIR)
            failed = self._failed(now, self._root, rejects, after=changed)
            if failed is not None:
                return failed
        if not spool:
            return BuildProgress(BuildPhase.EMPTY)
        listings = [name for name in spool if ".parquet" in name]
        num_bytes = sum(stamp.num_bytes for name, stamp in spool.items() if name not in listings)
        idle = max(0.0, now - changed)
        return BuildProgress(BuildPhase.PLANNING, idle_seconds=idle, spooled_bytes=num_bytes)

    def _failed(
        self, now: float, root: Folder, rejects: Mapping[str, FileInfo], *, after: float
    ) -> BuildProgress | None:
        """Return the state of a build in a folder whose plan failed, if one did after a time."""
        paths = {f"{naming.REJECTS_DIR}/{name}": stamp for name, stamp in rejects.items()}
        failed = {name: each for name, each in paths.items() if naming.is_failed_rejects(name)}
        changed = max((stamp.modified for stamp in failed.values()), default=0.0)
        # Of an earlier run: the newer plan or spool shows that the build has begun again.
        if changed <= after:
            return None
        counts = Counter[str]()
        for name in sorted(failed)[:MOST_REJECT_FILES]:
            counts += count_reasons(root, name)
        idle = max(0.0, now - changed)
        return BuildProgress(BuildPhase.FAILED, rejects=by_number(counts), idle_seconds=idle)

    def _published(self, now: float) -> BuildProgress:
        manifest = read_version(self._root)
        number = number_of(manifest)
        stamp = self._root.info(naming.version_file(number) if number > 1 else naming.MANIFEST)
        published = 0.0 if stamp is None else stamp.modified
        for folder in generation_folders(self._root):
            if folder.startswith(naming.generation_folder(number + 1, "")):
                below = self._root.below(folder)
                rejects = below.files(naming.REJECTS_DIR)
                if (failed := self._failed(now, below, rejects, after=published)) is not None:
                    return failed
        shards = sum(len(split.shards) for split in manifest.splits.values())
        held = Amount(shards, manifest.num_records, manifest.num_bytes)
        return BuildProgress(
            BuildPhase.PUBLISHING if manifest.folder else BuildPhase.PUBLISHED,
            planned=held,
            done=held,
            rejects=by_number(Counter(manifest.rejects)),
            idle_seconds=max(0.0, now - stamp.modified) if stamp is not None else None,
            replaces=bool(manifest.folder),
        )
