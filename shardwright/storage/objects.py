"""Objects of a store. Writes are atomic: stores show an object only when it is complete."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.storage import gcs_peer
from shardwright.storage.addresses import parse_address
from shardwright.storage.checksums import looks_like_md5, plain_etag
from shardwright.storage.clients import Client
from shardwright.storage.counters import COUNTERS
from shardwright.storage.downloads import ObjectParts, download
from shardwright.storage.faults import is_past_end, is_whole_answer
from shardwright.storage.listing import first_page, list_folder
from shardwright.storage.local import FileInfo
from shardwright.storage.object_reads import client_and_key, head_object, read_object
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.storage.uploads import ObjectSink, open_upload

_KEYS_A_REQUEST = 1000
_MAX_COPY_BYTES = 5 << 30  # S3 copies no larger object by one request
_COPY_BYTES = 64 << 20
COALESCE_BYTES = 1 << 20  # reading a gap of at most this size is cheaper than another request
BUFFER_BYTES = 8 << 20
# Above about this size, a new request is faster than reading on: 30 ms at 100 MB/s.
SKIPPED_BYTES = 1 << 20


class ObjectFiles:
    """The operations of `Folder` on objects. Paths are addresses such as `s3://bucket/key`."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def own_path(self, path: str) -> str:
        """Return the address itself: stores have no links."""
        return path

    def info(self, path: str) -> FileInfo | None:
        """Return what is known of an object, or None if it does not exist.

        Raises:
            StorageError: The request failed.
        """
        return head_object(path, self._options)

    def num_bytes_of(self, path: str) -> int | None:
        """Return the length in bytes of what `info` finds."""
        found = self.info(path)
        return found.num_bytes if found else None

    def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Return a whole object.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, or is longer than `max_bytes`.
        """
        return read_object(path, self._options, max_bytes=max_bytes).data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the object's end.

        Raises as `read_bytes`.
        """
        client, key = client_and_key(path, self._options)
        if not length:  # stores have no empty ranges, but a missing object must still raise
            self._found(path)
            return b""
        data = client.call(path, "read", lambda: _get_range(client, key, offset, length))
        COUNTERS.add("bytes_read", len(data))
        return data

    def read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges [start, stop) of one object; near ones share a request.

        Raises as `read_bytes`.
        """
        client, key = client_and_key(path, self._options)
        starts, stops = [start for start, _ in spans], [stop for _, stop in spans]
        found = client.call(
            path,
            "read",
            lambda: obstore.get_ranges(
                client.objects, key, starts=starts, ends=stops, coalesce=COALESCE_BYTES
            ),
        )
        COUNTERS.add("bytes_read", sum(map(len, found)))
        return list(map(bytes, found))

    @contextmanager
    def local_copy(self, path: str) -> Iterator[BinaryIO]:
        """Download to a temporary file and yield it, open for reading. Raises as `read_bytes`.

        The file has no name, so that a killed process leaves nothing of the object.
        """
        found = self._found(path)
        with tempfile.TemporaryFile() as file:
            download(path, self._options, file.fileno(), found.num_bytes, etag=found.etag)
            yield cast(BinaryIO, file)

    def open_input(self, path: str) -> pa.NativeFile:
        """Return a seekable file for Arrow's readers. Raises as `read_bytes`."""
        found = self._found(path)
        parts = ObjectParts.of(path, self._options, found.etag)
        return pa.PythonFile(RangeReader(parts, found.num_bytes), mode="r")

    def open_stream(
        self, path: str, *, num_bytes: int | None = None, skips: bool = False
    ) -> BinaryIO:
        """Return a seekable file for Python's readers. Raises as `read_bytes`.

        Args:
            path: The object.
            num_bytes: Its length, if it is known; looking it up is a request.
            skips: Most of its bytes are skipped, so that less is read at a time.
        """
        etag = None
        if num_bytes is None:
            found = self._found(path)
            num_bytes, etag = found.num_bytes, found.etag
        parts = ObjectParts.of(path, self._options, etag)
        least = SKIPPED_BYTES if skips else BUFFER_BYTES
        return cast(BinaryIO, RangeReader(parts, num_bytes, least))

    def _found(self, path: str) -> FileInfo:
        found = head_object(path, self._options)
        if found is None:
            raise MissingError(f"{path}: there is no such object")
        return found

    def names_in(self, path: str) -> list[str]:
        """Return the sorted names of the files and folders in a folder. Raises `StorageError`."""
        client, key = client_and_key(path, self._options)
        folders, objects = list_folder(client, key)
        start = len(key) + 1 if key else 0
        return sorted([folder[start:] for folder in folders] + [row.key[start:] for row in objects])

    def first_names_in(self, path: str) -> list[str]:
        """Return sorted names of the first 1,000 objects below a folder. Raises `StorageError`."""
        client, key = client_and_key(path, self._options)
        start = len(key) + 1 if key else 0
        return sorted({row.key[start:].partition("/")[0] for row in first_page(client, key)} - {""})

    def files_in(self, path: str, *, crc32c: bool = False) -> dict[str, FileInfo]:
        """Return name -> info of each object in a folder; see `Folder.files`."""
        client, key = client_and_key(path, self._options)
        start = f"{key}/" if key else ""
        if crc32c and client.scheme == "gs":
            return gcs_peer.list_checksums(client, start)
        rows = list_folder(client, key)[1]
        names = ((row.key[len(start) :], row) for row in rows)
        return {
            name: FileInfo(
                row.num_bytes, row.modified.timestamp() if row.modified else 0.0, row.etag or None
            )
            for name, row in names
            if name and "/" not in name
        }

    def is_file(self, path: str) -> bool:
        """Return whether an object with exactly this key exists."""
        return bool(parse_address(path).key) and self.info(path) is not None

    @contextmanager
    def open_sink(self, path: str, *, sync: bool = True) -> Iterator[ObjectSink]:
        """Open a sink whose object appears when the block ends; on an error nothing is left of it.

        Raises:
            StorageError: The object cannot be written.
        """
        del sync  # a store's object is lasting
        with open_upload(path, self._options) as sink:
            yield sink

    def create_bytes(self, path: str, data: bytes) -> None:
        """Write a small object that must not exist. Of two concurrent writers one succeeds.

        Raises:
            ExistsError: The object already exists.
            StorageError: It cannot be written.
        """
        client, key = client_and_key(path, self._options)
        tries = 0

        def create() -> None:
            nonlocal tries
            tries += 1
            obstore.put(client.objects, key, data, mode="create", use_multipart=False)

        try:
            # `call` retries a lost answer, so the second try may meet the object that the first one
            # has made.
            client.call(path, "write", create)
        except ExistsError:
            # An earlier attempt may have succeeded, with its response lost.
            if tries == 1 or self.read_bytes(path) != data:
                raise

    def write_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:  # noqa: ARG002
        """Write or replace a small object; stores always sync. Raises `StorageError`."""
        client, key = client_and_key(path, self._options)
        put = client.call(
            path, "write", lambda: obstore.put(client.objects, key, data, use_multipart=False)
        )
        COUNTERS.add("bytes_written", len(data))
        stated = plain_etag(put["e_tag"]) if client.scheme == "gs" else ""  # S3 checks by itself
        if (
            looks_like_md5(stated)
            and stated != hashlib.md5(data, usedforsecurity=False).hexdigest()
        ):
            raise StorageError(
                f"{path} was damaged during the upload (the store has MD5 {stated}): "
                "run the build again"
            )

    def copy(self, source: str, path: str, top: str) -> None:  # noqa: ARG002
        """Put an object at another path of its store, too, replacing what is there.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be copied.
        """
        num_bytes = self._found(source).num_bytes
        if num_bytes > _MAX_COPY_BYTES:
            with self.open_sink(path) as sink:
                for start in range(0, num_bytes, _COPY_BYTES):
                    sink.write([self.read_range(source, start, _COPY_BYTES)])
            return
        client, key = client_and_key(path, self._options)
        # Of the same bucket: stores copy without sending the bytes here.
        there = parse_address(source).key
        client.call(path, "write", lambda: obstore.copy(client.objects, there, key))

    def remove(self, path: str) -> None:
        """Remove an object if it exists. Raises `StorageError`."""
        # In versioned buckets S3 records even the removal of a missing object.
        if head_object(path, self._options) is None:
            return
        client, key = client_and_key(path, self._options)
        try:
            client.call(path, "delete", lambda: obstore.delete(client.objects, key))
        except MissingError:
            return

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove objects, 1,000 per request where the store can. Raises `StorageError`."""
        for start in range(0, len(paths), _KEYS_A_REQUEST):
            some = paths[start : start + _KEYS_A_REQUEST]
            client = client_and_key(some[0], self._options)[0]
            keys = [parse_address(path).key for path in some]
            try:
                client.call(
                    some[0], "delete", functools.partial(obstore.delete, client.objects, keys)
                )
            except MissingError:  # one was removed concurrently: remove the others one by one
                deque(map_reads(self.remove, some), maxlen=0)


def _get_range(client: Client, key: str, offset: int, length: int) -> bytes:
    try:
        return bytes(obstore.get_range(client.objects, key, start=offset, length=length))
    except (BaseError, OSError, ValueError) as error:
        if is_past_end(error) or (
            is_whole_answer(error) and not obstore.head(client.objects, key)["size"]
        ):
            return b""  # as for a local file
        raise


class RangeReader(io.RawIOBase):
    """An object as a seekable file, buffered, with ranged requests that are retried.

    It reads `least` bytes at a time, doubles that up to `BUFFER_BYTES` while reads are contiguous,
    and falls back to `least` after a long skip.
    """

    def __init__(self, parts: ObjectParts, num_bytes: int, least: int = BUFFER_BYTES) -> None:
        super().__init__()
        self._least = self._ahead = least
        self._parts = parts
        self._num_bytes = num_bytes
        self._position = self._start = 0
        self._buffer = b""

    def read(self, num_bytes: int | None = -1) -> bytes:
        left = self._num_bytes - self._position
        wanted = left if num_bytes is None or num_bytes < 0 else min(num_bytes, left)
        skip = self._position - self._start
        if skip < 0 or skip + wanted > len(self._buffer):
            is_near = self._buffer and 0 <= skip <= len(self._buffer) + self._least
            self._ahead = min(2 * self._ahead, BUFFER_BYTES) if is_near else self._least
            stop = min(self._num_bytes, self._position + max(wanted, self._ahead))
            self._buffer = self._parts.read(self._position, stop) if wanted > 0 else b""
            self._start, skip = self._position, 0
        self._position += max(wanted, 0)
        return self._buffer[skip : skip + wanted]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = (
            offset
            + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        )
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
