"""List folders of images: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.storage.addresses import is_remote
from shardwright.storage.options import StorageOptions
from transforms.inputs.folders.folder_look import FolderFacts, look
from transforms.inputs.folders.local_folders import list_folder
from transforms.inputs.folders.object_folders import list_prefix
from transforms.inputs.image_rows import ImageRow, image_references, in_batches
from transforms.inputs.source import Rows, SourceFormat
from transforms.rejects import Reject


def list_part(facts: FolderFacts, part: str) -> Rows:
    """Yield the images of a folder; its only part is ""."""
    del part
    files = list_files(facts.root, facts.split_folders, facts.storage, facts.folders)
    yield from in_batches(files, image_references)


def list_files(
    root: str,
    split_folders: Sequence[str],
    storage: StorageOptions,
    folders: tuple[str, ...] = (),
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below a folder; in a store, in no order.

    Args:
        root: The folder.
        split_folders: Folders that stand for a split.
        storage: Options of its store.
        folders: As for `local_folders.walk`.
    """
    if is_remote(root):
        return list_prefix(root, split_folders, storage)
    return list_folder(root, split_folders, folders)


FORMAT = SourceFormat(
    "a folder of images, of class folders, or of split folders",
    look,
    list_part,
    100,
    checks_links=True,
)
