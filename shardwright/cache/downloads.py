"""Download shards into the cache in parts, so that a killed download resumes.

`SHARD.part` has a text journal, `SHARD.parts`: a line for the object (length and etag), then
`START STOP` for each written part. Each line has a checksum, because a crash of the machine may cut
it off. A crash may also lose journaled parts, which the whole file's checksum detects.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import google_crc32c

from shardwright.cache.files import PART, PARTS, CacheFiles, DiskFullError, crc32c_of, write_faults
from shardwright.errors import ChangedError, MissingError, StorageError, UnsupportedError
from shardwright.format.splits import ShardInfo
from shardwright.sizes import counted
from shardwright.storage.cancellation import check_not_canceled
from shardwright.storage.downloads import PART_BYTES, download
from shardwright.storage.folder import Folder
from shardwright.storage.links import no_follow
from shardwright.storage.object_reads import head_object

Span = tuple[int, int]
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class PartJournal:
    """A journal of the written parts of a download.

    Args:
        path: The journal's file.
        stamp: The object's identity; a journal with another one is discarded.

    Attributes:
        finished: The [start, stop) of the parts that were written before.
    """

    def __init__(self, path: str, stamp: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.finished = _read_journal(path, stamp)
        # Rewritten, so that no line is appended to one that was cut off. A process killed right
        # here loses the journal, and the next one downloads everything again.
        with open(path, "wb", opener=no_follow) as file:
            file.writelines(
                [_line(stamp), *(_line(f"{start} {stop}") for start, stop in self.finished)]
            )

    def add(self, start: int, stop: int) -> None:
        """Record that [start, stop) is written."""
        # Opened for each part (megabytes), so that a failed download leaves no file open.
        with self._lock, open(self._path, "ab", buffering=0, opener=no_follow) as file:
            file.write(_line(f"{start} {stop}"))


def _line(text: str) -> bytes:
    data = text.encode()
    return b"%08x %s\n" % (google_crc32c.value(data), data)


def _read_journal(path: str, stamp: str) -> list[Span]:
    """Return the finished parts up to a damaged line; [] if the journal is missing or stale."""
    try:
        with open(path, "rb", opener=no_follow) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    # The object was replaced, or the line was cut: parts of two objects must not be joined.
    if lines[0] + b"\n" != _line(stamp):
        return []
    spans = []
    # Without the last piece, which is empty, or a line without its end.
    for line in lines[1:-1]:
        text = line[9:].decode("ascii", "replace")
        # Lines after it may be whole, but nothing tells: their parts are downloaded again.
        if line + b"\n" != _line(text):
            break
        start, stop = text.split()
        spans.append((int(start), int(stop)))
    return spans


def missing_spans(num_bytes: int, finished: list[Span]) -> list[Span]:
    """Return the parts of [0, num_bytes) that no finished span covers, in order."""
    missing, position = [], 0
    for start, stop in [*sorted(finished), (num_bytes, num_bytes)]:
        if start > position:
            missing.append((position, min(start, num_bytes)))
        position = max(position, stop)
    return missing


_ADVICE = (
    "if the dataset has been rebuilt, reopen it; otherwise copy it again, "
    "or rerun the `shardwright build` that made it"
)


@dataclass(frozen=True, slots=True)
class ShardDownload:
    """A download of one shard to `path`, whose exclusive lock the caller holds.

    Attributes:
        root: The dataset.
        name: The shard's file.
        info: The shard's length and checksum in the manifest.
        path: The local file.
        files: The cache.
    """

    root: Folder
    name: str
    info: ShardInfo
    path: str
    files: CacheFiles

    def run(self, *, wait: bool) -> None:
        """Download the shard, which appears when it is complete and matches the manifest.

        Args:
            wait: Wait for room while other readers use the whole cache.

        Raises:
            CanceledError: Nobody waits for it; it can be resumed.
            MissingError: The shard is not in the store.
            NoRoomError: As `CacheFiles.reserve`.
            StorageError: The shard cannot be read or does not match the manifest, or the cache
                cannot be written.
        """
        uri = self.root.path(self.name)
        # An etag keeps parts of two objects apart. For a single part, the manifest's length and
        # checksum are enough.
        is_one_part = 0 < self.info.num_bytes <= PART_BYTES
        etag = "" if is_one_part else self._etag_of(uri)
        fill = functools.partial(self._fill, uri, etag, wait)
        with write_faults(self.path):
            # Resumed parts may have been lost in a crash: the second time starts from nothing.
            for _ in range(2):
                # Also of parts that were just written: a body that was damaged on its way has the
                # right length.
                crc32c = self._complete_part(fill)
                if crc32c == self.info.crc32c:
                    return self.files.put_in_place(self.path)
            self.files.remove(self.path + PART)
        raise StorageError(
            f"{uri} has crc32c {crc32c:08x} in two downloads, "
            f"and the manifest states {self.info.crc32c:08x}: {_ADVICE}"
        )

    def _etag_of(self, uri: str) -> str:
        """Return the object's etag. Raises as `run` if it differs from the manifest."""
        found = head_object(uri, self.root.options)
        if found is None:
            raise MissingError(f"{uri} is in the manifest, but missing from the store: {_ADVICE}")
        if found.num_bytes != self.info.num_bytes:
            raise StorageError(
                f"{uri} is {counted(found.num_bytes, 'byte')} long, "
                f"and the manifest states {self.info.num_bytes:,}: {_ADVICE}"
            )
        return found.etag or ""

    def _complete_part(self, fill: Callable[[], None]) -> int:
        """Complete the part file with `fill`, and return its checksum."""
        path = self.path
        try:
            self.files.unless_full(self.info.num_bytes, fill)
        except DiskFullError:
            _forget(path)
            self.files.remove(path + PART)  # leave the disk to others
            raise
        crc32c = crc32c_of(path + PART)
        # Before the file gets its final name: see `_forget`.
        _forget(path)
        return crc32c

    def _fill(self, uri: str, etag: str, wait: bool) -> None:
        """Download the missing parts of the part file.

        Raises:
            OSError: The disk is full.
            StorageError: As `run`.
        """
        part, num_bytes = self.path + PART, self.info.num_bytes
        # The room of a part file at full length was reserved by the process that was killed.
        if not os.path.lexists(part) or os.lstat(part).st_size != num_bytes:
            _forget(self.path)
            self.files.reserve(part, num_bytes, wait=wait)
        with open(part, "r+b", buffering=0, opener=no_follow) as file:
            _allocate(file.fileno(), num_bytes)
            # With the etag of now: a journal of a replaced object counts as none.
            journal = PartJournal(self.path + PARTS, json.dumps([num_bytes, etag]))

            def done(start: int, stop: int) -> None:
                # After the part was written, so that a kill in between costs a part, never a hole.
                journal.add(start, stop)
                check_not_canceled()

            check_not_canceled()
            try:
                download(
                    uri,
                    self.root.options,
                    file.fileno(),
                    missing_spans(num_bytes, journal.finished),
                    etag=etag or None,
                    num_bytes=num_bytes,
                    done=done,
                )
            except (ChangedError, MissingError, UnsupportedError):
                if not etag:
                    _forget(self.path)
                    self.files.remove(part)
                    self._etag_of(uri)  # tells what differs from the manifest
                raise
            os.fsync(file.fileno())  # the final name promises a complete file after a power failure


def _allocate(descriptor: int, num_bytes: int) -> None:
    """Allocate the disk blocks, so that a full disk is found before the download."""
    if not hasattr(os, "posix_fallocate") or not num_bytes:
        return
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError as error:
        # Some file systems (tmpfs of old kernels, NFS before 4.2, FUSE) cannot allocate: then a
        # full disk is found while writing.
        if error.errno not in _NO_FALLOCATE:
            raise


def _forget(path: str) -> None:
    """Remove the journal. It must never exist beside a new part file or a finished shard."""
    with suppress(FileNotFoundError):
        os.unlink(path + PARTS)
