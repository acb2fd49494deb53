"""`verify --quick`: what the disk or store states, against the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright import naming
from shardwright.faults import Verification
from shardwright.manifest import read_manifest
from shardwright.naming import ShardName
from shardwright.quick_verify import verify_quickly
from shardwright.storage import Folder, StorageOptions
from tests.build_helpers import build, make_images
from tests.object_stores import delete_object, get_object, new_bucket, put_object, upload_folder
from tests.servers.store_server import StoreServer


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("pictures") / "zoo", 24)


def _build(images: Path, output: str, options: dict[str, str]) -> Folder:
    storage = [
        argument
        for key, value in options.items()
        for argument in ("--storage-option", f"{key}={value}")
    ]
    assert build(images, output, "--shard-count", "3", *storage) == 0
    return Folder.at(output, StorageOptions.of(options))


def _first_shard(root: Folder) -> ShardName:
    manifest = read_manifest(root)
    return manifest.shard_names(next(iter(manifest.splits)))[0]


def _whats(result: Verification) -> list[str]:
    return [str(fault) for fault in result.faults]


@pytest.fixture(params=["s3_server", "gcs_server"])
def store(request: pytest.FixtureRequest) -> StoreServer:
    server: StoreServer = request.getfixturevalue(request.param)
    return server


def test_a_dataset_in_a_store_is_sound_by_its_checksums_until_a_shard_changes(
    store: StoreServer, pictures: Path
) -> None:
    root = _build(pictures, f"{store.scheme}://{new_bucket(store)}/zoo", store.options)
    assert (verify_quickly(root).is_sound, verify_quickly(root).by) == (
        True,
        "the store's checksums",
    )
    assert not verify_quickly(root).notes

    name = _first_shard(root)
    data = bytearray(get_object(store, root.path(name.shard)))
    data[len(data) // 2] ^= 1
    put_object(store, root.path(name.shard), bytes(data))
    told = {"s3": "changed or copied since", "gs": "the store states crc32c"}[store.scheme]
    [what] = _whats(verify_quickly(root))
    assert what.startswith(f"{name.shard}: ")
    assert told in what

    put_object(store, root.path(name.shard), bytes(data[:-1]))
    assert _whats(verify_quickly(root)) == [
        f"{name.shard}: the file has {len(data) - 1} bytes, the manifest says {len(data)}"
    ]

    delete_object(store, root.path(name.shard))
    delete_object(store, root.path(name.sidecar))
    assert [what.partition(", with")[0] for what in _whats(verify_quickly(root))] == [
        f"{name.shard}: the shard is missing",
        f"{name.sidecar}: the index of {name.shard} is missing",
    ]


def test_a_copy_of_a_local_dataset_is_compared_by_what_the_store_keeps(
    store: StoreServer, pictures: Path, tmp_path: Path
) -> None:
    local = _build(pictures, str(tmp_path / "zoo"), {})
    uri = f"{store.scheme}://{new_bucket(store)}/zoo"
    upload_folder(store, tmp_path / "zoo", uri)
    result = verify_quickly(Folder.at(uri, StorageOptions.of(store.options)))
    assert result.is_sound
    keeps_checksums = (
        store.scheme == "gs" or not result.notes
    )  # S3 keeps a CRC32C where the copier sent one
    assert result.by == ("the store's checksums" if keeps_checksums else "lengths alone")
    assert read_manifest(local) == read_manifest(Folder.at(uri, StorageOptions.of(store.options)))


def test_of_a_local_dataset_lengths_are_compared_and_that_is_said(
    pictures: Path, tmp_path: Path
) -> None:
    root = _build(pictures, str(tmp_path / "zoo"), {})
    result = verify_quickly(root)
    assert (result.is_sound, result.by, len(result.notes)) == (True, "lengths alone", 1)
    assert "only lengths were compared" in str(result.notes[0])
    assert naming.MANIFEST in str(result.notes[0])
    shard = Path(root.path(_first_shard(root).shard))
    shard.write_bytes(shard.read_bytes() + b"\0")
    assert not verify_quickly(root).is_sound
