"""Compare the files of a dataset with its manifest, as far as listings and stores tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.errors import LinkError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.manifest import Manifest
from shardwright.format.superseded import companion_content
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads


@dataclass(frozen=True, slots=True)
class DatasetFault:
    """A difference between a dataset and its manifest.

    Attributes:
        file: Path relative to the dataset's folder.
        record: Record number in the file, from 0; None if the fault concerns the whole file.
        offset: Start of the record, in bytes; None if the fault concerns the whole file.
        what: Description: what was found and what was expected.
    """

    file: str
    record: int | None
    offset: int | None
    what: str

    @classmethod
    def of_file(cls, file: str, what: str) -> DatasetFault:
        """Return a fault that concerns a whole file."""
        return cls(file, None, None, what)

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.file}: {self.what}"
        at = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.file}: record {self.record}{at}: {self.what}"


class DatasetFiles:
    """The files of a dataset and what its manifest states of them. Threads may share it."""

    def __init__(self, root: Folder, manifest: Manifest) -> None:
        self._root = root
        shards = manifest.named_shards()
        self._shards = {name.shard: (name, info) for name, info in shards}
        self._indexes = {name.sidecar: (name, info) for name, info in shards}
        self._stated = dict(manifest.files)
        self._stated |= {name.shard: info.content for name, info in shards}
        self._stated |= {name.sidecar: info.sidecar for name, info in shards}
        self._contents = {content: path for path, content in self._stated.items()}

    def missing(self, path: str) -> str:
        """Return that a file is missing, and what it would hold."""
        if path in self._shards:
            records = counted(self._shards[path][1].num_records, "record")
            return f"the shard is missing, with {records}"
        if path in self._indexes:
            return f"the index of {self._indexes[path][0].shard} is missing"
        return "the file is missing"


def listed_faults(
    root: Folder,
    manifest: Manifest,
    unknown: list[str] | None = None,
    threads: int | None = None,
) -> Iterator[DatasetFault]:
    """Yield the faults of all files that listings show: their lengths, and checksums if listed.

    Args:
        root: The folder of the files.
        manifest: Their manifest.
        unknown: Request the checksums of shards that the store does not list; gets the names of
            those of which it has none. None to request nothing.
        threads: Number of concurrent requests; None if there are none.

    Raises:
        StorageError: The folder cannot be listed.
    """
    checker = _ListedFiles(root, manifest)

    def look(path: str) -> DatasetFault | None:
        return checker.fault(path, unknown)

    paths = checker.paths
    found = map(look, paths) if threads is None else map_reads(look, paths, threads)
    return (fault for fault in found if fault is not None)


class _ListedFiles(DatasetFiles):
    """The files of a dataset as listings show them. Threads may share it."""

    def __init__(self, root: Folder, manifest: Manifest) -> None:
        super().__init__(root, manifest)
        self.paths = [*self._shards, *sorted(manifest.file_names() - self._shards.keys())]
        self._listed = dict(root.files(crc32c=True))
        for folder in naming.SHARD_DIRS:
            files = root.files(folder, crc32c=True)
            self._listed |= {f"{folder}/{name}": found for name, found in files.items()}

    def fault(self, path: str, unknown: list[str] | None = None) -> DatasetFault | None:
        """Return the fault of a file, or None.

        With `unknown`, request the checksum of a shard that the store does not list; append the
        shard if the store has none.
        """
        found, stated = self._listed.get(path), self._stated.get(path)
        if found is None:
            return DatasetFault.of_file(path, self._why_not_listed(path))
        if stated is None:
            return None
        crc = found.crc32c
        if unknown is not None and path in self._shards and found.num_bytes == stated.num_bytes:
            etag = self._shards[path][1].etag
            # No request is needed for the checksum: an etag changes with the content.
            if etag is not None and found.etag == etag:
                return None
            crc = self._root.stated_crc32c(path) if crc is None else crc
            if crc is None and etag is not None:
                what = (
                    f"its etag is {found.etag}, but was {etag} when it was written: changed or "
                    "copied since; run without --quick to read it"
                )
                return DatasetFault.of_file(path, what)
            if crc is None:
                unknown.append(path)
        fault = FileContent(found.num_bytes, stated.crc32c if crc is None else crc).fault(stated)
        if fault is not None and path == naming.DATASET_INFO:
            # A dataset that has grown has a notice for TFDS in this file; the manifest states it
            # without.
            fault = companion_content(self._root, path).fault(stated)
        return None if fault is None else DatasetFault.of_file(path, fault)

    def _why_not_listed(self, path: str) -> str:
        """Return why a listing lacks a file: it is missing, or a link."""
        try:
            self._root.own_path(path)
        except LinkError as error:
            return str(error)
        return self.missing(path)
