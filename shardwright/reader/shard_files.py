"""Open shards as local files: in place in a local folder, in the cache for a remote one.

    files = ShardFiles(corpus.shards, at_a_time=window)     # UsageError if the cache is too small
    files.plan(needed, upcoming)                            # whenever `needed` changes; no waiting
    file = files.open(shard)                                # any shard, any time, any thread
    data = os.pread(file.descriptor, length, offset)

`needed` are the shards that the window and the batches in progress may read; `upcoming` are the
later ones, in order of use, through the coming epochs (the iterator may be endless). Both are
indices into `corpus.shards`. Local folders ignore them.

Remote shards are downloaded in the background in this order: all of `needed`, then of `upcoming`
what there is room for.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from shardwright.cache.shards import ShardCache
from shardwright.errors import MissingError, StorageError, UsageError
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.reader.corpus import ShardRef
from shardwright.sizes import counted

_MAX_OPEN = 256  # a quarter of the usual limit of 1,024 open files per process


class OpenShard:
    """An open shard, closed with the last reference to it."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)  # an argument: at the end of the process, `os` may be gone


class ShardFiles:
    """The shards of a reader as open files.

    Thread-safe, but call `plan` and `close` from one thread at a time. It works in a forked
    process: files are reopened where needed.

    Args:
        shards: The shards to read.
        at_a_time: Number of shards needed at once.
        in_order: Records are read in stored order, so the kernel may read further ahead.

    Attributes:
        opened: The files that are kept open, by number of the shard, least recently used first.
            One that is read outside of it closes with its last reference.

    Raises:
        UsageError: The cache cannot hold `at_a_time` shards.
    """

    def __init__(
        self, shards: Sequence[ShardRef], *, at_a_time: int = 1, in_order: bool = False
    ) -> None:
        self._refs = shards
        self._at_a_time = at_a_time
        self._in_order = in_order
        self._max_open = most_open()
        self._is_closed = False
        # Two parts of one shard, as in `train[:10%]+train[90%:]`, share a file.
        first: dict[Any, int] = {}
        self._numbers = [
            first.setdefault((ref.source.root, ref.name), number)
            for number, ref in enumerate(shards)
        ]
        names: dict[ShardCache, list[ShardName]] = {}
        for number in first.values():
            cache = shards[number].source.cache
            if cache is not None:
                names.setdefault(cache, []).append(shards[number].name)
        self._ahead = {
            cache: cache.shards_ahead(mine, min(at_a_time, len(mine)))
            for cache, mine in names.items()
        }
        self.start_anew()
        _all_files.add(self)

    def start_anew(self) -> None:
        """Begin without open files, as in a forked process, which has no other thread."""
        # Old locks may be held forever by threads that the child does not have. Files that those
        # threads used stay open: one descriptor each is the price.
        self._lock = threading.Lock()
        self._opening = [threading.Lock() for _ in self._refs]
        self.opened: OrderedDict[int, OpenShard] = OrderedDict()
        self._planned: frozenset[int] = frozenset()
        for cache in self._ahead:
            cache.start_anew()

    def open(self, shard: int) -> OpenShard:
        """Return a shard's file, whose descriptor is shared, so read with `os.pread`.

        Raises:
            StorageError: The shard is missing, of a wrong length, or cannot be read.
            UsageError: `close` was called.
        """
        number = self._numbers[shard]
        # Runs once per record, so the path for an open file is as short as possible.
        with self._lock:
            if (found := self.opened.get(number)) is not None:
                self.opened.move_to_end(number)
                return found
        return self._open(number)

    def plan(self, needed: Iterable[int], upcoming: Iterable[int] = ()) -> None:
        """Set the shards to read now and later; see the module's docstring."""
        if not self._ahead:
            return
        now = dict.fromkeys(self._numbers[shard] for shard in needed)
        # Each of the next two epochs uses every shard once. `upcoming` may be endless, so a shard
        # that is never used again must not be waited for.
        later = (self._numbers[shard] for shard in islice(upcoming, 2 * len(self._refs)))
        order = [*now, *(number for number in dict.fromkeys(later) if number not in now)]
        planned = set(now)
        for cache, ahead in self._ahead.items():
            mine = [number for number in order if self._refs[number].source.cache is cache]
            num_now = sum(number in now for number in mine)
            # A window that begins before the last one ended takes the room of later ones.
            num_ahead = max(ahead - max(num_now - self._at_a_time, 0), 0)
            wanted = mine[: num_now + num_ahead]
            planned.update(wanted)
            cache.expect(self._refs[number].name for number in mine)
            cache.fetch(self._refs[number].name for number in wanted if number not in self.opened)
        with self._lock:
            self._planned = frozenset(planned)
            self._trim()

    def reopen(self, shard: int) -> None:
        """Let go of a shard's file if the cache has another one in its place, or none."""
        number = self._numbers[shard]
        with self._lock:
            found = self.opened.get(number)
            if found is not None and not os.fstat(found.descriptor).st_nlink:
                del self.opened[number]

    def close(self) -> None:
        """Close every file with its last reference; opening one again is an error."""
        with self._lock:
            self._is_closed = True
            self.opened.clear()

    def _open(self, number: int) -> OpenShard:
        ref = self._refs[number]
        with self._opening[number]:  # one thread downloads, the others wait
            with self._lock:
                if self._is_closed:
                    raise UsageError(f"{ref.uri}: the reader is closed")
                # Another thread has opened it while this one waited.
                if (found := self.opened.get(number)) is not None:
                    return found
            file = OpenShard(_open(ref))
            if self._in_order and hasattr(os, "posix_fadvise"):
                # Twice as fast from a cold disk.
                os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            with self._lock:
                if not self._is_closed:
                    self.opened[number] = file
                    self._trim()
        return file

    def _trim(self) -> None:
        """Let go of files beyond `_max_open`, and of remote ones that the plan does not need."""
        for number in list(self.opened)[: max(len(self.opened) - self._max_open, 0)]:
            del self.opened[number]
        if self._ahead:
            # The disk has the room of an evicted shard again once it is closed. The cap was checked
            # for `at_a_time` shards: as many stay open without a plan.
            others = [
                number
                for number in self.opened
                if number not in self._planned and self._refs[number].source.cache is not None
            ]
            spare = max(self._at_a_time - len(self._planned), 0)
            for number in others[: max(len(others) - spare, 0)]:
                del self.opened[number]


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


_all_files: weakref.WeakSet[ShardFiles] = weakref.WeakSet()


def _start_all_anew() -> None:
    for files in list(_all_files):
        files.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
