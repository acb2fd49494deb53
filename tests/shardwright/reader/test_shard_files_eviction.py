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
from tests.support import cached_datasets as noise
from tests.support.cached_datasets import SIZE, at, behind, put_dataset
from tests.support.shard_readings import IN_ORDER, NUM_SHARDS, Reading, numbers_downloaded

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
    with Reading(behind(root, s3_proxy), at(tmp_path, room * SIZE), at_a_time=window) as reading:
        reading.read_epochs(orders, window=window)
    # One shard waits for its turn, and those of a window are all there at once.
    slack = len(orders) * window
    assert len(numbers_downloaded(s3_proxy)) <= fewest_downloads(orders, room) + slack


def test_epochs_and_runs_in_order_download_the_shards_that_do_not_fit(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    room, counts = 7, []
    for _ in range(3):
        with Reading(behind(root, s3_proxy), at(tmp_path, room * SIZE)) as reading:
            for _ in range(2):
                reading.read_epochs(IN_ORDER[:1])
                noise.wait_until(lambda: s3_proxy.num_in_flight == 0)
                counts.append(len(numbers_downloaded(s3_proxy)))
                s3_proxy.requests.clear()
    # Without a plan, an epoch in order would download all 12. How far ahead a read is when room is
    # made depends on the machine, so the bound is that of all epochs together.
    fewest, epochs = NUM_SHARDS - room, counts[1:]
    assert min(epochs) >= fewest, counts
    assert sum(epochs) <= len(epochs) * (fewest + 2), counts


def test_processes_share_the_hits(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    code = """
from tests.support.shard_readings import IN_ORDER, Reading
reading = Reading(root, settings)
say("ready"); sys.stdin.readline()
for _ in range(4):
    reading.read_epochs(IN_ORDER[:1])
say("done")
"""
    settings = at(tmp_path, 8 * SIZE)
    readers = [noise.start_reader(behind(root, s3_proxy), settings, code) for _ in range(2)]
    noise.start_at_once(readers)
    assert [reader.line() for reader in readers] == ["done"] * 2
    for reader in readers:
        reader.finish()
    assert len(numbers_downloaded(s3_proxy)) < 1.5 * 4 * NUM_SHARDS


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
    with Reading(root, settings) as reading, ShardCache.open(other, settings) as others:
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
