"""Repairs of datasets in stores, and erasures, which change their shards, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardwright.format.index import read_index
from shardwright.inspect.verify import verify, verify_quickly
from shardwright.pipelines.commands import erase
from shardwright.pipelines.commands import repair as repair_command
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.counters import COUNTERS
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.support.build_helpers import make_images
from tests.support.store_builds import by_store, manifest_at
from tests.support.store_places import Kind, Place, Places

SIDE = 950  # 2.7 MB an image, so that a shard is uploaded in parts


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return make_images(tmp_path / "photos", 6, side=SIDE)


def build_in(output: Place, source: Path) -> dict[str, bytes]:
    """Build a dataset in a store; return its files."""
    words = [str(source), output.uri, *output.args, "--shard-count", "2", "--name", "data"]
    build_here(prepare_job(parse_options(words)))
    return {name: output.get(name) for name in output.names()}


def repair(output: Place, *options: str) -> int:
    return repair_command.main([output.uri, *output.args, *options])


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def change(output: Place, names: list[str], damage: Callable[[bytes], bytes]) -> None:
    for name in names:
        output.put(name, damage(output.get(name)))


def is_sound(output: Place) -> bool:
    options = StorageOptions.of(output.storage_options)
    quick = verify_quickly(Folder.at(output.uri, options))
    return verify(output.uri, storage_options=options).is_sound and quick.is_sound


@pytest.mark.long
@by_store
def test_a_repair_in_a_store(kind: Kind, places: Places, sources: Path) -> None:
    output = places.make(kind)
    before = build_in(output, sources)
    stamps = output.stamps()
    shards = [name for name in before if ".tfrecord-" in name]
    broken = [shards[0], "index/train-00001-of-00002.parquet", "features.json"]
    change(output, broken, flip)
    assert repair(output) == 0
    assert {name: output.get(name) for name in output.names()} == before
    changed = {name for name, stamp in output.stamps().items() if stamp != stamps[name]}
    assert changed <= set(broken)
    assert is_sound(output)


@pytest.mark.long
@by_store
def test_salvage_in_a_store(kind: Kind, places: Places, sources: Path) -> None:
    output = places.make(kind)
    before = build_in(output, sources)
    shards = [name for name in before if ".tfrecord-" in name]
    change(output, shards[:1], flip)
    for path in sources.rglob("*.png"):
        path.unlink()
    assert repair(output) == 1
    assert repair(output, "--salvage") == 0
    assert is_sound(output)
    assert manifest_at(output).rejects == {"lost": 1}
    assert not [name for name in output.names() if "staged" in name]
    assert output.get(shards[1]) == before[shards[1]]


@pytest.mark.long
@by_store
def test_an_erasure_in_a_store_writes_a_shard_once(
    kind: Kind, places: Places, sources: Path, tmp_path: Path
) -> None:
    output = places.make(kind)
    before = build_in(output, sources)
    [name, _] = manifest_at(output).shard_names("train")
    root = Folder.at(output.uri, StorageOptions.of(output.storage_options))
    (tmp_path / "ids").write_text(f"{read_index(root, name)['id'][0]}\n")
    uploaded = COUNTERS.snapshot()["bytes_written"]
    words = ["--ids", str(tmp_path / "ids"), "--receipt", str(tmp_path / "receipt"), "--yes"]
    assert erase.main([output.uri, *output.args, *words]) == 0
    assert COUNTERS.snapshot()["bytes_written"] - uploaded < 1.1 * len(before[name.shard])
    assert manifest_at(output).num_records == 5
    assert is_sound(output)
