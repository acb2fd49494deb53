"""Find what a reader ignores: files that no manifest names."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.format import naming
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import Manifest
from shardwright.storage.addresses import TEMPORARY_SUFFIX
from shardwright.storage.folder import Folder

_PARTS = tuple(f"{folder}/" for folder in naming.SHARD_DIRS)


def find_strays(root: Folder, manifest: Manifest) -> Iterator[DatasetFault]:
    """Yield stray files: readers ignore them, but a glob such as `*.tfrecord*` matches them."""
    wanted = manifest.file_names()
    for path in naming.build_outputs(root):
        is_part = naming.ShardName.parse(path) is not None or path.startswith(_PARTS)
        if path.endswith(TEMPORARY_SUFFIX):
            what = "temporary file of an interrupted build; it can be removed"
            yield DatasetFault.of_file(path, what)
        elif is_part and path not in wanted and not naming.is_failed_rejects(path):
            what = "not part of this dataset: it is not in the manifest; it can be removed"
            yield DatasetFault.of_file(path, what)
    if naming.build_outputs(root.below(naming.NEXT_DIR)):
        what = "a build that would replace this dataset: run its command again, or remove it"
        yield DatasetFault.of_file(naming.NEXT_DIR, what)
