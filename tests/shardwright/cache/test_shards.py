"""`ShardCache`: what it keeps, what it evicts, and how it heals."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.cache.settings import CacheSettings
from shardwright.cache.shards import PART, ShardCache
from shardwright.errors import BadRecordError, StorageError, UsageError
from shardwright.storage.cancellation import CanceledError, cancelable
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import cached_datasets as noise
from tests.support.cached_datasets import NAMES, SIZE, at, behind, content, put_folder, touch
from tests.support.damage import edit_bytes, first_shard
from tests.support.readers import ids_of

HOUR = 3600.0


def make(path: Path, *, read: float | None, written: float) -> None:
    """Make a file of `SIZE` bytes, read and written so many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(SIZE))
    now = time.time()
    os.utime(path, (0.0 if read is None else now - read, now - written))


# In the order of eviction: (file, seconds since it was read, and since its last use).
FILES: list[tuple[str, float | None, float]] = [
    ("data/new/killed.part", None, 40),
    ("data/new/longest-ago", 3 * HOUR, 3 * HOUR),
    ("data/new/generations/2/long-ago", None, 2 * HOUR),  # downloaded, and never read
    ("plain/build/read-last", 10, 10),
    ("data/new/read-before", 20, 20),
    ("data/old/read-before-that", 50, 50),
    ("data/new/next", None, 30),
    ("data/new/index/rows.parquet", 40, 40),
]


@pytest.mark.parametrize("num_left", range(len(FILES) + 1))
def test_the_order_of_eviction(root: Folder, tmp_path: Path, num_left: int) -> None:
    with ShardCache(root, at(tmp_path, (num_left + 1) * SIZE)) as cache:
        for path, read, written in FILES:
            make(tmp_path / path, read=read, written=written)
        touch(cache, 0)
        assert [path for path, *_ in FILES if (tmp_path / path).exists()] == [
            path for path, *_ in FILES[len(FILES) - num_left :]
        ]
        assert (tmp_path / "data/old").exists() is (num_left > 2)
        assert noise.shards_in(tmp_path) == [0]


def test_what_this_reader_uses_last_goes_first(root: Folder, tmp_path: Path) -> None:
    with ShardCache(root, at(tmp_path, 3 * SIZE)) as cache:
        cache.expect([NAMES[3], NAMES[1], NAMES[0], NAMES[2]])
        touch(cache, 0, 1, 2, 3)
        assert noise.shards_in(tmp_path) == [0, 1, 3]
        make(tmp_path / "other/build/read", read=HOUR / 2, written=HOUR / 2)
        make(tmp_path / "other/build/next", read=None, written=1)
        touch(cache, 2)  # in the place of three
        assert noise.shards_in(tmp_path) == [2, 3]
        assert {path.name for path in tmp_path.rglob("other/build/*")} == {"next"}


def test_a_part_that_is_on_its_way_stays(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    s3_proxy.add(stall := Fault("stall", 1, method="GET", path_contains="tfrecord-00000"))
    remote = behind(root, s3_proxy, read_timeout="600")
    reader = noise.start_reader(remote, at(tmp_path), "cache.open_shard(names[0])")
    noise.wait_until(lambda: s3_proxy.hits(stall))
    with ShardCache(root, at(tmp_path, SIZE)) as cache:
        touch(cache, 1, 2)
        assert [path.name for path in tmp_path.rglob(f"*{PART}")] == [NAMES[0].shard + PART]
        reader.kill()
        touch(cache, 3)
        assert list(tmp_path.rglob(f"*{PART}")) == []
        assert noise.shards_in(tmp_path) == [3]


@pytest.mark.long
def test_more_processes_than_there_is_room_for(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    code = """say('ready'); sys.stdin.readline()
for name in names * 5:
    descriptor = cache.open_shard(name)
    say(os.fstat(descriptor).st_size)
    os.close(descriptor)
"""
    s3_proxy.latency_msec = 20
    remote = behind(root, s3_proxy)
    readers = [noise.start_reader(remote, at(tmp_path, 3 * SIZE), code) for _ in range(6)]
    noise.start_at_once(readers)
    assert [reader.finish().split() for reader in readers] == [[str(SIZE)] * 20] * 6
    # What came at the same time may be more than the cap: the next one makes room.
    next(tmp_path.rglob("noise-*-of-*")).unlink()
    with ShardCache(root, at(tmp_path, 3 * SIZE)) as cache:
        touch(cache, 0, 1, 2, 3)
    assert len(noise.shards_in(tmp_path)) == 3


def test_more_at_a_time_than_the_cap(root: Folder, tmp_path: Path) -> None:
    message = (
        r"reading needs 4 shards of up to 1.0 kB at a time, 4.0 kB together, but the cap of the "
        r"cache at .* is 999 B: set SHARDWRIGHT_CACHE_BYTES \(cache_bytes=\) to at least 4000"
    )
    with (
        ShardCache(root, at(tmp_path, SIZE - 1)) as cache,
        pytest.raises(UsageError, match=message),
    ):
        cache.shards_ahead(NAMES, 4)


def test_a_rebuilt_dataset_never_mixes_with_the_old(s3_server: StoreServer, tmp_path: Path) -> None:
    def original(build: str, number: int) -> bytes:
        return (tmp_path / build / NAMES[number].shard).read_bytes()

    settings = at(tmp_path / "cache", 6 * SIZE)
    old = noise.put_dataset(s3_server, tmp_path / "old", [SIZE] * 4)
    with ShardCache(old, settings) as cache:
        touch(cache, 0, 1, 2, 3)
    new = noise.put_dataset(s3_server, tmp_path / "new", [SIZE] * 4, uri=old.uri, seed=1)
    with ShardCache(new, settings) as again, cache:
        for number in range(2):
            assert content(again, NAMES[number]) == original("new", number)
        assert noise.shards_in(tmp_path / "cache") == [0, 0, 1, 1, 2, 3]
        assert content(cache, NAMES[0]) == original("old", 0)  # a reader with the old manifest
        touch(again, 2, 3)
        assert len(noise.shards_in(tmp_path / "cache")) == 6
        assert {*noise.shards_in(tmp_path / "cache")} == {0, 1, 2, 3}
        touch(again, 0, 1, 2, 3)
        message = "does not have the crc32c .*: if the dataset has been rebuilt, reopen it"
        with pytest.raises(StorageError, match=message):
            touch(cache, 1, 2, 3, 0)


def damage_shard(path: Path) -> None:
    """Zero some bytes in every record."""
    edit_bytes(path, lambda data: data.__setitem__(slice(300, None, 50), bytes(len(data[300::50]))))


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [as_pipe, lambda path: os.truncate(path, 7)])
def test_a_replaced_shard_is_fetched_by_many_threads(
    damage: Callable[[Path], object], root: Folder, tmp_path: Path
) -> None:
    with ShardCache(root, at(tmp_path)) as cache:
        touch(cache, 0)
        damage(Path(cache._path(NAMES[0])))
        whole = root.read_bytes(NAMES[0].shard)
        threads = [threading.Thread(target=content, args=(cache, NAMES[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert content(cache, NAMES[0]) == whole
        for thread in threads:
            thread.join()
        assert [path.name for path in tmp_path.rglob("noise-*-of-*")] == [NAMES[0].shard]


def test_a_canceled_healing_is_not_remembered(
    zoo: Path, s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Or a reader that goes on after an interrupt would report damage that can be healed."""
    canceled, name = threading.Event(), first_shard(zoo)
    with ShardCache(behind(put_folder(s3_server, zoo), s3_proxy), at(tmp_path)) as cache:
        whole = content(cache, name)
        [cached] = tmp_path.rglob(name.shard)
        damage_shard(cached)
        s3_proxy.add(Fault("status", None, path_contains="tfrecord"))
        canceled.set()
        with pytest.raises(CanceledError):
            cancelable(canceled, cache.heal, name)
        s3_proxy.clear()
        cache.heal(name)
        assert content(cache, name) == whole


@pytest.mark.parametrize(
    ("features", "threads"), [(["id", "image"], 1), (["image", "label"], 1), (["image"], 8)]
)
def test_a_flipped_byte_in_a_cached_shard(
    features: list[str],
    threads: int,
    zoo: Path,
    s3_server: StoreServer,
    s3_proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    remote = behind(put_folder(s3_server, zoo), s3_proxy)
    options = {"features": features, "global_batch_size": 4, "epochs": 1, "remainder": "keep"}

    def read() -> list[bytes]:
        at = {"storage_options": remote.options, "cache": tmp_path}
        with sw.Reader(remote.uri, threads=threads, **at, **options) as reader:
            return [bytes(image) for batch in reader for image in batch["image"]]

    images = read()
    [cached] = tmp_path.rglob(first_shard(zoo).shard)
    damage_shard(cached)
    before = len(noise.downloads(s3_proxy))
    assert read() == images
    assert len(noise.downloads(s3_proxy)) == before + 1
    assert cached.read_bytes() == (zoo / cached.name).read_bytes()
    for sidecar in tmp_path.rglob("*.parquet"):
        edit_bytes(sidecar, lambda data: data.__setitem__(40, data[40] ^ 1))
    [manifest] = tmp_path.rglob("manifest.json")
    edit_bytes(manifest, lambda data: data.__setitem__(40, data[40] ^ 1))
    assert read() == images
    assert manifest.read_bytes() == (zoo / "manifest.json").read_bytes()


def test_a_damaged_object_is_fetched_again_and_then_an_error(
    dataset: Path, s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = behind(put_folder(s3_server, dataset), s3_proxy)
    name = first_shard(dataset)
    options = {"storage_options": remote.options, "cache": tmp_path / "cache", "epochs": 1}
    reader = sw.Reader(remote.uri, global_batch_size=4, **options)
    assert ids_of(reader)
    [cached] = (tmp_path / "cache").rglob(name.shard)
    for path in (cached, dataset / name.shard):
        edit_bytes(path, lambda data: data.__setitem__(300, data[300] ^ 1))
    remote.write_bytes(name.shard, (dataset / name.shard).read_bytes())
    with pytest.raises(BadRecordError, match=name.shard):
        ids_of(sw.Reader(remote.uri, global_batch_size=4, **options))


def test_a_folder_that_cannot_be_used(root: Folder, tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    message = "cannot write .*/lock: Is a directory: set SHARDWRIGHT_CACHE to a folder of your own"
    with ShardCache(root, at(tmp_path)) as cache, pytest.raises(StorageError, match=message):
        cache.open_shard(NAMES[0])
    (tmp_path / "file").write_bytes(b"")
    message = "cannot create the cache at .*: Not a directory: set SHARDWRIGHT_CACHE to another"
    with pytest.raises(StorageError, match=message):
        CacheSettings(str(tmp_path / "file" / "cache"), 5).open()
