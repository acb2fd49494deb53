"""`shardwright.load` from stores: the order of a local folder, through a bounded cache."""

from __future__ import annotations

import functools
import gc
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.cache.files import LOCK
from shardwright.cache.locks import FileLock
from shardwright.errors import NotADatasetError, UsageError
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import behind, put_folder, shards_in, wait_until
from tests.support.object_stores import delete_object, put_object
from tests.support.small_datasets import build, write_flat_folder

NUM_IMAGES, NUM_SHARDS = 380, 20
RAW: dict[str, Any] = {"decode": False}


@dataclass
class Both:
    """A dataset in a local folder and in S3: 20 shards of 19 records.

    So many shards are not read at a time, and each is longer than a block.
    """

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
    images = write_flat_folder(folder / "in", NUM_IMAGES)
    local = build(images, folder / "out", "--shard-count", str(NUM_SHARDS))
    return Both(local, put_folder(s3_server, local))


def ids_of(dataset: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in dataset.as_numpy_iterator()]


def shard_bytes(cache: Path) -> int:
    """Return the bytes of a cache's shards, with the full length of downloads under way."""
    sizes = []
    for path in cache.rglob("*.tfrecord-*"):
        if path.suffix not in (LOCK, ".parts"):
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:  # it has just got its final name, or been evicted
                continue
    return sum(sizes)


def is_pinned(cache: Path) -> bool:
    """Return if any shard is open."""
    for path in cache.rglob(f"*{LOCK}"):
        lock = FileLock(str(path))
        if not lock.acquire(shared=False, wait=False):
            return True
        lock.release()
    return False


@functools.cache
def local_epochs(local: str, seed: int) -> list[list[str]]:
    """Return the ids of three epochs in a row, read once for all caches."""
    dataset = sw.load(local, shuffle=True, seed=seed, window=16, **RAW)
    return [ids_of(dataset) for _ in range(3)]


@pytest.mark.long
@pytest.mark.parametrize("shuffle", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_process_may_first_read_a_store(both: Both, tmp_path: Path, shuffle: bool) -> None:
    """Objects made once per process are not made inside of a pipeline."""
    code = (
        "import json, sys, shardwright as sw\n"
        "uri, options = json.loads(sys.argv[1])\n"
        "print(sum(1 for _ in sw.load(uri, **options)))\n"
    )
    storage = {key: value for _, key, value in both.root.options.settings}
    options = {"storage_options": storage, "cache": str(tmp_path), "shuffle": shuffle, **RAW}
    command = [sys.executable, "-c", code, json.dumps([both.root.uri, options])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert run.stdout.strip() == str(NUM_IMAGES), run.stderr


@pytest.mark.long
@pytest.mark.parametrize(("seed", "shards_in_cache"), [(0, 16), (7, 17), (0, 100)])
def test_shuffles_like_local(both: Both, tmp_path: Path, seed: int, shards_in_cache: int) -> None:
    room = shards_in_cache * both.largest
    remote = both.load(shuffle=True, seed=seed, cache=tmp_path, cache_bytes=room, **RAW)
    for ids in local_epochs(both.local, seed):
        assert ids_of(remote) == ids
        assert len(set(ids)) == NUM_IMAGES


@pytest.mark.long
@pytest.mark.parametrize("shards_in_cache", [1, 2, 100])
def test_reads_in_order_like_local(both: Both, tmp_path: Path, shards_in_cache: int) -> None:
    room = shards_in_cache * both.largest
    remote = both.load(cache=tmp_path, cache_bytes=room, **RAW)
    assert remote.cardinality() == NUM_IMAGES
    assert ids_of(remote) == ids_of(remote) == ids_of(sw.load(both.local, **RAW))
    assert shard_bytes(tmp_path) <= room


@pytest.mark.long
def test_from_google_too(both: Both, gcs_server: StoreServer, tmp_path: Path) -> None:
    root = put_folder(gcs_server, both.local)
    options: dict[str, Any] = {"shuffle": True, "batch_size": 50}
    remote = sw.load(root.uri, storage_options=root.options, cache=tmp_path, **options)
    local = sw.load(both.local, window=16, **options)
    for there, here in zip(remote, local, strict=True):
        assert all(bool(tf.reduce_all(there[name] == here[name])) for name in ("image", "id"))


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments", [{"shuffle": True, "seed": 3}, {}], ids=["shuffled", "in order"]
)
def test_repeats_in_a_small_cache(both: Both, tmp_path: Path, arguments: dict[str, Any]) -> None:
    room = 17 * both.largest
    options = {**arguments, "repeat": True, "batch_size": 50, "features": ["id"]}
    local = sw.load(both.local, **options, **({"window": 16} if arguments else {}))
    remote = both.load(**options, cache=tmp_path, cache_bytes=room)
    for there, here in zip(remote.take(19), local.take(19), strict=True):
        assert there["id"].numpy().tolist() == here["id"].numpy().tolist()
        assert shard_bytes(tmp_path) <= room
    gc.collect()
    wait_until(lambda: not is_pinned(tmp_path))


@pytest.mark.long
def test_a_shard_is_pinned_while_its_iterator_lives(both: Both, tmp_path: Path) -> None:
    iterator = iter(both.load(cache=tmp_path))
    next(iterator)
    assert is_pinned(tmp_path)
    del iterator
    gc.collect()
    wait_until(lambda: not is_pinned(tmp_path))
    for _ in both.load(cache=tmp_path, decode=False, batch_size=30):
        break
    gc.collect()
    wait_until(lambda: not is_pinned(tmp_path))


def test_downloads_ahead_within_its_room(both: Both, tmp_path: Path) -> None:
    folder = tmp_path / "roomy"
    roomy = iter(both.load(cache=folder, cache_bytes=100 * both.largest, **RAW))
    next(roomy)
    # At least: pipelines of machines with many cores read into the next shard.
    wait_until(lambda: set(range(9)) <= set(shards_in(folder)))
    folder, room = tmp_path / "tight", 4 * both.largest
    for number, _ in enumerate(both.load(cache=folder, cache_bytes=room, **RAW)):
        assert shard_bytes(folder) <= room
        if number == 0:
            wait_until(lambda: 1 in shards_in(folder))
    assert number == NUM_IMAGES - 1


@pytest.mark.long
@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_download_only_their_shards(both: Both, tmp_path: Path, shuffle: bool) -> None:
    options = {"split": "train[40:70]+train[300:]", "shuffle": shuffle, "keep": "records", **RAW}
    remote, ids = both.load(**options, cache=tmp_path), ids_of(sw.load(both.local, **options))
    assert remote.cardinality() == len(ids) == 30 + 80
    assert ids_of(remote) == ids
    part = {"split": "train[40:70]", **RAW}
    assert ids_of(both.load(**part, cache=tmp_path)) == ids_of(sw.load(both.local, **part))
    assert shards_in(tmp_path) == [2, 3, 15, 16, 17, 18, 19]


@pytest.mark.long
def test_requests_little_at_first(both: Both, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    remote = behind(both.root, s3_proxy)
    dataset = sw.load(remote.uri, shuffle=True, storage_options=remote.options, cache=tmp_path)
    versions, manifest = (target for _, target in s3_proxy.requests)
    assert "list-type=2" in versions, "there is no second version"
    assert manifest.endswith("/manifest.json")
    for _ in range(2):
        ids_of(dataset)
        # The same two; of each shard its index and its content.
        assert s3_proxy.num_requests == 2 + 2 * NUM_SHARDS


def no_later_shard_follows(iterator: Any) -> None:
    """Ignore the error of a shard, as `ignore_errors` does."""
    with pytest.raises(tf.errors.OpError, match="missing from the store"):
        list(iterator)
    with pytest.raises((StopIteration, tf.errors.FailedPreconditionError)):
        next(iterator)


@pytest.mark.long
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_missing_shard_is_an_error_with_its_name_and_a_fix(
    both: Both, s3_server: StoreServer, tmp_path: Path, shuffle: bool
) -> None:
    root = put_folder(s3_server, both.local)
    [lost] = Path(both.local).glob("out-train.tfrecord-00003-*")
    dataset = sw.load(
        root.uri, shuffle=shuffle, storage_options=root.options, cache=tmp_path, **RAW
    )
    delete_object(s3_server, root.path(lost.name))
    message = "is in the manifest, but missing from the store: if the dataset has been"
    with pytest.raises(tf.errors.OpError, match=f"{root.path(lost.name)} {message}"):
        ids_of(dataset)
    if not shuffle:
        no_later_shard_follows(iter(dataset))
    put_object(s3_server, root.path(lost.name), lost.read_bytes())
    assert len(ids_of(dataset)) == NUM_IMAGES


def test_a_wrong_cap_or_address_is_an_error_at_once(both: Both, tmp_path: Path) -> None:
    needed = 16 * both.largest
    message = (
        rf"reading needs 16 shards of up to .* at a time, .* together, but the cap of the cache at "
        rf"{tmp_path} is .* to at least {needed}"
    )
    with pytest.raises(UsageError, match=message):
        both.load(shuffle=True, cache=tmp_path, cache_bytes=needed - 1)
    with pytest.raises(UsageError, match=r"reading needs 1 shard of up to"):
        both.load(cache=tmp_path, cache_bytes="100")
    uri = both.root.path("none")
    with pytest.raises(NotADatasetError, match=f"{uri} is not a shardwright dataset"):
        sw.load(uri, storage_options=both.root.options, cache=tmp_path)
    both.load(shuffle=True, cache=tmp_path, cache_bytes=needed)


def test_environment(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SHARDWRIGHT_CACHE_BYTES", str(2 * both.largest))
    sw.load(both.local)
    assert not (tmp_path / "cache").exists()
    assert len(ids_of(both.load(**RAW))) == NUM_IMAGES
    assert 1 <= len(shards_in(tmp_path / "cache")) <= 2
