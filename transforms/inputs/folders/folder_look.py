"""Recognize folders of images, and split folders in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwright.errors import UsageError
from shardwright.storage.addresses import parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.listing import LONG_KEYS, cut_prefix
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_rules import has_image_name
from shardwright.transforms.inputs.source import SourceFacts, SourceRequest
from shardwright.transforms.inputs.top_folders import rule_of_labels, shown, split_folders_of

_RANGES = 16  # parts of a long prefix; a worker lists each by several threads


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts(SourceFacts):
    """The facts about a folder of images.

    Attributes:
        root: Its absolute path, or a store's address.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
        storage: Options of its store.
        is_long: True for a prefix with more than a page of objects.
    """

    root: str
    split_folders: tuple[str, ...]
    storage: StorageOptions
    is_long: bool = False

    def worker_parts(self) -> Iterator[str]:
        if not self.is_long:
            return self.parts()
        store, prefix = parse_address(self.root)
        ranges = cut_prefix(client_for(store, self.storage), prefix, _RANGES)
        return (keys.to_text() for keys in ranges)


def look(request: SourceRequest) -> FolderFacts | None:
    """Return the facts about a folder; None if INPUT is a file.

    Raises:
        UsageError: The format is forced and INPUT is a file, the folder does not exist, or an
            option gives a column.
        StorageError: The folder cannot be listed.
    """
    if not request.is_remote and not os.path.isdir(request.uri):
        request.refuse_if_forced("is not a folder")
        return None
    request.refuse_columns("a folder")
    splits = find_splits(request)
    folders = request.listings.look_in(request.uri).folders
    named = f", with the folders {shown(folders)}" if folders and not splits else ""
    return FolderFacts(
        describe_folder(request.uri, splits) + named,
        states_splits=bool(splits),
        labels_from=rule_of_labels(splits),
        root=request.uri,
        split_folders=splits,
        storage=request.storage,
        is_long=request.is_remote and len(request.listings.first_names(request.uri)) >= LONG_KEYS,
    )


def find_splits(request: SourceRequest) -> tuple[str, ...]:
    """Return the first-level folders if they are splits, else ().

    Raises:
        UsageError: INPUT does not exist, or as for `split_folders_of`.
        StorageError: INPUT cannot be listed.
    """
    if request.is_remote and not request.listings.first_names(request.uri):
        raise UsageError(
            f"{request.argument} {request.uri} does not exist: there are no objects below it"
        )
    found = request.listings.look_in(request.uri)
    return split_folders_of(
        request,
        found.folders,
        has_loose=found.has_images or any(map(has_image_name, found.others)),
        is_nested=lambda name: bool(request.listings.look_in(f"{request.uri}/{name}").folders),
    )


def describe_folder(root: str, split_folders: Sequence[str]) -> str:
    """Return a folder in words, for the log."""
    kind = f"split folders ({', '.join(split_folders)})" if split_folders else "a folder"
    return f"{kind} at {root}"
