"""Replace a dataset by the one that was built beside it, in `next/`.

An overwriting build writes to `OUTPUT/next/` and publishes there, so that the old dataset stays
whole until the new one is. Then these steps replace it; readers find one of both at any moment, and
the next build in OUTPUT goes on where a stopped one ended. `erase` does so with a generation:

1. `OUTPUT/manifest.json` becomes the new manifest, which says that its files are in `next/`.
2. They and the page are put under their names in OUTPUT, and the old dataset's others are removed.
3. `OUTPUT/manifest.json` becomes the same manifest without `next/`, which is removed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from shardwright.errors import BuildError, MissingError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.json_files import read_json
from shardwright.format.listed_files import listed_faults
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.plan_file import OutputFile
from shardwright.storage.folder import Folder

_COPIES_AT_ONCE, _CHECKS_AT_ONCE = 16, 2


def read_in_place(root: Folder) -> Manifest:
    """Return the manifest of a dataset all of whose files are in its own folder.

    Raises:
        BuildError: A build is replacing the dataset.
        NotADatasetError: There is no finished dataset.
        StorageError: The folder cannot be read.
    """
    manifest = read_manifest(root)
    if manifest.folder:
        raise BuildError(f"a build is replacing the dataset at {root}: run its command again first")
    return manifest


def promote(
    root: Folder,
    fingerprint: str,
    folder: str = naming.NEXT_DIR,
    *,
    built_as: Manifest | None = None,
) -> Manifest:
    """Replace the dataset in a folder by the finished one below it, and return its manifest.

    Args:
        root: The dataset's folder.
        fingerprint: That of the finished one.
        folder: Its folder.
        built_as: Whose settings and origin the dataset gets; None for those of the finished one.

    Raises:
        NotADatasetError: The folder below holds no finished dataset.
        BuildError: A file of it is missing, because another build has taken over.
        StorageError: A file cannot be written.
    """
    beside = root.below(folder)
    # Checked before the first step: after it there is no way back to the old dataset.
    manifest = read_manifest(beside)
    for fault in listed_faults(beside.below(manifest.folder), manifest, [], _CHECKS_AT_ONCE):
        raise BuildError(f"{beside} is not whole ({fault}): run the build again")
    if built_as is not None:
        manifest = replace(manifest, settings=built_as.settings, provenance=built_as.provenance)
    # Another worker has done all this meanwhile.
    if read_json(beside, naming.PLAN, OutputFile) is None:
        return promoted(root, fingerprint)
    # The commit point. Readers of the old manifest fail from now on where files are replaced, and
    # open again.
    root.write_bytes(naming.MANIFEST, replace(manifest, folder=folder).to_bytes())
    return promoted(root, fingerprint)


def promoted(root: Folder, fingerprint: str) -> Manifest:
    """Return the manifest of an overwriting build that has replaced the dataset in a folder.

    Raises:
        BuildError: The dataset there is of another plan.
    """
    finish_promotion(root)
    manifest = read_manifest(root)
    if manifest.fingerprint != fingerprint:
        raise BuildError(f"another build has replaced the dataset at {root}: this one stops")
    return manifest


def finish_promotion(root: Folder) -> bool:
    """Go on with the replacement of a dataset by another one; return False if none began.

    Raises:
        BuildError: Another build replaces the dataset meanwhile.
        StorageError: A file cannot be written.
    """
    found = read_json(root, naming.MANIFEST, OutputFile)
    if found is None or not found.folder:
        return False
    manifest = read_manifest(root)
    if not manifest.folder:  # another worker has just ended this; `source` would be OUTPUT itself
        return True
    source = root.below(manifest.folder)
    with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
        # All errors are gathered: a file that is missing here may have been moved by another
        # worker.
        names = manifest.file_names()
        copies = pool.map(lambda name: _promote_file(name, source, root, manifest), names)
        missing = [error for error in copies if error is not None]
    # A worker that was taken for lost may have ended this meanwhile.
    if missing and any(listed_faults(root, manifest)):
        raise missing[0]
    root.remove(naming.REPORT)  # of the old dataset
    with suppress(MissingError):
        source.copy(naming.REPORT, root)
    root.remove_all(stale_files(root, manifest))
    manifest = _with_stated_etags(root, replace(manifest, folder=""))
    in_place = manifest.to_bytes()
    root.write_bytes(naming.MANIFEST, in_place)
    # First: without it, no build resumes from what is left, and no late publisher begins again.
    source.remove(naming.PLAN)
    # One may have done so just before; but another build may have replaced the dataset since.
    late = read_manifest(root)
    if late.folder and late.fingerprint == manifest.fingerprint:
        root.write_bytes(naming.MANIFEST, in_place)
    remove_outputs(source)
    source.remove_empty()
    return True


def _promote_file(
    name: str, source: Folder, root: Folder, manifest: Manifest
) -> MissingError | None:
    """Put a file of `source` under its name in `root`; return the error if it is not there."""
    stated = None if name.endswith(".parquet") else manifest.files.get(name)
    try:
        if stated is None:  # each worker that makes it makes the same bytes
            source.copy(name, root)
            return None
        # The statistics may differ by publisher, and one that comes too late may have left its own
        # here, after this promotion had been ended by another worker.
        data = source.read_bytes(name)
        if FileContent.of(data) != stated:
            return MissingError(f"{source.path(name)} is of another publisher")
        root.write_bytes(name, data)
    except MissingError as error:
        return error
    return None


def _with_stated_etags(root: Folder, manifest: Manifest) -> Manifest:
    """Return the manifest with the etags of its shards, which their store has copied: others.

    Raises:
        BuildError: A shard is gone.
        StorageError: The folder cannot be listed.
    """
    stated = root.files() if root.is_remote else {}
    for shard, info in manifest.named_shards():
        if info.etag and shard.shard not in stated:
            raise BuildError(
                f"{root.path(shard.shard)} is gone: another build replaces the dataset, so this "
                "one stops"
            )
    splits = {
        name: replace(
            split,
            shards=tuple(
                replace(info, etag=info.etag and stated[shard.shard].etag)
                for shard, info in manifest.named_shards(name)
            ),
        )
        for name, split in manifest.splits.items()
    }
    return replace(manifest, splits=splits)


def stale_files(root: Folder, manifest: Manifest) -> list[str]:
    """Return the files of builds that are not of the dataset."""
    kept = files_of_dataset(manifest)
    return [name for name in naming.build_outputs(root) if name not in kept]


def files_of_dataset(manifest: Manifest) -> set[str]:
    """Return the names of all files of a dataset: those of the manifest, itself, and the page."""
    return {naming.MANIFEST, naming.REPORT, *manifest.file_names()}


def remove_outputs(root: Folder) -> None:
    """Remove all files of a build: the manifest first, so a partial removal never looks finished.

    The plan is last, so that what is left is still known to be of a build.
    """
    root.remove(naming.MANIFEST)
    # Without the plan nothing would say whose the files are, and the next build would take them for
    # a stranger's.
    root.remove_all([name for name in naming.build_outputs(root) if name != naming.PLAN])
    root.remove(naming.PLAN)
