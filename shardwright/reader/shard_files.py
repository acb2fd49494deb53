"""Open shards as local files: in place in a local folder, pinned in the cache for a remote one.

    files = ShardFiles(corpus.shards, at_a_time=window)     # UsageError if the cache is too small
    files.plan(needed, upcoming)                            # whenever `needed` changes; no waiting
    with files.open(shard) as descriptor:                   # any shard, any time, any thread
        data = os.pread(descriptor, length, offset)
    with files.path(shard) as path: ...                     # for code that opens the file itself
    files.release()                                         # closes all for now; `close` for good

`needed` are the shards that the window and the batches in progress may read; `upcoming` are the
later ones, in order of use, through the coming epochs (the iterator may be endless). Both are
indices into `corpus.shards`. Local folders ignore them.

Remote shards are downloaded in the background in this order: all of `needed`, then of `upcoming`
what there is room for. A shard stays in the cache from its first opening until it is in neither.

"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any, TypeVar

from shardwright.cache.shard_cache import PinnedShard, ShardCache
from shardwright.errors import UsageError
from shardwright.format.naming import ShardName
from shardwright.reader.corpus import ShardRef
from shardwright.reader.shard_opening import close_all, close_shard, most_open, open_shard
from shardwright.storage.folder import Folder

_SECONDS_PER_SHARD = 1.0  # before the actual pace is known: 150 MB, decoded by two cores
Shard = TypeVar("Shard")


class OpenShard:
    """A shard and its file, while open. As a context manager it gives a descriptor."""

    __slots__ = ("_files", "descriptor", "opening", "pinned", "ref", "users")

    def __init__(self, files: ShardFiles, ref: ShardRef) -> None:
        self._files = files
        self.ref = ref
        self.descriptor = -1
        self.pinned: PinnedShard | None = None
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
            unneeded = (
                files.released
                or len(files.opened) > files.max_open
                or (self.pinned is not None and self not in files.kept)
            )
        # Without the lock: `trim` looks at `users` again under it.
        if unneeded and not self.users:
            files.trim()


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
        self.lock = threading.Lock()
        self.closed = self.released = False
        self.opened: OrderedDict[OpenShard, None] = OrderedDict()  # least recently used first
        self.kept: frozenset[OpenShard] = frozenset()  # the shards of the plan
        self._needed: frozenset[OpenShard] = frozenset()
        self._num_unplanned = 0
        self._distances: dict[OpenShard, int] = {}
        self._pace = Pace()
        self._make_shards()
        refs = [found.ref for found in self._distinct.values()]
        self._ahead = count_shards_ahead(refs, at_a_time)
        for cache in self._ahead:
            cache.expect(functools.partial(self._seconds_until_opened, cache))
        self._held: dict[int, PinnedShard | None] = {}  # closed with the object if `close` was not
        weakref.finalize(self, close_all, self._held)
        _all_files.add(self)

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

    @contextmanager
    def path(self, shard: int) -> Iterator[str]:
        """Return a shard's local path, valid inside the `with` block; raise as `open`."""
        found = self._shards[shard]
        with found:
            yield found.pinned.path if found.pinned else found.ref.uri

    def plan(self, needed: Iterable[int], upcoming: Iterable[int] = ()) -> None:
        """Set the shards to read now and later; see the module's docstring."""
        if not self._ahead:
            return
        stays = dict.fromkeys(self._shards[shard] for shard in needed)
        # Each of the next two epochs uses every shard once; a shard in neither counts as unused.
        # `upcoming` may be endless, so a shard that is never used again must not be waited for.
        order = (self._shards[shard] for shard in islice(upcoming, 2 * len(self._shards)))
        distances = first_uses(order, len(self._distinct))
        later = [found for found in distances if found not in stays]
        planned = (*stays, *self._room_for(later, stays))
        with self.lock:
            # Shards that have left the window are those that were read since the last plan.
            self._pace.left(len(self._needed.difference(stays)))
            self._needed, self.kept = frozenset(stays), frozenset(planned)
            # A plan with needed shards ends a `release`.
            self.released = self.released and not stays
            self._distances = distances
        self.trim()
        for found in planned:
            # After `trim`: what it has closed may be evicted now, to make room for these.
            if found.ref.source.cache is not None and found.descriptor < 0:
                found.ref.source.cache.prefetch([found.ref.name])

    def release(self) -> None:
        """Close every file at the end of its block, until `plan` is called with needed shards."""
        with self.lock:
            self.released = True
        self.trim()

    def close(self) -> None:
        """Release every file; opening one again is an error."""
        self.closed = True
        self.release()
        for cache in self._ahead:
            # The cache outlives this reader, and would keep asking it for the next use.
            cache.expect(None)

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
            with self._making_room(found) if self._ahead else nullcontext():
                descriptor, pinned = open_shard(found.ref)
            if self._in_order and hasattr(os, "posix_fadvise"):
                # Twice as fast from a cold disk.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            with self.lock:
                found.descriptor, found.pinned = descriptor, pinned
                self._held[descriptor] = pinned
                found.users += 1
                self.opened[found] = None
                may_be_too_many = self._ahead or len(self.opened) > self.max_open
        if may_be_too_many:
            self.trim()
        return descriptor

    @contextmanager
    def _making_room(self, found: OpenShard) -> Iterator[None]:
        """Close spare shards while one outside the plan opens: it may need their cache space."""
        with self.lock:
            is_unplanned = found.ref.source.cache is not None and found not in self.kept
            self._num_unplanned += is_unplanned
        try:
            if is_unplanned:
                self.trim()
            yield
        finally:
            with self.lock:
                self._num_unplanned -= is_unplanned

    def trim(self) -> None:
        """Close unused shards beyond `max_open`, and remote ones that the plan does not need."""
        with self.lock:
            surplus = [
                (found, found.descriptor, found.pinned, self._seconds_until(found))
                for found in self._surplus()
            ]
            for found, *_ in surplus:
                del self.opened[found], self._held[found.descriptor]
                found.descriptor, found.pinned = -1, None
        # Outside of the lock: closing writes the file's time, on a disk that may be slow.
        for _, descriptor, pinned, seconds in surplus:
            close_shard(descriptor, pinned, comes_again_in=seconds)

    def _surplus(self) -> list[OpenShard]:
        if self.released:
            return [found for found in self.opened if not found.users]
        surplus = []
        too_many = len(self.opened) - self.max_open
        # The number of shards outside the plan that may stay open.
        # The cap was checked for `at_a_time` shards. What the plan and threads that are opening
        # others do not use of these may stay open: closing it would mean to download it again soon.
        spare = max(self._at_a_time - len(self._needed) - self._num_unplanned, 0)
        # `opened` is in order of last use, so the least recently used shards are closed first.
        if too_many > 0:
            surplus = list(islice((found for found in self.opened if not found.users), too_many))
        if self._ahead:
            unneeded = [
                found
                for found in self.opened
                if found.pinned is not None and found not in self.kept
            ]
            surplus += [
                found
                for found in unneeded[: max(len(unneeded) - spare, 0)]
                if not found.users and found not in surplus
            ]
        return surplus

    def _make_shards(self) -> None:
        # Two parts of one shard, as in `train[:10%]+train[90%:]`, share a file.
        self._distinct: dict[tuple[Folder, ShardName], OpenShard] = {}
        self._shards = [
            self._distinct.setdefault((ref.source.root, ref.name), OpenShard(self, ref))
            for ref in self._refs
        ]

    def _room_for(self, order: list[OpenShard], needed: Iterable[OpenShard]) -> Iterator[OpenShard]:
        """Yield the shards of `order` that can be downloaded now, beside the needed ones."""
        counts = Counter(found.ref.source.cache for found in needed)
        room = {
            cache: min(ahead, cache.most_ahead) - max(counts[cache] - self._at_a_time, 0)
            for cache, ahead in self._ahead.items()
        }
        for found in order:
            cache = found.ref.source.cache
            if cache is None:
                continue
            if room[cache] <= 0:  # stop, so that no shard overtakes one that is used earlier
                return
            room[cache] -= 1
            yield found

    def _seconds_until(self, found: OpenShard) -> float | None:
        if found in self._needed:
            return 0.0
        distance = self._distances.get(found)
        return None if distance is None else (distance + 1) * self._pace.seconds_per_shard

    def _seconds_until_opened(self, cache: ShardCache, name: ShardName) -> float | None:
        found = self._distinct.get((cache.root, name))
        return None if found is None else self._seconds_until(found)

    def start_anew_after_fork(self) -> None:
        """Reset in a forked child, where no other thread runs and the pins belong to the parent."""
        opened = list(self.opened)
        # Without closing: these descriptors are shared with the parent, whose pins must stay
        # locked.
        self._held.clear()
        # The old lock may be held forever by a thread that the child does not have.
        self.lock, self.opened = threading.Lock(), OrderedDict()
        self.kept = self._needed = frozenset()
        self._distances, self._num_unplanned = {}, 0
        self._make_shards()  # a `with` block that continues in the child keeps its old OpenShard
        for found in opened:
            # One with users belongs to a block that continues in the child. Nobody closes it: one
            # descriptor is the price.
            if not found.users:
                close_shard(found.descriptor, found.pinned)


_all_files: weakref.WeakSet[ShardFiles] = weakref.WeakSet()


def _start_all_anew() -> None:
    for files in list(_all_files):
        files.start_anew_after_fork()


os.register_at_fork(after_in_child=_start_all_anew)


class Pace:
    """The time per shard so far."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._num_shards = 0
        self.seconds_per_shard = _SECONDS_PER_SHARD

    def left(self, num_shards: int) -> None:
        """Count `num_shards` more shards as read."""
        if num_shards:
            self._num_shards += num_shards
            self.seconds_per_shard = (time.monotonic() - self._started) / self._num_shards


def count_shards_ahead(refs: Iterable[ShardRef], at_a_time: int) -> dict[ShardCache, int]:
    """Return the number of shards that each cache downloads ahead of use.

    Args:
        refs: The shards to read, each once; local ones are ignored.
        at_a_time: Number of shards needed at once.

    Raises:
        UsageError: A cache cannot hold `at_a_time` shards.
    """
    by_cache: dict[ShardCache, list[ShardRef]] = {}
    for ref in refs:
        if ref.source.cache is not None:
            by_cache.setdefault(ref.source.cache, []).append(ref)
    return {cache: _count_ahead(cache, found, at_a_time) for cache, found in by_cache.items()}


def _count_ahead(cache: ShardCache, refs: Sequence[ShardRef], at_a_time: int) -> int:
    at_a_time = min(at_a_time, len(refs))
    ahead = cache.shards_ahead([ref.name for ref in refs], at_a_time, "reading")
    num_bytes = [ref.info.num_bytes for ref in refs]
    if sum(num_bytes) <= cache.max_bytes:
        return ahead
    # Shards waiting for their turn take room from those that could stay until the next epoch.
    # If everything fits, nothing is evicted and prefetches take no room from anybody.
    room = cache.max_bytes // max(num_bytes) - at_a_time
    return min(ahead, max(room // 4, 1))


def first_uses(order: Iterable[Shard], num_shards: int) -> dict[Shard, int]:
    """Return the number of shards used before each shard's first use, in that order.

    Stops as soon as it has found `num_shards` different shards.
    """
    distances: dict[Shard, int] = {}
    for place, shard in enumerate(order):
        distances.setdefault(shard, place)
        if len(distances) == num_shards:
            break
    return distances
