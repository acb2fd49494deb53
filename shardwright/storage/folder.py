"""Folders, local or in an object store: everything else reads and writes files through them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

import pyarrow as pa

from shardwright.errors import MissingPeerError, StorageError
from shardwright.storage import peers
from shardwright.storage.addresses import absolute, is_remote, join
from shardwright.storage.local import FileInfo, FileSink, LocalFiles, open_descriptor
from shardwright.storage.object_reads import client_and_key
from shardwright.storage.objects import ObjectFiles
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.uploads import ObjectSink

Sink = FileSink | ObjectSink


def files_of(uri: str, options: StorageOptions) -> LocalFiles | ObjectFiles:
    """Return the file operations for an address of the user, whose links are followed."""
    return ObjectFiles(options) if is_remote(uri) else LocalFiles()


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder whose files have relative names with `/`. Picklable, without clients.

    Every method raises a subclass of `StorageError` whose message contains the file's address. No
    link is followed to a file or folder below `top`: that is a `LinkError`. Only names of links are
    listed, and removing or replacing a link leaves alone what it leads to.

    Attributes:
        uri: An absolute local path, or a store's address.
        options: Storage options; local folders need none.
        top: The folder that this one is below, and that may itself be a link; "" for this one.
    """

    uri: str
    options: StorageOptions = NO_OPTIONS
    top: str = field(default="", compare=False, repr=False)

    @classmethod
    def at(cls, uri: str | os.PathLike[str], options: StorageOptions = NO_OPTIONS) -> Folder:
        """Return the folder at an address as users write it.

        Raises:
            UsageError: The address is invalid.
        """
        return cls(absolute(os.fspath(uri)), options)

    def __str__(self) -> str:
        return self.uri

    @property
    def is_remote(self) -> bool:
        return is_remote(self.uri)

    @property
    def _files(self) -> LocalFiles | ObjectFiles:
        return ObjectFiles(self.options) if self.is_remote else LocalFiles(self.top or self.uri)

    def path(self, name: str) -> str:
        """Return the address of a file in this folder, for messages."""
        return join(self.uri, name)

    def own_path(self, name: str = "") -> str:
        """Return the address of a file or folder in this one, for code that opens it by itself.

        Raises:
            LinkError: A part of it is a link.
        """
        return self._files.own_path(self.path(name) if name else self.uri)

    def open_descriptor(self, name: str) -> int:
        """Return a descriptor of a local file for reading; raise `OSError` as `os.open`, too."""
        return open_descriptor(self.path(name), self.top or self.uri)

    @property
    def is_on_web(self) -> bool:
        """True for a web server (`https://`), which cannot be listed or written."""
        return self.uri.startswith(("http://", "https://"))

    def below(self, name: str) -> Folder:
        """Return a folder in this one; "" is this one."""
        return Folder(self.path(name), self.options, self.top or self.uri) if name else self

    def num_bytes_of(self, name: str) -> int | None:
        """Return a file's length in bytes, or None if it does not exist."""
        return self._files.num_bytes_of(self.path(name))

    def info(self, name: str) -> FileInfo | None:
        """Return what is known of a file without reading it, or None if it does not exist."""
        return self._files.info(self.path(name))

    def read_bytes(self, name: str, *, max_bytes: int | None = None) -> bytes:
        """Return a whole file.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, or is longer than `max_bytes`.
        """
        return self._files.read_bytes(self.path(name), max_bytes=max_bytes)

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the file's end."""
        return self._files.read_range(self.path(name), offset, length)

    def read_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges [start, stop) of one file; in a store near ones share a request."""
        return self._files.read_ranges(self.path(name), spans)

    def local_copy(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Yield the file, open for reading; an object is downloaded to a nameless local file."""
        return self._files.local_copy(self.path(name))

    def open_input(self, name: str) -> pa.NativeFile:
        """Return a seekable file for Arrow's readers."""
        return self._files.open_input(self.path(name))

    def open_small(self, name: str) -> pa.NativeFile:
        """Open a file of at most a few megabytes; from a store, one request reads it whole."""
        return pa.BufferReader(self.read_bytes(name)) if self.is_remote else self.open_input(name)

    def open_sink(self, name: str, *, sync: bool = True) -> AbstractContextManager[Sink]:
        """Open a sink whose file appears when the block ends; on an error nothing is left of it.

        Args:
            name: Name of the file.
            sync: Wait until the disk has it; without, a power failure may undo it.
        """
        return self._files.open_sink(self.path(name), sync=sync)

    def write_bytes(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a small file atomically; unless `sync`, a power failure may undo it."""
        self._files.write_bytes(self.path(name), data, sync=sync)

    def write_if_new(self, name: str, data: bytes) -> None:
        """Write a file unless it has this content, so that a rebuild leaves a dataset untouched."""
        try:
            same = self.read_bytes(name) == data
        except StorageError:  # missing or unreadable; a lasting problem makes the write fail
            same = False
        if not same:
            self.write_bytes(name, data)

    def create_bytes(self, name: str, data: bytes) -> None:
        """Write a small file atomically. Raises `ExistsError` if it exists."""
        self._files.create_bytes(self.path(name), data)

    def copy(self, name: str, to: Folder) -> None:
        """Put a file into another folder of the same disk or store, too, under the same name.

        A store copies it by itself; on a disk it is one file with two names where that is possible.
        Atomic, and repeatable. Raises `MissingError` if it does not exist.
        """
        self._files.copy(self.path(name), to.path(name), to.top or to.uri)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self._files.remove(self.path(name))

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove those of the files that exist, in any order."""
        self._files.remove_all([self.path(name) for name in names])

    def remove_empty(self) -> None:
        """Remove this folder and those below it as far as they are empty; stores have none."""
        for path, _, _ in () if self.is_remote else os.walk(self.own_path(), topdown=False):
            with suppress(OSError):
                os.rmdir(path)

    def names(self, below: str = "") -> list[str]:
        """Return the sorted names in this folder or one below it, [] if it does not exist."""
        return self._files.names_in(self.path(below) if below else self.uri)

    def files(self, below: str = "", *, crc32c: bool = False) -> dict[str, FileInfo]:
        """Return name -> info of each file in this folder or one below it, {} if it is missing.

        Links are left out.

        Args:
            below: The folder; "" for this one.
            crc32c: Tell the checksums that a store lists.
        """
        path = self.path(below) if below else self.uri
        return self._files.files_in(path, crc32c=crc32c)

    def first_names(self) -> list[str]:
        """Return sorted names in this folder: in a store of its first 1,000 objects, asked once."""
        return self._files.first_names_in(self.uri)

    def stated_crc32c(self, name: str) -> int | None:
        """Return the CRC32C of a whole file that its store keeps.

        None if it keeps none, for local files, and if the store's own client is not installed.
        """
        if not self.is_remote:
            return None
        try:
            return peers.stated_content(*client_and_key(self.path(name), self.options)).crc32c
        except MissingPeerError:
            return None

    def is_file(self) -> bool:
        """Return whether the address is that of a file instead of a folder."""
        return self._files.is_file(self.uri)


class UserFolder(Folder):
    """A folder of a user's own files, such as INPUT, in which links are followed."""

    __slots__ = ()

    @property
    def _files(self) -> LocalFiles | ObjectFiles:
        return files_of(self.uri, self.options)
