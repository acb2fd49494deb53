"""Find and remove the files of builds that have not ended, which may hold any record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardwright.errors import MissingError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.notes import Note, is_noted, noted
from shardwright.format.versions import generation_folders
from shardwright.storage.folder import Folder
from transforms.erasure.traces import is_lost
from transforms.staged_files import PARTS

_BUILD_DIRS = ("", *naming.SHARD_DIRS, naming.SPOOL_DIR)
_STAGED = (naming.STAGED_DIR, *(f"{naming.STAGED_DIR}/{part}" for part in PARTS))


def find_leftovers(root: Folder, finished: Mapping[str, Manifest]) -> list[str]:
    """Return the files of builds, below a dataset's folder, that no finished generation names.

    They are spools, temporary and staged files, unfinished generations, and a build that would
    replace the dataset. Plans come first: without its plan, a build that still runs stops.

    Args:
        root: The dataset's folder.
        finished: The manifests of the finished generations by folder.

    Raises:
        StorageError: A folder cannot be read.
    """
    found = []
    for folder in ["", *generation_folders(root)]:
        manifest, outputs = finished.get(folder), _outputs(root.below(folder))
        published = manifest is None and naming.MANIFEST in outputs
        if published and not _is_lost(root, folder):  # just now
            continue
        kept = set() if manifest is None else {naming.MANIFEST, *manifest.file_names()}
        found += [_in(folder, name) for name in outputs if name not in kept]
        for beside in (naming.NEXT_DIR, *_STAGED):
            place = _in(folder, beside)
            found += [_in(place, name) for name in _outputs(root.below(place))]
        if root.num_bytes_of(changes := _in(folder, naming.CHANGES)) is not None:
            found.append(changes)
    return sorted(found, key=lambda path: (not path.endswith(naming.PLAN), path))


def remove_leftovers(root: Folder, found: Sequence[str]) -> None:
    """Remove these files, plans first, and the folders that are then empty.

    Raises:
        StorageError: A file cannot be read or removed.
    """
    lost = {_folder(path) for path in found if _is_of_generation(path, naming.MANIFEST)}
    for folder in lost:
        _remove_lost(root, folder, [path for path in found if path.startswith(f"{folder}/")])
    found = [path for path in found if not path.startswith(tuple(f"{each}/" for each in lost))]
    plans = [path for path in found if path.endswith(naming.PLAN)]
    published = tuple(f"{_folder(path)}/" for path in plans if _is_published(root, path))
    left = [path for path in found if path not in plans and not path.startswith(published)]
    root.remove_all(left)
    # A build that has passed its last check may still have written its manifest.
    ended = [_folder(path) for path in plans if naming.is_generation_folder(_folder(path))]
    manifests = [f"{folder}/{naming.MANIFEST}" for folder in ended]
    root.remove_all([path for path in manifests if not path.startswith(published)])
    for folder in ["", *generation_folders(root)]:
        for beside in (naming.NEXT_DIR, naming.STAGED_DIR, naming.SPOOL_DIR):
            root.below(_in(folder, beside)).remove_empty()
        if folder:
            root.below(folder).remove_empty()


def _remove_lost(root: Folder, folder: str, found: Sequence[str]) -> None:
    """Remove a generation that lost files, unless its build has just made them again."""
    with noted(root, Note.REMOVE, [folder]):  # as `gc` does, so that it is not committed meanwhile
        if not is_noted(root, Note.COMMIT, folder) and _is_lost(root, folder):
            root.remove_all(found)


def _is_lost(root: Folder, folder: str) -> bool:
    return is_lost(root, folder, read_manifest(root.below(folder)))


def _is_published(root: Folder, plan: str) -> bool:
    """Remove a plan, which stops its build; put it back if a generation has just been published."""
    folder = _folder(plan)
    try:
        data = root.read_bytes(plan)
    except MissingError:
        return False
    root.remove(plan)
    if not naming.is_generation_folder(folder):
        return False
    if root.num_bytes_of(f"{folder}/{naming.MANIFEST}") is None:
        return False
    root.write_bytes(plan, data)
    return True


def is_dataset_file(path: str) -> bool:
    """Return whether a path, relative to a dataset's folder, is one that commands write."""
    folder, _, name = path.rpartition("/")
    if folder == naming.VERSIONS_DIR:
        return naming.version_number(name) is not None
    parts = path.split("/")
    if naming.is_generation_folder("/".join(parts[:2])):
        path = "/".join(parts[2:])
    for beside in (*reversed(_STAGED), naming.NEXT_DIR):
        path = path.removeprefix(f"{beside}/")
    return naming.is_build_output(path) or path == naming.CHANGES.rpartition("/")[2]


def _is_of_generation(path: str, name: str) -> bool:
    folder, _, found = path.rpartition("/")
    return found == name and naming.is_generation_folder(folder)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _outputs(below: Folder) -> list[str]:
    is_output: Callable[[str], bool] = naming.is_build_output
    paths = (_in(part, name) for part in _BUILD_DIRS for name in below.names(part))
    return [path for path in paths if is_output(path)]


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
