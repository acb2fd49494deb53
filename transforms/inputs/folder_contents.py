"""Look at what a folder directly holds, on disk or in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shardwright.errors import StorageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.listing import first_page, list_folder
from shardwright.storage.options import StorageOptions
from transforms.inputs.file_rules import SPLIT_FOLDERS, has_image_name, is_litter

# Searched besides split folders: data sets on the Hugging Face hub keep their files here.
_DATA_FOLDER = "data"


def has_folders_of_images(root: str, storage: StorageOptions) -> bool:
    """Return whether folders beside the files hold images: class folders, not to be skipped."""
    if is_remote(root):
        store, prefix = parse_address(root)
        return any(
            has_image_name(os.path.basename(row.key))
            for row in first_page(client_for(store, storage), prefix)
        )
    folders = (
        os.path.join(root, name)
        for name, _, is_folder in _entries(root, storage)
        if is_folder() and not is_litter(name)
    )
    return any(
        has_image_name(name) and not is_litter(name)
        for folder in folders
        for _, _, names in os.walk(folder)
        for name in names
    )


class FolderContents(NamedTuple):
    """The direct content of a folder: wanted files, folders to search, and if it holds images."""

    files: list[str]
    folders: list[str]
    has_images: bool


def look_into(root: str, storage: StorageOptions, is_one: Callable[[str], bool]) -> FolderContents:
    """Return what is directly in a folder, without litter; nothing if the folder does not exist.

    In a local folder of millions of images, this reads only their names.
    """
    found = FolderContents([], [], has_images=False)
    for name, is_file, is_folder in _entries(root, storage):
        if is_one(name):
            if not is_litter(name) and is_file():
                found.files.append(name)
        elif name.lower() in SPLIT_FOLDERS or name == _DATA_FOLDER:
            if is_folder():
                found.folders.append(name)
        elif not found.has_images and has_image_name(name) and not is_litter(name) and is_file():
            found = found._replace(has_images=True)
    return found._replace(folders=sorted(found.folders))


def _entries(
    root: str, storage: StorageOptions
) -> Iterator[tuple[str, Callable[[], bool], Callable[[], bool]]]:
    """Yield (name, is-file test, is-folder test) of all that a folder directly holds, unordered."""
    if is_remote(root):
        store, prefix = parse_address(root)
        start = len(prefix) + 1 if prefix else 0
        keys, rows = list_folder(client_for(store, storage), prefix)
        yield from ((key[start:], _no, _yes) for key in keys)
        yield from ((row.key[start:], _yes, _no) for row in rows if row.key[start:])
        return
    try:
        with os.scandir(root) as entries:
            yield from ((entry.name, entry.is_file, entry.is_dir) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(f"cannot list {root}: {error.strerror or error}") from error


def _yes() -> bool:
    return True


def _no() -> bool:
    return False
