"""Write and read the manifest, which describes a finished dataset.

It is written after all files that it states, so a folder without one is not a dataset. Readers open
only the shards listed in it, so they never read a stale shard of an earlier build.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import google_crc32c
import msgspec

from shardwright.errors import MissingError, NotADatasetError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.features import Feature
from shardwright.format.json_files import MAX_BYTES, check_fields, parse_json, typed
from shardwright.format.manifest_check import ManifestFile
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.storage.folder import Folder

FORMAT_VERSION = 1
MANIFEST_START = b'{\n "format_version": '  # of every manifest
_END = b"\n}\n"
_CHECKSUM = re.compile(rb',\n "checksum": (\d{1,10})\n}\n')


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished dataset.

    Attributes:
        name: The dataset's name, also the start of its shards' file names.
        version: The user's version, "major.minor.patch".
        schema: The features of every example.
        splits: By name, in name order.
        rejects: Number of inputs that are in no shard, by reason.
        num_inputs: Number of inputs of the build: records plus rejects.
        settings: The options that determine the shards' bytes.
        fingerprint: Hash of the plan; equal for equal inputs and settings.
        provenance: Origin of the dataset: input, versions, time. No shard depends on it.
        files: Content of every other file by name.
        folder: The folder below the dataset's that holds its files while they replace those of an
            older dataset; "" for the dataset's own.
        history: What made this version of a dataset that has several (`shardwright.versions`): its
            number, time, and the operation; {} for a dataset as it was built.
    """

    name: str
    version: str
    schema: ExampleSchema
    splits: Mapping[str, SplitInfo]
    rejects: Mapping[str, int]
    num_inputs: int
    settings: Mapping[str, Any]
    fingerprint: str
    provenance: Mapping[str, Any]
    files: Mapping[str, FileContent] = field(default_factory=dict, kw_only=True)
    folder: str = field(default="", kw_only=True)
    history: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def num_records(self) -> int:
        return sum(split.num_records for split in self.splits.values())

    @property
    def num_bytes(self) -> int:
        return sum(split.num_bytes for split in self.splits.values())

    @property
    def folders(self) -> list[str]:
        """The folders of the generations whose shards it names, ordered; "" is the first one's."""
        return sorted({info.folder for _, info in self.named_shards()})

    def shard_names(self, split: str) -> list[ShardName]:
        """Return the names of a split's shards, in order."""
        shards = self.splits[split].shards
        return [
            ShardName(self.name, split, shard.index, shard.count or len(shards), shard.folder)
            for shard in shards
        ]

    def named_shards(self, split: str | None = None) -> list[tuple[ShardName, ShardInfo]]:
        """Return a split's shards with their names, in order; None for those of every split."""
        return [
            pair
            for name in (self.splits if split is None else [split])
            for pair in zip(self.shard_names(name), self.splits[name].shards, strict=True)
        ]

    def file_names(self) -> set[str]:
        """Return the names of the dataset's files, its manifest excepted."""
        shards = [name for name, _ in self.named_shards()]
        return {*self.files, *(path for name in shards for path in (name.shard, name.sidecar))}

    def to_bytes(self) -> bytes:
        """Return the bytes of the manifest's file."""
        return seal(self.to_json())

    def to_json(self) -> dict[str, Any]:
        files = {name: content._asdict() for name, content in sorted(self.files.items())}
        return {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "version": self.version,
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "num_inputs": self.num_inputs,
            "rejects": dict(sorted(self.rejects.items())),
            "splits": {name: split.to_json() for name, split in sorted(self.splits.items())},
            "schema": self.schema.to_json(),
            "settings": dict(self.settings),
            "fingerprint": self.fingerprint,
            "provenance": dict(self.provenance),
            **({"files": files} if files else {}),
            **({"folder": self.folder} if self.folder else {}),
            # Version 1 does not state its number: `shardwright.open` adds it.
            **({"history": dict(self.history)} if self.history.keys() - {"version"} else {}),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Manifest:
        """Return the manifest of a `to_json` record; raise `ValueError` if it is invalid."""
        found = typed(record, ManifestFile)
        splits = record["splits"]
        check_fields(record["schema"]["features"], Feature)
        check_fields(chain.from_iterable(split["shards"] for split in splits.values()), ShardInfo)
        values = msgspec.structs.asdict(found)
        values["splits"] = {
            name: SplitInfo(name, split.shards, splits[name]["stats"])
            for name, split in found.splits.items()
        }
        values["files"] = {name: each.content for name, each in found.files.items()}
        # As they are: the types know the fields alone that are used.
        for key in ("settings", "provenance", "history"):
            values[key] = record.get(key, {})
        return cls(**values)


def shard_contents(manifest: Manifest, name: ShardName) -> dict[str, FileContent]:
    """Return the contents of a shard's files by path, as far as the manifest states them."""
    info = manifest.splits[name.split].shards[name.index]
    files = {path: manifest.files.get(path) for path in (name.rejects, name.signals)}
    stated = {path: content for path, content in files.items() if content is not None}
    return {**stated, name.shard: info.content, name.sidecar: info.sidecar}


def time_text() -> str:
    """Return the time as JSON files of the dataset have it: UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return a JSON file of the dataset as the bytes that are stored, with `content`'s order."""
    data = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        # `json` indents in Python: for 10,000 features, in four times the time of both.
        return msgspec.json.format(data, indent=1) + b"\n"
    except msgspec.DecodeError:  # a NaN, which JSON lacks and Python's has
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        return text.encode("utf-8", "surrogatepass")


def seal(content: Mapping[str, Any]) -> bytes:
    """Return a JSON file with a last field `checksum`: the CRC32C of the file without it."""
    data = json_bytes(content)
    checksum = b',\n "checksum": %d' % google_crc32c.value(data)
    return data.removesuffix(_END) + checksum + _END


def read_manifest(root: Folder, filename: str = naming.MANIFEST) -> Manifest:
    """Return the manifest of a finished dataset.

    Args:
        root: The dataset's folder.
        filename: The file; that of a version has another name (`format.versions`).

    Raises:
        NotADatasetError: The manifest is missing, damaged, or of another format version.
        StorageError: The folder cannot be read.
    """
    path = root.path(filename)
    try:
        data = root.read_bytes(filename, max_bytes=MAX_BYTES)
    except MissingError as error:
        raise NotADatasetError(_why_no_manifest(root, filename)) from error
    content = parse_json(data, dict[str, Any], path, "copy it again")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise NotADatasetError(
            f"{root} has format version {version!r}; this shardwright reads version "
            f"{FORMAT_VERSION}: install the release that wrote it, or rebuild"
        )
    if not is_intact(data):
        raise NotADatasetError(f"{path} is damaged (its checksum is wrong): copy it again")
    try:
        return Manifest.from_json(content)
    except ValueError as error:
        raise NotADatasetError(f"{path} is damaged ({error}): rebuild") from error


def is_intact(data: bytes) -> bool:
    """Return whether a file has the checksum with which `seal` ends it."""
    found = _CHECKSUM.fullmatch(data, data.rfind(b",\n"))
    if found is None:
        return False
    return google_crc32c.value(data[: found.start()] + _END) == int(found[1])


def _why_no_manifest(root: Folder, filename: str) -> str:
    if filename != naming.MANIFEST:
        return (
            f"{root.path(filename)} is missing, but later versions exist: copy it again "
            "(`shardwright gc` keeps the files of versions that it removes)"
        )
    if root.num_bytes_of(naming.version_file(2)) is not None:
        return (
            f"{root.path(filename)} is missing, the manifest of a version: copy it again, or read "
            "another version with --version"
        )
    if root.num_bytes_of(naming.PLAN) is not None:
        return (
            f"{root} holds an unfinished build (no {naming.MANIFEST}): "
            "run the same `shardwright build` command again to resume it"
        )
    return f"{root} is not a shardwright dataset: it has no {naming.MANIFEST}"
