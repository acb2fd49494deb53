"""Shards of stores as open files: the shards needed latest are evicted first."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardwright.cache.shard_cache import ShardCache
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import (
    SIZE,
    at,
    behind,
    put_dataset,
    wait_for_downloads_ahead,
)
from tests.support.shard_readings import IN_ORDER, NUM_SHARDS, Reading, numbers_downloaded

# Seconds. The tests take less, so the time that has passed never changes the order of next uses.
PACE = 1000.0
SHUFFLED = [random.Random(epoch).sample(range(NUM_SHARDS), NUM_SHARDS) for epoch in range(6)]


@pytest.fixture(scope="module")
def root(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of twelve shards of 1,000 bytes; not to be changed."""
    return put_dataset(s3_server, tmp_path_factory.mktemp("noise"), [SIZE] * NUM_SHARDS)


def fewest_downloads(orders: Sequence[Sequence[int]], room: int) -> int:
    """Return the downloads of a cache that knows the future (Belady 1966), repeated for ever."""
    shards = list(itertools.chain.from_iterable(orders))
    there: set[int] = set()
    number = 0
    for place, shard in enumerate(shards):
        if shard in there:
            continue
        number += 1
        if len(there) == room:
            there.remove(max(there, key=(shards[place + 1 :] + shards).index))
        there.add(shard)
    return number


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each reader download by one thread, so that the order of threads decides nothing."""
    monkeypatch.setattr("shardwright.cache.prefetches._DOWNLOADS_AT_A_TIME", 1)


@pytest.mark.long_but_first
@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize(
    ("orders", "window"),
    [(IN_ORDER, 1), (SHUFFLED, 1), (SHUFFLED, 3)],
    ids=["in-order", "shuffled", "windows"],
)
@pytest.mark.parametrize("room", [6, 10])
def test_the_furthest_next_use_is_evicted_first(
    root: Folder,
    s3_proxy: FaultProxy,
    tmp_path: Path,
    orders: list[list[int]],
    window: int,
    room: int,
) -> None:
    settings = at(tmp_path, room * SIZE)
    remote = behind(root, s3_proxy)
    with Reading(remote, settings, at_a_time=window, seconds_per_shard=PACE) as reading:
        reading.read_epochs(orders, window=window)
    # The shard that waits for its turn takes room: at most one more download per epoch.
    slack = len(orders)
    assert len(numbers_downloaded(s3_proxy)) <= fewest_downloads(orders, room) + slack


@pytest.mark.usefixtures("one_at_a_time")
def test_epochs_and_runs_in_order_download_the_shards_that_do_not_fit(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    room, counts = 7, []
    for _ in range(3):
        settings = at(tmp_path, room * SIZE)
        with Reading(behind(root, s3_proxy), settings, seconds_per_shard=PACE) as reading:
            for _ in range(2):
                reading.read_epochs(IN_ORDER[:1])
                counts.append(len(numbers_downloaded(s3_proxy)))
                s3_proxy.requests.clear()
    # Without a plan, an epoch in order would download all 12.
    fewest, epochs = NUM_SHARDS - room, counts[1:]
    assert min(epochs) >= fewest, counts
    assert max(epochs) <= fewest + 2, counts


@pytest.mark.parametrize("room", [4, 8])
def test_downloads_by_several_threads_keep_to_the_cap(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path, room: int
) -> None:
    """The speed of the threads decides how many downloads there are, within these bounds."""
    settings, orders = at(tmp_path, room * SIZE), SHUFFLED[:3]
    with Reading(behind(root, s3_proxy), settings, at_a_time=2) as reading:
        for order in orders:
            reading.read_epochs([order], window=2, waits=False)
            assert reading.source.cache
            wait_for_downloads_ahead(reading.source.cache)
            # Room is made under a lock before each download, whatever the speed.
            found = settings.open().files()
            assert sum(file.num_bytes for file in found) <= room * SIZE
    # No order of downloads beats one that knows the future.
    assert len(numbers_downloaded(s3_proxy)) >= fewest_downloads(orders, room)


@pytest.mark.usefixtures("one_at_a_time")
def test_readers_share_the_hits(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """Two readers with caches of their own in one folder, as two processes have, take turns."""
    remote, settings = behind(root, s3_proxy), at(tmp_path, 8 * SIZE)
    turns, epochs = random.Random(0), IN_ORDER[:4]
    with (
        Reading(remote, settings, seconds_per_shard=PACE) as first,
        Reading(remote, settings, seconds_per_shard=PACE) as second,
    ):
        left = [first.steps_of(epochs), second.steps_of(epochs)]
        while left:
            steps = turns.choice(left)
            if next(steps, None) is None:
                left.remove(steps)
    # No more than one reader reads. Each with a folder of half the size would download 2 * 36.
    assert len(numbers_downloaded(s3_proxy)) <= 4 * NUM_SHARDS


def shards_of(cache: Path, count: int) -> list[int]:
    """Return the numbers of the cached shards of the dataset that has `count`."""
    names = (path.name for path in cache.rglob(f"noise-train.tfrecord-*-of-{count:05d}"))
    return sorted(int(name[-14:-9]) for name in names)


def test_datasets_share_a_cache(s3_server: StoreServer, root: Folder, tmp_path: Path) -> None:
    """First goes a dataset left an hour ago, then shards that a reader has just read."""
    settings = at(tmp_path / "cache", 10 * SIZE)
    cache = tmp_path / "cache"
    left = put_dataset(s3_server, tmp_path / "left", [SIZE] * 5)
    with Reading(left, settings) as reading:
        reading.read_epochs([[0, 1]])
    for path in cache.rglob("noise-train*-of-00005"):
        os.utime(path, (time.time() - 3600,) * 2)
    other = put_dataset(s3_server, tmp_path / "other", [SIZE] * 4)
    with (
        Reading(root, settings, seconds_per_shard=100) as reading,
        ShardCache.open(other, settings) as others,
    ):
        reading.read_epochs([range(9)])
        assert shards_of(cache, 12) == list(range(9))
        assert len(shards_of(cache, 5)) <= 1
        for shard, there in ((0, [*range(9)]), (1, [*range(7), 8]), (2, [*range(6), 8])):
            others.open_shard(others.manifest.shard_names("train")[shard]).close()
            assert shards_of(cache, 12) == there
        assert shards_of(cache, 5) == []
        assert shards_of(cache, 4) == [0, 1, 2]
