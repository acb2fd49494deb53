"""Local copies of remote shards, shared by the processes of a machine.

    ROOT/lock                          held while room is made
    ROOT/DATASET/manifest.json         the last one read from the store
    ROOT/DATASET/BUILD/SHARD           a complete, checked shard
    ROOT/DATASET/BUILD/SHARD.part      one on its way, locked by the process that downloads it
    ROOT/DATASET/BUILD/index/*.parquet sidecars
    ROOT/DATASET/BUILD/generations/*/  the same of later generations (`format.versions`)

A shard may be removed while readers have it open: they read on, and the disk has its room again
once they close it. So nobody holds a file or waits for room, and the cap is exceeded at most by
what is open or on its way. All of it may be deleted at any time. Needs no TensorFlow.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa

from shardwright.cache.manifests import build_key, dataset_folder, keep_manifest
from shardwright.cache.settings import CAP, CacheSettings
from shardwright.errors import (
    ChangedError,
    MissingError,
    StorageError,
    UnsupportedError,
    UsageError,
)
from shardwright.format.contents import file_crc32c
from shardwright.format.index import parse_index, read_index_of
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import LATEST, VersionKey, read_version
from shardwright.sizes import counted, show_bytes
from shardwright.storage.cancellation import cancelable, pause, result_of
from shardwright.storage.downloads import download
from shardwright.storage.folder import Folder
from shardwright.storage.links import no_follow

_LOG = logging.getLogger("shardwright.cache")
PART = ".part"
_DOWNLOADS_AT_A_TIME = 3  # four requests of 8 MB each: at most 96 MB in memory
_AHEAD_SHARDS, _AHEAD_BYTES = 8, 1 << 30
_LONG_AGO_SECONDS = 3600.0
_PAUSE_SECONDS, _SAY_AFTER_SECONDS = 0.01, 10.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ADVICE = (
    "if the dataset has been rebuilt, reopen it; otherwise copy it again, "
    "or rerun the `shardwright build` that made it"
)


class ShardCache:
    """The shards and indexes of one version of a remote dataset, as local files. Thread-safe.

    Args:
        dataset: The dataset's folder.
        settings: The cache's folder and cap; None for the default.
        version: Of the dataset. Shards of different builds are cached separately.

    Attributes:
        root: The folder of its files in the store.
        manifest: That of the version.
        max_bytes: The cap of the whole cache.

    Raises:
        NotADatasetError: There is no finished dataset.
        StorageError: The store cannot be read, or the cache's folder cannot be made.
    """

    def __init__(
        self, dataset: Folder, settings: CacheSettings | None = None, version: VersionKey = LATEST
    ) -> None:
        self._settings = settings = settings or CacheSettings.of()
        self.manifest = manifest = read_version(dataset, version)
        self.root = dataset.below(manifest.folder)
        self.max_bytes = settings.open()
        self._shards = dict(manifest.named_shards())
        folder = Folder(dataset_folder(settings, dataset), top=settings.folder)
        keep_manifest(folder, manifest)
        self._local = folder.below(build_key(manifest))
        self._names = {
            self._local.path(path): name
            for name in self._shards
            for path in (name.shard, name.sidecar)
        }
        # Once: only its owner can write to a cache. Files are opened without following links.
        for below in {path.rpartition("/")[0] for path in self._names}:
            self._local.own_path(below[len(self._local.uri) + 1 :])
        self._places: dict[ShardName, int] = {}
        self._healed: set[ShardName] = set()
        self.start_anew()

    def start_anew(self) -> None:
        """Forget the downloads in progress, which a forked process does not have."""
        self._lock, self._healing = threading.Lock(), threading.Lock()
        self._canceled = threading.Event()
        self._pool = ThreadPoolExecutor(
            _DOWNLOADS_AT_A_TIME, thread_name_prefix="shardwright-cache"
        )
        self._coming: dict[ShardName, Future[None]] = {}

    def __enter__(self) -> ShardCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the downloads in the background. Open shards stay open."""
        self._canceled.set()
        self._pool.shutdown(cancel_futures=True)

    def open_shard(self, name: ShardName) -> int:
        """Return a descriptor of a shard, which the first process that needs it downloads.

        Raises:
            MissingError: The shard is not in the store.
            StorageError: It cannot be read or does not match the manifest, or the cache cannot be
                written.
        """
        with self._lock:
            coming = self._coming.pop(name, None)
        # One that has not begun would wait behind others: it is downloaded here, at once.
        if coming is not None and not coming.cancel():
            result_of(coming)
        while True:
            self._bring(name, self._is_whole)
            with suppress(FileNotFoundError):  # evicted just now, by another process
                descriptor = no_follow(self._path(name), os.O_RDONLY)
                with suppress(OSError):  # a cache of another user, or on a read-only disk
                    os.utime(descriptor)  # its last use, for eviction
                return descriptor

    def fetch(self, names: Iterable[ShardName]) -> None:
        """Download shards in the background, in this order; `open_shard` raises what fails."""
        with self._lock:
            for name in names:
                if not (name in self._coming or self._is_whole(name) or self._canceled.is_set()):
                    self._coming[name] = self._pool.submit(
                        cancelable, self._canceled, self._bring_ahead, name
                    )

    def expect(self, names: Iterable[ShardName]) -> None:
        """State the order in which shards will be used: the last of them is evicted first."""
        self._places = {name: place for place, name in enumerate(names)}

    def shards_ahead(self, names: Iterable[ShardName], at_a_time: int) -> int:
        """Return how many shards to download ahead of use: at most 8 or 1 GB, as the cap allows.

        Args:
            names: The shards to read.
            at_a_time: The number of shards open at the same time.

        Raises:
            UsageError: Not even the open shards fit under the cap.
        """
        sizes = [self._shards[name].num_bytes for name in names]
        # By the largest shard, because any `at_a_time` of them may be open together.
        largest = max(sizes, default=0) or 1
        spare = self.max_bytes // largest - at_a_time
        if spare < 0:
            needed = at_a_time * largest
            raise UsageError(
                f"reading needs {counted(at_a_time, 'shard')} of up to {show_bytes(largest)} at a "
                f"time, {show_bytes(needed)} together, but the cap of the cache at "
                f"{self._settings.folder} is {show_bytes(self.max_bytes)}: "
                f"set {CAP} (cache_bytes=) to at least {needed}"
            )
        # If not all of them fit, what waits for its turn takes the room of what could stay until
        # the next epoch.
        most = spare if sum(sizes) <= self.max_bytes else max(spare // 4, 1)
        return min(most, spare, _AHEAD_SHARDS, max(1, _AHEAD_BYTES // largest))

    def index(self, name: ShardName, columns: list[str] | None = None) -> pa.Table:
        """Return a shard's index rows in file order, and cache its sidecar.

        Args:
            name: The shard.
            columns: Columns of `shardwright.format.index.INDEX_SCHEMA`, None for all.

        Raises:
            StorageError: The sidecar is missing, cannot be read, or does not match the manifest.
        """
        info = self._shards[name]
        with suppress(StorageError):  # not cached, or damaged on disk: read the store's copy
            return read_index_of(self._local, name, info, columns)
        uri = self.root.path(name.sidecar)
        try:
            data = self.root.read_bytes(name.sidecar)
        except MissingError as error:
            raise MissingError(f"{uri} is missing: the index of {name.shard}") from error
        rows = parse_index(data, uri, name, info, columns)
        try:  # small, so that the next shard makes room for it
            self._local.write_bytes(name.sidecar, data, sync=False)
        except StorageError as error:
            _LOG.debug("an index is not cached: %s", error)
        return rows

    def heal(self, name: ShardName) -> None:
        """Check the copy of a shard, once, and replace it if it is damaged.

        Descriptors that are open lead to the damaged copy. It stays if the store's is no better.
        """
        with self._healing:
            if name in self._healed:
                return
            try:
                self._bring(name, self._matches)
            except StorageError as error:  # the reader reports the damage
                _LOG.warning("%s: the damaged copy in the cache stays: %s", name.shard, error)
            self._healed.add(name)

    def _path(self, name: ShardName) -> str:
        return self._local.path(name.shard)

    def _is_whole(self, name: ShardName) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(self._path(name))
            return stat.S_ISREG(found.st_mode) and found.st_size == self._shards[name].num_bytes
        return False

    def _matches(self, name: ShardName) -> bool:
        return self._is_whole(name) and _has_crc32c_of(self._shards[name], self._path(name))

    def _bring_ahead(self, name: ShardName) -> None:
        with suppress(BlockingIOError):  # another process downloads it: go on with the next one
            self._bring(name, self._is_whole, wait=False)

    def _bring(
        self, name: ShardName, is_there: Callable[[ShardName], bool], *, wait: bool = True
    ) -> None:
        """Have a shard in place; raise as `open_shard`, and `BlockingIOError` unless `wait`.

        Of several processes one downloads it, and the others wait for the lock of its part file.
        """
        path = self._path(name)
        part = path + PART
        while not is_there(name):
            try:
                with _write_faults(part), _locked(part, wait=wait) as descriptor:
                    # Its last holder has put it in place, or eviction has removed it.
                    if not _is_at(descriptor, part):
                        continue
                    if is_there(name):  # since this thread looked: the part is a new one
                        os.unlink(part)
                    else:
                        self._download(name, part, descriptor)
                        os.replace(part, path)
            except FileNotFoundError as error:  # the cache was deleted meanwhile
                if isinstance(error, StorageError):
                    raise

    def _download(self, name: ShardName, part: str, descriptor: int) -> None:
        """Fill a part file, locked by the caller, or remove it; raise as `open_shard`."""
        uri, info = self.root.path(name.shard), self._shards[name]
        try:
            for _ in range(2):  # a body that was damaged on its way has the right length
                self._fill(uri, info, descriptor)
                if _has_crc32c_of(info, part):
                    # Its final name promises a complete file after a power failure, too.
                    os.fsync(descriptor)
                    os.utime(descriptor, (0, time.time()))  # no access time: nobody has read it
                    return
            raise StorageError(
                f"{uri} does not have the crc32c {info.crc32c:08x} of the manifest, in two "
                f"downloads: {_ADVICE}"
            )
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise

    def _fill(self, uri: str, info: ShardInfo, descriptor: int) -> None:
        while True:
            os.ftruncate(descriptor, 0)
            with self._room_for(info.num_bytes):
                os.ftruncate(descriptor, info.num_bytes)
            try:
                return download(uri, self.root.options, descriptor, info.num_bytes)
            except MissingError as error:
                raise MissingError(
                    f"{uri} is in the manifest, but missing from the store: {_ADVICE}"
                ) from error
            except (ChangedError, UnsupportedError) as error:
                raise type(error)(f"{error}: {_ADVICE}") from error
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                # The disk may be full of other things than the cache, so the cap says nothing here.
                # Each round evicts something or ends.
                os.ftruncate(descriptor, 0)
                if not _evict(self._files(), info.num_bytes):
                    raise StorageError(
                        f"the disk of the cache at {self._settings.folder} is full: "
                        f"{show_bytes(info.num_bytes)} are needed, and nothing in the cache can be "
                        "evicted: free disk space, or set SHARDWRIGHT_CACHE to a folder on another "
                        "disk"
                    ) from error

    @contextmanager
    def _room_for(self, num_bytes: int) -> Iterator[None]:
        """Evict until so many bytes fit; nobody else takes the room while the block lasts."""
        lock = os.path.join(self._settings.folder, "lock")
        with _write_faults(lock), _locked(lock):
            files = self._files()
            _evict(files, sum(file.num_bytes for file in files) + num_bytes - self.max_bytes)
            yield

    def _files(self) -> list[_CachedFile]:
        """Return the files that count towards the cap: all of the builds."""
        found, now = [], time.time()
        for dataset in _folders(self._settings.folder):
            for build in _folders(dataset):
                for folder, _, names in os.walk(build):
                    for path in (os.path.join(folder, name) for name in names):
                        with suppress(FileNotFoundError):
                            status = os.lstat(path)
                            turn = self._turn(path, status, now - status.st_mtime)
                            found.append(_CachedFile(path, status.st_size, turn))
        return found

    def _turn(self, path: str, status: os.stat_result, idle_seconds: float) -> tuple[int, float]:
        """Return a file's turn to be evicted: the lowest goes first."""
        if path.endswith(PART):
            return 0, -idle_seconds
        name = self._names.get(path)
        if name is not None and (place := self._places.get(name)) is not None:
            return 3, -place  # this process knows when it is used
        if idle_seconds > _LONG_AGO_SECONDS:
            return 1, -idle_seconds
        # Each epoch reads every shard once, so what was read last comes again latest. What others
        # have downloaded ahead is used next.
        is_next = status.st_atime == 0 or path.endswith(".parquet")
        return (4 if is_next else 2), idle_seconds


class _CachedFile(NamedTuple):
    path: str
    num_bytes: int
    turn: tuple[int, float]


def _evict(files: Iterable[_CachedFile], num_bytes: int) -> int:
    """Evict at least that many bytes if possible, and return how many were."""
    freed = 0
    for file in sorted(files, key=lambda file: file.turn):
        if freed >= num_bytes:
            break
        with suppress(OSError):  # on its way, just removed, or of another user
            if file.path.endswith(PART):
                _unlink_unlocked(file.path)
            else:
                os.unlink(file.path)
            freed += file.num_bytes
            os.rmdir(os.path.dirname(file.path))  # of a replaced build: goes with its last file
    return freed


def _unlink_unlocked(part: str) -> None:
    """Remove a part file of a killed process; raise `BlockingIOError` if it is on its way."""
    descriptor = no_follow(part, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(part)  # whoever opened it just now sees that it is gone, and makes another
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: str, *, wait: bool = True) -> Iterator[int]:
    """Make a file if it is missing, lock it, and yield its descriptor.

    Raises:
        BlockingIOError: Somebody holds the lock, and nobody waits for it.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = no_follow(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(descriptor, path, wait=wait)
        yield descriptor
    finally:
        with suppress(OSError):  # closing is not enough: a forked child may have it open
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int, path: str, *, wait: bool) -> None:
    started, said = time.monotonic(), False
    while True:
        try:
            # Not `lockf`, whose locks belong to the process: its threads would share one.
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            # Polled, because a blocking call could not be canceled or warn of a long wait.
            if not said and time.monotonic() - started > _SAY_AFTER_SECONDS:
                said = True
                _LOG.warning("waiting for another process that holds %s", path)
            pause(_PAUSE_SECONDS)
        except OSError as error:
            raise StorageError(
                f"cannot lock {path}: {error.strerror}: set SHARDWRIGHT_CACHE to a folder on a "
                "local disk"
            ) from error


def _is_at(descriptor: int, path: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


def _has_crc32c_of(info: ShardInfo, path: str) -> bool:
    with open(path, "rb", buffering=0, opener=no_follow) as file:
        return file_crc32c(file) == info.crc32c


@contextmanager
def _write_faults(path: str) -> Iterator[None]:
    """Convert an `OSError` to a `StorageError`, unless the file was removed or is locked."""
    try:
        yield
    except (FileNotFoundError, BlockingIOError):
        raise
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}: set SHARDWRIGHT_CACHE to a "
            "folder of your own"
        ) from error


def _folders(path: str) -> list[str]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []
