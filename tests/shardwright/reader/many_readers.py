"""Many readers on one small cache, of which one is killed each second (`make torture-reader`).

Not among the tests of `make test-all`, whose other tests need the machine, too.

The cache has room for a fifth of the dataset: four shards a reader.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import zlib
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from tests.servers.store_server import StoreServer
from tests.support.build_helpers import wait_for
from tests.support.cached_datasets import put_folder
from tests.support.small_datasets import build, write_image

NUM_READERS = int(os.environ.get("READERS", "64"))
ROUND_SECONDS = 30.0
LONGEST_PAUSE = 5.0
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


class Stored:
    """A dataset in a store: its folder, its bytes, and the checksum of each image by its id."""

    def __init__(self, server: StoreServer, folder: Path, num_images: int, num_shards: int) -> None:
        for number in range(num_images):  # far more bytes than their index
            write_image(folder / "in" / f"{number}.png", number, width=60, height=40)
        local = build(folder / "in", folder / "out", f"--shard-count={num_shards}")
        self.cap = sum(path.stat().st_size for path in Path(local).glob("*.tfrecord-*")) // 5
        [whole] = sw.Reader(local, batch_size=num_images, epochs=1)
        self.checksums = checksums_of(whole)
        self.root = put_folder(server, local)

    def reader(self, cache: Path, **options: Any) -> sw.Reader:
        """Return a reader whose cache holds a fifth of the dataset."""
        at: dict[str, Any] = {"storage_options": self.root.options, "cache": cache}
        given: dict[str, Any] = {"batch_size": 5, "shuffle": True, "window": 1, "threads": 1}
        return sw.Reader(self.root.uri, cache_bytes=self.cap, **at, **given, **options)


def checksums_of(batch: Mapping[str, Any]) -> dict[bytes, int]:
    return dict(zip(batch["id"], map(zlib.crc32, batch["image"]), strict=True))


def read_until(stop: Any, stored: Stored, cache: Path, seed: int, beats: Any, place: int) -> None:
    """Read an epoch as a trainer does, a shard a second, and note in `beats` when batches came."""
    found: dict[bytes, int] = {}
    for batch in stored.reader(cache, seed=seed, epochs=1):
        beats[place] = time.monotonic()
        checksums = checksums_of(batch)
        assert not checksums.keys() & found.keys()
        found |= checksums
        time.sleep(0.25)
        if stop.value:
            break
    assert found.items() <= stored.checksums.items()


@pytest.mark.long
def test_killed_readers_leave_the_others_at_work(
    s3_server: StoreServer, tmp_path: Path, rng: np.random.Generator
) -> None:
    stored = Stored(s3_server, tmp_path / "stored", 400 * NUM_READERS, 20 * NUM_READERS)
    cache = tmp_path / "cache"
    # Without locks, which a killed process would hold for ever.
    stop, beats = CONTEXT.Value("b", lock=False), CONTEXT.Array("d", NUM_READERS, lock=False)

    def start(place: int) -> BaseProcess:
        beats[place] = 0.0
        given = (stop, stored, cache, int(rng.integers(2**31)), beats, place)
        process = CONTEXT.Process(target=read_until, args=given, daemon=True)
        process.start()
        return process

    processes = [start(place) for place in range(NUM_READERS)]
    for place in range(NUM_READERS):
        wait_for(lambda place=place: beats[place] > 0)  # type: ignore[misc]
    longest, ends, next_kill = 0.0, time.monotonic() + ROUND_SECONDS, time.monotonic() + 1
    while (now := time.monotonic()) < ends:
        longest = max(longest, now - min(beats))
        if now > next_kill:
            next_kill += 1
            place = int(rng.integers(NUM_READERS))
            processes[place].kill()
            processes[place].join()
            processes[place] = start(place)
            beats[place] = now
        time.sleep(0.05)
    stop.value = 1
    for process in processes:
        process.join(60)
    print(f"\n{NUM_READERS} readers, the longest pause of one: {longest:.2f} s")
    assert [process.exitcode for process in processes] == [0] * NUM_READERS
    assert sum(path.stat().st_size for path in cache.rglob("*-of-*")) <= stored.cap
    whole = {}
    for batch in stored.reader(cache, epochs=1):
        whole |= checksums_of(batch)
    assert whole == stored.checksums
    assert longest < LONGEST_PAUSE
