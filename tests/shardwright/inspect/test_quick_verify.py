"""`verify --quick`: the lengths and checksums that a disk or store states, and the manifest."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.inspect.cli import main
from shardwright.inspect.faults import Verification
from shardwright.inspect.verify import verify_quickly
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.servers.store_server import StoreServer
from tests.support.build_helpers import build, make_images
from tests.support.object_stores import (
    delete_object,
    get_object,
    new_bucket,
    put_object,
    upload_folder,
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("pictures") / "zoo", 24)


def _build(images: Path, output: str, options: dict[str, str]) -> Folder:
    storage = [f"--storage-option={key}={value}" for key, value in options.items()]
    assert build(images, output, "--shard-count", "3", *storage) == 0
    return Folder.at(output, StorageOptions.of(options))


@pytest.fixture(scope="module")
def local(pictures: Path) -> Path:
    """A local dataset, read only."""
    output = pictures.with_name("local") / "zoo"
    _build(pictures, str(output), {})
    return output


def _first_shard(root: Folder) -> ShardName:
    manifest = read_manifest(root)
    return manifest.shard_names(next(iter(manifest.splits)))[0]


def _whats(result: Verification) -> list[str]:
    return [str(fault) for fault in result.faults]


@pytest.fixture(params=["s3_server", "gcs_server"])
def store(request: pytest.FixtureRequest) -> StoreServer:
    server: StoreServer = request.getfixturevalue(request.param)
    return server


@pytest.mark.long_but_first
def test_changes_of_a_dataset_in_a_store_are_found(store: StoreServer, pictures: Path) -> None:
    root = _build(pictures, f"{store.scheme}://{new_bucket(store)}/zoo", store.options)
    result = verify_quickly(root)
    assert (result.is_sound, result.by, result.notes) == (True, "the store's checksums", ())

    name = _first_shard(root)
    data = bytearray(get_object(store, root.path(name.shard)))
    data[len(data) // 2] ^= 1
    put_object(store, root.path(name.shard), bytes(data))
    told = {"s3": "changed or copied since", "gs": "the file's crc32c is"}[store.scheme]
    [what] = _whats(verify_quickly(root))
    assert what.startswith(f"{name.shard}: ")
    assert told in what

    put_object(store, root.path(name.shard), bytes(data[:-1]))
    assert _whats(verify_quickly(root)) == [
        f"{name.shard}: the file has {len(data) - 1:,} bytes, the manifest says {len(data):,}"
    ]

    delete_object(store, root.path(name.shard))
    delete_object(store, root.path(name.sidecar))
    assert [what.partition(", with")[0] for what in _whats(verify_quickly(root))] == [
        f"{name.shard}: the shard is missing",
        f"{name.sidecar}: the index of {name.shard} is missing",
    ]


def test_checksums_are_asked_for_at_once(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Barrier(3)  # of 3 shards

    def know_nothing(*_: object) -> None:
        met.wait(30)

    monkeypatch.setattr(Folder, "stated_crc32c", know_nothing)
    assert main(["verify", str(local), "--quick", "--threads", "3"]) == 0


def test_a_copy_is_compared_by_kept_checksums(store: StoreServer, local: Path) -> None:
    uri = f"{store.scheme}://{new_bucket(store)}/zoo"
    upload_folder(store, local, uri)
    copy = Folder.at(uri, StorageOptions.of(store.options))
    result = verify_quickly(copy)
    assert result.is_sound
    # S3 keeps a CRC32C where the copier sent one.
    keeps_checksums = store.scheme == "gs" or not result.notes
    assert result.by == ("the store's checksums" if keeps_checksums else "lengths alone")
    assert read_manifest(Folder(str(local))) == read_manifest(copy)


def test_lengths_alone_are_compared_in_a_local_dataset(local: Path, tmp_path: Path) -> None:
    root = Folder(str(shutil.copytree(local, tmp_path / "zoo")))
    result = verify_quickly(root)
    assert (result.is_sound, result.by, len(result.notes)) == (True, "lengths alone", 1)
    assert "only lengths were compared" in str(result.notes[0])
    assert naming.MANIFEST in str(result.notes[0])
    shard = Path(root.path(_first_shard(root).shard))
    shard.write_bytes(shard.read_bytes() + b"\0")
    assert not verify_quickly(root).is_sound
