"""Recognize a finished dataset of this project, whose records are copied unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardwright.errors import NotADatasetError, UsageError
from shardwright.format import naming
from shardwright.format.json_files import read_json
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import read_version
from shardwright.sizes import counted
from shardwright.storage.folder import Folder, UserFolder
from shardwright.transforms.inputs.input_files import find_files
from shardwright.transforms.inputs.source import SourceFacts, SourceRequest
from shardwright.transforms.inputs.wildcards import has_wildcard
from shardwright.transforms.references import COPIED_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts(SourceFacts):
    """The facts about a finished dataset.

    Attributes:
        root: The folder of its shards.
        shards: Its shards in order. A part is the number of one of them.
        copied_schema: The features of its records.
    """

    root: Folder
    shards: tuple[tuple[ShardName, ShardInfo], ...]
    copied_schema: ExampleSchema

    def parts(self) -> Iterator[str]:
        yield from map(str, range(len(self.shards)))


def look(request: SourceRequest) -> DatasetFacts | None:
    """Return the facts about a finished dataset; None if INPUT is something else.

    Also None if an option changes records: then the dataset is an input like other TFRecord files.

    Raises:
        UsageError: The format is forced, and INPUT is not a dataset or an option changes records.
        NotADatasetError: The manifest is damaged, or of another format version.
        StorageError: The manifest cannot be read.
    """
    if request.changes:
        request.refuse_if_forced(
            f"is a dataset whose records are copied unchanged: leave {request.changes[0]} out, or "
            "--input-format dataset"
        )
        return None
    manifest = _manifest_of(request)
    if manifest is None:
        request.refuse_if_forced(f"is not a finished dataset: it has no {naming.MANIFEST}")
        return None
    return facts_of(request, manifest)


def _manifest_of(request: SourceRequest) -> Manifest | None:
    """Return the manifest in INPUT, None if INPUT is no folder with one of this project."""
    if has_wildcard(request.uri):
        return None
    root, filename = _root_of(request), naming.MANIFEST
    found = find_files(request, naming.MANIFEST.__eq__)
    if not any(file.name == naming.MANIFEST and file.uri != request.uri for file in found):
        # `gc` removes the manifest with version 1; the files of the later versions stay.
        if naming.VERSIONS_DIR not in request.listings.look_in(request.uri).folders:
            return None
        filename = naming.version_file(2)
    try:
        content = read_json(UserFolder(root.uri, root.options), filename, dict[str, Any])
    except NotADatasetError:  # another program's file
        return None
    return read_version(root) if "format_version" in (content or {}) else None


def facts_of(request: SourceRequest, manifest: Manifest) -> DatasetFacts:
    """Return the facts about a version of the dataset in INPUT."""
    shards = tuple(manifest.named_shards())
    if not manifest.num_records:
        raise UsageError(f"{request.argument} {request.uri} is a dataset without records")
    schema = manifest.schema
    return DatasetFacts(
        f"a finished dataset at {request.uri}, {counted(manifest.num_records, 'record')} in "
        f"{counted(len(shards), 'shard')}, copied unchanged",
        COPIED_SCHEMA,
        states_splits=True,
        splits_can_be_redrawn=True,
        may_have_labels=schema.label is not None,
        labels_from="the dataset",
        class_names=schema.class_names if schema.label is not None else None,
        root=_root_of(request).below(manifest.folder),
        shards=shards,
        copied_schema=schema,
        is_made="transforms" in manifest.settings,
    )


def _root_of(request: SourceRequest) -> Folder:
    return Folder(request.uri.rstrip("/"), request.storage)
