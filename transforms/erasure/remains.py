"""Remove all that may hold an erased record once the newest version is without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from shardwright.errors import BuildError, StorageError
from shardwright.format import naming
from shardwright.format.notes import END_COMMIT, Note
from shardwright.format.pins import pin_names
from shardwright.format.versions import is_collected, later_numbers, read_stated
from shardwright.storage import gcs_peer, peers
from shardwright.storage.addresses import is_temporary, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.findings import finished_generations
from shardwright.transforms.erasure.receipt import Receipt
from shardwright.transforms.promotion import files_of_dataset
from shardwright.transforms.versions.collect import collect, plan_collection, write_stub

_PARTS = (*naming.SHARD_DIRS, naming.SPOOL_DIR, "")


def remove_remains(root: Folder, receipt: Receipt) -> None:
    """Collect all versions but the newest, and remove what builds have left or keep.

    If nothing was found, all versions stay, but a build that has not ended may hold any record.

    Raises:
        BuildError: A build goes on writing.
        StorageError: A file cannot be read or removed.
    """
    if receipt.found and later_numbers(root):  # else the pins are of versions that stay
        receipt.pins = sorted({*receipt.pins, *pin_names(root)})
        root.remove_all([naming.pin_file(name) for name in pin_names(root)])
    # Half-written versions, and notes of a killed erasure, for which appends would wait for a day.
    parts = filter(is_temporary, root.names(naming.VERSIONS_DIR))
    stale = [name for name in parts if f".{Note.COMMIT}-" not in name]
    root.remove_all([f"{naming.VERSIONS_DIR}/{name}" for name in stale])
    keep = 1 if receipt.found else naming.MAX_VERSION
    removed = collect(root, plan_collection(root, keep, clock=lambda: inf))
    receipt.versions = sorted({*receipt.versions, *removed.versions})
    if removed.left:
        raise BuildError(f"another command commits {removed.left[0].folder}{END_COMMIT}")
    for version in (read_stated(root, number) for number in later_numbers(root)):
        # Earlier releases have kept the names of classes there.
        if is_collected(version) and version.schema.features:
            write_stub(root, version)
    _remove_leftovers(root)


def _remove_leftovers(root: Folder) -> None:
    """Remove spools, temporary and staged files, and builds that would replace the dataset."""
    finished = finished_generations(root)
    # What is not finished was removed, or is a build that has begun since: of the newest version.
    for folder in sorted({"", *finished}):
        below, manifest = root.below(folder), finished.get(folder)
        kept = set() if manifest is None else files_of_dataset(manifest)
        for beside in ("", naming.NEXT_DIR, *naming.STAGED_DIRS):
            outputs = naming.build_outputs(below.below(beside), _PARTS)
            gone = [name for name in outputs if beside or name not in kept]
            below.below(beside).remove_all(gone)
    root.remove_empty()


def remove_old_objects(root: Folder) -> Iterator[str]:
    """Remove old versions of a dataset's objects, which a local folder does not have.

    Yields:
        What the store does not let be removed or listed, and why.
    """
    if not root.is_remote:
        return
    store, key = parse_address(root.uri)
    start, client = f"{key}/" if key else "", client_for(store, root.options)
    what = "old versions of objects"
    try:
        for one in peers.remove_old_versions(client, start, _is_of_dataset(start)):
            if one.fault:
                yield f"version {one.version} of {one.key}: {one.fault}"
        what = "soft delete of the bucket"
        if client.scheme == "gs" and (kept := gcs_peer.soft_delete_seconds(client)):
            yield f"{what}: it keeps what is deleted for {kept:,} s"
    except StorageError as error:
        yield f"{what}: {error}"


def _is_of_dataset(start: str) -> Callable[[str], bool]:
    """Return whether a key below `start` is one that commands write, as a function."""
    folders = (naming.GENERATIONS_DIR, naming.VERSIONS_DIR, naming.NEXT_DIR, naming.STAGED_DIR)
    below = tuple(f"{folder}/" for folder in folders)
    return lambda key: (path := key[len(start) :]).startswith(below) or naming.is_build_output(path)
