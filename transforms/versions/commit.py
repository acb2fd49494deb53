"""Commit a change to a dataset as its next version.

A version is the manifest of all its shards (`shardwright.format.versions`). It is committed by
creating its file, so of two writers only one can: the other one applies its change to the version
that the first has made, and tries the next number. So no commit is lost, whatever came between.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import BuildError, ExistsError, StorageError
from shardwright.format import naming
from shardwright.format.index import read_index_of, read_live_rows
from shardwright.format.listed_files import listed_faults
from shardwright.format.manifest import Manifest, read_manifest, time_text
from shardwright.format.naming import ShardName
from shardwright.format.notes import Note, is_noted, noted
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.format.superseded import block_first_version
from shardwright.format.versions import number_of, read_version, read_versions
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.changes.schema_differences import schema_differences
from shardwright.transforms.versions.counted import version_stats

Shards = Sequence[tuple[ShardName, ShardInfo]]

_MOST_TRIES = 50  # of a commit, each after another writer was faster
_READERS = 16
_COLUMNS = ["id", "label", "format", "image_length", "width", "height"]


class Operation(StrEnum):
    """The operation that makes a version."""

    APPEND = "append"
    COMPACT = "compact"
    ERASE = "erase"


@dataclass(frozen=True, eq=False)
class VersionChange:
    """A change, which can be made to any version that is current when it is committed.

    Attributes:
        operation: Names it.
        base: The version that the operation has read.
        folder: The folder of the generation that it adds, "" for none.
        added: The manifest of that generation; None for none. Of a copy it has all records that
            stay of `base`.
        outdated: Rows of the shards of `base` to take away, uint32 [rows], ascending.
        keeps_places: No added record may have an id that another append has added since `base`.
    """

    operation: Operation
    base: Manifest
    folder: str = ""
    added: Manifest | None = None
    outdated: Mapping[ShardName, NDArray[np.uint32]] = field(default_factory=dict)
    keeps_places: bool = False


@dataclass(frozen=True)
class Removal:
    """A shard of a version that loses records.

    Attributes:
        shard: The shard, with all rows that are no longer in the dataset.
        rows: The index rows that it loses now.
    """

    shard: ShardInfo
    rows: pa.Table


def commit(root: Folder, change: VersionChange) -> Manifest:
    """Commit a change and return the new version; the current one if nothing changes.

    May be repeated: a generation that is in the dataset already is not added again. Another append
    of the same INPUT may have committed it, from a listing that had records which are gone now.

    Raises:
        BuildError: The generation does not fit the dataset: another schema, or class numbers that
            another append has given to other classes meanwhile, or ids to other images. Or `gc`
            has removed it. Or the dataset that it was made of was replaced.
        StorageError: The dataset cannot be read or written.
    """
    # From here on `gc` and `erase` leave the generation alone, unless they have begun before they
    # could see this note: then their own is there, or, once they have ended, files are missing.
    # What is left is one that is halted for an hour in between, after which this note does not
    # count.
    with noted(root, Note.COMMIT, [change.folder or number_of(change.base)]):
        for tried in range(_MOST_TRIES):
            # Read anew in each try: the version that was faster is what the change is applied to.
            current = read_version(root)
            _check_there(root, change)
            # Nothing is written until `create_bytes`, so a failed try leaves nothing.
            version = apply(root, current, change)
            if version is None:
                return current
            number = number_of(version)
            if number > naming.MAX_VERSION:
                raise BuildError(
                    f"{root} cannot get version {number:,}: {naming.MAX_VERSION:,} is the last "
                    "number; copy its newest version with `shardwright build`"
                )
            # Before the commit, so that no stop leaves an old version that is read silently.
            block_first_version(root, version.name, version.splits)
            file = naming.version_file(number)
            try:
                root.create_bytes(file, version.to_bytes())
            except ExistsError:  # another writer was faster
                time.sleep(random.random() * tried / 500)
                continue
            return version
    raise BuildError(
        f"{root.path(file)} was there in each of {_MOST_TRIES} tries to commit a version: others "
        "commit all the time, or listings do not show the file; run this command again"
    )


def _check_there(root: Folder, change: VersionChange) -> None:
    """Check that the first version is the one that was read, and that the additions are whole."""
    # The notes first, here and below: once a removal has ended, files are gone.
    if number_of(change.base) == 1:
        # Later versions never change. The first one can be replaced as a whole, under the same
        # names of shards, by an erasure or another build: rows of `base` would be others there.
        leaves = is_noted(root, Note.REMOVE, 1)
        there = root.num_bytes_of(naming.MANIFEST) is not None
        if leaves or (there and read_manifest(root).fingerprint != change.base.fingerprint):
            raise BuildError(
                f"{root} is not what it was when this command began: `shardwright erase`, `gc` or "
                "another build has replaced or removed its first version; run this command again"
            )
    if change.added is not None:
        below = root.below(change.folder)
        if (
            is_noted(root, Note.REMOVE, change.folder)
            or not below.num_bytes_of(naming.MANIFEST)
            or any(listed_faults(below, read_manifest(below)))
        ):
            raise BuildError(
                f"{below} lost files before it was committed as a version: `shardwright gc` or "
                "another program removes them; run this command again when it has ended"
            )


def apply(root: Folder, current: Manifest, change: VersionChange) -> Manifest | None:
    """Return the version that a change makes of another one; None if it changes nothing.

    Raises:
        BuildError: As `commit`.
        StorageError: An index cannot be read.
    """
    appends = change.operation is Operation.APPEND
    is_next = number_of(current) == number_of(change.base)
    copied = frozenset(() if appends else change.base.folders)
    there = [(name, replace(info, count=name.count)) for name, info in current.named_shards()]
    kept = [shard for shard in there if shard[1].folder not in copied]
    if copied and len(kept) == len(there):
        return None  # another compaction has replaced them, or this one before a repetition
    new: list[Manifest] = []
    if change.added is not None and change.folder not in current.history.get("generations", ()):
        if change.operation is not Operation.ERASE:  # which takes names away
            _check_fits(current, change.added)
        new.append(change.added)
    added = [shard for generation in new for shard in _shards_of(generation, change.folder)]
    if change.operation is Operation.ERASE and not is_next:
        raise BuildError(
            f"another command has committed version {number_of(current)} of {root} meanwhile: "
            "stop appends and compactions, and run this command again"
        )
    # Nothing has come between: rows are taken away by number, without reading ids.
    if is_next:
        touched = [shard for shard in kept if shard[0] in change.outdated]
        lost = _removals(root, touched, lambda name, _: change.outdated[name])
    elif appends:
        # Row numbers of the base may not fit the shards of now, so records are found by id from
        # here on.
        lost = _remove_ids(root, kept, _outdated_since(root, change, kept, added))
    else:
        # A compaction has copied records that an append has taken away meanwhile: they must not
        # come back.
        ids = _live_ids(root, [shard for shard in there if shard[1].folder in copied])
        lost = _remove_ids(root, added, ids, keep=True)
    if not added and not lost:
        return None
    counts = {
        "added": sum(generation.num_records for generation in new),
        "removed": sum(len(removal.rows) for removal in lost.values()),
    }
    left = {name: lost[name].shard if name in lost else info for name, info in (*kept, *added)}
    if appends:
        counts["replaced"] = _num_replaced(root, added, lost)
        splits = _splits_of(left, [current, *new], lost)
    else:  # which has the records of the current version
        splits = _splits_of(left, new if is_next else [current], {})
    return _version_of(current, change, splits, counts)


def _check_fits(current: Manifest, added: Manifest) -> None:
    details = schema_differences(current.schema, added.schema)
    if current.name != added.name or details:
        raise BuildError(
            f"{added.name} does not fit {current.name} ({details or 'another name'}): build "
            "another dataset"
        )
    for feature in current.schema.features:
        there, here = current.schema.names_of(feature), added.schema.names_of(feature)
        # One may be longer: an append adds names at the end, and never changes a number.
        both = zip(there, here, strict=False)
        if not feature.names and any(old != new for old, new in both):
            raise BuildError(
                f"another append has given numbers of {feature.name!r} to other names meanwhile "
                f"({there[-1]!r}): run this one again"
            )


def _outdated_since(root: Folder, change: VersionChange, kept: Shards, added: Shards) -> pa.Array:
    """Return the ids that an append takes away from a later version than it has read.

    Raises:
        BuildError: With `keeps_places`, another append has added an id that is new here, too. Run
            again, the build compares the two images.
        StorageError: An index cannot be read.
    """
    gone, ours = _outdated_ids(root, change), _live_ids(root, added)
    if change.keeps_places:
        earlier = change.base.folders
        since = _live_ids(root, [shard for shard in kept if shard[1].folder not in earlier])
        new = ours.filter(pc.invert(pc.is_in(ours, value_set=gone)))
        both = new.filter(pc.is_in(new, value_set=since))
        if len(both):
            raise BuildError(
                f"another append to {root} has added {counted(len(both), 'image')} meanwhile with "
                f"ids of this INPUT, such as {both[0].as_py()!r}: run this command again"
            )
    if change.added is None or added:
        return pa.concat_arrays([gone, ours])
    # Its new records are there already: it must not take them away, but only what is gone.
    there = _live_ids(root, _shards_of(change.added, change.folder))
    return gone.filter(pc.invert(pc.is_in(gone, value_set=there)))


def _num_replaced(root: Folder, added: Shards, lost: Mapping[ShardName, Removal]) -> int:
    """Return how many of the records that are taken away have a new one with their id."""
    if not added or not lost:
        return 0
    gone = _ids_of(removal.rows for removal in lost.values())
    return pc.sum(pc.is_in(_live_ids(root, added), value_set=gone)).as_py() or 0


def _version_of(
    current: Manifest,
    change: VersionChange,
    splits: Mapping[str, SplitInfo],
    counts: Mapping[str, int],
) -> Manifest:
    newest = change.added or current
    # Rejects are those of a generation, and files that its own manifest lists.
    is_erasure = change.operation is Operation.ERASE
    version = replace(
        current,
        splits=splits,
        schema=newest.schema if is_erasure else _schema_of(current, newest),
        rejects={},
        files={},
        folder="",
        provenance=newest.provenance,
    )
    history = {
        "version": number_of(current) + 1,
        "created": time_text(),
        "operation": str(change.operation),
        "generations": version.folders,
        **counts,
    }
    return replace(version, num_inputs=version.num_records, history=history)


def _schema_of(current: Manifest, newest: Manifest) -> ExampleSchema:
    """Return the schema with the longer names of each feature: two appends may have added some."""
    here, there = current.schema, newest.schema
    words = {**there.vocabularies, **here.vocabularies}
    for name, longer in there.vocabularies.items():
        # `_check_fits` has found that one is the beginning of the other.
        words[name] = max(words[name], longer, key=len)
    class_names = max(here.class_names, there.class_names, key=len)
    return replace(here, class_names=class_names, vocabularies=words)


def _splits_of(
    shards: Mapping[ShardName, ShardInfo],
    parts: Sequence[Manifest],
    lost: Mapping[ShardName, Removal],
) -> dict[str, SplitInfo]:
    """Return the splits of the shards that have records left.

    Args:
        shards: The shards.
        parts: Manifests whose statistics are added.
        lost: Removals whose records these count, by shard.
    """
    left = {name: info for name, info in shards.items() if info.num_live}
    splits = {}
    for split in sorted({name.split for name in left}):
        infos = tuple(info for name, info in left.items() if name.split == split)
        published = [part.splits[split].stats for part in parts if split in part.splits]
        gone = [removal.rows for name, removal in lost.items() if name.split == split]
        stats = version_stats(published, pa.concat_tables(gone) if gone else None)
        splits[split] = SplitInfo(split, infos, stats)
    return splits


def _shards_of(generation: Manifest, folder: str) -> Shards:
    """Return the shards of a generation by their names in the dataset."""
    return [
        (replace(name, folder=folder), replace(info, folder=folder, count=name.count))
        for name, info in generation.named_shards()
    ]


def _live_ids(root: Folder, shards: Shards) -> pa.Array:
    """Return the ids of all records of some shards, string [records], in stored order."""
    return _ids_of(map_reads(lambda one: read_live_rows(root, *one, ["id"]), shards, _READERS))


def _outdated_ids(root: Folder, change: VersionChange) -> pa.Array:
    """Return the ids of the records that a change takes away, string [records].

    Raises:
        BuildError: The version that the operation has read was removed meanwhile.
        StorageError: An index cannot be read.
    """
    infos = dict(change.base.named_shards())

    def read(one: tuple[ShardName, NDArray[np.uint32]]) -> pa.Table:
        name, rows = one
        return read_index_of(root, name, infos[name], ["id"]).take(rows)

    try:
        return _ids_of(map_reads(read, list(change.outdated.items()), _READERS))
    except StorageError as error:
        # It is still there, so the error is of the disk or store.
        if number_of(change.base) in map(number_of, read_versions(root)):
            raise
        raise BuildError(
            f"version {number_of(change.base)} of {root} was removed by `shardwright gc` "
            "meanwhile: run this command again"
        ) from error


def _ids_of(tables: Iterable[pa.Table]) -> pa.Array:
    """Return the column "id" of index rows, string [rows]."""
    chunks = [chunk for table in tables for chunk in table["id"].chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()


def _remove_ids(
    root: Folder, shards: Shards, ids: pa.Array, *, keep: bool = False
) -> dict[ShardName, Removal]:
    """Return the shards that lose records, by name.

    Args:
        root: The dataset's folder.
        shards: The shards to look in.
        ids: The ids of the records that they lose.
        keep: These are the ids of all that they keep.

    Raises:
        StorageError: An index cannot be read.
    """

    def find(_: ShardName, rows: pa.Table) -> NDArray[Any]:
        return np.flatnonzero(pc.is_in(rows["id"], value_set=ids).to_numpy() != keep)

    return _removals(root, shards, find)


def _removals(
    root: Folder, shards: Shards, find: Callable[[ShardName, pa.Table], NDArray[Any]]
) -> dict[ShardName, Removal]:
    """Return the shards that lose those rows that `find` returns and that they still have, by name.

    Raises:
        StorageError: An index cannot be read.
    """

    def look(shard: tuple[ShardName, ShardInfo]) -> tuple[ShardName, Removal] | None:
        name, info = shard
        rows = read_index_of(root, name, info, _COLUMNS)
        # A row that another append has taken away already must not be counted twice.
        lost = np.setdiff1d(find(name, rows), info.removed_rows)
        removed = np.union1d(info.removed_rows, lost).astype("<u4").tobytes()
        found = name, Removal(replace(info, removed=removed), rows.take(lost))
        return found if len(lost) else None

    return dict(filter(None, map_reads(look, shards, _READERS)))
