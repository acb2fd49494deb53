"""Shards of stores as open files: pinned while they are needed, downloaded ahead, evicted by the order they come again in."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import random
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardwright.cache import CacheSettings, ShardCache
from shardwright.cache.eviction import LOCK
from shardwright.cache.locks import FileLock
from shardwright.errors import ClientError, MissingError, StorageError, UsageError
from shardwright.reader.corpus import ShardRef, Source
from shardwright.reader.shard_files import ShardFiles
from shardwright.storage import Folder
from tests.cached_datasets import (
    SIZE,
    at,
    behind,
    finish,
    line_of,
    put_dataset,
    shards_in,
    start_reader,
    wait_until,
)
from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import delete_object
from tests.servers.store_server import StoreServer

NUM_SHARDS = 12


@pytest.fixture(scope="module")
def root(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of twelve shards of 1,000 bytes; not to be changed."""
    return put_dataset(s3_server, tmp_path_factory.mktemp("noise"), [SIZE] * NUM_SHARDS)


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy


class Reading:
    """The shards of a dataset's split in a cache, as a reader has them."""

    def __init__(
        self, root: Folder, settings: CacheSettings, *, at_a_time: int = 1, count: int | None = None
    ) -> None:
        self.source = Source.open(root, settings)
        names, infos = (
            self.source.manifest.shard_names("train"),
            self.source.manifest.splits["train"].shards,
        )
        self.refs = [
            ShardRef(self.source, name, info, 0, 1) for name, info in zip(names, infos, strict=True)
        ][:count]
        self.files = ShardFiles(self.refs, at_a_time=at_a_time)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.files.close()
        assert self.source.cache
        self.source.cache.close()

    def read(self, shard: int) -> bytes:
        with self.files.open(shard) as descriptor:
            return os.pread(descriptor, 2 * SIZE, 0)

    def read_epochs(self, orders: Sequence[Sequence[int]], *, window: int = 1) -> None:
        """Each shard of each epoch, a window at a time; after the last epoch comes the first again."""
        everything = list(itertools.chain.from_iterable(orders))
        for start in range(0, len(everything), window):
            needed = everything[start : start + window]
            self.files.plan(
                needed, itertools.chain(everything[start + window :], itertools.cycle(everything))
            )
            for shard in needed:
                assert len(self.read(shard)) == SIZE


def numbers_asked_for(proxy: FaultProxy) -> list[int]:
    """The numbers of the shards that were downloaded, in order."""
    found = (
        re.search(r"tfrecord-(\d+)-of", target)
        for method, target in proxy.requests
        if method == "GET"
    )
    return [int(match[1]) for match in found if match]


def is_pinned(cache: Path, shard: int) -> bool:
    [lock_file] = cache.rglob(f"*-{shard:05d}-of-*{LOCK}")
    lock = FileLock(str(lock_file))
    free = lock.acquire(shared=False, wait=False)
    lock.release()
    return not free


def test_gives_what_the_store_has(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path)) as reading:
        for shard in (3, 0, 3):
            assert reading.read(shard) == root.read_bytes(reading.refs[shard].name.shard)
        with reading.files.path(5) as path:
            assert Path(path).read_bytes() == root.read_bytes(reading.refs[5].name.shard)
            assert is_pinned(tmp_path, 5)


def test_the_first_shard_is_given_as_soon_as_it_has_landed(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.add(
        *(
            Fault("stall", None, method="GET", path_contains=f"tfrecord-0000{shard}")
            for shard in (1, 2, 3)
        )
    )
    with Reading(
        behind(root, proxy.endpoint, read_timeout="1", deadline="1"), at(tmp_path), at_a_time=4
    ) as reading:
        reading.files.plan([0, 1, 2, 3], [4, 5])
        assert len(reading.read(0)) == SIZE
        assert shards_in(tmp_path) == [0]
        proxy.clear()


@pytest.mark.parametrize(
    ("room", "at_a_time", "count", "needed", "upcoming", "landed"),
    [
        (100, 1, 12, [2], range(3, 12), [2, *range(3, 11)]),  # 8 ahead
        (100, 2, 12, [2, 3], [], [2, 3]),
        (4, 1, 4, [0], [3, 2, 1], [0, 1, 2, 3]),  # everything fits
        (
            4,
            1,
            5,
            [0],
            [3, 2, 1],
            [0, 3],
        ),  # it does not: one ahead, and the rest for what comes again
        (9, 1, 12, [0], [3, 2, 1], [0, 2, 3]),
        (4, 3, 12, [0, 1, 2], [5, 6], [0, 1, 2, 5]),
        (
            4,
            2,
            12,
            [0, 1, 2],
            [5, 6],
            [0, 1, 2],
        ),  # a window that begins before the last one ended takes what was for later
        (3, 3, 12, [0, 1, 2], [5, 6], [0, 1, 2]),
    ],
)
def test_brings_what_is_needed_and_then_what_comes_as_far_as_there_is_room(
    root: Folder,
    tmp_path: Path,
    room: int,
    at_a_time: int,
    count: int,
    needed: list[int],
    upcoming: Sequence[int],
    landed: list[int],
) -> None:
    with Reading(root, at(tmp_path, room * SIZE), at_a_time=at_a_time, count=count) as reading:
        reading.files.plan(needed, upcoming)
        wait_until(lambda: set(landed) <= set(shards_in(tmp_path)))
        time.sleep(0.1)
        assert shards_in(tmp_path) == sorted(landed)


def test_comes_in_the_order_of_use(root: Folder, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.latency_msec = 20
    with Reading(behind(root, proxy.endpoint), at(tmp_path)) as reading:
        reading.files.plan([7], [3, 9, 1, 0, 5, 2])
        wait_until(lambda: len(shards_in(tmp_path)) == 7)
    order = numbers_asked_for(proxy)
    for place, shard in enumerate([7, 3, 9, 1, 0, 5, 2]):
        assert abs(order.index(shard) - place) <= 2  # three at a time


def test_needed_shards_stay_and_those_that_are_left_can_go(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path), at_a_time=2) as reading:
        reading.files.plan([0, 1], [2, 3])
        for shard in (0, 1, 0):
            reading.read(shard)
        assert [is_pinned(tmp_path, shard) for shard in (0, 1)] == [True, True]
        with reading.files.open(1) as descriptor:
            reading.files.plan([2, 3])
            assert [is_pinned(tmp_path, shard) for shard in (0, 1)] == [False, True]
            assert len(os.pread(descriptor, SIZE, 0)) == SIZE
        assert not is_pinned(tmp_path, 1)
        reading.read(0)  # nobody has planned for it
        assert not is_pinned(tmp_path, 0)
        reading.read(2)
    assert not is_pinned(tmp_path, 2)


def test_what_comes_next_may_be_opened_before_its_turn(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path, 8 * SIZE)) as reading:
        reading.files.plan([0], [1, 2])
        for shard in (1, 0, 2):
            reading.read(shard)
        assert [is_pinned(tmp_path, shard) for shard in (0, 1)] == [True, True]
        wait_until(lambda: not is_pinned(tmp_path, 2))  # one is ahead
        reading.files.plan([2])
        assert [is_pinned(tmp_path, shard) for shard in (0, 1)] == [False, False]


def test_without_a_plan_as_many_stay_as_are_needed_at_a_time(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path, 2 * SIZE), at_a_time=2) as reading:
        for shard in (0, 1, 0, 2):
            reading.read(shard)
        assert [found.ref.info.index for found in reading.files.opened] == [0, 2]
        for shard in range(NUM_SHARDS):
            reading.read(shard)


def test_threads_without_a_plan_take_turns_in_the_room_there_is(
    root: Folder, tmp_path: Path
) -> None:
    with (
        Reading(root, at(tmp_path, 2 * SIZE), at_a_time=2) as reading,
        ThreadPoolExecutor(2) as pool,
    ):
        assert set(
            map(len, pool.map(reading.read, random.Random(0).choices(range(NUM_SHARDS), k=60)))
        ) == {SIZE}


def fewest_downloads(orders: Sequence[Sequence[int]], room: int) -> list[int]:
    """Of each epoch, by who knows all that comes (Belady 1966), the first epochs again after the last."""
    everything = list(itertools.chain.from_iterable(orders))
    there: set[int] = set()
    counts = []
    for epoch, order in enumerate(orders):
        counts.append(0)
        for place, shard in enumerate(order):
            if shard in there:
                continue
            counts[-1] += 1
            if len(there) == room:
                later = everything[epoch * len(order) + place + 1 :] + everything
                there.remove(max(there, key=later.index))
            there.add(shard)
    return counts


IN_ORDER = [list(range(NUM_SHARDS))] * 5
SHUFFLED = [random.Random(epoch).sample(range(NUM_SHARDS), NUM_SHARDS) for epoch in range(6)]


@pytest.mark.parametrize(
    ("orders", "window"),
    [(IN_ORDER, 1), (SHUFFLED, 1), (SHUFFLED, 3)],
    ids=["in-order", "shuffled", "windows"],
)
@pytest.mark.parametrize("room", [6, 10])
def test_what_comes_again_last_goes_first(
    root: Folder, proxy: FaultProxy, tmp_path: Path, orders: list[list[int]], window: int, room: int
) -> None:
    with Reading(
        behind(root, proxy.endpoint), at(tmp_path, room * SIZE), at_a_time=window
    ) as reading:
        reading.read_epochs(orders, window=window)
    downloads = numbers_asked_for(proxy)
    proxy.requests.clear()
    # One shard waits for its turn, and those of a window are all there at once.
    assert len(downloads) <= sum(fewest_downloads(orders, room)) + len(orders) * window

    with ShardCache.open(behind(root, proxy.endpoint), at(tmp_path / "lru", room * SIZE)) as cache:
        for shard in itertools.chain.from_iterable(orders):
            cache.open_shard(reading.refs[shard].name).close()
            time.sleep(0.01)  # so that the times of use differ
    assert len(numbers_asked_for(proxy)) - len(downloads) >= 0.3 * (len(orders) - 1) * min(
        room, NUM_SHARDS - room
    )


def test_epochs_in_order_download_what_does_not_fit(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    room = 7
    counts = []
    with Reading(behind(root, proxy.endpoint), at(tmp_path, room * SIZE)) as reading:
        for _ in range(4):
            reading.read_epochs(IN_ORDER[:1])
            wait_until(lambda: proxy.num_in_flight == 0)
            counts.append(len(numbers_asked_for(proxy)))
            proxy.requests.clear()
    assert all(NUM_SHARDS - room <= count <= NUM_SHARDS - room + 2 for count in counts[1:]), counts


def test_another_run_goes_on_with_what_is_there(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = behind(root, proxy.endpoint)
    for _ in range(3):
        proxy.requests.clear()
        with Reading(remote, at(tmp_path, 8 * SIZE)) as reading:
            reading.read_epochs(IN_ORDER[:1])
    assert len(numbers_asked_for(proxy)) <= NUM_SHARDS - 8 + 2


def test_processes_that_share_a_cache_share_its_hits(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    settings, remote = at(tmp_path, 8 * SIZE), behind(root, proxy.endpoint)
    code = f"""
from tests.test_shard_files_remote import IN_ORDER, Reading
reading = Reading(root, CacheSettings({settings.folder!r}, {settings.max_bytes}))
say("ready"); sys.stdin.readline()
for _ in range(4):
    reading.read_epochs(IN_ORDER[:1])
say("done")
"""
    readers = [start_reader(remote, settings, code) for _ in range(2)]
    assert [line_of(reader) for reader in readers] == ["ready"] * 2
    for reader in readers:
        assert reader.stdin
        reader.stdin.write("\n")
        reader.stdin.flush()
    assert [line_of(reader) for reader in readers] == ["done"] * 2
    for reader in readers:
        finish(reader)
    assert len(numbers_asked_for(proxy)) < 1.5 * 4 * NUM_SHARDS


def test_beside_other_datasets_what_comes_again_last_goes_first(
    s3_server: StoreServer, root: Folder, tmp_path: Path
) -> None:
    """What was left an hour ago; then, whoever needs the room, what a reader has just left; what it needs soon stays."""
    cache = tmp_path / "cache"
    with Reading(
        put_dataset(s3_server, tmp_path / "left", [SIZE] * 5), at(cache, 10 * SIZE)
    ) as reading:
        reading.read_epochs([[0, 1]])
    for path in cache.rglob("noise-train*-of-00005"):
        os.utime(path, (time.time() - 3600,) * 2)
    other = put_dataset(s3_server, tmp_path / "other", [SIZE] * 4)
    with (
        Reading(root, at(cache, 10 * SIZE)) as reading,
        ShardCache.open(other, at(cache, 10 * SIZE)) as others,
    ):
        reading.files._pace._started -= 1e9  # as if it had read very many, of 10 s each
        reading.files._pace._num_shards += 100_000_000
        reading.read_epochs([range(9)])
        assert shards_of(cache, 12) == list(range(9))
        assert len(shards_of(cache, 5)) <= 1
        for shard, there in ((0, [*range(9)]), (1, [*range(7), 8]), (2, [*range(6), 8])):
            others.open_shard(others.manifest.shard_names("train")[shard]).close()
            assert shards_of(cache, 12) == there
        assert shards_of(cache, 5) == []
        assert shards_of(cache, 4) == [0, 1, 2]


def shards_of(cache: Path, count: int) -> list[int]:
    """Which whole shards of the dataset of so many a cache's folder holds."""
    return sorted(
        int(path.name[-14:-9]) for path in cache.rglob(f"noise-train.tfrecord-*-of-{count:05d}")
    )


def test_more_at_a_time_than_the_cache_may_hold_is_refused_at_once(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    message = r"reading needs 4 shards of up to 1.0 kB at a time, 4.0 kB together, and the cache at .* to 4000 or more"
    with pytest.raises(UsageError, match=message):
        Reading(behind(root, proxy.endpoint), at(tmp_path, 3 * SIZE), at_a_time=4)
    assert numbers_asked_for(proxy) == []
    with Reading(
        root, at(tmp_path, 3 * SIZE), at_a_time=100, count=3
    ) as reading:  # more than there are
        reading.read_epochs([[0, 1, 2]], window=3)


def test_what_goes_wrong_is_told_by_the_shard_and_passes(
    s3_server: StoreServer, proxy: FaultProxy, tmp_path: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 3)
    with Reading(behind(root, proxy.endpoint, deadline="1"), at(tmp_path / "cache")) as reading:
        proxy.add(Fault("status", None, path_contains="tfrecord-00001"))
        delete_object(s3_server, root.path(reading.refs[2].name.shard))
        reading.files.plan([0], [1, 2])
        assert len(reading.read(0)) == SIZE
        with pytest.raises(
            StorageError, match=r"tfrecord-00001-of-00003 cannot be read: .* answers 503"
        ):
            reading.read(1)
        with pytest.raises(
            MissingError, match=r"tfrecord-00002-of-00003 is missing, and the manifest names it"
        ):
            reading.read(2)
        proxy.clear()
        assert len(reading.read(1)) == SIZE


def test_a_cache_that_is_removed_under_way_is_filled_again(root: Folder, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Reading(root, at(cache)) as reading:
        reading.files.plan([0], [])
        with reading.files.open(0) as descriptor:
            shutil.rmtree(cache)
            cache.mkdir()
            assert len(os.pread(descriptor, SIZE, 0)) == SIZE
            assert len(reading.read(1)) == SIZE
        reading.files.plan([1], [])
        assert len(reading.read(0)) == SIZE


def _read_in_child(reading: Reading, shards: list[int]) -> None:
    """Exits with 0 where they are read, and with 3 where the store cannot be used after a fork."""
    try:
        good = all(len(reading.read(shard)) == SIZE for shard in shards)
        reading.files.close()
    except ClientError as error:
        os._exit(3 if "forked after stores had been used" in str(error) else 1)
    os._exit(0 if good else 2)


def test_a_forked_process_reads_what_is_there_and_leaves_its_parents_pins(
    root: Folder, tmp_path: Path
) -> None:
    fork = multiprocessing.get_context("fork")
    with Reading(root, at(tmp_path), at_a_time=2) as reading:
        reading.files.plan([0, 1], [2])
        wait_until(lambda: shards_in(tmp_path) == [0, 1, 2])
        reading.read(0)
        for shards, exit_code in (([0, 1, 2], 0), ([0, 7], 3)):
            child: Any = fork.Process(target=_read_in_child, args=(reading, shards))
            child.start()
            child.join(60)
            assert child.exitcode == exit_code
            assert is_pinned(tmp_path, 0)
        reading.read(7)


def test_a_process_forked_during_a_download_gets_its_shard(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.add(
        Fault("latency", None, method="GET", path_contains="tfrecord-00003", latency_msec=1000)
    )
    with Reading(behind(root, proxy.endpoint), at(tmp_path)) as reading:
        reading.files.plan([], [3])
        wait_until(lambda: 3 in numbers_asked_for(proxy))
        child: Any = multiprocessing.get_context("fork").Process(
            target=_read_in_child, args=(reading, [3])
        )
        child.start()
        child.join(30)
        hung = child.is_alive()
        child.kill()
        assert not hung
        assert child.exitcode == 0
    assert numbers_asked_for(proxy) == [3]


def test_a_process_that_starts_anew_gets_the_same_cache(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path, 5 * SIZE), at_a_time=2) as reading:
        reading.read(3)
        copy = pickle.loads(pickle.dumps(reading))
        assert copy.source.cache.max_bytes == 5 * SIZE
        assert copy.refs[0].source is copy.source
        assert copy.files.open(3).ref.source.cache is copy.source.cache
        with copy:
            assert copy.read(3) == reading.read(3)
        child = multiprocessing.get_context("spawn").Process(
            target=_read_in_child, args=(reading, [3, 4])
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert shards_in(tmp_path) == [3, 4]
