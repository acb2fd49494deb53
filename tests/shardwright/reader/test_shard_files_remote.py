"""Shards of stores as open files: downloaded ahead, closed and evicted when nobody needs them."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardwright.errors import ClientError, StorageError
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import (
    SIZE,
    at,
    behind,
    put_dataset,
    shards_in,
    wait_for_downloads_ahead,
    wait_until,
)
from tests.support.shard_readings import (
    IN_ORDER,
    NUM_SHARDS,
    Reading,
    exit_code_of_fork,
    numbers_downloaded,
)


@pytest.fixture(scope="module")
def root(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of twelve shards of 1,000 bytes; not to be changed."""
    return put_dataset(s3_server, tmp_path_factory.mktemp("noise"), [SIZE] * NUM_SHARDS)


def is_open(reading: Reading) -> list[int]:
    """Return the numbers of the shards that are open, in order of last use."""
    return [*reading.files.opened]


def test_the_first_shard_is_not_delayed(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    for shard in (1, 2, 3):
        s3_proxy.add(Fault("stall", None, method="GET", path_contains=f"tfrecord-0000{shard}"))
    with Reading(behind(root, s3_proxy), at(tmp_path), at_a_time=4) as reading:
        reading.files.plan([0, 1, 2, 3], [4, 5])
        assert len(reading.read(0)) == SIZE
        assert shards_in(tmp_path) == [0]
        s3_proxy.close()  # ends the stalled downloads, which closing the cache waits for


@pytest.mark.parametrize(
    ("sizes", "needed", "upcoming", "landed"),
    [
        ((100, 1, 12), [2], range(3, 12), [2, *range(3, 11)]),  # 8 ahead
        ((100, 2, 12), [2, 3], [], [2, 3]),
        ((4, 1, 4), [0], [3, 2, 1], [0, 1, 2, 3]),  # everything fits
        ((4, 1, 5), [0], [3, 2, 1], [0, 3]),  # it does not: the rest is for the next epoch
        ((9, 1, 12), [0], [3, 2, 1], [0, 2, 3]),
        ((4, 3, 12), [0, 1, 2], [5, 6], [0, 1, 2, 5]),
        # A window that begins before the last one ended takes the room of later ones.
        ((4, 2, 12), [0, 1, 2], [5, 6], [0, 1, 2]),
        ((3, 3, 12), [0, 1, 2], [5, 6], [0, 1, 2]),
    ],
)
def test_downloads_needed_shards_and_upcoming_ones_as_room_permits(
    root: Folder,
    tmp_path: Path,
    sizes: tuple[int, int, int],
    needed: list[int],
    upcoming: Sequence[int],
    landed: list[int],
) -> None:
    room, at_a_time, count = sizes
    with Reading(root, at(tmp_path, room * SIZE), at_a_time=at_a_time, count=count) as reading:
        reading.files.plan(needed, upcoming)
        assert reading.source.cache
        wait_for_downloads_ahead(reading.source.cache)
        assert shards_in(tmp_path) == sorted(landed)


@pytest.mark.usefixtures("one_at_a_time")
def test_downloads_in_the_order_of_use(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    with Reading(behind(root, s3_proxy), at(tmp_path)) as reading:
        reading.files.plan([7], [3, 9, 1, 0, 5, 2])
        assert reading.source.cache
        wait_for_downloads_ahead(reading.source.cache)
    assert numbers_downloaded(s3_proxy) == [7, 3, 9, 1, 0, 5, 2]


def test_needed_shards_stay_open_until_the_plan_drops_them(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path, 3 * SIZE), at_a_time=2) as reading:
        reading.files.plan([0, 1], [2, 3])
        for shard in (0, 1, 0, 2, 3):  # 2 is ahead
            reading.read(shard)
        assert is_open(reading) == [1, 0, 2]
        used = reading.files.open(1)
        reading.files.plan([2, 3], [0])
        assert is_open(reading) == [0, 2]
        assert len(os.pread(used.descriptor, SIZE, 0)) == SIZE


def test_without_a_plan_the_last_shards_stay_open(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path, 2 * SIZE), at_a_time=2) as reading:
        for shard in (0, 1, 0, 2):
            reading.read(shard)
        assert is_open(reading) == [0, 2]
        for shard in range(NUM_SHARDS):
            reading.read(shard)
        assert is_open(reading) == [10, 11]


def test_more_at_a_time_than_there_are(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path, 3 * SIZE), at_a_time=100, count=3) as reading:
        reading.read_epochs([[0, 1, 2]], window=3)


def test_an_error_passes(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    with Reading(behind(root, s3_proxy, deadline="1"), at(tmp_path)) as reading:
        s3_proxy.add(Fault("status", None, path_contains="tfrecord-00001"))
        reading.files.plan([0], [1, 2])
        assert len(reading.read(0)) == SIZE
        message = "tfrecord-00001-of-00012 cannot be read: .* returned 503"
        with pytest.raises(StorageError, match=message):
            reading.read(1)
        s3_proxy.clear()
        assert len(reading.read(1)) == SIZE


def test_a_cache_removed_while_it_is_used_is_filled_again(root: Folder, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Reading(root, at(cache)) as reading:
        reading.files.plan([0], [])
        used = reading.files.open(0)
        shutil.rmtree(cache)
        cache.mkdir()
        assert len(os.pread(used.descriptor, SIZE, 0)) == SIZE
        assert len(reading.read(1)) == SIZE
        reading.files.plan([1], [])
        assert len(reading.read(0)) == SIZE


def _read_and_exit(reading: Reading, shards: list[int]) -> None:
    """Exit with 0 if they are read, with 3 if the store cannot be used after a fork."""
    try:
        good = all(len(reading.read(shard)) == SIZE for shard in shards)
        reading.files.close()
    except ClientError as error:
        os._exit(3 if "forked after a store was used" in str(error) else 1)
    os._exit(0 if good else 2)


def test_a_forked_process_reads_cached_shards(root: Folder, tmp_path: Path) -> None:
    with Reading(root, at(tmp_path), at_a_time=2) as reading:
        reading.files.plan([0, 1], [2])
        wait_until(lambda: shards_in(tmp_path) == [0, 1, 2])
        reading.read(0)
        for shards, exit_code in (([0, 1, 2], 0), ([0, 7], 3)):
            assert exit_code_of_fork(_read_and_exit, reading, shards) == exit_code
            assert is_open(reading) == [0]
        reading.read(7)


def test_a_fork_during_a_download(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    slow = Fault("latency", None, method="GET", path_contains="tfrecord-00003", latency_msec=1000)
    s3_proxy.add(slow)
    with Reading(behind(root, s3_proxy), at(tmp_path)) as reading:
        reading.files.plan([], [3])
        wait_until(lambda: s3_proxy.hits(slow))
        assert exit_code_of_fork(_read_and_exit, reading, [3]) == 0
    assert numbers_downloaded(s3_proxy) == [3]


SHUFFLED = [random.Random(epoch).sample(range(NUM_SHARDS), NUM_SHARDS) for epoch in range(6)]


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
    monkeypatch.setattr("shardwright.cache.shards._DOWNLOADS_AT_A_TIME", 1)


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
    with Reading(remote, settings, at_a_time=window) as reading:
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
        with Reading(behind(root, s3_proxy), settings) as reading:
            for _ in range(2):
                reading.read_epochs(IN_ORDER[:1])
                counts.append(len(numbers_downloaded(s3_proxy)))
                s3_proxy.requests.clear()
    # Without a plan, an epoch in order would download all 12.
    fewest, epochs = NUM_SHARDS - room, counts[1:]
    assert min(epochs) >= fewest, counts
    assert max(epochs) <= fewest + 2, counts


@pytest.mark.usefixtures("one_at_a_time")
def test_readers_share_the_hits(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """Two readers with caches of their own in one folder, as two processes of one training have."""
    remote, settings = behind(root, s3_proxy), at(tmp_path, 8 * SIZE)
    turns, epochs = random.Random(0), IN_ORDER[:4]
    with (
        Reading(remote, settings) as first,
        Reading(remote, settings) as second,
    ):
        both = [first.steps_of(epochs), second.steps_of(epochs)]
        for _ in range(4 * NUM_SHARDS):
            for steps in turns.sample(both, 2):
                next(steps)
    # Little more than one reader; each with a folder of half the size would download 36.
    assert len(numbers_downloaded(s3_proxy)) <= fewest_downloads(epochs, 8) + len(epochs)
