"""Sound records that are not those of the index: no path to a record believes one.

A shard of another build, or one that was written again: every frame has the right checksum, and the
file has the length in the manifest.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import ShardwrightError
from shardwright.format.example import parse_example
from shardwright.format.index import read_index
from shardwright.format.manifest import read_manifest
from shardwright.format.records import OTHER_RECORD, scan_records
from shardwright.inspect.cli import main as shardwright
from shardwright.inspect.sample import choose_sample
from shardwright.inspect.verify import verify
from shardwright.report.pictures import read_pictures
from shardwright.storage.folder import Folder
from tests.support.build_helpers import record_ids
from tests.support.damage import (
    Features,
    build,
    example,
    first_shard,
    frame,
    write_images,
)

ROW = 1  # the record that is another one
RAW: dict[str, Any] = {"decode": False}
CLASSES = ("ape", "bee", "cow")
OPTIONS = ("--records-per-shard", "3", "--encode", "raw", "--resize", "8x8")  # of equal lengths
OTHER = "not the record that the index describes"


@pytest.fixture(scope="module", name="sound")
def sound_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    return build(write_images(folder / "in", 3, CLASSES), folder / "out", *OPTIONS)


@pytest.fixture(scope="module", name="other")
def other_fixture(sound: Path) -> Path:
    """A build of the same images with another seed: most places have other records."""
    return build(sound.parent / "in", sound.parent / "other" / "out", *OPTIONS, "--seed", "1")


@pytest.fixture(name="dataset")
def dataset_fixture(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "out"))


def relabel(features: Features) -> None:
    [label] = features["label"]
    features["label"] = [(int(label) + 1) % 3]


def redraw(features: Features) -> None:
    [image] = features["image"]
    assert isinstance(image, bytes)
    features["image"] = [image[:-1] + bytes([image[-1] ^ 1])]


def rename(features: Features) -> None:
    [name] = features["id"]
    assert isinstance(name, bytes)
    features["id"] = [name[::-1]]


def reseal(dataset: Path, change: Callable[[Features], None]) -> None:
    """Write a shard again with one other record, of the same length, in a frame of its own."""
    path = dataset / first_shard(dataset).shard
    with open(path, "rb") as file:
        records = [span.data for span in scan_records(file)]
    features = dict(parse_example(records[ROW]))
    change(features)
    records[ROW] = example(features)
    before = path.stat().st_size
    path.write_bytes(b"".join(map(frame, records)))
    assert path.stat().st_size == before


def read(dataset: Path, **more: Any) -> int:
    with sw.Reader(str(dataset), "train", global_batch_size=2, epochs=1, **more) as reader:
        return sum(len(batch["id"]) for batch in reader)


def read_grain(dataset: Path) -> int:
    with sw.Reader(str(dataset), "train", global_batch_size=2, epochs=1) as reader:
        examples = reader.grain_source()
        return len([examples[number] for number in range(len(examples))])


def read_tf(dataset: Path) -> int:
    with sw.Reader(str(dataset), "train", global_batch_size=2, epochs=1) as reader:
        return len(list(reader.tf_data()))


def load(dataset: Path, **more: Any) -> int:
    return len(list(sw.load(str(dataset), **RAW, **more)))


PATHS: dict[str, Callable[[Path], int]] = {
    "Reader": read,
    "Reader, shuffled": lambda dataset: read(dataset, shuffle=True),
    "Reader, few features": lambda dataset: read(dataset, features=["id", "label"]),
    "tf_data": read_tf,
    "grain_source": read_grain,
    "to_numpy": lambda dataset: len(sw.open(str(dataset)).to_numpy("train", features=["id"])["id"]),
    "load": load,
    "load, a part": lambda dataset: load(dataset, split="train[1:]"),
    "load, shuffled": lambda dataset: load(dataset, shuffle=True),
    "load, batches": lambda dataset: load(dataset, batch_size=2),
}


@contextmanager
def fails(record: str = f"record {ROW} ") -> Iterator[None]:
    with pytest.raises((ShardwrightError, tf.errors.OpError), match=f"{record}.*{OTHER}"):
        yield


@pytest.mark.long_but_first
@pytest.mark.parametrize("path", PATHS)
def test_a_record_with_another_label(dataset: Path, path: str) -> None:
    assert PATHS[path](dataset) > 0
    reseal(dataset, relabel)
    with fails():
        PATHS[path](dataset)


@pytest.mark.long_but_first
@pytest.mark.parametrize("path", PATHS)
def test_a_shard_of_another_build(other: Path, dataset: Path, path: str) -> None:
    name = first_shard(dataset)
    assert (dataset / name.shard).stat().st_size == (other / name.shard).stat().st_size
    shutil.copy(other / name.shard, dataset / name.shard)
    with fails("record"):
        PATHS[path](dataset)


@pytest.mark.long_but_first
@pytest.mark.parametrize("change", [relabel, redraw, rename])
def test_commands(
    dataset: Path, change: Callable[[Features], None], capsys: pytest.CaptureFixture[str]
) -> None:
    name, sound = first_shard(dataset), (dataset / first_shard(dataset).shard).read_bytes()
    ids = read_index(Folder(str(dataset)), name)["id"].to_pylist()
    reseal(dataset, change)
    faults = [fault.what for fault in verify(str(dataset)).faults if fault.record == ROW]
    assert faults == [OTHER_RECORD]
    assert shardwright(["show", str(dataset), ids[ROW]]) == 1
    assert OTHER in capsys.readouterr().err
    manifest = read_manifest(Folder(str(dataset)))
    places = choose_sample(Folder(str(dataset)), manifest, 9)
    read = read_pictures(Folder(str(dataset)), manifest, places)
    assert [each.id for each in read if each.thumbnail is None] == [ids[ROW]]
    # A copy leaves it out, and an erasure of another record of its shard ends without a change.
    copied = dataset.parent / "copied"
    assert shardwright(["build", str(dataset), str(copied), "--max-reject-fraction", "0.5"]) == 0
    assert set(record_ids(copied)) == set(record_ids(dataset)) - {ids[ROW]}
    (dataset.parent / "ids").write_text(ids[0])
    words = ["erase", str(dataset), "--ids", str(dataset.parent / "ids")]
    capsys.readouterr()
    assert shardwright([*words, "--yes", "--receipt", str(dataset.parent / "receipt")]) == 1
    assert "its bytes or its index row are damaged" in capsys.readouterr().err
    assert shardwright(["repair", str(dataset)]) == 0
    assert (dataset / name.shard).read_bytes() == sound
