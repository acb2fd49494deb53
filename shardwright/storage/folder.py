"""Folders, local or in an object store: everything else reads and writes files through them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, ClassVar, Protocol, TypeVar, cast

import obstore
import pyarrow as pa

from shardwright.errors import ExistsError, MissingError, MissingPeerError, StorageError
from shardwright.storage import gcs_peer, peers
from shardwright.storage.addresses import absolute, is_remote, join, parse_address
from shardwright.storage.checksums import looks_like_md5, plain_etag
from shardwright.storage.clients import Client
from shardwright.storage.counters import COUNTERS
from shardwright.storage.downloads import download
from shardwright.storage.links import check_folders, open_path, status
from shardwright.storage.listing import first_page, list_folder
from shardwright.storage.local import (
    NO_HARD_LINKS,
    FileInfo,
    check_length,
    file_info,
    link_over,
    link_to_new,
    listed_info,
    open_regular,
    open_sink,
    read_faults,
)
from shardwright.storage.object_reads import (
    ObjectParts,
    client_and_key,
    get_range,
    head_object,
    read_object,
)
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.range_reader import RangeReader
from shardwright.storage.reads import map_reads
from shardwright.storage.uploads import open_upload

T = TypeVar("T")
_STREAM_BYTES = 1 << 20
_COPY_BYTES = 4 << 20
_KEYS_A_REQUEST = 1000
_MAX_STORE_COPY_BYTES = 5 << 30  # S3 copies no larger object by one request
_STORE_COPY_BYTES = 64 << 20
COALESCE_BYTES = 1 << 20  # reading a gap of at most this size is cheaper than another request


class Sink(Protocol):
    """A file that is being written. It counts its bytes; the etag is None until it is known."""

    num_bytes: int
    etag: str | None

    def write(self, pieces: Sequence[bytes]) -> None:
        """Append the pieces to the file."""


def files_of(uri: str, options: StorageOptions) -> Folder:
    """Return the folder of all addresses of a user, as names; their links are followed."""
    return type(Folder(uri))("", options, None)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder whose files have relative names with `/`. Picklable, without clients.

    This class is one on a disk. `Folder(uri)` of a store's address is a `StoreFolder`, with the
    same methods.

    Every method raises a subclass of `StorageError` whose message contains the file's address. No
    link is followed to a file or folder below `top`: that is a `LinkError`. Only names of links are
    listed, and removing or replacing a link leaves alone what it leads to.

    Attributes:
        uri: An absolute local path, or a store's address.
        options: Storage options; local folders need none.
        top: The folder that this one is below, and that may itself be a link; "" for this one; None
            for files of a user, such as INPUT, in which links are followed.
        is_remote: Whether it is in a store.
    """

    uri: str
    options: StorageOptions = NO_OPTIONS
    top: str | None = field(default="", compare=False, repr=False)
    is_remote: ClassVar[bool] = False

    def __new__(cls, uri: str = "", *args: object, **kwargs: object) -> Folder:  # noqa: ARG004
        return object.__new__(StoreFolder if cls is Folder and is_remote(uri) else cls)

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
    def _top(self) -> str | None:
        return self.uri if self.top == "" else self.top

    def path(self, name: str = "") -> str:
        """Return the address of a file or folder in this one, for messages; "" is this one."""
        return join(self.uri, name) if self.uri and name else name or self.uri

    def own_path(self, name: str = "") -> str:
        """Return the address of a file or folder in this one, for code that opens it by itself.

        Raises:
            LinkError: A part of it is a link.
        """
        with (
            read_faults(self.path(name)),
            suppress(FileNotFoundError, NotADirectoryError),  # it may be missing
        ):
            status(self.path(name), self._top)
        return self.path(name)

    def open_descriptor(self, name: str) -> int:
        """Return a descriptor of a local file for reading; raise `OSError` as `os.open`, too."""
        return open_path(self.path(name), os.O_RDONLY | os.O_NONBLOCK, self._top)

    @property
    def is_on_web(self) -> bool:
        """True for a web server (`https://`), which cannot be listed or written."""
        return self.uri.startswith(("http://", "https://"))

    def below(self, name: str) -> Folder:
        """Return a folder in this one; "" is this one."""
        return Folder(self.path(name), self.options, self._top) if name else self

    def num_bytes_of(self, name: str) -> int | None:
        """Return a file's length in bytes, or None if it does not exist."""
        found = self.info(name)
        return found.num_bytes if found else None

    def info(self, name: str) -> FileInfo | None:
        """Return what is known of a file without reading it, or None if it does not exist."""
        try:
            with read_faults(self.path(name)):
                return file_info(status(self.path(name), self._top))
        except MissingError:
            return None

    @contextmanager
    def _reading(self, name: str, buffering: int = -1) -> Iterator[BinaryIO]:
        with (
            read_faults(self.path(name)),
            open_regular(self.path(name), buffering, self._top) as file,
        ):
            yield file

    def read_bytes(self, name: str, *, max_bytes: int | None = None) -> bytes:
        """Return a whole file.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, or is longer than `max_bytes`.
        """
        with self._reading(name) as file:
            # Of the opened file: the path may be another file by now.
            check_length(self.path(name), os.fstat(file.fileno()).st_size, max_bytes)
            return file.read()

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the file's end."""
        return self.read_ranges(name, [(offset, offset + length)])[0]

    def read_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges [start, stop) of one file; in a store near ones share a request."""
        with self._reading(name, 0) as file:
            return [os.pread(file.fileno(), stop - start, start) for start, stop in spans]

    @contextmanager
    def local_copy(self, name: str) -> Iterator[BinaryIO]:
        """Yield the file, open for reading; an object is downloaded to a nameless local file."""
        with read_faults(self.path(name)):
            file = open_regular(self.path(name), top=self._top)
        with file:
            yield file

    def open_input(self, name: str) -> pa.NativeFile:
        """Return a seekable file for Arrow's readers."""
        with self._reading(name):  # checked: opening a pipe would wait
            return pa.OSFile(self.path(name))

    def open_stream(
        self, name: str, *, num_bytes: int | None = None, skips: bool = False
    ) -> BinaryIO:
        """Return a seekable file for Python's readers.

        Args:
            name: Name of the file.
            num_bytes: Its length, if it is known; looking it up in a store is a request.
            skips: Most of its bytes are skipped, so that less is read at a time.

        Raises:
            OSError: A local file cannot be read.
        """
        del num_bytes
        return open_regular(self.path(name), -1 if skips else _STREAM_BYTES, self._top)

    def open_sink(self, name: str, *, sync: bool = True) -> AbstractContextManager[Sink]:
        """Open a sink whose file appears when the block ends; on an error nothing is left of it.

        Args:
            name: Name of the file.
            sync: Wait until the disk has it; without, a power failure may undo it.
        """
        return open_sink(self.path(name), self._top, sync=sync)

    def write_bytes(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a small file atomically; unless `sync`, a power failure may undo it."""
        with open_sink(self.path(name), self._top, sync=sync) as sink:
            sink.write([data])

    def write_if_new(self, name: str, data: bytes) -> None:
        """Write a file unless it has this content, so that a rebuild leaves a dataset untouched."""
        try:
            same = self.read_bytes(name) == data
        except StorageError:  # missing or unreadable; a lasting problem makes the write fail
            same = False
        if not same:
            self.write_bytes(name, data)

    def create_bytes(self, name: str, data: bytes) -> None:
        """Write a small file atomically. Of two concurrent writers one succeeds.

        Raises:
            ExistsError: It exists.
        """
        # A hard link fails if the name exists, where a rename would replace it: this is what makes
        # a commit of one writer.
        with open_sink(self.path(name), self._top, link_to_new) as sink:
            sink.write([data])

    def copy(self, name: str, to: Folder) -> None:
        """Put a file into another folder of the same disk or store, too, under the same name.

        A store copies it by itself; on a disk it is one file with two names where that is possible.
        Atomic, and repeatable. Raises `MissingError` if it does not exist.
        """
        source, path = self.path(name), to.path(name)
        try:
            status(source, self._top)
            link_over(source, path, to._top)
        except FileNotFoundError as error:
            raise MissingError(f"{source}: there is no such file") from error
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
            with self._reading(name) as file, open_sink(path, to._top) as sink:
                while piece := file.read(_COPY_BYTES):
                    sink.write([piece])

    def remove(self, name: str) -> None:
        """Remove a file, or a link, if it exists."""
        path = self.path(name)
        try:
            check_folders(path, self._top)
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove those of the files that exist, in any order."""
        for name in names:
            self.remove(name)

    def remove_empty(self) -> None:
        """Remove this folder and those below it as far as they are empty."""
        for path, _, _ in os.walk(self.own_path(), topdown=False):
            with suppress(OSError):
                os.rmdir(path)

    def names(self, below: str = "") -> list[str]:
        """Return the sorted names in this folder or one below it, [] if it does not exist."""
        return sorted(self._scan(below, lambda entry: entry.name))

    def files(self, below: str = "", *, crc32c: bool = False) -> dict[str, FileInfo]:
        """Return name -> info of each file in this folder or one below it, {} if it is missing.

        Links are left out.

        Args:
            below: The folder; "" for this one.
            crc32c: Tell the checksums that a store lists.
        """
        del crc32c
        return dict(sorted(filter(None, self._scan(below, listed_info))))

    def _scan(self, below: str, take: Callable[[os.DirEntry[str]], T]) -> Sequence[T]:
        path = self.path(below)
        try:
            status(path, self._top)
            with os.scandir(path) as entries:
                return [take(entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError(f"cannot list {path}: {error.strerror or error}") from error

    def first_names(self) -> list[str]:
        """Return sorted names in this folder: in a store of its first 1,000 objects, asked once."""
        return self.names()

    def stated_crc32c(self, name: str) -> int | None:  # noqa: ARG002
        """Return the CRC32C of a whole file that its store keeps.

        None if it keeps none, for local files, and if the store's own client is not installed.
        """
        return None

    def is_file(self, name: str = "") -> bool:
        """Return whether the address is that of a file instead of a folder."""
        path = self.path(name)
        return os.path.lexists(path) and not os.path.isdir(path)


class StoreFolder(Folder):
    """A folder in a store. Stores have no links, and what they have stored is lasting."""

    is_remote = True

    def _call(self, name: str, verb: str, operation: Callable[[Client, str], T]) -> T:
        client, key = client_and_key(self.path(name), self.options)
        return client.call(self.path(name), verb, lambda: operation(client, key))

    def own_path(self, name: str = "") -> str:
        return self.path(name)

    def info(self, name: str) -> FileInfo | None:
        return head_object(self.path(name), self.options)

    def _found(self, name: str) -> FileInfo:
        found = self.info(name)
        if found is None:
            raise MissingError(f"{self.path(name)}: there is no such object")
        return found

    def read_bytes(self, name: str, *, max_bytes: int | None = None) -> bytes:
        return read_object(self.path(name), self.options, max_bytes=max_bytes)

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        if not length:  # stores have no empty ranges, but a missing object must still raise
            self._found(name)
            return b""
        data = self._call(name, "read", lambda client, key: get_range(client, key, offset, length))
        COUNTERS.add("bytes_read", len(data))
        return data

    def read_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, stops = [start for start, _ in spans], [stop for _, stop in spans]
        found = self._call(
            name,
            "read",
            lambda client, key: obstore.get_ranges(
                client.objects, key, starts=starts, ends=stops, coalesce=COALESCE_BYTES
            ),
        )
        COUNTERS.add("bytes_read", sum(map(len, found)))
        return list(map(bytes, found))

    @contextmanager
    def local_copy(self, name: str) -> Iterator[BinaryIO]:
        found = self._found(name)
        # Without a name, so that a killed process leaves nothing of the object.
        with tempfile.TemporaryFile() as file:
            download(self.path(name), self.options, file.fileno(), found.num_bytes, etag=found.etag)
            yield cast(BinaryIO, file)

    def _reader(
        self, name: str, num_bytes: int | None = None, *, skips: bool = False
    ) -> RangeReader:
        etag = None
        if num_bytes is None:
            found = self._found(name)
            num_bytes, etag = found.num_bytes, found.etag
        parts = ObjectParts(self.path(name), self.options, etag)
        return RangeReader(parts, num_bytes, skips=skips)

    def open_input(self, name: str) -> pa.NativeFile:
        return pa.PythonFile(self._reader(name), mode="r")

    def open_stream(
        self, name: str, *, num_bytes: int | None = None, skips: bool = False
    ) -> BinaryIO:
        return cast(BinaryIO, self._reader(name, num_bytes, skips=skips))

    def names(self, below: str = "") -> list[str]:
        client, key = client_and_key(self.path(below), self.options)
        folders, objects = list_folder(client, key)
        start = len(key) + 1 if key else 0
        return sorted(path[start:] for path in [*folders, *(row.key for row in objects)])

    def first_names(self) -> list[str]:
        client, key = client_and_key(self.uri, self.options)
        start = len(key) + 1 if key else 0
        return sorted({row.key[start:].partition("/")[0] for row in first_page(client, key)} - {""})

    def files(self, below: str = "", *, crc32c: bool = False) -> dict[str, FileInfo]:
        client, key = client_and_key(self.path(below), self.options)
        start = f"{key}/" if key else ""
        if crc32c and client.scheme == "gs":
            return gcs_peer.list_checksums(client, start)
        names = ((row.key[len(start) :], row) for row in list_folder(client, key)[1])
        return {
            name: FileInfo(
                row.num_bytes, row.modified.timestamp() if row.modified else 0.0, row.etag or None
            )
            for name, row in names
            if name and "/" not in name
        }

    def stated_crc32c(self, name: str) -> int | None:
        try:
            return peers.stated_content(*client_and_key(self.path(name), self.options)).crc32c
        except MissingPeerError:
            return None

    def is_file(self, name: str = "") -> bool:
        return bool(parse_address(self.path(name)).key) and self.info(name) is not None

    def remove_empty(self) -> None:
        """Do nothing: stores have no empty folders."""

    @contextmanager
    def open_sink(self, name: str, *, sync: bool = True) -> Iterator[Sink]:
        del sync
        with open_upload(self.path(name), self.options) as sink:
            yield sink

    def create_bytes(self, name: str, data: bytes) -> None:
        tries = 0

        def create(client: Client, key: str) -> None:
            nonlocal tries
            tries += 1
            obstore.put(client.objects, key, data, mode="create", use_multipart=False)

        try:
            # `call` retries a lost answer, so the second try may meet the object that the first one
            # has made.
            self._call(name, "write", create)
        except ExistsError:
            # An earlier attempt may have succeeded, with its response lost.
            if tries == 1 or self.read_bytes(name) != data:
                raise

    def write_bytes(self, name: str, data: bytes, *, sync: bool = True) -> None:  # noqa: ARG002
        put = self._call(
            name,
            "write",
            lambda client, key: obstore.put(client.objects, key, data, use_multipart=False),
        )
        COUNTERS.add("bytes_written", len(data))
        # S3 checks by itself.
        stated = plain_etag(put["e_tag"]) if self.path(name).startswith("gs://") else ""
        if (
            looks_like_md5(stated)
            and stated != hashlib.md5(data, usedforsecurity=False).hexdigest()
        ):
            raise StorageError(
                f"{self.path(name)} was damaged during the upload (the store has MD5 {stated}): "
                "run the build again"
            )

    def copy(self, name: str, to: Folder) -> None:
        num_bytes = self._found(name).num_bytes
        if num_bytes > _MAX_STORE_COPY_BYTES:
            with to.open_sink(name) as sink:
                for start in range(0, num_bytes, _STORE_COPY_BYTES):
                    sink.write([self.read_range(name, start, _STORE_COPY_BYTES)])
            return
        key_there = parse_address(to.path(name)).key
        # Of the same bucket: stores copy without sending the bytes here.
        self._call(name, "write", lambda client, key: obstore.copy(client.objects, key, key_there))

    def remove(self, name: str) -> None:
        # In versioned buckets S3 records even the removal of a missing object.
        if self.info(name) is not None:
            with suppress(MissingError):
                self._call(name, "delete", lambda client, key: obstore.delete(client.objects, key))

    def remove_all(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _KEYS_A_REQUEST):
            some = names[start : start + _KEYS_A_REQUEST]
            keys = [parse_address(self.path(name)).key for name in some]
            try:
                self._call(some[0], "delete", partial(_delete, keys))
            except MissingError:  # one was removed concurrently: remove the others one by one
                deque(map_reads(self.remove, some), maxlen=0)


def _delete(keys: list[str], client: Client, _: str) -> None:
    obstore.delete(client.objects, keys)
