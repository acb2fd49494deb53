"""List folders of images: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.storage.addresses import is_remote
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.folders.folder_look import FolderFacts, look
from shardwright.transforms.inputs.folders.local_folders import list_folder
from shardwright.transforms.inputs.folders.object_folders import list_prefix
from shardwright.transforms.inputs.image_rows import ImageRow, image_references, in_batches
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.rejects import Reject


def list_part(facts: FolderFacts, part: str) -> Rows:
    """Yield the images of a folder; a part is "", or a range of a prefix's keys as text."""
    keys = KeyRange.of_text(part)
    files = list_files(facts.root, facts.split_folders, facts.storage, facts.folders, keys)
    yield from in_batches(files, image_references)


def list_files(
    root: str,
    split_folders: Sequence[str],
    storage: StorageOptions,
    folders: tuple[str, ...] = (),
    keys: KeyRange = ALL_KEYS,
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below a folder; in a store, in no order.

    Args:
        root: The folder.
        split_folders: Folders that stand for a split.
        storage: Options of its store.
        folders: As for `local_folders.walk`.
        keys: The range to list; a local folder is always listed whole.
    """
    if is_remote(root):
        return list_prefix(root, split_folders, storage, keys)
    return list_folder(root, split_folders, folders)


FORMAT = SourceFormat(
    "a folder of images, of class folders, or of split folders",
    look,
    list_part,
    100,
    checks_links=True,
    lists_all=True,
    has_top_folders=True,
)
