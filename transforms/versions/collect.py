"""Remove versions that are no longer needed, and the files that no version needs.

First each version says that it is gone, so that no reader opens it any more; then its files go. So
what a stop leaves is found and removed by the next run. The file of a version stays, because its
number must not be used again: a writer that has read an older version would create it.

A plan is old once it is made. So a removal leaves notes about all that it is going to remove
(`shardwright.format.notes`), and then looks again: what is pinned, named by a version, written or
about to be committed by now stays. A running build is told by the age of its newest file, by the
clock that stamps files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product

from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.notes import Note, is_noted, noted, remove_dead_notes
from shardwright.format.pins import Pin, read_pins
from shardwright.format.schema import ExampleSchema
from shardwright.format.versions import (
    generation_folders,
    number_of,
    read_stated,
    read_versions,
    version_numbers,
)
from shardwright.storage.folder import Folder
from shardwright.storage.local import FileInfo
from shardwright.transforms.promotion import remove_outputs

ORPHANS_AFTER = timedelta(hours=24)


@dataclass(frozen=True)
class Generation:
    """A generation that can be removed.

    Attributes:
        folder: Its folder, "" for the first one.
        files: Its files, relative to the dataset's folder.
        is_orphan: Whether no version has ever named it: a build has stopped before its commit.
    """

    folder: str
    files: Mapping[str, FileInfo]
    is_orphan: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of its files."""
        return sum(stamp.num_bytes for stamp in self.files.values())

    @property
    def written(self) -> float:
        """Return when its newest file was written, in seconds since 1970 (UTC)."""
        return max((stamp.modified for stamp in self.files.values()), default=0.0)


@dataclass(frozen=True)
class Collection:
    """The versions and files that `collect` removes, or has removed.

    Attributes:
        versions: Numbers of the versions, ascending.
        generations: The generations that no kept version names.
        pins: The pins by which further versions stay.
        left: Generations that stay, because they are written or committed just now.
    """

    versions: tuple[int, ...]
    generations: tuple[Generation, ...]
    pins: tuple[Pin, ...] = ()
    left: tuple[Generation, ...] = ()

    @property
    def files(self) -> list[str]:
        """The files, relative to the dataset's folder."""
        return [name for one in self.generations for name in one.files]

    @property
    def num_bytes(self) -> int:
        """Bytes of these files."""
        return sum(one.num_bytes for one in self.generations)


def plan_collection(
    root: Folder,
    keep: int,
    *,
    orphans_after: timedelta = ORPHANS_AFTER,
    clock: Callable[[], float] = time.time,
) -> Collection:
    """Return what is removed if only the newest and the pinned versions are kept.

    Args:
        root: The dataset's folder.
        keep: Number of versions to keep, at least 1.
        orphans_after: How long no file of a generation without a version must have been written:
            a younger one may be a running build, or about to be committed.
        clock: The clock of their ages: `time_at` asks that of the disk or store, and writes there.

    Raises:
        NotADatasetError: There is no finished dataset.
        StorageError: The folder cannot be read, or a pin is damaged.
    """
    readable = list(read_versions(root))
    newest = set(map(number_of, readable[:keep]))
    older = {number_of(version) for version in readable} - newest
    # A pin of a version that stays anyway needs no mention.
    pins = tuple(pin for pin in _held(root) if pin.version in older)
    kept = newest | {pin.version for pin in pins}
    named = _named_by(version for version in readable if number_of(version) in kept)
    # Also collected ones: what they named is still removed, if a stop left it.
    leaving = [number for number in version_numbers(root) if number not in kept]
    once = {""} if 1 in leaving else set()
    for number in set(leaving) - {1}:
        once.update(read_stated(root, number).history["generations"])
    there = sorted({*generation_folders(root), *({""} & once)} - named)
    found = [Generation(each, _files_in(root, each), is_orphan=each not in once) for each in there]
    old = clock() - orphans_after.total_seconds() if found else 0.0
    # A generation that a version once named is no build: its age does not matter.
    ripe = [one for one in found if one.files and (not one.is_orphan or one.written <= old)]
    # The first version can be read as long as its generation is there.
    gone = older - kept - ({1} if "" in named else set())
    return Collection(tuple(sorted(gone)), tuple(ripe), pins)


def collect(root: Folder, plan: Collection) -> Collection:
    """Remove what `plan_collection` has found, and return what was removed. May be repeated.

    Raises:
        NotADatasetError: A version is damaged.
        StorageError: A file cannot be read, written or removed.
    """
    folders = [one.folder for one in plan.generations if one.folder]
    with noted(root, Note.REMOVE, [*plan.versions, *folders]) as notes:
        # Read after the notes are there: whoever pins later sees the note, and fails.
        pins = tuple(pin for pin in _held(root) if pin.version in plan.versions)
        gone = set(plan.versions) - {pin.version for pin in pins}
        # The manifest of version 1 goes with the files of its generation.
        for number in gone - {1}:
            # Before any file goes: a reader that opens the version fails clearly, not at a missing
            # shard.
            write_stub(root, read_stated(root, number))
        left = tuple(one for one in plan.generations if _is_in_use(root, one))
        root.remove_all([notes[one.folder] for one in left])  # else their commits would give way
        # After the notes of others: one that has none has ended by now, or will see ours.
        named = _named_by(one for one in read_versions(root) if number_of(one) not in gone)
        free = (one for one in plan.generations if one not in left)
        removed = tuple(one for one in free if one.folder not in named)
        for one in removed:
            _remove(root, one)
        remove_dead_notes(root)
    if "" in named:
        gone -= {1}
    left = tuple(one for one in left if one.folder not in named)
    return Collection(tuple(sorted(gone)), removed, (*plan.pins, *pins), left)


def write_stub(root: Folder, version: Manifest) -> None:
    """Write the file of a collected version: its history alone, without names of classes."""
    stub = replace(
        version,
        schema=ExampleSchema(()),
        splits={},
        settings={},
        provenance={},
        num_inputs=0,
        history={**version.history, "collected": True},
    )
    root.write_bytes(naming.version_file(number_of(version)), stub.to_bytes())


def _held(root: Folder) -> list[Pin]:
    return [pin for pin in read_pins(root) if pin.holds()]


def _named_by(versions: Iterable[Manifest]) -> set[str]:
    return {folder for version in versions for folder in version.folders}


def _files_in(root: Folder, folder: str) -> dict[str, FileInfo]:
    """Return path -> stamp of the files of a generation, also those that a repair has left."""
    found = {}
    parts = ("", *naming.SHARD_DIRS, *([naming.SPOOL_DIR] if folder else []))
    for base, part in product(("", *naming.STAGED_DIRS), parts):
        below = "/".join(filter(None, (folder, base, part)))
        for name, stamp in root.files(below).items():
            if naming.is_build_output(f"{part}/{name}".lstrip("/")):
                found[f"{below}/{name}".lstrip("/")] = stamp
    return found


def _is_in_use(root: Folder, one: Generation) -> bool:
    """Return whether a generation of a plan is about to be committed, or goes on being written."""
    is_written = one.is_orphan and _files_in(root, one.folder) != one.files
    return is_written or (bool(one.folder) and is_noted(root, Note.COMMIT, one.folder))


def _remove(root: Folder, one: Generation) -> None:
    below = root.below(one.folder)
    if one.folder:
        # First: a build that still writes there, and misses any of its files, looks for its plan.
        below.remove(naming.PLAN)
    remove_outputs(below)
    root.remove_all([*one.files])
    if one.folder:
        below.remove_empty()
