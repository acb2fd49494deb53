"""Check that OUTPUT has room for a build, and no files of others in its place."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.sizes import show_bytes
from shardwright.storage.folder import Folder
from shardwright.transforms.plan.packing import Layout

# The folder that Beam's file sinks write to before renaming: `FileBasedSink._create_temp_dir`.
_BEAM_LEFTOVER = re.compile(r"beam-temp-[a-z][a-z0-9_]*-\w+\.tfrecord-[0-9a-f]{32}")
_TEMPORARY = re.compile(r"\.(plan\.json|failed\.parquet)\.[0-9a-f]{8}\.tmp")
_SPOOLED = re.compile(r"\.?[0-9a-f]{32}\.(parquet|bin|hashes|known|seen)(\.[0-9a-f]{8}\.tmp)?")


def is_beam_leftover(filename: str) -> bool:
    """Return whether a name is a temporary folder that a stopped `WriteToTFRecord` leaves."""
    return _BEAM_LEFTOVER.fullmatch(filename) is not None


def check_strangers(root: Folder, *, overwrite: bool) -> None:
    """Check that a folder without a build has no files, or with `overwrite` none in a build's way.

    Raises:
        BuildError: It has; what a build leaves before its plan is written does not count.
    """
    if naming.is_generation_folder("/".join(root.uri.rsplit("/", 2)[1:])):
        return  # a dataset's own: `gc` has removed the plan of a build that went on writing
    strangers = sorted(_strangers(root))
    in_the_way = [name for name in strangers if naming.is_build_output(name)]
    if overwrite and in_the_way:
        raise BuildError(
            f"OUTPUT {root} holds {in_the_way[0]!r}, which a build would replace, but no "
            "shardwright build: --if-exists overwrite keeps files that no build made; move the "
            "file away, or use another OUTPUT"
        )
    if strangers and not overwrite:
        raise BuildError(
            f"OUTPUT {root} is not empty and holds no shardwright build (found "
            f"{strangers[0]!r}): use an empty or new folder, or --if-exists overwrite, "
            "which keeps files that no build made"
        )


def _strangers(root: Folder) -> Iterator[str]:
    names = root.names()
    if naming.PLAN in names:  # another build has just started
        return
    for name in names:
        if name in (*naming.SHARD_DIRS, naming.SPOOL_DIR):
            inside = (f"{name}/{filename}" for filename in root.names(name))
            yield from (path for path in inside if not _is_left_before_a_plan(path))
        elif not is_beam_leftover(name) and _TEMPORARY.fullmatch(name) is None:
            yield name


def _is_left_before_a_plan(path: str) -> bool:
    folder, _, filename = path.rpartition("/")
    if folder == naming.SPOOL_DIR:
        return _SPOOLED.fullmatch(filename) is not None
    return naming.is_failed_rejects(path) or _TEMPORARY.fullmatch(filename) is not None


def check_room(root: Folder, layout: Layout) -> None:
    """Check that the planned shards fit on the disk, beside those that are already there.

    Raises:
        BuildError: They do not.
    """
    if root.is_remote:
        return
    written = sum(
        found.num_bytes
        for name, found in root.files().items()
        if naming.ShardName.parse(name) is not None
    )
    needed = sum(layout.num_bytes.values()) - written
    disk = shutil.disk_usage(_existing(root.uri))
    free = disk.free
    if needed > free and disk.total:  # a file system without a size states 0 for both
        raise BuildError(
            f"the shards need {show_bytes(needed)} ({needed:,} bytes), but the disk of OUTPUT "
            f"{root} has {show_bytes(free)} ({free:,} bytes) free: free some space, or use another "
            "OUTPUT"
        )


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
