"""Remove versions that are no longer needed, and the files that only they name.

First each version says that it is gone, so that no reader opens it any more; then its files go. So
what a stop leaves is found and removed by the next run. The file of a version stays, because its
number must not be used again: a writer that has read an older version would create it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.versions import number_of, read_versions, version_numbers
from shardwright.storage.folder import Folder
from transforms.promotion import remove_outputs


@dataclass(frozen=True)
class Collection:
    """The versions and files that `collect` removes.

    Attributes:
        versions: Numbers of the versions, ascending.
        folders: Folders of generations that no kept version names, "" for the dataset's own.
        files: Their files, relative to the dataset's folder.
        num_bytes: Bytes of these files.
    """

    versions: tuple[int, ...]
    folders: tuple[str, ...]
    files: tuple[str, ...]
    num_bytes: int


def plan_collection(root: Folder, keep: int) -> Collection:
    """Return what is removed if only the newest versions are kept.

    Args:
        root: The dataset's folder.
        keep: Number of versions to keep, at least 1.

    Raises:
        NotADatasetError: There is no finished dataset.
        StorageError: The folder cannot be read.
    """
    readable = list(read_versions(root))
    kept = readable[:keep]
    named = {info.folder for version in kept for _, info in version.named_shards()}
    first = min(map(number_of, kept))
    older = [number for number in version_numbers(root) if number < first]
    folders = _folders_of(root, older) - named
    files: list[str] = []
    num_bytes = 0
    for folder in sorted(folders):
        for name, stamp in _files_in(root, folder).items():
            files.append(name)
            num_bytes += stamp
    # The first version can be read as long as its generation is there.
    gone = {number_of(version) for version in readable[keep:]} - ({1} if "" in named else set())
    return Collection(tuple(sorted(gone)), tuple(sorted(folders)), tuple(files), num_bytes)


def collect(root: Folder, collection: Collection) -> None:
    """Remove what `plan_collection` has found. May be repeated.

    Raises:
        StorageError: A file cannot be written or removed.
    """
    for number in collection.versions:
        if number > 1:
            name = naming.version_file(number)
            root.write_bytes(name, _collected(read_manifest(root, name)).to_bytes())
    for folder in collection.folders:
        below = root.below(folder)
        remove_outputs(below)
        if folder:
            below.remove_empty()


def _folders_of(root: Folder, numbers: list[int]) -> set[str]:
    """Return the folders that versions name, also those that say that they are gone."""
    found = {""} if 1 in numbers else set()
    for number in numbers:
        if number > 1:
            history = read_manifest(root, naming.version_file(number)).history
            found |= {folder for folder in history["generations"] if _is_generation(folder)}
    return found


def _is_generation(folder: object) -> bool:
    return isinstance(folder, str) and (not folder or naming.is_generation_folder(folder))


def _files_in(root: Folder, folder: str) -> dict[str, int]:
    """Return path -> length of the files of a generation."""
    below = root.below(folder)
    found = {}
    for part in ("", *naming.SHARD_DIRS):
        for name, stamp in below.stamps(part).items():
            path = f"{part}/{name}" if part else name
            if naming.is_build_output(path):
                found[f"{folder}/{path}" if folder else path] = stamp.num_bytes
    return found


def _collected(version: Manifest) -> Manifest:
    return replace(
        version,
        splits={},
        provenance={},
        num_inputs=0,
        history={**version.history, "collected": True},
    )
