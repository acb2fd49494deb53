"""`ShardCache`: what several readers of datasets in stores see of it."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.cache import ShardCache
from shardwright.cache.files import NoRoomError
from shardwright.errors import (
    MissingError,
    StorageError,
    UsageError,
)
from shardwright.index import INDEX_SCHEMA, read_index
from shardwright.storage import Folder
from tests.cached_datasets import (
    NAMES,
    SIZE,
    at,
    behind,
    finish,
    line_of,
    names_of,
    put_dataset,
    shards_in,
    start_reader,
    touch,
    wait_until,
    write_dataset,
)
from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import delete_object, get_object, list_keys, put_object, upload_folder
from tests.servers.store_server import StoreServer


@pytest.fixture(scope="module")
def root(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of four shards of 1,000 bytes; not to be changed."""
    return put_dataset(s3_server, tmp_path_factory.mktemp("noise"), [SIZE] * 4)


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy


def asked_for(proxy: FaultProxy, text: str = "tfrecord") -> int:
    return len([target for _, target in proxy.requests if text in target])


@pytest.mark.parametrize("server_name", ["s3_server", "moto_server", "gcs_server"])
def test_gives_what_the_store_has_and_keeps_it(
    request: pytest.FixtureRequest, server_name: str, tmp_path: Path
) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    root = put_dataset(server, tmp_path / "data", [SIZE, 0, 20])
    names = names_of(3)
    with FaultProxy(server.endpoint) as proxy:
        for _ in range(2):
            with ShardCache.open(behind(root, proxy.endpoint), at(tmp_path / "cache")) as cache:
                for name in names:
                    with cache.open_shard(name) as shard:
                        assert (
                            Path(shard.path).read_bytes()
                            == (tmp_path / "data" / name.shard).read_bytes()
                        )
        gets = [
            target for method, target in proxy.requests if method == "GET" and "tfrecord" in target
        ]
        assert len(gets) == 2  # the one that is empty takes no request for its bytes


def test_over_plain_https_style_addresses(moto_server: StoreServer, tmp_path: Path) -> None:
    root = put_dataset(moto_server, tmp_path / "data", [SIZE] * 4)
    server = moto_server.s3_client()
    bucket = root.uri.split("/")[2]
    server.put_bucket_acl(Bucket=bucket, ACL="public-read")
    for key in list_keys(moto_server, f"s3://{bucket}/"):
        server.put_object_acl(Bucket=bucket, Key=key, ACL="public-read")
    web = Folder.at(f"{moto_server.endpoint}/{bucket}/data/noise")
    with ShardCache.open(web, at(tmp_path / "cache")) as cache, cache.open_shard(NAMES[2]) as shard:
        assert Path(shard.path).read_bytes() == (tmp_path / "data" / NAMES[2].shard).read_bytes()


def test_evicts_what_was_opened_longest_ago(root: Folder, tmp_path: Path) -> None:
    with ShardCache.open(root, at(tmp_path, 3 * SIZE)) as cache:
        touch(cache, 0, 1, 2, 0, 3)
        assert shards_in(tmp_path) == [0, 2, 3]
        touch(cache, 1)
        assert shards_in(tmp_path) == [0, 1, 3]


def test_evicts_with_its_index_what_is_expected_last(root: Folder, tmp_path: Path) -> None:
    seconds: dict[int, float | None] = {0: 5.0, 1: 2000.0, 2: None, 3: 1.0}
    with ShardCache.open(root, at(tmp_path)) as cache:
        for name in NAMES[:3]:
            cache.index(name)
    index_bytes = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    with ShardCache.open(root, at(tmp_path, 3 * SIZE + index_bytes)) as cache:
        touch(cache, 2, 0, 1)
        cache.expect(lambda name: seconds[name.index])
        touch(cache, 3)
        assert shards_in(tmp_path) == [0, 2, 3]
        cache.expect(lambda name: None if name.index == 3 else 3600.0 * name.index)
        cache.index(NAMES[3])
        assert shards_in(tmp_path) == [0, 3]
        assert {path.name[6:11] for path in tmp_path.rglob("*.parquet")} == {
            "00000",
            "00001",
            "00003",
        }


def test_never_evicts_what_a_process_has_open(root: Folder, tmp_path: Path) -> None:
    code = "shard = cache.open_shard(names[0]); say(shard.path); sys.stdin.read()"
    reader = start_reader(root, at(tmp_path, 2 * SIZE), code)
    path = Path(line_of(reader))
    with ShardCache.open(root, at(tmp_path, 2 * SIZE)) as cache:
        touch(cache, 1, 2, 3, 1)
        assert shards_in(tmp_path) == [0, 1]
        assert path.stat().st_size == SIZE
        finish(reader)
        touch(cache, 2, 3)
        assert shards_in(tmp_path) == [2, 3]


def test_a_killed_reader_holds_nothing(root: Folder, tmp_path: Path) -> None:
    reader = start_reader(
        root,
        at(tmp_path, SIZE),
        "shard = cache.open_shard(names[0]); say('open'); sys.stdin.read()",
    )
    line_of(reader)
    os.kill(reader.pid, signal.SIGKILL)
    reader.communicate()
    with ShardCache.open(root, at(tmp_path, SIZE)) as cache:
        touch(cache, 1)
    assert shards_in(tmp_path) == [1]


def test_waits_for_room_and_says_when_there_is_none(
    root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardwright.cache.files.ROOM_SECONDS", 0.3)
    with ShardCache.open(root, at(tmp_path, 2 * SIZE + 500)) as cache:
        with (
            cache.open_shard(NAMES[0]),
            cache.open_shard(NAMES[1]),
            pytest.raises(NoRoomError) as caught,
        ):
            cache.open_shard(NAMES[2])
        assert "no room for noise-train.tfrecord-00002-of-00004 (1.0 kB)" in str(caught.value)
        assert "in use, 500 B too much for its 2.5 kB: raise SHARDWRIGHT_CACHE_BYTES" in str(
            caught.value
        )
        touch(cache, 2)


def test_a_shard_larger_than_the_cap_is_refused_before_it_is_asked_for(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    message = (
        r"s3://.*/noise-train.tfrecord-00001-of-00004 has 1.0 kB, and the cache at .* may hold 999 B: "
        r"set SHARDWRIGHT_CACHE_BYTES \(cache_bytes=\) to 1000 or more"
    )
    with ShardCache.open(behind(root, proxy.endpoint), at(tmp_path, SIZE - 1)) as cache:
        with pytest.raises(UsageError, match=message):
            cache.open_shard(NAMES[1])
        with pytest.raises(
            UsageError,
            match=r"shuffling needs 4 shards of up to 1.0 kB at a time, 4.0 kB together, .* to 4000 or more",
        ):
            cache.shards_ahead(NAMES, 4, "shuffling")
    assert asked_for(proxy) == 0


@pytest.mark.parametrize(
    ("max_bytes", "ahead"), [(SIZE, 0), (2 * SIZE - 1, 0), (3 * SIZE, 2), (10**9, 8)]
)
def test_how_many_go_ahead(root: Folder, tmp_path: Path, max_bytes: int, ahead: int) -> None:
    assert ShardCache.open(root, at(tmp_path, max_bytes)).shards_ahead(NAMES, 1, "reading") == ahead


def test_prefetch_brings_shards_in_the_background_and_what_fails_is_told_on_opening(
    s3_server: StoreServer, proxy: FaultProxy, tmp_path: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    delete_object(s3_server, root.path(NAMES[3].shard))
    with ShardCache.open(behind(root, proxy.endpoint), at(tmp_path / "cache")) as cache:
        cache.prefetch(NAMES)
        wait_until(lambda: shards_in(tmp_path / "cache") == [0, 1, 2])
        before = asked_for(proxy, "tfrecord-00000") + asked_for(proxy, "tfrecord-00001")
        cache.prefetch(NAMES[:2])
        touch(cache, 0, 1, 2)
        assert asked_for(proxy, "tfrecord-00000") + asked_for(proxy, "tfrecord-00001") == before
        with pytest.raises(
            MissingError, match=r"tfrecord-00003-of-00004 is missing, and the manifest names it"
        ):
            cache.open_shard(NAMES[3])


def test_prefetch_waits_for_no_room_and_evicts_nothing_that_is_open(
    root: Folder, tmp_path: Path
) -> None:
    with (
        ShardCache.open(root, at(tmp_path, 2 * SIZE)) as cache,
        cache.open_shard(NAMES[0]),
        cache.open_shard(NAMES[1]),
    ):
        started = time.monotonic()
        cache.prefetch(NAMES[2:])
        cache.close()
        assert time.monotonic() - started < 5
        assert shards_in(tmp_path) == [0, 1]


def test_a_process_that_ends_does_not_wait_for_what_was_to_come(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.add(Fault("latency", None, method="GET", path_contains="tfrecord", latency_msec=500))
    reader = start_reader(
        behind(root, proxy.endpoint), at(tmp_path), "cache.prefetch(names * 50); say('going')"
    )
    line_of(reader)
    started = time.monotonic()
    finish(reader)
    assert time.monotonic() - started < 4


def test_a_rebuilt_dataset_never_mixes_with_the_old_one(
    s3_server: StoreServer, tmp_path: Path
) -> None:
    old = put_dataset(s3_server, tmp_path / "old", [SIZE] * 4)
    with ShardCache.open(old, at(tmp_path / "cache", 6 * SIZE)) as cache:
        touch(cache, 0, 1, 2, 3)
    new = put_dataset(s3_server, tmp_path / "new", [SIZE] * 4, uri=old.uri, seed=1)
    with ShardCache.open(new, at(tmp_path / "cache", 6 * SIZE)) as again, cache:
        for name in NAMES[:2]:
            with again.open_shard(name) as shard:
                assert Path(shard.path).read_bytes() == (tmp_path / "new" / name.shard).read_bytes()
        assert shards_in(tmp_path / "cache") == [0, 0, 1, 1, 2, 3]
        with cache.open_shard(
            NAMES[0]
        ) as shard:  # who has the old manifest still gets what it states
            assert Path(shard.path).read_bytes() == (tmp_path / "old" / NAMES[0].shard).read_bytes()
            touch(again, 2, 3)
            assert shards_in(tmp_path / "cache") == [0, 0, 1, 2, 3, 3]
            assert Path(shard.path).exists()
        touch(again, 0, 1, 2, 3)
        with pytest.raises(
            StorageError,
            match=r"has crc32c .*: if the dataset was built again meanwhile, open it again",
        ):
            touch(cache, 1, 2, 3)


def test_indexes_are_kept_and_are_those_of_the_manifest(
    s3_server: StoreServer, proxy: FaultProxy, tmp_path: Path, zoo: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [10])
    upload_folder(s3_server, zoo, f"{root.uri}/zoo")
    remote = behind(Folder(f"{root.uri}/zoo", root.options), proxy.endpoint)
    with ShardCache.open(remote, at(tmp_path / "cache")) as cache:
        name = cache.manifest.shard_names("train")[1]
        for columns in (None, ["id", "offset"], None):
            assert cache.index(name, columns).equals(read_index(Folder(str(zoo)), name, columns))
        assert asked_for(proxy, "index") == 1
        [kept] = (tmp_path / "cache").rglob("train-00001-*.parquet")
        for damage in (
            b"",
            kept.read_bytes()[:100],
            bytes([kept.read_bytes()[60] ^ 255]).join(
                [kept.read_bytes()[:60], kept.read_bytes()[61:]]
            ),
        ):
            kept.write_bytes(damage)
            assert cache.index(name).equals(read_index(Folder(str(zoo)), name))
        assert asked_for(proxy, "index") == 4
        assert cache.index(name).schema.equals(INDEX_SCHEMA)


def test_an_index_of_another_shard_or_none_is_told(s3_server: StoreServer, tmp_path: Path) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    put_object(
        s3_server, root.path(NAMES[0].sidecar), get_object(s3_server, root.path(NAMES[1].sidecar))
    )
    put_object(s3_server, root.path(NAMES[1].sidecar), b"PAR1")
    delete_object(s3_server, root.path(NAMES[2].sidecar))
    with ShardCache.open(root, at(tmp_path / "cache")) as cache:
        for index, fault in enumerate(("is not the index of the shard", "cannot be read")):
            with pytest.raises(
                StorageError, match=rf"index/train-0000{index}-of-00004.parquet {fault}"
            ):
                cache.index(NAMES[index])
        with pytest.raises(
            MissingError,
            match=r"s3://.*/index/train-00002-of-00004.parquet is missing: the index of noise-train",
        ):
            cache.index(NAMES[2])
        assert list((tmp_path / "cache").rglob("*.parquet")) == []


def test_an_index_is_given_where_there_is_no_room_to_keep_it(root: Folder, tmp_path: Path) -> None:
    with ShardCache.open(root, at(tmp_path, SIZE)) as cache, cache.open_shard(NAMES[0]):
        started = time.monotonic()
        assert cache.index(NAMES[0]).num_columns == len(INDEX_SCHEMA)
        assert time.monotonic() - started < 10  # of the 30 seconds that a shard would be waited for
        assert list(tmp_path.rglob("*.parquet")) == []


def test_indexes_make_room_like_shards(root: Folder, tmp_path: Path) -> None:
    with ShardCache.open(root, at(tmp_path, 8 * SIZE)) as cache:
        for _ in range(3):
            for name in NAMES:
                cache.index(name)
                cache.open_shard(name).close()
                counted = sum(
                    path.stat().st_size
                    for path in tmp_path.rglob("*-of-*")
                    if path.suffix != ".lock"
                )
                assert counted <= 8 * SIZE
                assert at(tmp_path, 8 * SIZE).open().num_bytes() == counted


def test_a_local_dataset_needs_no_cache(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "data", [10])
    with pytest.raises(
        UsageError, match=r"is a local folder, which needs no cache: read it where it is"
    ):
        ShardCache(Folder(str(tmp_path / "data")), manifest, at(tmp_path / "cache"))


def test_a_damaged_or_cut_file_in_the_cache_is_downloaded_again(
    root: Folder, tmp_path: Path
) -> None:
    with ShardCache.open(root, at(tmp_path)) as cache:
        with cache.open_shard(NAMES[0]) as shard:
            path = Path(shard.path)
        whole = path.read_bytes()
        for damaged in (whole[:-1], b""):
            path.write_bytes(damaged)
            with cache.open_shard(NAMES[0]) as shard:
                assert Path(shard.path).read_bytes() == whole


def test_many_threads_share_one_cache(root: Folder, proxy: FaultProxy, tmp_path: Path) -> None:
    remote = behind(root, proxy.endpoint)
    with (
        ShardCache.open(remote, at(tmp_path, 10 * SIZE)) as cache,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):

        def read(number: int) -> int:
            with cache.open_shard(NAMES[number % 4]) as shard:
                return os.stat(shard.path).st_size

        assert set(pool.map(read, range(64))) == {SIZE}
    assert (
        len(
            [
                target
                for method, target in proxy.requests
                if method == "GET" and "tfrecord" in target
            ]
        )
        == 4
    )
