"""Find and remove the files of builds that have not ended, which may hold any record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.notes import Note, is_noted, noted
from shardwright.format.versions import generation_folders
from shardwright.storage.addresses import is_temporary
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.traces import is_lost

# The plan, which a build writes first, is listed last: no other file is seen without it.
_DIRS = (*naming.SHARD_DIRS, naming.SPOOL_DIR, "")


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
        manifest, outputs = finished.get(folder), naming.build_outputs(root.below(folder), _DIRS)
        if manifest is None and folder and _whole_manifest(root, folder) is not None:  # just now
            continue
        # Of a generation without a manifest every file may hold a record, since nothing says which.
        kept = set() if manifest is None else {naming.MANIFEST, *manifest.file_names()}
        found += [_in(folder, name) for name in outputs if name not in kept]
        for beside in (naming.NEXT_DIR, *naming.STAGED_DIRS):
            place = _in(folder, beside)
            found += [_in(place, name) for name in naming.build_outputs(root.below(place), _DIRS)]
        if root.num_bytes_of(changes := _in(folder, naming.CHANGES)) is not None:
            found.append(changes)
    return sorted(found, key=lambda path: (not path.endswith(naming.PLAN), path))


def why_left(path: str) -> str:
    """Return why a file that `find_leftovers` has found is there."""
    folder, _, name = path.rpartition("/")
    is_kept = folder.endswith(naming.SPOOL_DIR) and not is_temporary(name)
    if is_kept and name.endswith((".parquet", naming.HASHES_SUFFIX)):
        return "what a build has read of INPUT, kept for the next one"
    return "of a build that has not ended"


def remove_leftovers(root: Folder, found: Sequence[str]) -> None:
    """Remove these files, plans first, and the folders that are then empty.

    Raises:
        StorageError: A file cannot be read or removed.
    """
    by_generation: defaultdict[str, list[str]] = defaultdict(list)
    for path in found:
        folder = "/".join(path.split("/")[:2])
        by_generation[folder if naming.is_generation_folder(folder) else ""].append(path)
    _remove_in_order(root, by_generation.pop("", []))
    for folder, paths in by_generation.items():
        _remove_in_generation(root, folder, paths)
    for folder in ["", *generation_folders(root)]:
        for beside in (naming.NEXT_DIR, naming.STAGED_DIR, naming.SPOOL_DIR):
            # For disks only: a store has no folders.
            root.below(_in(folder, beside)).remove_empty()
        if folder:
            root.below(folder).remove_empty()


def _remove_in_generation(root: Folder, folder: str, paths: Sequence[str]) -> None:
    """Remove leftovers of a generation; its build may publish it meanwhile, and commit it."""
    manifest = _whole_manifest(root, folder)
    if manifest is None:
        with noted(root, Note.REMOVE, [folder]):  # as `gc` does, so that it is not committed now
            manifest = _whole_manifest(root, folder)
            # Looked at again, now that our note is there: a build that has committed in between
            # keeps its files.
            if manifest is None and not is_noted(root, Note.COMMIT, folder):
                _remove_in_order(root, paths)
                # A build that has passed its last check may still have written it.
                root.remove(f"{folder}/{naming.MANIFEST}")
    if manifest is not None:
        kept = {f"{folder}/{name}" for name in (naming.MANIFEST, *manifest.file_names())}
        _remove_in_order(root, [path for path in paths if path not in kept])


def _whole_manifest(root: Folder, folder: str) -> Manifest | None:
    """Return the manifest of a generation; None if it has none, or lost files uncommitted."""
    below = root.below(folder)
    if below.num_bytes_of(naming.MANIFEST) is None:
        return None
    manifest = read_manifest(below)
    return None if is_lost(root, folder, manifest) else manifest


def _remove_in_order(root: Folder, paths: Sequence[str]) -> None:
    plans = [path for path in paths if path.endswith(naming.PLAN)]
    # Each writer looks for the plan before it puts a shard in place, and stops without it.
    root.remove_all(plans)
    root.remove_all([path for path in paths if path not in plans])


def is_dataset_file(path: str) -> bool:
    """Return whether a path, relative to a dataset's folder, is one that commands write."""
    folder, _, name = path.rpartition("/")
    if folder == naming.VERSIONS_DIR:
        return naming.version_number(name) is not None
    parts = path.split("/")
    if naming.is_generation_folder("/".join(parts[:2])):
        path = "/".join(parts[2:])
    for beside in (*reversed(naming.STAGED_DIRS), naming.NEXT_DIR):
        path = path.removeprefix(f"{beside}/")
    return naming.is_build_output(path) or path == naming.CHANGES.rpartition("/")[2]


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
