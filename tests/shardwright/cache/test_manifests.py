"""The cache keeps manifests and indexes: identity of datasets, and reading without the store."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.cache.manifests import build_key, dataset_folder
from shardwright.cache.shards import ShardCache
from shardwright.errors import (
    CredentialsError,
    DeniedError,
    MissingError,
    NotADatasetError,
    StorageError,
    ThrottledError,
    TimedOutError,
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


def test_endpoints_differ(root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Folder(root.uri)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a")
    first = dataset_folder(at(tmp_path), bare)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://b")
    assert len({first, dataset_folder(at(tmp_path), bare), dataset_folder(at(tmp_path), root)}) == 3
    assert dataset_folder(at(tmp_path), root) == dataset_folder(at(tmp_path), root)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("reset", None), (UnreachableError, TimedOutError)),
        (Fault("stall", None), TimedOutError),
        (Fault("status", None), ThrottledError),
        (Fault("status", None, status=429), ThrottledError),
        (Fault("status", None, status=401), CredentialsError),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else "",
)
def test_a_warm_cache_works_offline(
    root: Folder,
    s3_proxy: FaultProxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    error: type[Exception],
) -> None:
    with ShardCache(behind(root, s3_proxy), at(tmp_path)) as cache:
        touch(cache, 0)
        rows = cache.index(NAMES[1])
    # Its client has had an answer once: before that, requests are tried for 5 seconds.
    remote = behind(root, s3_proxy, read_timeout="1", deadline="1")
    remote.read_bytes(MANIFEST)
    s3_proxy.add(fault)
    with ShardCache(remote, at(tmp_path)) as cache:
        assert cache.manifest == read_manifest(root)
        touch(cache, 0)
        assert cache.index(NAMES[1]).equals(rows)
        with pytest.raises(error, match=r"noise-train.tfrecord-00001-of-00004|s3://"):
            touch(cache, 1)
    records = [record for record in caplog.records if record.name == "shardwright.cache"]
    assert [record.levelno for record in records] == [logging.WARNING]
    assert "s3://" in caplog.text
    assert "continuing offline with the cached shards (manifest of 20" in caplog.text


def test_a_warm_cache_works_without_a_server_and_without_credentials(
    s3_server: StoreServer,
    root: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FaultProxy(s3_server.endpoint) as proxy:
        remote = behind(root, proxy, deadline="1")
        with ShardCache(remote, at(tmp_path)) as cache:
            touch(cache, 0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with noise.refusing(proxy.endpoint):
        for there in (remote, behind(Folder(root.uri), proxy)):
            with ShardCache(there, at(tmp_path)) as cache:
                touch(cache, 0)
    assert "no response from" in caplog.text
    assert "no AWS credentials" in caplog.text


def test_a_store_that_denies_access_or_lost_the_dataset_is_not_offline(
    s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    remote = behind(root, s3_proxy)
    with ShardCache(remote, at(tmp_path / "cache")) as cache:
        touch(cache, 0)
    s3_proxy.add(Fault("status", 1, status=403))
    with pytest.raises(DeniedError):
        ShardCache(remote, at(tmp_path / "cache"))
    delete_object(s3_server, root.path(MANIFEST))
    message = "is not a shardwright dataset: it has no manifest.json"
    with pytest.raises(NotADatasetError, match=message):
        ShardCache(remote, at(tmp_path / "cache"))


@pytest.mark.long
def test_a_missing_or_damaged_manifest_in_the_cache_raises_the_stores_error(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = behind(root, s3_proxy, deadline="1")

    def fail() -> None:
        s3_proxy.add(Fault("status", None))
        with pytest.raises(ThrottledError, match=r"versions cannot be listed"):
            ShardCache(remote, at(tmp_path))
        s3_proxy.clear()

    fail()
    ShardCache(remote, at(tmp_path))
    [kept] = tmp_path.rglob(MANIFEST)
    kept.write_bytes(kept.read_bytes()[:50])
    fail()
    ShardCache(remote, at(tmp_path))
    assert read_manifest(Folder(str(kept.parent))) == read_manifest(root)


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


def test_a_manifest_that_cannot_be_kept_is_said(
    root: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path(dataset_folder(at(tmp_path), root)).write_bytes(b"in the way")
    with ShardCache(root, at(tmp_path)) as cache:
        assert cache.manifest == read_manifest(root)
    assert "without the store, this dataset cannot be read" in caplog.text
