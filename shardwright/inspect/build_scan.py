"""Read the state of a build from its OUTPUT, again and again.

One look takes a request for the manifest and one for the plan, a listing of `index/` and one of
`rejects/`, and the ends of at most 200 new sidecars. No file is read twice. Of appends to a
published dataset only those are seen that failed before they wrote shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from shardwright.errors import NotADatasetError
from shardwright.format import naming
from shardwright.format.versions import (
    generation_folders,
    number_of,
    read_version,
    version_numbers,
)
from shardwright.inspect.build_progress import Amount, BuildPhase, BuildProgress
from shardwright.inspect.reject_counts import by_number, count_reasons
from shardwright.inspect.watched_plan import MOST_REJECT_FILES, WatchedPlan
from shardwright.storage.folder import Folder
from shardwright.storage.stamps import FileStamp

_FOLDERS = (naming.INDEX_DIR, naming.REJECTS_DIR, naming.SPOOL_DIR, naming.NEXT_DIR)
_BEAM_FOLDER = "beam-temp-"  # of Beam's own writer


class BuildScan:
    """The state of an OUTPUT.

    Args:
        root: OUTPUT.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._plan: WatchedPlan | None = None

    def look(self, now: float) -> BuildProgress:
        """Return the present state.

        Args:
            now: The present time, in seconds since 1970.

        Raises:
            NotADatasetError: OUTPUT is a file, holds files that no build made, or a damaged plan.
            StorageError: OUTPUT cannot be read.
        """
        manifest = self._root.stamp(naming.MANIFEST)
        # A build that replaces a dataset writes beside it.
        root = self._root if manifest is None else self._root.below(naming.NEXT_DIR)
        stamp = root.stamp(naming.PLAN)
        if stamp is None:
            return self._unplanned(now) if manifest is None else self._published(now)
        rejects = root.stamps(naming.REJECTS_DIR)
        if (failed := self._failed(now, root, rejects, after=stamp.modified)) is not None:
            return failed
        if self._plan is None or (self._plan.root, self._plan.stamp) != (root, stamp):
            self._plan = WatchedPlan(root, stamp)
        self._plan.look(rejects)
        return replace(self._plan.progress(now), replaces=manifest is not None)

    def _unplanned(self, now: float) -> BuildProgress:
        names = self._root.first_names()
        if not names and self._root.is_file():
            raise NotADatasetError(f"{self._root} is a file; give the OUTPUT of a build")
        if naming.VERSIONS_DIR in names and version_numbers(self._root)[-1] > 1:
            return self._published(now)  # `gc` has removed the manifest with version 1
        if strangers := [name for name in names if not _is_of_a_build(name)]:
            raise NotADatasetError(
                f"{self._root} is not the OUTPUT of a build: it holds {strangers[0]!r}, and no "
                f"{naming.PLAN}"
            )
        spool = self._root.stamps(naming.SPOOL_DIR) if naming.SPOOL_DIR in names else {}
        changed = max((stamp.modified for stamp in spool.values()), default=0.0)
        if naming.REJECTS_DIR in names:
            rejects = self._root.stamps(naming.REJECTS_DIR)
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
        self, now: float, root: Folder, rejects: Mapping[str, FileStamp], *, after: float
    ) -> BuildProgress | None:
        """Return the state of a build in a folder whose plan failed, if one did after a time."""
        paths = {f"{naming.REJECTS_DIR}/{name}": stamp for name, stamp in rejects.items()}
        failed = {name: each for name, each in paths.items() if naming.is_failed_rejects(name)}
        changed = max((stamp.modified for stamp in failed.values()), default=0.0)
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
        stamp = self._root.stamp(naming.version_file(number) if number > 1 else naming.MANIFEST)
        published = 0.0 if stamp is None else stamp.modified
        for folder in generation_folders(self._root):
            if folder.startswith(naming.generation_folder(number + 1, "")):
                below = self._root.below(folder)
                rejects = below.stamps(naming.REJECTS_DIR)
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


def _is_of_a_build(name: str) -> bool:
    return name in _FOLDERS or naming.is_build_output(name) or name.startswith(_BEAM_FOLDER)
