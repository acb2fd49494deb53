"""Find the records, rejects and list rows of a dataset that have some ids, in all generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.parquet import read_rows
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import generation_folders, read_versions
from shardwright.report.changes import texts_of_changes
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.erasure.places import OTHER, place_of
from shardwright.transforms.erasure.wanted_ids import WantedIds, named_by
from shardwright.transforms.promotion import read_in_place
from shardwright.transforms.write.rewritten_shards import listed_rejects

_READERS = 16
Asked: TypeAlias = Mapping[str, tuple[str, ...]]
"""The ids found, each with those of the user's list for which it goes."""


@dataclass(frozen=True, eq=False)
class Traces:
    """The places of some ids in a generation.

    Attributes:
        folder: The generation's folder, "" for the dataset's own.
        manifest: Its manifest.
        rows: Rows of the shards that have records of them, uint32 [rows], ascending; none for a
            shard of which only rejects are found. Names are as in the generation.
        lists: Files that list them: rejects of no shard, near-duplicates, and a page that compares
            with a dataset that had them.
        ids: The ids found, by path in the dataset, each with those for which it goes: others if
            `--transform` has made the record of one of them.
    """

    folder: str
    manifest: Manifest
    rows: Mapping[ShardName, NDArray[np.uint32]]
    lists: tuple[str, ...]
    ids: Mapping[str, Asked]


def finished_generations(root: Folder) -> dict[str, Manifest]:
    """Return the manifests of the finished generations by folder, also of those not committed.

    One that no version names and that lost files is not finished any more: an erasure has removed
    files of its build, which has published it nevertheless. It is never committed.

    Raises:
        BuildError: A build is replacing one, or an earlier release wrote it.
        NotADatasetError: A manifest is damaged.
        StorageError: A folder cannot be read.
    """
    found = {}
    for folder in ["", *generation_folders(root)]:  # the first one may be gone
        below = root.below(folder)
        if below.num_bytes_of(naming.MANIFEST) is None:
            continue
        found[folder] = read_in_place(below)
        if not found[folder].files:
            raise BuildError(
                f"an earlier release wrote {below}, without a list of all files: "
                "run its `shardwright build` command again first"
            )
    # Not the dataset's own folder: files that it has lost are damage, which must be reported.
    lost = [folder for folder in found if folder and is_lost(root, folder, found[folder])]
    return {folder: manifest for folder, manifest in found.items() if folder not in lost}


def is_lost(root: Folder, folder: str, manifest: Manifest) -> bool:
    """Return whether a published generation lacks files, and no version names it.

    Raises:
        StorageError: A folder or a version cannot be read.
    """
    return not manifest.file_names() <= set(naming.build_outputs(root.below(folder))) and not any(
        folder in version.folders for version in read_versions(root)
    )


def find_traces(root: Folder, folder: str, manifest: Manifest, ids: WantedIds) -> Traces:
    """Return what a generation holds of some ids.

    Raises:
        BuildError: A file is of an unknown kind.
        StorageError: An index or a list is missing or damaged.
    """
    below, prefix = root.below(folder), f"{folder}/" if folder else ""
    rows, lists = {}, []
    found: dict[str, Asked] = {}
    columns = ["id", "uri"] if is_made(manifest) else ["id"]

    def look(shard: tuple[ShardName, ShardInfo]) -> tuple[ShardName, pa.Table, Asked]:
        name, info = shard
        index = read_index_of(below, name, info, columns)
        return name, index, _listed(below, manifest, name.rejects, ids)

    for name, index, rejected in map_reads(look, manifest.named_shards(), _READERS):
        asked = _asked(index, ids)
        if asked or rejected:
            # Also without rows, if only its list of rejects has an id: the shard is copied as it
            # is, and the list rewritten.
            rows[name] = np.array(list(asked), np.uint32)
        if asked:
            names = index["id"].take(pa.array(list(asked))).to_pylist()
            found[prefix + name.shard] = dict(zip(names, asked.values(), strict=True))
        if rejected:
            found[prefix + name.rejects] = rejected
    for file in _other_lists(manifest):
        if listed := _listed(below, manifest, file, ids):
            lists.append(file)
            found[prefix + file] = listed
    return Traces(folder, manifest, rows, tuple(lists), found)


def is_made(manifest: Manifest) -> bool:
    """Return whether records were made by `--transform`, so that INPUT has other ids."""
    return "transforms" in manifest.settings


def _asked(index: pa.Table, ids: WantedIds) -> dict[int, tuple[str, ...]]:
    """Return the rows of an index that go, ascending, each with the ids for which it goes."""
    if "uri" not in index.column_names:
        rows = np.flatnonzero(ids.among(index["id"]))
        names = index["id"].take(pa.array(rows)).to_pylist()
        return {row: (name,) for row, name in zip(rows.tolist(), names, strict=True)}
    pairs = zip(index["id"].to_pylist(), index["uri"].to_pylist(), strict=True)
    matches = (ids.match(name, uri or "") for name, uri in pairs)
    return {row: asked for row, asked in enumerate(matches) if asked}


def _other_lists(manifest: Manifest) -> Iterator[str]:
    of_shards = {name.rejects for name, _ in manifest.named_shards()}
    for file in manifest.files:
        place = place_of(file)
        # Better no erasure than one that overlooks a file.
        if place is OTHER:
            raise BuildError(
                f"{file} of the manifest is a kind of file that this release does not know: erase "
                "with the release that wrote the dataset"
            )
        if place.is_list and file not in of_shards:
            yield file


def _listed(below: Folder, manifest: Manifest, file: str, ids: WantedIds) -> Asked:
    """Return the ids that a list names, each with those for which it goes."""
    if file == naming.NEAR_DUPLICATES:
        rows = read_rows(below, naming.NEAR_DUPLICATES)
        columns = (rows[column] for column in ("id", "keeper"))
        return {
            name: (name,)
            for column in columns
            for name in column.filter(ids.among(column)).to_pylist()
        }
    if file == naming.REPORT:  # of the records of a shard, the index tells
        page = below.read_bytes(file).decode(errors="replace")
        return {name: (name,) for name in texts_of_changes(page) if name in ids}
    found: dict[str, tuple[str, ...]] = {}
    for reject in listed_rejects(below, manifest, file):
        found |= named_by(reject, ids, is_made=is_made(manifest))
    return found


def without_near(rows: pa.Table, ids: WantedIds) -> pa.Table:
    """Return a list of near-duplicates without the rows that name one of the ids."""
    return rows.filter(pa.array(~(ids.among(rows["id"]) | ids.among(rows["keeper"]))))
