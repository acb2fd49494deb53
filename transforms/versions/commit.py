"""Commit a change to a dataset as its next version.

A version is the manifest of all its shards (`shardwright.format.versions`). It is committed by
creating its file, so of two writers only one can: the other one applies its change to the version
that the first has made, and tries the next number. So no commit is lost, whatever came between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, ExistsError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.format.versions import number_of, read_version
from shardwright.storage.folder import Folder
from transforms.versions.changes import (
    Operation,
    Removal,
    Shards,
    VersionChange,
    live_ids,
    outdated_ids,
    remove_ids,
    remove_rows,
)
from transforms.versions.version_statistics import version_stats


def commit(root: Folder, change: VersionChange) -> Manifest:
    """Commit a change and return the new version; the current one if nothing changes.

    May be repeated: a generation that is in the dataset already is not added again. Another append
    of the same INPUT may have committed it, from a listing that had records which are gone now.

    Raises:
        BuildError: The generation does not fit the dataset: another schema, or class numbers that
            another append has given to other classes meanwhile.
        StorageError: The dataset cannot be read or written.
    """
    while True:
        current = read_version(root)
        version = apply(root, current, change)
        if version is None:
            return current
        try:
            root.create_bytes(naming.version_file(number_of(version)), version.to_bytes())
        except ExistsError:  # another writer was faster
            continue
        return version


def apply(root: Folder, current: Manifest, change: VersionChange) -> Manifest | None:
    """Return the version that a change makes of another one; None if it changes nothing.

    Raises:
        BuildError: As `commit`.
        StorageError: An index cannot be read.
    """
    kept = [
        (name, replace(info, count=name.count))
        for name, info in current.named_shards()
        if info.folder not in change.replaced
    ]
    if change.replaced and len(kept) == len(current.named_shards()):
        return None  # another compaction has replaced them, or this one before a repetition
    added = _added_shards(current, change)
    if number_of(current) == number_of(change.base):
        lost = remove_rows(root, kept, change.outdated)
    elif change.operation is Operation.APPEND:
        lost = remove_ids(root, kept, _outdated_since(root, change, added))
    else:
        lost = _lost_since(root, current, change, added)
    if not added and not lost:
        return None
    splits = _splits_of(dict([*kept, *added]), lost, _counted_in(root, current, change, kept, lost))
    return _version_of(current, change, splits, lost)


def _added_shards(current: Manifest, change: VersionChange) -> Shards:
    """Return the shards of the generation, by their names in the dataset."""
    if change.added is None or _has(current, change.folder):
        return []
    _check_fits(current, change.added)
    return _shards_of(change.added, change.folder)


def _has(current: Manifest, folder: str) -> bool:
    return folder in current.history.get("generations", ())


def _shards_of(generation: Manifest, folder: str) -> Shards:
    return [
        (replace(name, folder=folder), replace(info, folder=folder, count=name.count))
        for name, info in generation.named_shards()
    ]


def _check_fits(current: Manifest, added: Manifest) -> None:
    if (current.name, current.schema.features) != (added.name, added.schema.features):
        raise BuildError(
            f"{added.name} with the features {_told(added)} does not fit {current.name} with "
            f"{_told(current)}: build another dataset"
        )
    here_by_name = _names(added)
    for name, there in _names(current).items():
        here = here_by_name.get(name, ())
        common = min(len(there), len(here))
        if there[:common] != here[:common]:
            raise BuildError(
                f"another append has given numbers of {name!r} to other names meanwhile "
                f"({there[-1]!r}): run this one again"
            )


def _names(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Return class names and words by feature, those of the label first."""
    return {"label": manifest.schema.class_names, **manifest.schema.vocabularies}


def _told(manifest: Manifest) -> str:
    return ", ".join(feature.name for feature in manifest.schema.features)


def _outdated_since(root: Folder, change: VersionChange, added: Shards) -> pa.Array:
    """Return the ids that an append takes away from a later version than it has read."""
    ids = outdated_ids(root, change)
    if change.added is None or added:
        return pa.concat_arrays([ids, live_ids(root, added)])
    # Its new records are there already: it must not take them away, but only what is gone.
    there = live_ids(root, _shards_of(change.added, change.folder))
    return ids.filter(pc.invert(pc.is_in(ids, value_set=there)))


def _lost_since(
    root: Folder, current: Manifest, change: VersionChange, added: Shards
) -> dict[ShardName, Removal]:
    """Return what a compaction must not bring back: records taken away since it began."""
    left = [shard for shard in current.named_shards() if shard[1].folder in change.replaced]
    return remove_ids(root, added, live_ids(root, left), keep=True)


@dataclass(frozen=True)
class _Counted:
    """Published statistics that make up those of a version.

    Attributes:
        parts: Manifests whose statistics are added.
        lost: Removals whose records they count, by shard.
    """

    parts: Sequence[Manifest]
    lost: Mapping[ShardName, Removal]


def _counted_in(
    root: Folder,
    current: Manifest,
    change: VersionChange,
    kept: Shards,
    lost: Mapping[ShardName, Removal],
) -> _Counted:
    added = [] if change.added is None or _has(current, change.folder) else [change.added]
    if change.operation is not Operation.COMPACT:
        return _Counted([current, *added], lost)
    # Beside the compacted shards there are only those of appends that came meanwhile. Of these
    # the version may have lost whole shards.
    parts, every = added, dict(lost)
    for folder in sorted({info.folder for _, info in kept}):
        generation = read_manifest(root.below(folder))
        shards, left = _shards_of(generation, folder), dict(kept)
        gone = {
            name: left[name].removed_rows
            if name in left
            else np.arange(info.num_records, dtype=np.uint32)
            for name, info in shards
        }
        every |= remove_rows(root, shards, {name: rows for name, rows in gone.items() if len(rows)})
        parts.append(generation)
    return _Counted(parts, every)


def _splits_of(
    shards: Mapping[ShardName, ShardInfo], lost: Mapping[ShardName, Removal], counted: _Counted
) -> dict[str, SplitInfo]:
    left = {name: lost[name].shard if name in lost else info for name, info in shards.items()}
    left = {name: info for name, info in left.items() if info.num_live}
    return {
        split: SplitInfo(
            split,
            tuple(info for name, info in left.items() if name.split == split),
            version_stats(
                [part.splits[split].stats for part in counted.parts if split in part.splits],
                _lost_rows(counted.lost, split),
            ),
        )
        for split in sorted({name.split for name in left})
    }


def _version_of(
    current: Manifest,
    change: VersionChange,
    splits: Mapping[str, SplitInfo],
    lost: Mapping[ShardName, Removal],
) -> Manifest:
    newest = change.added or current
    # Rejects are those of a generation, and files that its own manifest lists.
    version = replace(
        current, splits=splits, schema=_schema_of(current, newest), rejects={}, files={}, folder="",
        provenance=newest.provenance, history={},
    )  # fmt: skip
    return replace(
        version,
        num_inputs=version.num_records,
        history=_history(current, change, version, lost),
    )


def _schema_of(current: Manifest, newest: Manifest) -> ExampleSchema:
    """Return the schema with the longer names of each feature: two appends may have added some."""
    here, there = current.schema, newest.schema
    words = {**here.vocabularies, **there.vocabularies}
    return replace(
        here,
        class_names=max(here.class_names, there.class_names, key=len),
        vocabularies={
            name: max(here.vocabularies.get(name, ()), there.vocabularies.get(name, ()), key=len)
            for name in words
        },
    )


def _lost_rows(lost: Mapping[ShardName, Removal], split: str) -> pa.Table | None:
    rows = [removal.rows for name, removal in lost.items() if name.split == split]
    return pa.concat_tables(rows) if rows else None


def _history(
    current: Manifest, change: VersionChange, version: Manifest, lost: Mapping[ShardName, Removal]
) -> dict[str, Any]:
    is_new = not _has(current, change.folder)
    num_added = change.added.num_records if change.added is not None and is_new else 0
    num_lost = sum(len(removal.rows) for removal in lost.values())
    return {
        "version": number_of(current) + 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "operation": str(change.operation),
        "generations": _folders(version),
        "added": num_added,
        "removed": num_lost,
    }


def _folders(version: Manifest) -> list[str]:
    shards: Iterable[ShardInfo] = (info for _, info in version.named_shards())
    return sorted({info.folder for info in shards})
