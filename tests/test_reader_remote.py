"""`sw.Reader` on a store: the same batches as from a folder, by way of a bounded cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import StorageError, UsageError
from shardwright.storage import Folder, StorageOptions
from tests.cached_datasets import behind
from tests.damage import build, write_images
from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import new_bucket, upload_folder
from tests.readers import global_batches, ids_of, take
from tests.servers.store_server import StoreServer


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """48 records in 12 shards."""
    root = tmp_path_factory.mktemp("remote")
    return str(build(write_images(root / "images", 16), root / "zoo", "--records-per-shard", "4"))


@pytest.fixture(scope="module")
def stored(local: str, s3_server: StoreServer) -> Folder:
    uri = f"s3://{new_bucket(s3_server)}/zoo"
    upload_folder(s3_server, Path(local), uri)
    return Folder.at(uri, StorageOptions.of(dict(s3_server.options)))


@pytest.fixture
def remote(stored: Folder, tmp_path: Path) -> Callable[..., sw.Reader]:
    def make(root: Folder = stored, **options: Any) -> sw.Reader:
        return sw.Reader(
            root.uri,
            **{"global_batch_size": 6, "storage_options": root.options, "cache": tmp_path / "cache"}
            | options,
        )

    return make


def largest(dataset: str) -> int:
    return max(shard.num_bytes for shard in sw.open(dataset).splits["train"].shards)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2, "image": sw.TrainImage(12)},
        {"epochs": 2, "shuffle": True, "window": 3, "image": sw.TrainImage(12)},
        {"epochs": 1, "shuffle": True, "window": 12, "split": "train[10%:]", "remainder": "pad"},
        {"epochs": 1, "sampling": sw.ClassBalanced(), "features": ["id", "label"]},
    ],
    ids=str,
)
def test_batches_are_those_of_the_same_dataset_in_a_folder(
    local: str, remote: Callable[..., sw.Reader], options: dict[str, Any]
) -> None:
    home = list(sw.Reader(local, global_batch_size=6, **options))

    away = list(remote(**options))

    assert len(home) == len(away)
    for here, there in zip(home, away, strict=True):
        assert {name: column.tolist() for name, column in here.items()} == {
            name: column.tolist() for name, column in there.items()
        }


def test_a_state_moves_between_a_store_and_a_folder(
    local: str, remote: Callable[..., sw.Reader]
) -> None:
    options: dict[str, Any] = {"shuffle": True, "epochs": 2}
    whole = global_batches([remote(window=4, **options)])
    reader = remote(window=4, **options)
    take(reader, 5)

    at_home = sw.Reader(local, global_batch_size=6, state=reader.state(), **options)

    assert global_batches([at_home]) == whole[5:], "the window is part of the state"
    assert sw.Reader(local, global_batch_size=6, **options).state()["window"] == 12
    assert remote(**options).state()["window"] == 12, "16, or all where there are fewer"


def test_a_cache_smaller_than_the_dataset(local: str, remote: Callable[..., sw.Reader]) -> None:
    room = 4 * largest(local) + 100_000  # and the indexes

    options: dict[str, Any] = {"shuffle": True, "window": 3, "epochs": 3}
    assert global_batches([remote(cache_bytes=room, **options)]) == global_batches(
        [sw.Reader(local, global_batch_size=6, **options)]
    )
    with pytest.raises(
        UsageError, match=r"needs 12 shards of up to .* at a time, .* together, and the cache at"
    ):
        remote(cache_bytes=3 * largest(local), shuffle=True)


def test_once_all_is_in_the_cache_the_store_may_go(
    stored: Folder, remote: Callable[..., sw.Reader], s3_server: StoreServer
) -> None:
    whole = ids_of(remote(epochs=1))

    with FaultProxy(s3_server.endpoint) as proxy:
        endpoint = proxy.endpoint
    gone = behind(stored, endpoint)

    # The cache knows a dataset by its address and its store's endpoint: this one has never been seen.
    with pytest.raises(StorageError):
        remote(gone, epochs=1)
    assert ids_of(remote(epochs=1)) == whole


def test_a_store_that_comes_back_is_read_on(
    stored: Folder, remote: Callable[..., sw.Reader], s3_server: StoreServer
) -> None:
    whole = ids_of(remote(epochs=1))
    with FaultProxy(s3_server.endpoint) as proxy:
        proxy.add(Fault("status", None, path_contains="tfrecord-00004-of"))
        reader = remote(behind(stored, proxy.endpoint), epochs=1)
        got: list[str] = []
        batches = iter(reader)
        with pytest.raises(StorageError, match="tfrecord-00004-of-00012"):
            got.extend(name for batch in batches for name in batch["id"])
        assert got == whole[:12], (
            "every batch before it was given: shard 4 begins at record 16, in the third one"
        )
        proxy.clear()
        got += ids_of(reader)

    assert got == whole
