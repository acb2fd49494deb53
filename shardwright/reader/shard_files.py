"""Open shards as local files: in place in a local folder, in the cache for a remote one.

    files = ShardFiles(corpus.shards, at_a_time=window)     # UsageError if the cache is too small
    files.plan(needed, upcoming)                            # whenever `needed` changes; no waiting
    with files.open(shard) as descriptor:                   # any shard, any time, any thread
        data = os.pread(descriptor, length, offset)

`needed` are the shards that the window and the batches in progress may read; `upcoming` are the
later ones, in order of use, through the coming epochs (the iterator may be endless). Both are
indices into `corpus.shards`. Local folders ignore them.

Remote shards are downloaded in the background in this order: all of `needed`, then of `upcoming`
what there is room for.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from shardwright.cache.shards import ShardCache
from shardwright.errors import MissingError, StorageError, UsageError
from shardwright.format.splits import ShardInfo
from shardwright.reader.corpus import ShardRef
from shardwright.sizes import counted

_MAX_OPEN = 256  # a quarter of the usual limit of 1,024 open files per process


class OpenShard:
    """A shard and its file, while open. As a context manager it gives a descriptor."""

    __slots__ = ("_files", "descriptor", "opening", "ref", "users")

    def __init__(self, files: ShardFiles, ref: ShardRef) -> None:
        self._files = files
        self.ref = ref
        self.descriptor = -1
        self.users = 0
        self.opening = threading.Lock()

    def __enter__(self) -> int:
        files = self._files
        # Runs once per record, so the path for an open file is as short as possible.
        with files.lock:
            if self.descriptor >= 0:
                self.users += 1
                # The order is that of last use: `trim` closes from the front.
                files.opened.move_to_end(self)
                return self.descriptor
        return files.open_file(self)

    def __exit__(self, *error: object) -> None:
        files = self._files
        with files.lock:
            self.users -= 1
            may_be_too_many = not self.users and (
                files.closed
                or len(files.opened) > files.max_open
                or (self.is_remote and self not in files.planned)
            )
        # Without the lock: `trim` looks at `users` again under it.
        if may_be_too_many:
            files.trim()

    @property
    def is_remote(self) -> bool:
        return self.ref.source.cache is not None


class ShardFiles:
    """The shards of a reader as open files.

    Thread-safe, but call `plan` and `close` from one thread at a time. It can be pickled, and works
    in a forked process: files are reopened where needed.

    Args:
        shards: The shards to read.
        at_a_time: Number of shards needed at once.
        in_order: Records are read in stored order, so the kernel may read further ahead.

    Raises:
        UsageError: The cache cannot hold `at_a_time` shards.
    """

    def __init__(
        self, shards: Sequence[ShardRef], *, at_a_time: int = 1, in_order: bool = False
    ) -> None:
        self._refs = shards
        self._at_a_time = at_a_time
        self._in_order = in_order
        self.max_open = most_open()
        self.closed = False
        self.opened: OrderedDict[OpenShard, None] = OrderedDict()  # least recently used first
        self._descriptors: set[int] = set()  # closed with the object if `close` was not called
        self.start_anew()
        self._ahead = {
            cache: cache.shards_ahead(names, min(at_a_time, len(names)))
            for cache, names in _names_by_cache(self._shards).items()
        }
        weakref.finalize(self, _close_all, self._descriptors)
        _all_files.add(self)

    def start_anew(self) -> None:
        """Begin without open files, as in a forked process, which has no other thread."""
        # One with users belongs to a block that continues in the child. Nobody closes it before the
        # end: one descriptor is the price.
        in_use = {found.descriptor for found in self.opened if found.users}
        for descriptor in self._descriptors - in_use:
            os.close(descriptor)
        self._descriptors &= in_use
        # The old lock may be held forever by a thread that the child does not have.
        self.lock, self.opened = threading.Lock(), OrderedDict()
        self.planned: frozenset[OpenShard] = frozenset()
        # Two parts of one shard, as in `train[:10%]+train[90%:]`, share a file.
        distinct: dict[Any, OpenShard] = {}
        self._shards = [
            distinct.setdefault((ref.source.root, ref.name), OpenShard(self, ref))
            for ref in self._refs
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(ShardFiles, at_a_time=self._at_a_time, in_order=self._in_order), (
            self._refs,
        )

    def open(self, shard: int) -> OpenShard:
        """Return a shard's file: `with files.open(shard) as descriptor`.

        The descriptor is valid inside the block. It is shared, so read with `os.pread`.

        Raises:
            StorageError: On entry: the shard is missing, of a wrong length, or cannot be read.
            UsageError: On entry: `close` was called.
        """
        return self._shards[shard]

    def plan(self, needed: Iterable[int], upcoming: Iterable[int] = ()) -> None:
        """Set the shards to read now and later; see the module's docstring."""
        if not self._ahead:
            return
        now = dict.fromkeys(self._shards[shard] for shard in needed)
        # Each of the next two epochs uses every shard once. `upcoming` may be endless, so a shard
        # that is never used again must not be waited for.
        later = (self._shards[shard] for shard in islice(upcoming, 2 * len(self._shards)))
        order = [*now, *(found for found in dict.fromkeys(later) if found not in now)]
        planned = set(now)
        for cache, ahead in self._ahead.items():
            mine = [found for found in order if found.ref.source.cache is cache]
            num_now = sum(found in now for found in mine)
            # A window that begins before the last one ended takes the room of later ones.
            num_ahead = max(ahead - max(num_now - self._at_a_time, 0), 0)
            planned.update(mine[: num_now + num_ahead])
            cache.expect(found.ref.name for found in mine)
            cache.fetch(
                found.ref.name for found in mine if found in planned and found.descriptor < 0
            )
        with self.lock:
            self.planned = frozenset(planned)
        self.trim()

    def reopen(self, shard: int) -> None:
        """Let go of a shard's file if the cache has another one in its place, or none."""
        found = self._shards[shard]
        with self.lock:
            if found.descriptor < 0 or os.fstat(found.descriptor).st_nlink:
                return
            if not found.users:
                self._close(found)
            else:  # those in a block go on with it, and it is closed at the end
                del self.opened[found]
                found.descriptor = -1

    def close(self) -> None:
        """Close every file at the end of its block; opening one again is an error."""
        self.closed = True
        self.trim()

    def open_file(self, found: OpenShard) -> int:
        """Open a shard and return its descriptor, with one more user."""
        with found.opening:  # one thread downloads, the others wait
            with self.lock:
                if self.closed:
                    raise UsageError(f"{found.ref.uri}: the reader is closed")
                # Another thread has opened it while this one waited.
                if found.descriptor >= 0:
                    found.users += 1
                    return found.descriptor
            descriptor = _open(found.ref)
            if self._in_order and hasattr(os, "posix_fadvise"):
                # Twice as fast from a cold disk.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            with self.lock:
                found.descriptor = descriptor
                self._descriptors.add(descriptor)
                found.users += 1
                self.opened[found] = None
                may_be_too_many = self._ahead or len(self.opened) > self.max_open
        if may_be_too_many:
            self.trim()
        return descriptor

    def trim(self) -> None:
        """Close unused shards beyond `max_open`, and remote ones that the plan does not need."""
        with self.lock:
            idle = [found for found in self.opened if not found.users]
            if self.closed:
                surplus = idle
            else:
                # `opened` is in order of last use: the least recently used are closed first.
                surplus = idle[: max(len(self.opened) - self.max_open, 0)]
                # The disk has the room of an evicted shard again once it is closed. The cap was
                # checked for `at_a_time` shards: as many stay open without a plan.
                others = [found for found in idle if found.is_remote and found not in self.planned]
                spare = max(self._at_a_time - len(self.planned), 0)
                surplus += others[: max(len(others) - spare, 0)]
            for found in dict.fromkeys(surplus):
                self._close(found)

    def _close(self, found: OpenShard) -> None:
        del self.opened[found]
        self._descriptors.discard(found.descriptor)
        os.close(found.descriptor)
        found.descriptor = -1


def most_open() -> int:
    """Return the number of shards to have open at most, a quarter of the process's limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_OPEN if limit == resource.RLIM_INFINITY else min(_MAX_OPEN, max(limit // 4, 1))


def shard_fault(path: str, shard: ShardInfo, num_bytes: int | None) -> StorageError:
    """Return the error for a shard file of a wrong size; `num_bytes` is None for a missing file."""
    found = "is missing" if num_bytes is None else f"is {counted(num_bytes, 'byte')} long"
    return (MissingError if num_bytes is None else StorageError)(
        f"{path} {found}, and the manifest states {counted(shard.num_bytes, 'byte')} with "
        f"{counted(shard.num_records, 'record')}: "
        "copy the dataset again, or run its `shardwright build` command again"
    )


def _open(ref: ShardRef) -> int:
    """Return a descriptor of a shard; raise as `ShardFiles.open`."""
    try:
        if ref.source.cache is not None:
            return ref.source.cache.open_shard(ref.name)
        descriptor = ref.source.root.open_descriptor(ref.name.shard)
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise shard_fault(ref.uri, ref.info, None) from error
    except OSError as error:
        hint = ": raise `ulimit -n`" if error.errno == errno.EMFILE else ""
        raise StorageError(f"{ref.uri} cannot be read: {error.strerror or error}{hint}") from error
    # A file cut between two records has no broken record: only its length shows it.
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes != ref.info.num_bytes:
        os.close(descriptor)
        raise shard_fault(ref.uri, ref.info, num_bytes)
    return descriptor


def _names_by_cache(shards: Iterable[OpenShard]) -> dict[ShardCache, list[Any]]:
    """Return the names of the distinct remote shards, by their cache."""
    names: dict[ShardCache, list[Any]] = {}
    for found in dict.fromkeys(shards):
        if found.ref.source.cache is not None:
            names.setdefault(found.ref.source.cache, []).append(found.ref.name)
    return names


def _close_all(descriptors: set[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


_all_files: weakref.WeakSet[ShardFiles] = weakref.WeakSet()


def _start_all_anew() -> None:
    for files in list(_all_files):
        files.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
