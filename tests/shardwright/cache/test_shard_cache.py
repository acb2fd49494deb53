"""`ShardCache`: downloading, keeping and evicting shards; datasets that are built again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardwright.cache.files import LOCK, NoRoomError
from shardwright.cache.locks import FileLock
from shardwright.cache.shard_cache import ShardCache
from shardwright.errors import MissingError, NotFoundError, StorageError, UsageError
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import cached_datasets as noise
from tests.support.cached_datasets import (
    NAMES,
    SIZE,
    at,
    behind,
    content,
    downloads,
    put_dataset,
    touch,
)
from tests.support.object_stores import delete_object, list_keys


@pytest.mark.parametrize("server_name", ["s3_server", "moto_server", "gcs_server"])
def test_downloads_once(request: pytest.FixtureRequest, server_name: str, tmp_path: Path) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    data = tmp_path / "data"
    root = put_dataset(server, data, [SIZE, 0, 20])
    with FaultProxy(server.endpoint) as proxy:
        for _ in range(2):
            with ShardCache.open(behind(root, proxy), at(tmp_path / "cache")) as cache:
                for name in noise.names_of(3):
                    assert content(cache, name) == (data / name.shard).read_bytes()
        assert len(downloads(proxy)) == 2, "an empty shard takes no request for its bytes"


def test_plain_http_addresses(moto_server: StoreServer, tmp_path: Path) -> None:
    root = put_dataset(moto_server, tmp_path / "data", [SIZE] * 4)
    server = moto_server.s3_client()
    bucket = root.uri.split("/")[2]
    server.put_bucket_acl(Bucket=bucket, ACL="public-read")
    for key in list_keys(moto_server, f"s3://{bucket}/"):
        server.put_object_acl(Bucket=bucket, Key=key, ACL="public-read")
    web = Folder.at(f"{moto_server.endpoint}/{bucket}/data/noise")
    with ShardCache.open(web, at(tmp_path / "cache")) as cache:
        assert content(cache, NAMES[2]) == (tmp_path / "data" / NAMES[2].shard).read_bytes()


def test_evicts_the_least_recently_opened(root: Folder, tmp_path: Path) -> None:
    with ShardCache.open(root, at(tmp_path, 3 * SIZE)) as cache:
        touch(cache, 0, 1, 2, 0, 3)
        assert noise.shards_in(tmp_path) == [0, 2, 3]
        touch(cache, 1)
        assert noise.shards_in(tmp_path) == [0, 1, 3]


def test_evicts_shards_and_indexes_by_next_use(root: Folder, tmp_path: Path) -> None:
    seconds: dict[int, float | None] = {0: 5.0, 1: 2000.0, 2: None, 3: 1.0}
    with ShardCache.open(root, at(tmp_path)) as cache:
        for name in NAMES[:3]:
            cache.index(name)
    index_bytes = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    with ShardCache.open(root, at(tmp_path, 3 * SIZE + index_bytes)) as cache:
        touch(cache, 2, 0, 1)
        cache.expect(lambda name: seconds[name.index])
        touch(cache, 3)
        assert noise.shards_in(tmp_path) == [0, 2, 3]
        cache.expect(lambda name: None if name.index == 3 else 3600.0 * name.index)
        cache.index(NAMES[3])
        assert noise.shards_in(tmp_path) == [0, 3]
        left = {path.name[6:11] for path in tmp_path.rglob("*.parquet")}
        assert left == {"00000", "00001", "00003"}


def test_a_shard_that_a_process_has_open_stays(root: Folder, tmp_path: Path) -> None:
    code = "shard = cache.open_shard(names[0]); say(shard.path); sys.stdin.read()"
    readers = [noise.start_reader(root, at(tmp_path, 2 * SIZE), code) for _ in range(2)]
    paths = [Path(reader.line()) for reader in readers]
    with ShardCache.open(root, at(tmp_path, 2 * SIZE)) as cache:
        readers[0].finish()
        touch(cache, 1, 2, 3, 1)
        assert noise.shards_in(tmp_path) == [0, 1]
        assert [path.stat().st_size for path in paths] == [SIZE] * 2
        readers[1].kill()
        touch(cache, 2, 3)
        assert noise.shards_in(tmp_path) == [2, 3]


def test_waits_for_room(root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.cache.files.ROOM_SECONDS", 0.3)
    with ShardCache.open(root, at(tmp_path, 2 * SIZE + 500)) as cache:
        with (
            cache.open_shard(NAMES[0]),
            cache.open_shard(NAMES[1]),
            pytest.raises(NoRoomError) as caught,
        ):
            cache.open_shard(NAMES[2])
        for part in (
            "no room for noise-train.tfrecord-00002-of-00004 (1.0 kB)",
            "its cap of 2.5 kB would be exceeded by 500 B: raise SHARDWRIGHT_CACHE_BYTES",
        ):
            assert part in str(caught.value)
        touch(cache, 2)


def test_a_shard_larger_than_the_cap(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    shard = (
        r"s3://.*/noise-train.tfrecord-00001-of-00004 has 1.0 kB, but the cap of the cache at .* "
        r"is 999 B: set SHARDWRIGHT_CACHE_BYTES \(cache_bytes=\) to at least 1000"
    )
    shards = (
        r"shuffling needs 4 shards of up to 1.0 kB at a time, 4.0 kB together, .* to at least 4000"
    )
    with ShardCache.open(behind(root, s3_proxy), at(tmp_path, SIZE - 1)) as cache:
        with pytest.raises(UsageError, match=shard):
            cache.open_shard(NAMES[1])
        with pytest.raises(UsageError, match=shards):
            cache.shards_ahead(NAMES, 4, "shuffling")
    assert "tfrecord" not in str(s3_proxy.requests)


@pytest.mark.parametrize(
    ("max_bytes", "ahead"), [(SIZE, 0), (2 * SIZE - 1, 0), (3 * SIZE, 2), (10**9, 8)]
)
def test_shards_ahead(root: Folder, tmp_path: Path, max_bytes: int, ahead: int) -> None:
    assert ShardCache.open(root, at(tmp_path, max_bytes)).shards_ahead(NAMES, 1, "reading") == ahead


def test_prefetch_downloads_in_the_background_and_open_shard_raises_what_failed(
    s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    others = set(threading.enumerate())
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    delete_object(s3_server, root.path(NAMES[3].shard))

    def requests() -> int:
        return sum("tfrecord-00003" not in target for _, target in s3_proxy.requests)

    with ShardCache.open(behind(root, s3_proxy), at(tmp_path / "cache")) as cache:
        cache.prefetch(NAMES)
        noise.wait_until(lambda: noise.shards_in(tmp_path / "cache") == [0, 1, 2])
        before = requests()
        cache.prefetch(NAMES[:2])
        touch(cache, 0, 1, 2)
        assert requests() == before
        message = "tfrecord-00003-of-00004 is in the manifest, but missing from the store"
        with pytest.raises(MissingError, match=message):
            cache.open_shard(NAMES[3])
    threads = set(threading.enumerate()) - others
    assert [thread.name for thread in threads if "shardwright-cache" in thread.name] == []


def test_prefetch_neither_waits_nor_evicts_what_is_open(
    root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("shardwright.cache.files.pause", pauses.append)
    with (
        ShardCache.open(root, at(tmp_path, 2 * SIZE)) as cache,
        cache.open_shard(NAMES[0]),
        cache.open_shard(NAMES[1]),
    ):
        cache.prefetch(NAMES[2:])
        noise.wait_for_downloads_ahead(cache)
        assert pauses == [], "open_shard waits for 30 seconds"
        assert noise.shards_in(tmp_path) == [0, 1]


def test_fewer_downloads_ahead_where_others_evict_them(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """As readers do that fill a cache together: else they download for each other's eviction."""
    with ShardCache.open(behind(root, s3_proxy), at(tmp_path)) as cache:

        def download_ahead(number: int) -> None:
            cache.prefetch([NAMES[number]])
            noise.wait_for_downloads_ahead(cache)

        def evict(number: int) -> None:
            next(tmp_path.rglob(NAMES[number].shard)).unlink()

        found = [cache.most_ahead]
        for number in (0, 1, 2, 3, 0):
            download_ahead(number)
            assert noise.shards_in(tmp_path) == [number]
            evict(number)
            touch(cache, number)
            evict(number)
            found.append(cache.most_ahead)
        assert found == [8, 4, 2, 1, 1, 1]
        download_ahead(1)
        touch(cache, 1)
        assert cache.most_ahead == 2
        download_ahead(2)
        evict(2)
        before = len(downloads(s3_proxy))
        download_ahead(2)
        assert cache.most_ahead == 1
        assert len(downloads(s3_proxy)) == before


def test_ending_with_downloads_ahead(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    s3_proxy.add(Fault("latency", None, method="GET", path_contains="tfrecord", latency_msec=200))
    code = "cache.prefetch(names * 50); say('going')"
    reader = noise.start_reader(behind(root, s3_proxy), at(tmp_path), code)
    assert reader.line() == "going"
    assert reader.finish() == ""
    assert len(downloads(s3_proxy)) <= 4


@pytest.mark.parametrize("end", ["", "cache.close(); import os; os._exit(0)"])
def test_ending_while_the_store_fails(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path, end: str
) -> None:
    s3_proxy.add(Fault("status", None, status=503, path_contains="tfrecord"))
    remote = behind(root, s3_proxy, deadline="1000")
    code = f"cache.prefetch(names); say('going'); sys.stdin.readline(); {end}"
    reader = noise.start_reader(remote, at(tmp_path), code)
    assert reader.line() == "going"
    noise.wait_until(lambda: len(s3_proxy.requests) > 9)
    assert reader.finish() == "", "long before the deadline"


def test_a_rebuilt_dataset_never_mixes_with_the_old(s3_server: StoreServer, tmp_path: Path) -> None:
    def original(build: str, number: int) -> bytes:
        return (tmp_path / build / NAMES[number].shard).read_bytes()

    settings = at(tmp_path / "cache", 6 * SIZE)
    old = put_dataset(s3_server, tmp_path / "old", [SIZE] * 4)
    with ShardCache.open(old, settings) as cache:
        touch(cache, 0, 1, 2, 3)
    new = put_dataset(s3_server, tmp_path / "new", [SIZE] * 4, uri=old.uri, seed=1)
    with ShardCache.open(new, settings) as again, cache:
        for number in range(2):
            assert content(again, NAMES[number]) == original("new", number)
        assert noise.shards_in(tmp_path / "cache") == [0, 0, 1, 1, 2, 3]
        with cache.open_shard(NAMES[0]) as shard:  # a reader with the old manifest
            assert Path(shard.path).read_bytes() == original("old", 0)
            touch(again, 2, 3)
            assert noise.shards_in(tmp_path / "cache") == [0, 0, 1, 2, 3, 3]
            assert Path(shard.path).exists()
        touch(again, 0, 1, 2, 3)
        message = "has crc32c .*: if the dataset has been rebuilt, reopen it"
        with pytest.raises(StorageError, match=message):
            touch(cache, 1, 2, 3)


def test_a_local_dataset_needs_no_cache(tmp_path: Path) -> None:
    manifest = noise.write_dataset(tmp_path / "data", [10])
    message = "is a local folder, which needs no cache: read it where it is"
    with pytest.raises(UsageError, match=message):
        ShardCache(Folder(str(tmp_path / "data")), manifest, at(tmp_path / "cache"))


def test_a_shard_of_another_dataset_is_unknown(root: Folder, tmp_path: Path) -> None:
    message = r"s3://.* has no shard noise-train.tfrecord-00007-of-00004"
    with ShardCache.open(root, at(tmp_path)) as cache:
        asks: list[Callable[..., Any]] = [cache.open_shard, cache.index]
        for ask in (*asks, lambda name: cache.prefetch([name])):
            with pytest.raises(NotFoundError, match=message):
                ask(replace(NAMES[0], index=7))


def test_a_truncated_file_in_the_cache_is_downloaded_again(root: Folder, tmp_path: Path) -> None:
    with ShardCache.open(root, at(tmp_path)) as cache:
        with cache.open_shard(NAMES[0]) as shard:
            path = Path(shard.path)
        whole = path.read_bytes()
        for damaged in (whole[:-1], b""):
            path.write_bytes(damaged)
            assert content(cache, NAMES[0]) == whole


def test_many_threads_share_one_cache(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    with (
        ShardCache.open(behind(root, s3_proxy), at(tmp_path, 10 * SIZE)) as cache,
        ThreadPoolExecutor(8) as pool,
    ):

        def read(number: int) -> int:
            with cache.open_shard(NAMES[number % 4]) as shard:
                return os.stat(shard.path).st_size

        assert set(pool.map(read, range(64))) == {SIZE}
    assert len(downloads(s3_proxy)) == 4


def test_a_shard_that_another_process_has_just_downloaded_is_shared(
    root: Folder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both found it missing; the other one got the lock first, and reads its shard for minutes."""
    monkeypatch.setattr("shardwright.cache.locks._SAY_AFTER_SECONDS", 0)
    with ShardCache.open(root, at(tmp_path)) as cache, ThreadPoolExecutor(1) as pool:
        with cache.open_shard(NAMES[0]) as shard:
            path, aside = Path(shard.path), tmp_path / "aside"
        path.rename(aside)
        other = FileLock(f"{path}{LOCK}")
        other.acquire(shared=True)
        coming = pool.submit(content, cache, NAMES[0])
        noise.wait_until(lambda: f"waiting for another process that holds {path}" in caplog.text)
        assert not coming.done()
        aside.rename(path)
        # The other one still has its lock: whoever waits for it waits for ever.
        assert coming.result(timeout=60) == path.read_bytes()
        other.release()
