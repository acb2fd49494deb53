"""Cache remote shards as local files that several processes share.

    with ShardCache.open(Folder.at("s3://bucket/flowers")) as cache:
        names = cache.manifest.shard_names("train")
        cache.prefetch(names[1:3])
        with cache.open_shard(names[0]) as shard:
            ...  # shard.path is a local file, valid until the block ends
        rows = cache.index(names[0])

A shard is downloaded by parallel ranged requests, checked against the manifest's length and CRC32C,
and kept until the cache exceeds its cap. Then shards of replaced builds are evicted first, then
those with the furthest next use if readers have declared it (`expect`), else the least recently
used; never one that is open. A killed download is resumed, and a damaged shard downloaded again
(`heal`). Cached shards need no connection.

Needs no TensorFlow. All methods are thread-safe.
"""

from __future__ import annotations

import functools
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from shardwright.cache.downloads import ShardDownload
from shardwright.cache.files import (
    LOCK,
    PART,
    NoRoomError,
    crc32c_of,
    note_next_use,
    unlink,
    write_faults,
)
from shardwright.cache.locks import FileLock
from shardwright.cache.manifests import (
    build_key,
    dataset_folder,
    keep_manifest,
    read_manifest_or_cached,
)
from shardwright.cache.prefetches import Prefetches
from shardwright.cache.settings import CAP, CacheSettings
from shardwright.errors import MissingError, NotFoundError, StorageError, UsageError
from shardwright.format.index import parse_index, read_index_of
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import LATEST, VersionKey
from shardwright.sizes import counted, show_bytes
from shardwright.storage.addresses import temporary_name
from shardwright.storage.cancellation import CanceledError, check_not_canceled
from shardwright.storage.downloads import download
from shardwright.storage.folder import Folder
from shardwright.storage.links import no_follow
from shardwright.storage.object_reads import head_object


class PinnedShard:
    """A shard that stays in the cache until it is closed or its process ends.

    Attributes:
        path: The local file, complete and checked.
    """

    def __init__(self, path: str, lock: FileLock) -> None:
        self.path = path
        self._lock = lock

    def close(self, *, comes_again_in: float | None = None) -> None:
        """Unpin the shard, so that it may be evicted. Closing it again does nothing.

        Args:
            comes_again_in: Seconds until it is opened again, None if unknown.
        """
        if comes_again_in is not None:
            note_next_use(self.path, comes_again_in)
        self._lock.release()

    def __enter__(self) -> PinnedShard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_LOG = logging.getLogger("shardwright.cache")
_AHEAD_BYTES, _AHEAD_SHARDS = 1 << 30, 8


class ShardCache:
    """The shards and indexes of one remote dataset, as local files.

    Args:
        dataset: The dataset's folder.
        manifest: Its manifest. Shards of different builds are cached separately.
        settings: The cache's folder and cap; None for `CacheSettings.of()`.

    Attributes:
        root: The folder of its files.
        max_bytes: The cap.

    Raises:
        UsageError: The dataset is not in a store.
        StorageError: The cache's folder cannot be written.
    """

    def __init__(
        self, dataset: Folder, manifest: Manifest, settings: CacheSettings | None = None
    ) -> None:
        if not dataset.is_remote:
            raise UsageError(
                f"{dataset} is a local folder, which needs no cache: read it where it is"
            )
        settings = settings or CacheSettings.of()
        self._dataset, self.root = dataset, dataset.below(manifest.folder)
        self.manifest = manifest
        self._files = settings.open()
        self.max_bytes = self._files.max_bytes
        self._shards = dict(manifest.named_shards())
        folder = Folder(dataset_folder(settings, dataset), top=settings.folder)
        keep_manifest(folder, manifest)
        build = folder.below(build_key(manifest))
        # Once: only its owner can write to a cache. Files are opened without following links.
        paths = (path for name in self._shards for path in (name.shard, name.sidecar))
        for below in {path.rpartition("/")[0] for path in paths}:
            build.own_path(below)
        self._build = build.uri
        self._prefetches = Prefetches(_AHEAD_SHARDS, self._has)
        self._healed: dict[ShardName, bool] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardCache, (
            self._dataset,
            self.manifest,
            CacheSettings(self._files.root, self.max_bytes),
        )

    @classmethod
    def open(
        cls, root: Folder, settings: CacheSettings | None = None, version: VersionKey = LATEST
    ) -> ShardCache:
        """Open the cache of a version of a dataset.

        If the store is unreachable, the manifest comes from the cache, with a warning.

        Raises:
            NotADatasetError: There is no finished dataset.
            StorageError: The store cannot be read, and the manifest is not in the cache; or the
                cache cannot be written.
            UsageError: The dataset is not in a store.
        """
        settings = settings or CacheSettings.of()
        return cls(root, read_manifest_or_cached(root, settings, version), settings)

    def __enter__(self) -> ShardCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel prefetches. Open shards stay open."""
        self._prefetches.close()

    def open_shard(self, name: ShardName) -> PinnedShard:
        """Return a shard as a local file, downloaded by the first process that needs it.

        Raises:
            NotFoundError: The manifest has no such shard.
            UsageError: The shard is larger than the cap.
            MissingError: The shard is not in the store.
            StorageError: It cannot be read or does not match the manifest; or the cache cannot be
                written or is all in use.
        """
        self._prefetches.finish(name)
        pinned = self._pin(name, wait=True)
        assert pinned is not None, "waiting ends with the shard"
        return pinned

    def prefetch(self, names: Iterable[ShardName]) -> None:
        """Download shards in the background, in this order, if there is room.

        `open_shard` raises the errors of these downloads.

        Raises:
            NotFoundError: The manifest has no such shard.
        """
        for name in names:
            # A wrong name fails here, in the caller, and not in a background thread.
            self._info(name)
            self._prefetches.begin(name, self._bring)

    def expect(self, seconds_until_use: Callable[[ShardName], float | None] | None) -> None:
        """Declare when shards will be used: those with the furthest next use are evicted first.

        Args:
            seconds_until_use: Returns the seconds until a shard's next use, None if unknown; called
                from any thread.
        """
        names = {
            os.path.join(self._build, path): name
            for name in self._shards
            for path in (name.shard, name.sidecar)
        }

        def expected(path: str) -> float | None:
            name = names.get(path.removesuffix(PART))
            return None if name is None or seconds_until_use is None else seconds_until_use(name)

        self._files.expected = expected

    @property
    def most_ahead(self) -> int:
        """The number of shards worth downloading ahead of use, as far as is known by now."""
        return self._prefetches.most_ahead

    def shards_ahead(self, names: Sequence[ShardName], at_a_time: int, who: str) -> int:
        """Return how many shards to download ahead: at most 8 or 1 GB, as the cap allows.

        Args:
            names: The shards to read.
            at_a_time: The number of shards open at the same time.
            who: The activity, for the message, such as "shuffling".

        Raises:
            NotFoundError: The manifest has no such shard.
            UsageError: Not even the open shards fit under the cap.
        """
        largest = max((self._info(name).num_bytes for name in names), default=0) or 1
        # By the largest shard, because any `at_a_time` of them may be open together.
        room = self.max_bytes // largest
        if room < at_a_time:
            needed = at_a_time * largest
            raise UsageError(
                f"{who} needs {counted(at_a_time, 'shard')} of up to "
                f"{show_bytes(largest)} at a time, {show_bytes(needed)} together, but the cap of "
                f"the cache at {self._files.root} is {show_bytes(self.max_bytes)}: "
                f"set {CAP} (cache_bytes=) to at least {needed}"
            )
        # Enough to hide a store's latency; more would only evict shards that are used again soon.
        return min(room - at_a_time, _AHEAD_SHARDS, max(1, _AHEAD_BYTES // largest))

    def index(self, name: ShardName, columns: list[str] | None = None) -> pa.Table:
        """Return a shard's index rows in file order, and cache its sidecar.

        Args:
            name: The shard.
            columns: Columns of `shardwright.format.index.INDEX_SCHEMA`, None for all.

        Raises:
            NotFoundError: The manifest has no such shard.
            StorageError: The sidecar is missing, cannot be read, or does not match the manifest.
        """
        info, local = self._info(name), Folder(self._build, top=self._files.root)
        with suppress(StorageError):  # not cached, or damaged on disk: read the store's copy
            rows = read_index_of(local, name, info, columns)
            with suppress(FileNotFoundError):  # just evicted
                os.utime(local.path(name.sidecar))
            return rows
        uri, path = self.root.path(name.sidecar), local.path(name.sidecar)
        try:
            data = self.root.read_bytes(name.sidecar)
        except MissingError as error:
            raise MissingError(f"{uri} is missing: the index of {name.shard}") from error
        # Parsed from memory: a cached file may be evicted before it is opened.
        rows = parse_index(data, uri, name, info, columns)
        # If everything else is in use, the next caller downloads it again.
        with suppress(NoRoomError), write_faults(path):
            self._files.unless_full(len(data), lambda: self._files.write(path, data))
        return rows

    def _info(self, name: ShardName) -> ShardInfo:
        info = self._shards.get(name)
        if info is None:
            raise NotFoundError(f"{self.root} has no shard {name.shard}")
        return info

    def _pin(self, name: ShardName, *, wait: bool) -> PinnedShard | None:
        """Return a shard's file, or None if others download it and `wait` is false."""
        info, path = self._info(name), os.path.join(self._build, name.shard)
        if info.num_bytes > self.max_bytes:
            raise UsageError(
                f"{self.root.path(name.shard)} has {show_bytes(info.num_bytes)}, but the cap of "
                f"the cache at {self._files.root} is {show_bytes(self.max_bytes)}: "
                f"set {CAP} (cache_bytes=) to at least {info.num_bytes}"
            )
        lock = FileLock(path + LOCK)
        try:
            # Read under the shared lock, download under the exclusive one. Others may get the lock
            # during each change, so check again after it.
            while lock.acquire(shared=True, wait=wait):
                if is_whole(path, info):
                    os.utime(path)  # its last use, for eviction
                    return PinnedShard(path, lock)
                if drop_damaged(path, info):
                    continue
                # Once another process has downloaded the shard, many share it, and to wait for the
                # exclusive lock would be to wait for all of them.
                whole = functools.partial(is_whole, path, info)
                if not lock.acquire(shared=False, wait=wait, unless=whole):
                    if not wait:
                        break
                elif not whole():
                    ShardDownload(self.root, name.shard, info, path, self._files).run(wait=wait)
        except BaseException:
            lock.release()
            raise
        return None

    def heal(self, name: ShardName) -> bool:
        """Check the copy of a shard, once, and replace it if it is damaged.

        Returns:
            True if it matches the manifest now, so that it is worth reading again.

        Raises:
            NotFoundError: The manifest has no such shard.
        """
        with self._prefetches.healing:
            # Once: if the store's own copy is damaged, each damaged record would download the shard
            # again.
            if name not in self._healed:
                self._healed[name] = self._heal(name)
            return self._healed[name]

    def _heal(self, name: ShardName) -> bool:
        try:
            with self.open_shard(name) as shard:
                return refetch_shard(self.root, name.shard, self._info(name), shard.path)
        except (StorageError, OSError) as error:  # report the damage instead
            _LOG.warning("%s: the damaged copy in the cache stays: %s", name.shard, error)
            return False

    def _has(self, name: ShardName) -> bool:
        return is_whole(os.path.join(self._build, name.shard), self._info(name))

    def _bring(self, name: ShardName) -> bool:
        """Download a shard before it is opened; return whether it is there."""
        try:
            check_not_canceled()
            pinned = self._pin(name, wait=False)
        except NoRoomError:
            # Those behind it are used later, and have no room either. `open_shard` waits for it.
            self._prefetches.drop()
            return False
        except CanceledError:
            return False
        if pinned is not None:
            # So that prefetches of other processes leave it until then.
            pinned.close(comes_again_in=self._files.expected(pinned.path))
        return pinned is not None


def is_whole(path: str, info: ShardInfo) -> bool:
    """Return whether a shard is a file of its length."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == info.num_bytes


def drop_damaged(path: str, info: ShardInfo) -> bool:
    """Remove what is at a shard's path unless it is whole, and return whether there was something.

    Its lock goes, too: readers of the damaged file, perhaps in this process, may hold it for ever.

    Raises:
        StorageError: It cannot be removed.
    """
    folder, filename = os.path.split(path)
    aside = os.path.join(folder, temporary_name(filename, secrets.token_hex(4)))
    try:
        os.rename(path, aside)  # of several processes, one succeeds
        if is_whole(aside, info):  # another process has replaced it meanwhile
            os.rename(aside, path)
            return True
        unlink(path + LOCK)
        if os.path.isdir(aside) and not os.path.islink(aside):
            shutil.rmtree(aside)
        else:
            os.unlink(aside)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return True


def refetch_shard(root: Folder, name: str, info: ShardInfo, path: str) -> bool:
    """Download a damaged shard again, into its file; return whether it then matches the manifest.

    Readers may have it open: they find its bytes replaced. If it does not match, it is removed. The
    caller holds the shard's shared lock.

    Raises:
        StorageError: The shard cannot be read, or the cache cannot be written.
    """
    if crc32c_of(path) == info.crc32c:  # another process has done it
        return True
    uri = root.path(name)
    found = head_object(uri, root.options)
    # Into the same file, not beside it: readers have it open and pinned, and must not go on with
    # the damaged bytes.
    if found is not None and found.num_bytes == info.num_bytes:
        with write_faults(path), open(path, "r+b", buffering=0, opener=no_follow) as file:
            download(
                uri, root.options, file.fileno(), [(0, info.num_bytes)], etag=found.etag or None
            )
            os.fsync(file.fileno())
        if crc32c_of(path) == info.crc32c:
            return True
    # A half-written shard has the right length, so nobody would notice it before the next damaged
    # record.
    unlink(path)
    return False
