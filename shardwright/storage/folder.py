"""A folder: a local one, or a prefix of an object store. The one seam between this project and where its files are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from shardwright import naming
from shardwright.errors import MissingPeerError, StorageError
from shardwright.storage import peers
from shardwright.storage.addresses import absolute, is_remote, join, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.local import FileSink, LocalFiles, StatedFile
from shardwright.storage.objects import ObjectFiles
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.uploads import ObjectSink

Sink = FileSink | ObjectSink


def files_of(uri: str, options: StorageOptions) -> LocalFiles | ObjectFiles:
    """The operations on whatever an address names."""
    return ObjectFiles(options) if is_remote(uri) else LocalFiles()


@dataclass(frozen=True, slots=True)
class Folder:
    """A place that files are in; their names are relative to it, with `/`. Picklable, and free of clients.

    Every method raises `StorageError`, of the kind that fits, with a message that names the file.

    Attributes:
        uri: An absolute local path, or a store's address.
        options: Storage options; local folders need none.
    """

    uri: str
    options: StorageOptions = NO_OPTIONS

    @classmethod
    def at(cls, uri: str, options: StorageOptions = NO_OPTIONS) -> Folder:
        """The folder at an address as a user writes it.

        Raises:
            UsageError: The address is none.
        """
        return cls(absolute(uri), options)

    def __str__(self) -> str:
        return self.uri

    @property
    def is_remote(self) -> bool:
        return is_remote(self.uri)

    @property
    def _files(self) -> LocalFiles | ObjectFiles:
        return files_of(self.uri, self.options)

    def path(self, name: str) -> str:
        """The address of a file in this folder."""
        return join(self.uri, name)

    def num_bytes_of(self, name: str) -> int | None:
        """A file's length, or None where there is no such file."""
        return self._files.num_bytes_of(self.path(name))

    def read_bytes(self, name: str) -> bytes:
        """A whole file. Raises `MissingError` where there is none."""
        return self._files.read_bytes(self.path(name))

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer where the file ends."""
        return self._files.read_range(self.path(name), offset, length)

    def read_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several [start, stop) of one file; of a store, near ones come by one request."""
        return self._files.read_ranges(self.path(name), spans)

    def local_copy(self, name: str) -> AbstractContextManager[str]:
        """A local path under which a file can be read as long as the block lasts."""
        return self._files.local_copy(self.path(name))

    def open_input(self, name: str) -> pa.NativeFile:
        """A seekable file for Arrow's readers."""
        return self._files.open_input(self.path(name))

    def open_small(self, name: str) -> pa.NativeFile:
        """The same for a file of up to some megabytes: of a store it is fetched whole, by one request."""
        return pa.BufferReader(self.read_bytes(name)) if self.is_remote else self.open_input(name)

    def open_sink(self, name: str) -> AbstractContextManager[Sink]:
        """A sink whose file appears, whole, when the block ends without an error; after one, nothing is left of it."""
        return self._files.open_sink(self.path(name))

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a whole small file; nobody ever sees a part of it."""
        self._files.write_bytes(self.path(name), data)

    def write_if_new(self, name: str, data: bytes) -> None:
        """Write a file, or leave it as it is where it says the same: a finished dataset that is built again stays untouched."""
        try:
            same = self.read_bytes(name) == data
        except (
            StorageError
        ):  # none there, or none that can be read: writing tells if there is more to it
            same = False
        if not same:
            self.write_bytes(name, data)

    def create_bytes(self, name: str, data: bytes) -> None:
        """Write a whole small file where there is none. Raises `ExistsError` where there is one."""
        self._files.create_bytes(self.path(name), data)

    def remove(self, name: str) -> None:
        """Remove a file; where there is none, nothing happens."""
        self._files.remove(self.path(name))

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove files, in no order; where there is none, nothing happens."""
        self._files.remove_all([self.path(name) for name in names])

    def names(self, below: str = "") -> list[str]:
        """The names in this folder, or in one below it, in order; none where there is no such folder."""
        return self._files.names_in(self.path(below) if below else self.uri)

    def stated(self, below: str = "") -> dict[str, StatedFile]:
        """Name -> what the disk or store says of each file in this folder, or in one below it, without reading any."""
        return self._files.stated_in(self.path(below) if below else self.uri)

    def stated_crc32c(self, name: str) -> int | None:
        """The CRC32C that a store keeps of a file's whole content; None where it keeps none, or its own client is not installed."""
        if not self.is_remote:
            return None
        store, key = parse_address(self.path(name))
        try:
            return peers.stated_content(client_for(store, self.options), key).crc32c
        except MissingPeerError:
            return None

    def is_file(self) -> bool:
        """Whether there is a file where the folder ought to be."""
        return self._files.is_file(self.uri)

    def outputs(self) -> list[str]:
        """Every file in it that a build makes, in order."""
        found: list[str] = []
        for below in ("", naming.INDEX_DIR, naming.REJECTS_DIR):
            names: Iterator[str] = (
                f"{below}/{name}" if below else name for name in self.names(below)
            )
            found += [name for name in names if naming.is_build_output(name)]
        return sorted(found)

    def abort_uploads(self) -> list[str]:
        """Abort uploads of a build's files that a killed build left in the store; their names. Local folders have none."""
        if not self.is_remote:
            return []
        store, key = parse_address(self.uri)
        start = f"{key}/" if key else ""
        aborted = peers.abort_uploads(
            client_for(store, self.options),
            start,
            lambda found: naming.is_build_output(found[len(start) :]),
        )
        return [found[len(start) :] for found in aborted]
