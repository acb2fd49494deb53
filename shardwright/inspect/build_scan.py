"""Read the state of a build from its OUTPUT: what is planned, and which shards are finished.

A shard is finished once its sidecar is listed. Sidecars are not read, so records and bytes are
those of the plan, in proportion. Appends to a published dataset are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from math import fsum
from typing import Any, NamedTuple

from shardwright.errors import NotADatasetError
from shardwright.format import naming
from shardwright.format.json_files import read_json
from shardwright.format.naming import ShardName
from shardwright.format.plan_file import PlanFile, PlannedSplit
from shardwright.format.versions import read_version, version_numbers
from shardwright.storage.folder import Folder

_FOLDERS = (naming.INDEX_DIR, naming.REJECTS_DIR, naming.SPOOL_DIR, naming.NEXT_DIR)
_BEAM_FOLDER = "beam-temp-"  # of Beam's own writer


class BuildPhase(StrEnum):
    """The state of an OUTPUT."""

    EMPTY = "empty"  # nothing of a build: it has not begun, or is planning
    PLANNING = "planning"  # it unpacks INPUT, and there is no plan
    WRITING = "writing"
    PUBLISHING = "publishing"  # all shards are written, and there is no manifest
    PUBLISHED = "published"
    FAILED = "failed"  # it ended before it wrote shards, and left its rejects


class Amount(NamedTuple):
    """Shards, records and bytes."""

    shards: int = 0
    records: int = 0
    num_bytes: int = 0


NOTHING = Amount()


class BuildProgress(NamedTuple):
    """The state of an OUTPUT at one time.

    Attributes:
        phase: Its state.
        planned: The plan, or what a published dataset holds; None before there is one.
        done: What is written; of a plan, records and bytes are estimated.
        reused: Of `done`, what was written before this run of the build.
        seconds: Time since the plan was made; before, 0.
        idle_seconds: Time since a shard was finished, or since the build failed; else None.
        replaces: The build replaces a published dataset.
    """

    phase: BuildPhase
    planned: Amount | None = None
    done: Amount = NOTHING
    reused: Amount = NOTHING
    seconds: float = 0.0
    idle_seconds: float | None = None
    replaces: bool = False

    @property
    def records_per_second(self) -> float:
        """The rate of this run since its plan; 0 before its first shard, and after the last one."""
        new = self.done.records - self.reused.records if self.phase is BuildPhase.WRITING else 0
        # Clocks of a store and of this machine differ.
        return new / max(self.seconds, 1e-3)

    @property
    def seconds_left(self) -> float | None:
        """Time to the last shard at the rate of this run; None if it is unknown."""
        if self.planned is None or not self.records_per_second:
            return None
        return (self.planned.records - self.done.records) / self.records_per_second

    def to_json(self) -> dict[str, Any]:
        left, idle = self.seconds_left, self.idle_seconds
        return {
            "phase": str(self.phase),
            "planned": self.planned and self.planned._asdict(),
            "done": self.done._asdict(),
            "reused_shards": self.reused.shards,
            "records_per_second": round(self.records_per_second, 1),
            "seconds_left": None if left is None else round(left),
            "seconds": round(self.seconds, 1),
            "idle_seconds": None if idle is None else round(idle, 1),
            "replaces": self.replaces,
        }


class FoundPlan(NamedTuple):
    """A plan in OUTPUT.

    Attributes:
        root: The folder that the build writes to.
        made: When a run of the build last wrote it, in seconds since 1970.
        file: Its content.
        replaces: The build replaces a published dataset.
    """

    root: Folder
    made: float
    file: PlanFile
    replaces: bool

    @property
    def planned(self) -> Amount:
        return _amount(each for each in self.file.splits.values() for _ in range(each.num_shards))

    def progress(self, now: float) -> BuildProgress:
        """Return the state of its shards at a time in seconds since 1970.

        Raises:
            StorageError: OUTPUT cannot be read.
        """
        listed = self.root.files(naming.INDEX_DIR).items()
        times = {f"{naming.INDEX_DIR}/{name}": stamp.modified for name, stamp in listed}
        finished = [
            (times[sidecar], split)
            for name, split in self.file.splits.items()
            for number in range(split.num_shards)
            if (sidecar := ShardName("", name, number, split.num_shards).sidecar) in times
        ]
        planned, done = self.planned, _amount(split for _, split in finished)
        is_whole = done.shards == planned.shards
        return BuildProgress(
            BuildPhase.PUBLISHING if is_whole else BuildPhase.WRITING,
            planned=planned,
            done=done,
            reused=_amount(split for at, split in finished if at < self.made),
            seconds=max(0.0, now - self.made),
            idle_seconds=max(0.0, now - max([self.made, *(at for at, _ in finished)])),
            replaces=self.replaces,
        )


def _amount(shards: Iterable[PlannedSplit]) -> Amount:
    """Return what shards hold together, given the split of each."""
    splits = list(shards)
    return Amount(
        len(splits),
        round(fsum(split.num_records / split.num_shards for split in splits)),
        round(fsum(split.num_bytes / split.num_shards for split in splits)),
    )


def find_plan(root: Folder) -> FoundPlan | None:
    """Return the plan of a build into an OUTPUT that is not published yet, None without one.

    Raises:
        NotADatasetError: The plan is damaged.
        StorageError: OUTPUT cannot be read.
    """
    replaces = root.info(naming.MANIFEST) is not None
    # A build that replaces a dataset writes beside it.
    root = root.below(naming.NEXT_DIR if replaces else "")
    stamp = root.info(naming.PLAN)
    file = stamp and read_json(root, naming.PLAN, PlanFile, fix="run the build again")
    if stamp is None or file is None:
        return None
    return FoundPlan(root, stamp.modified, file, replaces)


def scan_build(root: Folder, now: float) -> BuildProgress:
    """Return the state of an OUTPUT at a time in seconds since 1970.

    In a store that takes six requests, and one more for each 1,000 shards.

    Raises:
        NotADatasetError: OUTPUT is a file, holds files that no build made, or a damaged plan.
        StorageError: OUTPUT cannot be read.
    """
    plan = find_plan(root)
    if plan is not None:
        return _failed(now, plan.root, plan.made) or plan.progress(now)
    names = root.first_names()
    if not names and root.is_file():
        raise NotADatasetError(f"{root} is a file; give the OUTPUT of a build")
    # `gc` removes the manifest with version 1.
    if naming.MANIFEST in names or (naming.VERSIONS_DIR in names and version_numbers(root)[-1] > 1):
        manifest = read_version(root)
        held = Amount(len(manifest.named_shards()), manifest.num_records, manifest.num_bytes)
        # A manifest that names a folder is moved from there to its place.
        phase = BuildPhase.PUBLISHING if manifest.folder else BuildPhase.PUBLISHED
        return BuildProgress(phase, planned=held, done=held, replaces=bool(manifest.folder))
    for name in names:
        is_known = name in _FOLDERS or name.startswith(_BEAM_FOLDER)
        if not is_known and not naming.is_build_output(name):
            raise NotADatasetError(
                f"{root} is not the OUTPUT of a build: it holds {name!r}, and no {naming.PLAN}"
            )
    spool = root.files(naming.SPOOL_DIR) if naming.SPOOL_DIR in names else {}
    changed = max((stamp.modified for stamp in spool.values()), default=0.0)
    phase = BuildPhase.PLANNING if spool else BuildPhase.EMPTY
    return _failed(now, root, changed) or BuildProgress(phase)


def _failed(now: float, root: Folder, after: float) -> BuildProgress | None:
    """Return the state of a build whose plan failed later than `after`, None if none did."""
    times = [
        stamp.modified
        for name, stamp in root.files(naming.REJECTS_DIR).items()
        if naming.is_failed_rejects(f"{naming.REJECTS_DIR}/{name}")
    ]
    # Of an earlier run: the newer plan or spool shows that the build has begun again.
    if max(times, default=0.0) <= after:
        return None
    return BuildProgress(BuildPhase.FAILED, idle_seconds=max(0.0, now - max(times)))
