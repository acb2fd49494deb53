"""Check what an append takes away, before its build, and commit its additions after it.

The commit is made in the process of the build, or as its last step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardwright.errors import BuildError, UsageError
from shardwright.fail_on import Limit, Measured, exceeded
from shardwright.format import naming
from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest
from shardwright.format.versions import read_version
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.changes.seen_records import outdated_rows
from shardwright.transforms.features.vocabularies import Vocabularies
from shardwright.transforms.output_state import SeenRecords
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.versions.commit import Operation, VersionChange, apply, commit

# Without --max-gone an append fails if both are exceeded: small datasets change in larger parts.
_USUAL = (Limit("gone", 10, True), Limit("gone", 20, False))
_MOST_LISTED = 1_000_000
_SHOWN = 3


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


@dataclass(frozen=True, slots=True)
class KnownDataset:
    """The dataset that a build adds records to, as far as its steps need it.

    Attributes:
        file: Its records.
        vocabularies: Its class names and words by feature name.
        base: Its version that was compared.
        append: The append.
    """

    file: KnownFile
    vocabularies: Vocabularies
    base: Manifest
    append: Append


def check_gone(append: Append, seen: SeenRecords, is_partial: bool) -> None:
    """Stop an append that would take away more records than it may.

    Args:
        append: The append.
        seen: The records of the dataset that INPUT has.
        is_partial: As in `Additions`: then nothing counts as gone.

    Raises:
        BuildError: It would; the message names examples, and a file lists the records.
        StorageError: The index of the dataset cannot be read.
    """
    num_gone = append.num_records - seen.num_unchanged - seen.num_changed
    limits = _USUAL if append.max_gone is None else (append.max_gone,)
    kept = append.keep_missing or is_partial
    # The usual case costs nothing: the counts are known from the comparison, and no index is read.
    if kept or not _exceeds(limits, num_gone, append.num_records):
        return
    gone = _gone_records(append, seen)
    # Before the error, which names the file.
    write_rejects(append.root.below(append.folder), naming.GONE_REJECTS, gone)
    limit = "10% and more than 20 records, the default of --max-gone"
    if append.max_gone is not None:
        limit = f"--max-gone {str(append.max_gone).partition('>')[2]}"
    shown = ", ".join(repr(one.id) for one in gone[:_SHOWN])
    raise BuildError(
        f"INPUT {append.source} lacks {num_gone:,} of the {append.num_records:,} records of "
        f"{append.root} ({num_gone / append.num_records:.0%}), such as {shown}. This append would "
        f"take them away, which is more than {limit}. No shard was written; "
        f"{append.folder}/{naming.GONE_REJECTS} lists the records. Check that INPUT is whole and "
        "its disks are mounted. --keep-missing keeps the records; if they are to go, add "
        f"--max-gone {num_gone}"
    )


def _exceeds(limits: tuple[Limit, ...], number: int, whole: int) -> bool:
    """Return whether a number of records exceeds all limits."""
    return len(exceeded(limits, {"gone": Measured(number, whole)})) == len(limits)


def _gone_records(append: Append, seen: SeenRecords) -> list[Reject]:
    """Return the records that INPUT lacks, of as many shards as make `_MOST_LISTED` of them."""
    base, found = append.read_base(), list[Reject]()
    gone = outdated_rows(base, replace(seen, unchanged=seen.unchanged | seen.changed))
    detail = f"INPUT {append.source} lacks this record"
    for name, info in base.named_shards():
        if name in gone and len(found) < _MOST_LISTED:
            index = read_index_of(append.root.below(base.folder), name, info, ["id", "uri"])
            rows = index.take(gone[name]).to_pylist()
            found += [Reject(row["id"], row["uri"], RejectReason.GONE, detail) for row in rows]
    return found


def commit_additions(append: Append, base: Manifest, additions: Additions) -> Manifest:
    """Commit additions and what is gone; return the new version, or the current one if it is equal.

    Then nothing is left in the folder of the additions but the additions. May be repeated.

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
    return version


def propose_versions(append: Append, additions: Additions) -> tuple[Manifest, Manifest]:
    """Return the version that INPUT was compared with, and what additions would make of it.

    Raises:
        BuildError: As `Append.read_base` and `apply`.
        StorageError: The dataset cannot be read.
    """
    base = append.read_base()
    version = apply(append.root, base, _change_of(append, base, additions))
    return base, version or base


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
