"""Commit the additions of an append, after their build: in its process, or as its last step."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.errors import BuildError, UsageError
from shardwright.fail_on import Limit
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.notes import end_build
from shardwright.format.versions import read_version
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.seen_records import SeenRecords, outdated_rows
from shardwright.transforms.publish.fail_on import VersionPair
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.versions.changes import Operation, VersionChange
from shardwright.transforms.versions.commit import apply, commit


@dataclass(frozen=True, slots=True, eq=False)
class Additions:
    """The outcome of a build of additions.

    Attributes:
        manifest: The additions; None if there are none.
        seen: The records of the dataset that INPUT has.
        is_partial: INPUT could not be read to its end, which the options accept: that it lacks a
            record does not mean that the record is gone.
    """

    manifest: Manifest | None
    seen: SeenRecords
    is_partial: bool

    @classmethod
    def of(cls, manifest: Manifest, seen: SeenRecords) -> Additions:
        """Return the outcome of a build with this manifest, which may have no records."""
        is_partial = RejectReason.INCOMPLETE in manifest.rejects
        return cls(manifest if manifest.num_records else None, seen, is_partial)


@dataclass(frozen=True, slots=True)
class Append:
    """An append to a dataset, as far as its commit needs it; small, because workers get it.

    Attributes:
        root: The dataset's folder.
        base: Number of the version that INPUT was compared with.
        fingerprint: Its fingerprint.
        folder: The folder below `root` for the additions.
        keep_missing: Records that INPUT does not have stay.
        keeps_places: As in `VersionChange`.
        num_records: The records of that version.
        max_gone: The records that the append may take away; None for the usual limits.
        source: INPUT.
        lists_all: INPUT is a folder; a table or archive may be of one day.
    """

    root: Folder
    base: int
    fingerprint: str
    folder: str
    keep_missing: bool
    keeps_places: bool
    num_records: int = 0
    max_gone: Limit | None = None
    source: str = ""
    lists_all: bool = True

    def read_base(self) -> Manifest:
        """Return the version that INPUT was compared with.

        Raises:
            BuildError: It was removed or replaced meanwhile.
            StorageError: The dataset cannot be read.
        """
        try:
            base = read_version(self.root, self.base)
        except UsageError as error:
            raise BuildError(f"{error}: run this command again") from error
        if base.fingerprint != self.fingerprint:
            raise BuildError(f"{self.root} was replaced meanwhile: run this command again")
        return base


def commit_additions(append: Append, base: Manifest, additions: Additions) -> Manifest:
    """Commit additions and what is gone; return the new version, or the current one if it is equal.

    Then nothing is left in the folder of the additions but the additions, and no note of their
    build. May be repeated.

    Raises:
        BuildError: As `commit`.
        StorageError: The dataset cannot be read or written.
    """
    version = commit(append.root, _change_of(append, base, additions))
    folder = append.root.below(append.folder)
    spool = folder.below(naming.SPOOL_DIR)
    # After the commit: a stop before it finds the listing here, and need not read INPUT again.
    spool.remove_all(spool.names())
    if additions.manifest is None:  # else its build has removed those of an earlier try
        paths = (f"{naming.REJECTS_DIR}/{name}" for name in folder.names(naming.REJECTS_DIR))
        folder.remove_all([path for path in paths if naming.is_failed_rejects(path)])
    append.root.below(naming.GENERATIONS_DIR).remove_empty()
    # Last: until here `gc` must leave the folder alone.
    end_build(append.root, append.folder)
    return version


def propose_versions(append: Append, additions: Additions) -> VersionPair:
    """Return the version that INPUT was compared with, and what additions would make of it.

    Raises:
        BuildError: As `Append.read_base` and `apply`.
        StorageError: The dataset cannot be read.
    """
    base = append.read_base()
    version = apply(append.root, base, _change_of(append, base, additions))
    return VersionPair(append.root, base, version or base)


def _change_of(append: Append, base: Manifest, additions: Additions) -> VersionChange:
    # Half of an INPUT says nothing about what is gone.
    keep_missing = append.keep_missing or additions.is_partial
    return VersionChange(
        Operation.APPEND,
        base,
        folder="" if additions.manifest is None else append.folder,
        added=additions.manifest,
        outdated=outdated_rows(base, additions.seen, keep_missing=keep_missing),
        keeps_places=append.keeps_places,
    )
