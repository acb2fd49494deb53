"""Verify a dataset without reading its shards, by file lengths and the store's checksums.

GCS keeps the CRC32C of every object, S3 only of objects that were uploaded with one. S3 checked the
content at upload, and an object's etag does not change unless its content does or it is copied; so
an etag equal to the one of the upload proves the content, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import monotonic

from shardwright.errors import LinkError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.superseded import companion_content
from shardwright.inspect.faults import DatasetFault, Verification
from shardwright.inspect.verify import DEFAULT_THREADS
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.local import StatedFile
from shardwright.storage.reads import map_reads

_BY_CHECKSUMS, _BY_LENGTHS = "the store's checksums", "lengths alone"


def verify_quickly(dataset: Folder, *, threads: int = DEFAULT_THREADS) -> Verification:
    """Compare the lengths and checksums that the disk or store reports with the manifest.

    Args:
        dataset: The dataset's folder.
        threads: Number of concurrent requests for checksums that a store does not list.

    Raises:
        NotADatasetError: The folder has no finished dataset.
        StorageError: The folder cannot be listed.
    """
    started = monotonic()
    manifest = read_manifest(dataset)
    root = dataset.below(manifest.folder)
    stated = root.stated()
    unknown: list[str] = []
    shards = manifest.named_shards()

    def check(shard: tuple[ShardName, ShardInfo]) -> list[DatasetFault]:
        name, info = shard
        return list(_shard_faults(root, name, info, stated.get(name.shard), unknown))

    faults = [fault for found in map_reads(check, shards, threads) for fault in found]
    faults += _faults_beside_shards(root, manifest, stated)
    return Verification(
        dataset=dataset.uri,
        num_shards=len(shards),
        num_records=0,
        num_bytes=0,
        seconds=monotonic() - started,
        faults=tuple(faults),
        notes=tuple(_notes(root, sorted(unknown), len(shards))),
        by=_BY_LENGTHS if len(unknown) == len(shards) else _BY_CHECKSUMS,
    )


def listed_faults(root: Folder, manifest: Manifest) -> Iterator[DatasetFault]:
    """Yield the faults of all files that listings show: their lengths, and checksums if listed.

    Raises:
        StorageError: The folder cannot be listed.
    """
    shards = {
        name.shard: FileContent(info.num_bytes, info.crc32c)
        for name, info in manifest.named_shards()
    }
    whole = replace(manifest, files={**manifest.files, **shards})
    return _faults_beside_shards(root, whole, root.stated())


def _shard_faults(
    root: Folder, name: ShardName, info: ShardInfo, found: StatedFile | None, unknown: list[str]
) -> Iterator[DatasetFault]:
    """Yield a shard's faults; append its name to `unknown` if the store has no checksum of it."""
    if found is None:
        what = f"the shard is missing, with {counted(info.num_records, 'record')}"
        yield DatasetFault.of_file(name.shard, _why_not_listed(root, name.shard, what))
        return
    if found.num_bytes != info.num_bytes:
        length = counted(found.num_bytes, "byte")
        yield DatasetFault.of_file(
            name.shard, f"the file has {length}, the manifest says {info.num_bytes:,}"
        )
        return
    if info.etag is not None and found.etag == info.etag:
        return
    crc = found.crc32c if found.crc32c is not None else root.stated_crc32c(name.shard)
    if crc is not None and crc != info.crc32c:
        yield DatasetFault.of_file(
            name.shard, f"the store states crc32c {crc:#010x}, the manifest {info.crc32c:#010x}"
        )
    elif crc is None and info.etag is not None:
        what = (
            f"its etag is {found.etag}, but was {info.etag} when it was written: changed or copied "
            "since; run without --quick to read it"
        )
        yield DatasetFault.of_file(name.shard, what)
    elif crc is None:
        unknown.append(name.shard)


def _faults_beside_shards(
    root: Folder, manifest: Manifest, stated: Mapping[str, StatedFile]
) -> Iterator[DatasetFault]:
    """Yield the faults of the other files, by their lengths and listed checksums."""
    there = dict(stated)
    for folder in naming.SHARD_DIRS:
        there |= {f"{folder}/{name}": found for name, found in root.stated(folder).items()}
    wanted: dict[str, FileContent | None] = dict(manifest.files)
    wanted |= {name.sidecar: info.sidecar for name, info in manifest.named_shards()}
    shard_of = {name.sidecar: name.shard for name, _ in manifest.named_shards()}
    for filename, content in wanted.items():
        found = there.get(filename)
        if found is None:
            what = f"the index of {shard_of[filename]}" if filename in shard_of else "the file"
            what = _why_not_listed(root, filename, f"{what} is missing")
            yield DatasetFault.of_file(filename, what)
        elif content is not None:
            crc = content.crc32c if found.crc32c is None else found.crc32c
            fault = FileContent(found.num_bytes, crc).fault(content)
            if fault is not None and filename == naming.DATASET_INFO:
                fault = companion_content(root, filename).fault(content)
            if fault is not None:
                yield DatasetFault.of_file(filename, fault)


def _why_not_listed(root: Folder, filename: str, missing: str) -> str:
    """Return why a listing lacks a file: it is missing, or a link."""
    try:
        root.own_path(filename)
    except LinkError as error:
        return str(error)
    return missing


def _notes(root: Folder, unknown: list[str], num_shards: int) -> Iterator[DatasetFault]:
    if not unknown:
        return
    where = "the store" if root.is_remote else "a disk"
    keeps = (
        "does not keep checksums for any shard"
        if len(unknown) == num_shards
        else f"keeps no checksum for {len(unknown)} of {num_shards} shards, such as {unknown[0]},"
    )
    yield DatasetFault.of_file(
        naming.MANIFEST,
        f"{where} {keeps}: only lengths were compared; run without --quick to read all",
    )
