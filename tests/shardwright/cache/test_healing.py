"""Damaged caches heal: a shard, a sidecar or a manifest in it is fetched again, once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.cache.shard_cache import ShardCache
from shardwright.errors import BadRecordError
from shardwright.storage.cancellation import CanceledError, cancelable
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import (
    NAMES,
    at,
    behind,
    content,
    downloads,
    put_folder,
)
from tests.support.damage import edit_bytes, first_shard
from tests.support.readers import ids_of

Damage = Callable[[Path], object]


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def damage_shard(path: Path) -> None:
    """Zero some bytes in every record."""
    edit_bytes(path, lambda data: data.__setitem__(slice(300, None, 50), bytes(len(data[300::50]))))


@pytest.mark.parametrize("damage", [as_folder, as_pipe, lambda path: os.truncate(path, 7)])
def test_a_replaced_shard_is_fetched_while_it_is_open(
    damage: Damage, root: Folder, tmp_path: Path
) -> None:
    with ShardCache.open(root, at(tmp_path)) as cache, cache.open_shard(NAMES[0]) as opened:
        damage(Path(opened.path))
        whole = root.read_bytes(NAMES[0].shard)
        threads = [threading.Thread(target=content, args=(cache, NAMES[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert content(cache, NAMES[0]) == whole
        for thread in threads:
            thread.join()
        assert not list(tmp_path.rglob("*.tmp"))


def test_a_canceled_healing_is_not_remembered(
    zoo: Path, s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Or a reader that goes on after an interrupt would report damage that can be healed."""
    canceled, name = threading.Event(), first_shard(zoo)
    with ShardCache.open(behind(put_folder(s3_server, zoo), s3_proxy), at(tmp_path)) as cache:
        whole = content(cache, name)
        [cached] = tmp_path.rglob(name.shard)
        damage_shard(cached)
        s3_proxy.add(Fault("status", None, path_contains="tfrecord"))
        canceled.set()
        with pytest.raises(CanceledError):
            cancelable(canceled, cache.heal, name)
        s3_proxy.clear()
        assert cache.heal(name)
        assert content(cache, name) == whole


@pytest.mark.parametrize("features", [["id", "image"], ["image", "label"]])
def test_a_flipped_byte_in_a_cached_shard(
    features: list[str], zoo: Path, s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = behind(put_folder(s3_server, zoo), s3_proxy)
    options = {"features": features, "global_batch_size": 4, "epochs": 1, "remainder": "keep"}

    def read() -> list[bytes]:
        with sw.Reader(
            remote.uri, storage_options=remote.options, cache=tmp_path, **options
        ) as reader:
            return [bytes(image) for batch in reader for image in batch["image"]]

    images = read()
    [cached] = tmp_path.rglob(first_shard(zoo).shard)
    damage_shard(cached)
    before = len(downloads(s3_proxy))
    assert read() == images
    assert len(downloads(s3_proxy)) == before + 1
    assert cached.read_bytes() == (zoo / cached.name).read_bytes()
    for sidecar in tmp_path.rglob("*.parquet"):
        edit_bytes(sidecar, lambda data: data.__setitem__(40, data[40] ^ 1))
    [manifest] = tmp_path.rglob("manifest.json")
    edit_bytes(manifest, lambda data: data.__setitem__(40, data[40] ^ 1))
    assert read() == images
    assert manifest.read_bytes() == (zoo / "manifest.json").read_bytes()


@pytest.mark.long_but_first
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_flipped_byte_in_tf_data(
    shuffle: bool, zoo: Path, s3_server: StoreServer, tmp_path: Path
) -> None:
    root = put_folder(s3_server, zoo)

    def read() -> list[bytes]:
        dataset = sw.load(
            root.uri, shuffle=shuffle, decode=False, storage_options=root.options, cache=tmp_path
        )
        return [row["image"] for row in dataset.as_numpy_iterator()]

    images = read()
    [cached] = tmp_path.rglob(first_shard(zoo).shard)
    damage_shard(cached)
    assert read() == images
    assert cached.read_bytes() == (zoo / cached.name).read_bytes()


def test_a_damaged_object_is_fetched_once_more_and_then_an_error(
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
    assert not cached.exists(), "the damaged copy is dropped"
