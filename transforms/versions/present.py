"""Bring versions and changes up to date with shards that `shardwright erase` has rewritten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import BuildError, NotADatasetError
from shardwright.format.erasures import rows_since
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import same_names
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import number_of
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.versions.changes import VersionChange
from shardwright.transforms.versions.counted import count_generations, splits_of_live

_READERS = 16


class Generations:
    """The manifests of a dataset's generations, each read once.

    Args:
        root: The dataset's folder.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._manifests: dict[str, Manifest] = {}

    def load(self, folders: Iterable[str]) -> None:
        """Read manifests at the same time."""
        missing = sorted({*folders} - self._manifests.keys())
        found = map_reads(lambda folder: read_manifest(self._root.below(folder)), missing, _READERS)
        self._manifests |= zip(missing, found, strict=True)

    def __getitem__(self, folder: str) -> Manifest:
        """Return the manifest of a generation; raise as `read_manifest`."""
        self.load([folder])
        return self._manifests[folder]

    def info(self, name: ShardName) -> ShardInfo:
        """Return a shard of a generation as it is now.

        Raises:
            BuildError: The generation does not have it.
        """
        own = self[name.folder]
        shards = own.splits[name.split].shards if name.split in own.splits else ()
        if name.index >= len(shards):
            raise BuildError(f"{self._root.path(name.shard)} is not in its generation's manifest")
        return shards[name.index]

    def rows_now(
        self, name: ShardName, info: ShardInfo, rows: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """Return the present numbers of rows of a shard, given the shard as it was."""
        shard = replace(name, folder="").shard
        return rows_since(self[name.folder].erased, shard, info.content, rows)


def present_version(root: Folder, version: Manifest, generations: Generations) -> Manifest:
    """Return a version with its shards as they are now; the same one if none was rewritten.

    Raises:
        BuildError: A shard is not in its generation.
        NotADatasetError: A generation is gone.
        StorageError: An index cannot be read.
    """
    # Its manifest is that of its generation, which the erasure itself has written.
    if number_of(version) == 1:
        return version
    named = version.named_shards()
    generations.load(version.folders)
    now = {}
    for name, info in named:
        # The rows that later versions took away have moved up by the erased ones before them.
        rows = generations.rows_now(name, info, info.removed_rows).astype("<u4").tobytes()
        own = generations.info(name)
        now[name] = replace(own, folder=info.folder, count=info.count, removed=rows)
    if now == dict(named):
        return version
    counted = count_generations(
        root, list(now.items()), {folder: generations[folder] for folder in version.folders}
    )
    version = replace(version, splits=splits_of_live(now, counted))
    return replace(version, num_inputs=version.num_records)


def present_change(change: VersionChange, generations: Generations) -> VersionChange:
    """Return a change whose base and additions are as they are now.

    Raises:
        NotADatasetError: The generation that it adds is gone.
    """
    # An append that is committed after the erasure must not bring back its own shards as they were.
    if change.added is not None and _is_rewritten(generations[change.folder], change.added):
        change = replace(change, added=generations[change.folder])
    infos = dict(change.base.named_shards())
    try:
        generations.load(name.folder for name in change.outdated)
    except NotADatasetError:  # `gc` has removed the base, which its reader reports
        return change
    outdated = {
        name: generations.rows_now(name, infos[name], rows)
        for name, rows in change.outdated.items()
    }
    splits = {
        split: replace(held, shards=tuple(
            _present(name, info, generations) if name in outdated else info
            for name, info in change.base.named_shards(split)
        ))
        for split, held in change.base.splits.items()
    }  # fmt: skip
    outdated = {name: rows for name, rows in outdated.items() if len(rows)}
    return replace(change, outdated=outdated, base=replace(change.base, splits=splits))


def _is_rewritten(now: Manifest, before: Manifest) -> bool:
    """Return whether an erasure has rewritten a shard of a generation, or its names."""
    names = [
        (now.schema.names_of(each), before.schema.names_of(each)) for each in now.schema.features
    ]
    return now.splits != before.splits or any(
        here != there and same_names(here, there) for here, there in names
    )


def _present(name: ShardName, info: ShardInfo, generations: Generations) -> ShardInfo:
    """Return a shard of a base, of which the rows that the change takes away are looked up."""
    own = generations.info(name)
    return replace(own, folder=info.folder, count=info.count)
