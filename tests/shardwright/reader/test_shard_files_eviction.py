"""Shards of stores as open files: the shards needed latest are evicted first."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import (
    SIZE,
    at,
    behind,
    put_dataset,
)
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
