"""Downloading a shard into the cache, part by part, so that what has arrived is not asked for again, whoever is killed.

Beside `SHARD.part` lies its journal, `SHARD.parts`: text, a line for the object (its etag), then one for each part that is written
(`START STOP`), each with a checksum of its own, because a line may be cut off when the machine stops. A machine that stops may also
lose parts that the journal has: the checksum of the whole file tells.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress

import google_crc32c

from shardwright.cache.eviction import PART, PARTS
from shardwright.cache.files import CacheFiles, DiskFullError, write_faults
from shardwright.errors import MissingError, StorageError
from shardwright.manifest import ShardInfo
from shardwright.storage import Folder
from shardwright.storage.downloads import download
from shardwright.storage.objects import head_object

Span = tuple[int, int]
_COPY_BYTES = 4 << 20
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class PartJournal:
    """Which parts of a download are written.

    Args:
        path: The journal's file.
        stamp: What says that it is the same object still.
    """

    def __init__(self, path: str, stamp: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.finished = _read_journal(path, stamp)
        # Written anew, or lines would be added to one that was cut off. Who is killed right here downloads again.
        with open(path, "wb") as file:
            file.writelines(
                [_line(stamp), *(_line(f"{start} {stop}") for start, stop in self.finished)]
            )

    def add(self, start: int, stop: int) -> None:
        """Note that [start, stop) is written."""
        # Opened anew for each part of megabytes, so that no file is left open when a download fails.
        with self._lock, open(self._path, "ab", buffering=0) as file:
            file.write(_line(f"{start} {stop}"))


def _line(text: str) -> bytes:
    data = text.encode()
    return b"%08x %s\n" % (google_crc32c.value(data), data)


def _read_journal(path: str, stamp: str) -> list[Span]:
    """The finished parts; none where the journal is not there, or of another object, and only those before a damaged line."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    if lines[0] + b"\n" != _line(stamp):
        return []
    spans = []
    for line in lines[1:-1]:
        text = line[9:].decode("ascii", "replace")
        if line + b"\n" != _line(text):
            break
        start, stop = text.split()
        spans.append((int(start), int(stop)))
    return spans


def missing_spans(num_bytes: int, finished: list[Span]) -> list[Span]:
    """What of [0, num_bytes) is in none of the spans, in order."""
    missing, position = [], 0
    for start, stop in [*sorted(finished), (num_bytes, num_bytes)]:
        if start > position:
            missing.append((position, min(start, num_bytes)))
        position = max(position, stop)
    return missing


def fetch_shard(
    root: Folder,
    name: str,
    info: ShardInfo,
    path: str,
    files: CacheFiles,
    *,
    wait: bool,
    check: Callable[[], None],
) -> None:
    """Download a shard to `path`, where it appears when it is whole and what the manifest says. Who calls it holds its lock alone.

    Args:
        root: The dataset.
        name: The shard's file.
        info: What the manifest says of it.
        path: Where it goes.
        files: The cache.
        wait: Wait for room where others use all of it.
        check: Called now and then; what it raises ends the download, which can be gone on with later.

    Raises:
        MissingError: It is not in the store.
        NoRoomError: As `CacheFiles.reserve`.
        StorageError: It cannot be read, or is not what the manifest says; or the cache cannot be written.
    """
    uri = root.path(name)
    etag = _etag_of(root, uri, info)
    crc32c = 0
    with write_faults(path):
        for _ in range(2):
            try:
                files.unless_full(
                    info.num_bytes,
                    lambda: _fill(root, uri, etag, info.num_bytes, path, files, wait, check),
                )
            except DiskFullError:
                _forget(path)
                files.remove(path + PART)  # others need the disk, too
                raise
            crc32c = _crc32c_of(path + PART)
            _forget(path)
            if crc32c == info.crc32c:
                return files.put_in_place(path)
        files.remove(path + PART)
    raise StorageError(
        f"{uri} has crc32c {crc32c:08x}, downloaded twice, and the manifest states {info.crc32c:08x}: {_ADVICE}"
    )


def _etag_of(root: Folder, uri: str, info: ShardInfo) -> str:
    found = head_object(uri, root.options)
    if found is None:
        raise MissingError(f"{uri} is missing, and the manifest names it: {_ADVICE}")
    if found.num_bytes != info.num_bytes:
        raise StorageError(
            f"{uri} is {found.num_bytes:,} bytes long, and the manifest states {info.num_bytes:,}: {_ADVICE}"
        )
    return found.etag or ""


_ADVICE = "if the dataset was built again meanwhile, open it again; else copy it again, or run the `shardwright build` that made it"


def _fill(
    root: Folder,
    uri: str,
    etag: str,
    num_bytes: int,
    path: str,
    files: CacheFiles,
    wait: bool,
    check: Callable[[], None],
) -> None:
    """Bring the part file to its full content, as far as nobody has done so before.

    Raises:
        OSError: The disk is full.
        StorageError: As `fetch_shard`.
    """
    part = path + PART
    if not os.path.exists(part) or os.path.getsize(part) != num_bytes:
        _forget(path)
        files.reserve(part, num_bytes, wait=wait)
    with open(part, "r+b", buffering=0) as file:
        _allocate(file.fileno(), num_bytes)
        journal = PartJournal(path + PARTS, json.dumps([num_bytes, etag]))

        def done(start: int, stop: int) -> None:
            journal.add(start, stop)
            check()

        check()
        download(
            uri,
            root.options,
            file.fileno(),
            missing_spans(num_bytes, journal.finished),
            etag=etag or None,
            done=done,
        )
        os.fsync(file.fileno())  # its name says that it is whole, also after a power cut


def _allocate(descriptor: int, num_bytes: int) -> None:
    """Take the disk's blocks now, so that a full disk is known before anything is asked for."""
    if not hasattr(os, "posix_fallocate") or not num_bytes:
        return
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise


def _crc32c_of(path: str) -> int:
    crc32c = 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_COPY_BYTES):
            crc32c = google_crc32c.extend(crc32c, data)
    return crc32c


def _forget(path: str) -> None:
    """Remove the journal: before the part file is made, and before it is no part file any more."""
    with suppress(FileNotFoundError):
        os.unlink(path + PARTS)
