"""`shardwright.load` of datasets in stores: the same records in the same order as from a local folder, through a bounded cache."""

from __future__ import annotations

import functools
import gc
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.cache.eviction import LOCK
from shardwright.cache.locks import FileLock
from shardwright.errors import NotADatasetError, UsageError
from shardwright.naming import ShardName
from shardwright.storage import Folder, StorageOptions
from tests.cached_datasets import behind, wait_until
from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import delete_object, new_bucket, put_object, upload_folder
from tests.servers.store_server import StoreServer
from tests.small_datasets import build, write_flat_folder

NUM_IMAGES, NUM_SHARDS = 380, 20


@dataclass
class Both:
    """A dataset of 20 shards of 19 records, more than are read at a time and longer than a block, at home and in S3."""

    local: str
    root: Folder

    @property
    def largest(self) -> int:
        return max(shard.num_bytes for shard in sw.open(self.local).splits["train"].shards)

    def load(self, **arguments: Any) -> tf.data.Dataset:
        return sw.load(self.root.uri, storage_options=self.root.options, **arguments)


@pytest.fixture(scope="module")
def both(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("both")
    local = build(
        write_flat_folder(folder / "in", NUM_IMAGES),
        folder / "out",
        "--shard-count",
        str(NUM_SHARDS),
    )
    uri = f"s3://{new_bucket(s3_server)}/out"
    upload_folder(s3_server, Path(local), uri)
    return Both(local, Folder.at(uri, StorageOptions.of(dict(s3_server.options))))


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy


def ids_of(dataset: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in dataset.as_numpy_iterator()]


def shard_bytes(cache: Path) -> int:
    """What the cache holds, downloads under way at their full length."""
    sizes = []
    for path in cache.rglob("*.tfrecord-*"):
        if path.suffix not in (LOCK, ".parts"):
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:  # it has just got its final name, or gone
                continue
    return sum(sizes)


def whole_shards(cache: Path) -> list[int]:
    found = (ShardName.parse(path.name) for path in cache.rglob("*.tfrecord-*"))
    return sorted(name.index for name in found if name)


def is_held(cache: Path) -> bool:
    """Whether somebody has a shard open."""
    for path in cache.rglob(f"*{LOCK}"):
        lock = FileLock(str(path))
        if not lock.acquire(shared=False, wait=False):
            return True
        lock.release()
    return False


@functools.cache
def epochs_at_home(local: str, seed: int) -> list[list[str]]:
    """The ids of three epochs in a row, read once for all caches."""
    home = sw.load(local, shuffle=True, seed=seed, decode=False, window=16)
    return [ids_of(home) for _ in range(3)]


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True, "seed": 0}], ids=["in order", "shuffled"]
)
def test_the_first_reading_of_a_process_may_be_remote(
    both: Both, tmp_path: Path, options: dict[str, Any]
) -> None:
    """What is made once a process is not made inside of a pipeline."""
    code = (
        "import json, sys, shardwright as sw\n"
        "uri, storage, cache, options = json.loads(sys.argv[1])\n"
        "examples = sw.load(uri, storage_options=storage, cache=cache, decode=False, **options)\n"
        "print(sum(1 for _ in examples))\n"
    )
    given = json.dumps(
        [
            both.root.uri,
            {key: value for _, key, value in both.root.options.settings},
            str(tmp_path),
            options,
        ]
    )
    run = subprocess.run(
        [sys.executable, "-c", code, given],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout.strip() == str(NUM_IMAGES), run.stderr


@pytest.mark.parametrize("shards_in_cache", [16, 17, 100])
@pytest.mark.parametrize("seed", [0, 7])
def test_shuffles_as_at_home(both: Both, tmp_path: Path, seed: int, shards_in_cache: int) -> None:
    home = epochs_at_home(both.local, seed)
    away = both.load(
        shuffle=True,
        seed=seed,
        decode=False,
        cache=tmp_path,
        cache_bytes=shards_in_cache * both.largest,
    )

    for ids in home:
        assert ids_of(away) == ids
        assert len(set(ids)) == NUM_IMAGES


@pytest.mark.parametrize("shards_in_cache", [1, 2, 100])
def test_reads_in_order_as_at_home(both: Both, tmp_path: Path, shards_in_cache: int) -> None:
    away = both.load(decode=False, cache=tmp_path, cache_bytes=shards_in_cache * both.largest)

    assert away.cardinality() == NUM_IMAGES
    assert ids_of(away) == ids_of(away) == ids_of(sw.load(both.local, decode=False))
    assert shard_bytes(tmp_path) <= shards_in_cache * both.largest


def test_unseeded_gives_every_record_once(both: Both, tmp_path: Path) -> None:
    assert sorted(ids_of(both.load(shuffle=True, seed=None, cache=tmp_path))) == sorted(
        ids_of(sw.load(both.local))
    )


def test_from_google_too(both: Both, gcs_server: StoreServer, tmp_path: Path) -> None:
    uri = f"gs://{new_bucket(gcs_server)}/out"
    upload_folder(gcs_server, Path(both.local), uri)
    away = sw.load(
        uri, shuffle=True, storage_options=gcs_server.options, cache=tmp_path, batch_size=50
    )
    home = sw.load(both.local, shuffle=True, batch_size=50, window=16)

    for there, here in zip(away, home, strict=True):
        assert all(bool(tf.reduce_all(there[name] == here[name])) for name in ("image", "id"))


@pytest.mark.parametrize(
    "arguments", [{"shuffle": True, "seed": 3}, {}], ids=["shuffled", "in order"]
)
def test_repeats_through_a_cache_smaller_than_the_dataset(
    both: Both, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    cap = 17 * both.largest
    options = {**arguments, "repeat": True, "batch_size": 50, "features": ["id"]}
    home = sw.load(both.local, **options, **({"window": 16} if "shuffle" in options else {}))
    away = both.load(**options, cache=tmp_path, cache_bytes=cap)

    for there, here in zip(away.take(19), home.take(19), strict=True):
        assert there["id"].numpy().tolist() == here["id"].numpy().tolist()
        assert shard_bytes(tmp_path) <= cap
    gc.collect()
    wait_until(lambda: not is_held(tmp_path))


def test_a_shard_is_held_while_it_is_read_and_let_go_with_the_iterator(
    both: Both, tmp_path: Path
) -> None:
    iterator = iter(both.load(cache=tmp_path))
    next(iterator)
    assert is_held(tmp_path)
    del iterator
    gc.collect()
    wait_until(lambda: not is_held(tmp_path))
    for _ in both.load(cache=tmp_path, decode=False, batch_size=30):
        break
    gc.collect()
    wait_until(lambda: not is_held(tmp_path))


def test_downloads_ahead_and_keeps_to_its_room(both: Both, tmp_path: Path) -> None:
    roomy = iter(both.load(decode=False, cache=tmp_path / "roomy", cache_bytes=100 * both.largest))
    next(roomy)
    wait_until(lambda: whole_shards(tmp_path / "roomy") == list(range(9)))
    tight = iter(both.load(decode=False, cache=tmp_path / "tight", cache_bytes=4 * both.largest))
    for number, _ in enumerate(tight):
        assert shard_bytes(tmp_path / "tight") <= 4 * both.largest
        if number == 0:
            wait_until(lambda: whole_shards(tmp_path / "tight") == [0, 1])
    assert number == NUM_IMAGES - 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_of_splits_and_records_by_number(both: Both, tmp_path: Path, shuffle: bool) -> None:
    arguments = {
        "split": "train[40:70]+train[300:]",
        "decode": False,
        "shuffle": shuffle,
        "keep": "records",
    }
    home = sw.load(both.local, **arguments)
    away = both.load(**arguments, cache=tmp_path)

    ids = ids_of(home)
    assert away.cardinality() == len(ids) == 30 + 80
    assert ids_of(away) == ids
    assert ids_of(both.load(split="train[40:70]", decode=False, cache=tmp_path)) == ids_of(
        sw.load(both.local, "train[40:70]")
    )
    assert whole_shards(tmp_path) == [2, 3, 15, 16, 17, 18, 19]


def test_asks_for_nothing_but_the_manifest_before_it_is_read(
    both: Both, proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = behind(both.root, proxy.endpoint)
    dataset = sw.load(remote.uri, shuffle=True, storage_options=remote.options, cache=tmp_path)
    assert [target.rpartition("/")[2] for _, target in proxy.requests] == ["manifest.json"]
    ids_of(dataset)
    num_requests = proxy.num_requests
    ids_of(dataset)
    assert proxy.num_requests == num_requests
    assert (
        num_requests == 1 + 3 * NUM_SHARDS
    )  # the manifest; of each shard its index, what it is, and its content


def test_goes_on_offline_once_warm(
    both: Both, proxy: FaultProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remote = behind(both.root, proxy.endpoint)
    arguments: dict[str, Any] = {
        "storage_options": remote.options,
        "cache": tmp_path,
        "decode": False,
    }
    ids = ids_of(sw.load(remote.uri, **arguments))
    proxy.add(Fault("status", None))
    with caplog.at_level(logging.WARNING):
        assert ids_of(sw.load(remote.uri, **arguments)) == ids
    assert "going on offline with what the cache has of it" in caplog.text


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_shard_that_cannot_be_had_is_named_with_what_to_do(
    both: Both, s3_server: StoreServer, tmp_path: Path, shuffle: bool
) -> None:
    uri = f"s3://{new_bucket(s3_server)}/out"
    upload_folder(s3_server, Path(both.local), uri)
    [lost] = Path(both.local).glob("out-train.tfrecord-00003-*")
    dataset = sw.load(
        uri, shuffle=shuffle, storage_options=s3_server.options, cache=tmp_path, decode=False
    )
    delete_object(s3_server, f"{uri}/{lost.name}")
    with pytest.raises(
        tf.errors.OpError,
        match=rf"{uri}/{lost.name} is missing, and the manifest names it: if the dataset was built",
    ):
        ids_of(dataset)
    put_object(s3_server, f"{uri}/{lost.name}", lost.read_bytes())
    assert len(ids_of(dataset)) == NUM_IMAGES


def test_a_cap_that_holds_too_few_shards_is_refused_at_once(both: Both, tmp_path: Path) -> None:
    needed = 16 * both.largest
    message = rf"reading needs 16 shards of up to .* at a time, .* together, and the cache at {tmp_path} may hold .* to {needed} or more"
    with pytest.raises(UsageError, match=message):
        both.load(shuffle=True, cache=tmp_path, cache_bytes=needed - 1)
    with pytest.raises(UsageError, match=r"reading needs 1 shard of up to"):
        both.load(cache=tmp_path, cache_bytes="100")
    both.load(shuffle=True, cache=tmp_path, cache_bytes=needed)


def test_the_environment_says_where(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SHARDWRIGHT_CACHE_BYTES", str(2 * both.largest))
    sw.load(both.local)
    assert not (tmp_path / "cache").exists()
    assert len(ids_of(both.load(decode=False))) == NUM_IMAGES
    assert 1 <= len(whole_shards(tmp_path / "cache")) <= 2


def test_no_dataset(s3_server: StoreServer, tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError, match=r"s3://.*/none is not a shardwright dataset"):
        sw.load(
            f"s3://{new_bucket(s3_server)}/none", storage_options=s3_server.options, cache=tmp_path
        )
