"""The cache keeps manifests and indexes: identity of datasets, and damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.cache.manifests import build_key, dataset_folder
from shardwright.cache.shards import ShardCache
from shardwright.errors import (
    DeniedError,
    MissingError,
    NotADatasetError,
    StorageError,
    ThrottledError,
    UnreachableError,
)
from shardwright.format.index import INDEX_SCHEMA, read_index
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import MANIFEST
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import cached_datasets as noise
from tests.support.cached_datasets import NAMES, SIZE, at, behind, downloads, put_dataset, touch
from tests.support.object_stores import delete_object, get_object, put_object


@pytest.mark.parametrize("change", ["crc32c", "num_bytes", "fingerprint", "none"])
def test_a_build_is_known_by_its_shards(tmp_path: Path, change: str) -> None:
    manifest = noise.write_dataset(tmp_path, [SIZE] * 2)
    split = manifest.splits["train"]
    changes = {change: 7} if change in ("crc32c", "num_bytes") else {}
    split = replace(split, shards=(split.shards[0], replace(split.shards[1], **changes)))
    other = replace(manifest, splits={"train": split}, provenance={"time": "later"})
    if change == "fingerprint":
        other = replace(other, fingerprint="other")
    assert (build_key(other) == build_key(manifest)) is (change == "none")


def test_endpoints_differ(root: Folder, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    folders = [dataset_folder(at(tmp_path), each) for each in (root, behind(root, s3_proxy), root)]
    assert folders[0] == folders[2] != folders[1]


@pytest.mark.long_but_first
def test_a_store_must_answer_though_the_cache_is_warm(
    s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    remote = behind(root, s3_proxy, deadline="1")
    with ShardCache(remote, at(tmp_path / "cache")) as cache:
        touch(cache, 0)
    for fault, error in (
        (Fault("reset", 99), UnreachableError),
        (Fault("status", 99), ThrottledError),
        (Fault("status", 1, status=403), DeniedError),
    ):
        s3_proxy.add(fault)
        with pytest.raises(error, match="s3://"):
            ShardCache(remote, at(tmp_path / "cache"))
        s3_proxy.clear()
    delete_object(s3_server, root.path(MANIFEST))
    message = "is not a shardwright dataset: it has no manifest.json"
    with pytest.raises(NotADatasetError, match=message):
        ShardCache(remote, at(tmp_path / "cache"))


def test_indexes_are_kept_until_they_are_damaged(
    s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path, zoo: Path
) -> None:
    remote = behind(noise.put_folder(s3_server, zoo), s3_proxy)
    with ShardCache(remote, at(tmp_path)) as cache:
        name = cache.manifest.shard_names("train")[1]
        for columns in (None, ["id", "offset"], None):
            assert cache.index(name, columns).equals(read_index(Folder(str(zoo)), name, columns))
        assert len(downloads(s3_proxy, "index")) == 1
        [kept] = tmp_path.rglob("train-00001-*.parquet")
        whole = kept.read_bytes()
        flipped = whole[:60] + bytes([whole[60] ^ 255]) + whole[61:]
        for damaged in (b"", whole[:100], flipped):
            kept.write_bytes(damaged)
            assert cache.index(name).equals(read_index(Folder(str(zoo)), name))
        assert len(downloads(s3_proxy, "index")) == 4
        assert cache.index(name).schema.equals(INDEX_SCHEMA)


def test_an_index_that_is_wrong_damaged_or_missing(s3_server: StoreServer, tmp_path: Path) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    uris = [root.path(name.sidecar) for name in NAMES]
    put_object(s3_server, uris[0], get_object(s3_server, uris[1]))
    put_object(s3_server, uris[1], b"PAR1")
    delete_object(s3_server, uris[2])
    errors = [
        (StorageError, "is damaged, or of another build"),
        (StorageError, "is damaged, or of another build"),
        (MissingError, "is missing: the index of noise-train"),
    ]
    with ShardCache(root, at(tmp_path / "cache")) as cache:
        for name, uri, (error, fault) in zip(NAMES, uris, errors, strict=False):
            with pytest.raises(error, match=f"{uri} {fault}"):
                cache.index(name)
        assert list((tmp_path / "cache").rglob("*.parquet")) == []


def test_each_downloaded_shard_makes_room_for_indexes_too(root: Folder, tmp_path: Path) -> None:
    with ShardCache(root, at(tmp_path, 8 * SIZE)) as cache:
        cache.expect(NAMES)
        for name in NAMES * 3:
            cache.index(name)
            Path(cache._path(name)).unlink(missing_ok=True)
            touch(cache, name.index)
            files = tmp_path.rglob("*-of-*")
            assert sum(path.stat().st_size for path in files) <= 8 * SIZE


def test_an_index_that_cannot_be_kept_is_read(root: Folder, tmp_path: Path) -> None:
    with ShardCache(root, at(tmp_path)) as cache:
        path = Path(cache._local.path(NAMES[0].sidecar))
        path.parent.parent.mkdir(parents=True)
        path.parent.write_bytes(b"in the way")
        assert cache.index(NAMES[0]).num_columns == len(INDEX_SCHEMA)
        assert path.parent.is_file()


def test_a_manifest_that_cannot_be_kept(root: Folder, tmp_path: Path) -> None:
    Path(dataset_folder(at(tmp_path), root)).write_bytes(b"in the way")
    with ShardCache(root, at(tmp_path)) as cache:
        assert cache.manifest == read_manifest(root)
