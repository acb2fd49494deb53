"""The cache keeps manifests: what is the same dataset, and going on without its store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.cache import ShardCache
from shardwright.cache.manifests import build_key, dataset_folder
from shardwright.errors import (
    CredentialsError,
    DeniedError,
    NotADatasetError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from shardwright.manifest import read_manifest
from shardwright.naming import MANIFEST
from shardwright.storage import Folder
from tests.cached_datasets import NAMES, SIZE, at, behind, put_dataset, touch, write_dataset
from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import delete_object
from tests.servers.store_server import StoreServer


@pytest.fixture(scope="module")
def root(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of four shards of 1,000 bytes; not to be changed."""
    return put_dataset(s3_server, tmp_path_factory.mktemp("noise"), [SIZE] * 4)


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize("change", ["crc32c", "num_bytes", "fingerprint", "none"])
def test_a_build_is_told_by_its_shards(tmp_path: Path, change: str) -> None:
    manifest = write_dataset(tmp_path, [SIZE] * 2)
    split = manifest.splits["train"]
    changes = {} if change in ("none", "fingerprint") else {change: 7}
    shards = (split.shards[0], replace(split.shards[1], **changes))
    other = replace(
        manifest, splits={"train": replace(split, shards=shards)}, provenance={"time": "later"}
    )
    if change == "fingerprint":
        other = replace(other, fingerprint="other")
    assert (build_key(other) == build_key(manifest)) is (change == "none")


def test_a_bucket_of_the_same_name_elsewhere_is_another(
    root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Folder(root.uri)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a")
    first = dataset_folder(at(tmp_path), bare)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://b")
    assert len({first, dataset_folder(at(tmp_path), bare), dataset_folder(at(tmp_path), root)}) == 3
    assert dataset_folder(at(tmp_path), root) == dataset_folder(at(tmp_path), root)


OFFLINE = [
    (Fault("reset", None), (UnreachableError, TimedOutError)),
    (Fault("stall", None), TimedOutError),
    (Fault("status", None), ThrottledError),
    (Fault("status", None, status=429), ThrottledError),
    (Fault("status", None, status=401), CredentialsError),
]


@pytest.mark.parametrize(
    ("fault", "error"),
    OFFLINE,
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else "",
)
def test_goes_on_offline_once_warm(
    root: Folder,
    proxy: FaultProxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    error: type[Exception],
) -> None:
    remote = behind(root, proxy.endpoint, read_timeout="1", deadline="1")
    with ShardCache.open(remote, at(tmp_path)) as cache:
        touch(cache, 0)
        rows = cache.index(NAMES[1])
    proxy.add(fault)
    with pytest.raises(error):
        read_manifest(remote)
    with (
        caplog.at_level(logging.WARNING, "shardwright.cache"),
        ShardCache.open(remote, at(tmp_path)) as cache,
    ):
        assert cache.manifest == read_manifest(root)
        touch(cache, 0)
        assert cache.index(NAMES[1]).equals(rows)
        with pytest.raises(error, match=r"noise-train.tfrecord-00001-of-00004|s3://"):
            touch(cache, 1)
    [said] = [
        record.getMessage() for record in caplog.records if record.name == "shardwright.cache"
    ]
    assert "going on offline with what the cache has of it (manifest of 20" in said
    assert MANIFEST in said or "s3://" in said


def test_goes_on_offline_when_nobody_answers_and_without_credentials(
    s3_server: StoreServer,
    root: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FaultProxy(s3_server.endpoint) as proxy:
        remote = behind(root, proxy.endpoint)
        with ShardCache.open(remote, at(tmp_path)) as cache:
            touch(cache, 0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bare = behind(Folder(root.uri), proxy.endpoint)
    for there in (remote, bare):
        with ShardCache.open(there, at(tmp_path)) as cache:
            touch(cache, 0)
    assert [part in caplog.text for part in ("nobody answers at", "no AWS credentials")] == [
        True,
        True,
    ]


def test_offline_and_cold_is_the_stores_error(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.add(Fault("status", None))
    with pytest.raises(ThrottledError, match=r"manifest.json cannot be read"):
        ShardCache.open(behind(root, proxy.endpoint), at(tmp_path))


def test_a_store_that_says_no_is_not_offline(
    s3_server: StoreServer, proxy: FaultProxy, tmp_path: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [SIZE] * 4)
    remote = behind(root, proxy.endpoint)
    with ShardCache.open(remote, at(tmp_path / "cache")) as cache:
        touch(cache, 0)
    proxy.add(Fault("status", 1, status=403))
    with pytest.raises(DeniedError):
        ShardCache.open(remote, at(tmp_path / "cache"))
    delete_object(s3_server, root.path(MANIFEST))
    with pytest.raises(
        NotADatasetError, match=r"is not a shardwright dataset: it has no manifest.json"
    ):
        ShardCache.open(remote, at(tmp_path / "cache"))


def test_a_damaged_manifest_in_the_cache_is_none(
    root: Folder, proxy: FaultProxy, tmp_path: Path
) -> None:
    remote = behind(root, proxy.endpoint)
    ShardCache.open(remote, at(tmp_path))
    [kept] = tmp_path.rglob(MANIFEST)
    kept.write_bytes(kept.read_bytes()[:50])
    proxy.add(Fault("status", None))
    with pytest.raises(ThrottledError, match=r"manifest.json cannot be read"):
        ShardCache.open(remote, at(tmp_path))
    proxy.clear()
    ShardCache.open(remote, at(tmp_path))
    assert read_manifest(Folder(str(kept.parent))) == read_manifest(root)
