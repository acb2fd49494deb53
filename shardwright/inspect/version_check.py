"""Verify the newest version of a dataset: each of its generations, and what the version says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.versions import number_of, read_version
from shardwright.inspect.faults import DatasetFault, Verification
from shardwright.storage.folder import Folder

_EXAMPLES = 3


def verify_version(root: Folder, verify: Callable[[Folder], Verification]) -> Verification:
    """Check the newest version of a dataset.

    Args:
        root: The dataset's folder.
        verify: Checks a dataset by the manifest in its folder.

    Raises:
        NotADatasetError: There is no finished dataset.
        StorageError: A folder cannot be read.
    """
    started = monotonic()
    version = read_version(root)
    if not version.history:
        return verify(root)
    found = [(folder, _verified(root.below(folder), verify)) for folder in version.folders]
    faults = [_below(folder, fault) for folder, each in found for fault in each.faults]
    if not faults:
        faults = [*_shard_faults(root, version), *_doubled(root, version)]
    return Verification(
        dataset=root.uri,
        num_shards=sum(each.num_shards for _, each in found),
        num_records=sum(each.num_records for _, each in found),
        num_bytes=sum(each.num_bytes for _, each in found),
        seconds=monotonic() - started,
        faults=tuple(faults),
        notes=tuple(_below(folder, note) for folder, each in found for note in each.notes),
        by=next((each.by for _, each in found if each.by), "content"),
    )


def _verified(generation: Folder, verify: Callable[[Folder], Verification]) -> Verification:
    """Check a generation. A manifest that is missing or damaged is a fault."""
    try:
        return verify(generation)
    except NotADatasetError as error:
        missing = generation.num_bytes_of(naming.MANIFEST) is None
        what = "the file is missing: copy it again" if missing else str(error)
        fault = DatasetFault.of_file(naming.MANIFEST, what)
        return Verification(generation.uri, 0, 0, 0, 0.0, (fault,), (), by="")


def _below(folder: str, fault: DatasetFault) -> DatasetFault:
    return replace(fault, file=f"{folder}/{fault.file}") if folder else fault


def _shard_faults(root: Folder, version: Manifest) -> Iterator[DatasetFault]:
    """Yield the shards that differ from those of their generation."""
    file = naming.version_file(number_of(version))
    manifests: dict[str, Manifest] = {}
    for name, info in version.named_shards():
        if info.folder not in manifests:
            manifests[info.folder] = read_manifest(root.below(info.folder))
        own = dict(manifests[info.folder].named_shards(name.split))
        there = own.get(replace(name, folder=""))
        if there is None or there != replace(info, folder="", count=0, removed=b""):
            what = f"{name.shard} is not the shard of its generation"
            hint = "if `shardwright erase` was stopped, run its command again"
            yield DatasetFault.of_file(file, f"{what}: {hint}")


def _doubled(root: Folder, version: Manifest) -> Iterator[DatasetFault]:
    """Yield ids that come more than once."""
    try:
        ids = [
            chunk
            for name, info in version.named_shards()
            for chunk in read_live_rows(root, name, info, ["id"])["id"].chunks
        ]
    except (StorageError, NotADatasetError) as error:
        yield DatasetFault.of_file(naming.INDEX_DIR, str(error))
        return
    counts = pc.value_counts(pa.chunked_array(ids, pa.string()))
    doubled = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    for name in doubled[:_EXAMPLES].to_pylist():
        what = f"the id {name!r} comes more than once"
        yield DatasetFault.of_file(naming.version_file(number_of(version)), what)
