"""Repairs of datasets in stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardwright.inspect.verify import verify_quickly
from shardwright.pipelines.commands import repair as repair_command
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.support.build_helpers import make_images
from tests.support.judge import judge
from tests.support.store_builds import by_store
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
    return judge(output.uri, storage_options=options).is_sound and quick.is_sound


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
