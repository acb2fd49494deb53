"""`shardwright.load` of damaged datasets: bad records are left out and named, or are an error."""

from __future__ import annotations

import functools
import logging
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import LinkError, MissingError
from shardwright.format.index import read_index
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.tfdata import blocks, options
from tests.support import damage
from tests.support.small_datasets import build, write_flat_folder

NUM_IMAGES = 40  # in 4 shards of 10
SIZE = (8, 8)
BAD = ((1, 3), (2, 0), (3, 9))  # (shard, row)
LENGTH, HIGH_LENGTH, LENGTH_CHECKSUM, DATA, CHECKSUM = 0, 4, 9, 20, -3  # bytes of a record
BYTES = (LENGTH, HIGH_LENGTH, LENGTH_CHECKSUM, DATA, CHECKSUM)
READINGS: list[dict[str, Any]] = [
    {"decode": False}, {"shuffle": True, "decode": False}, {"shuffle": True, "image_size": SIZE},
    {"image_size": SIZE}, {"keep": "records"}, {"shuffle": True, "deterministic": False},
]  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    images = write_flat_folder(folder / "in", NUM_IMAGES)
    return Path(build(images, folder / "out", "--shard-count", "4"))


@pytest.fixture
def dataset(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "out"))


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """A function that returns the warnings so far."""
    caplog.set_level(logging.WARNING, "shardwright")
    return lambda: [record.getMessage() for record in caplog.records]


def shard(dataset: Path, index: int) -> ShardName:
    return sw.open(str(dataset)).shard_names("train")[index]


def flip(dataset: Path, index: int, row: int, byte: int) -> None:
    """Flip a bit of a byte of a record's frame, counted from its start, or from its end."""
    place = read_index(Folder(str(dataset)), shard(dataset, index)).to_pylist()[row]
    at = place["offset"] + (byte if byte >= 0 else place["length"] + byte)

    def edit(content: bytearray) -> None:
        content[at] ^= 1

    damage.edit_bytes(dataset / shard(dataset, index).shard, edit)


def spoil_images(dataset: Path, index: int, rows: Sequence[int]) -> None:
    """Replace images by other bytes; all checksums are right."""

    def edit(examples: list[damage.Features]) -> None:
        for row in rows:
            examples[row]["image"] = [b"no image"]

    damage.forge_shard(dataset, shard(dataset, index), edit)


def ids_at(dataset: Path, *places: tuple[int, int]) -> list[str]:
    root = Folder(str(dataset))
    return [read_index(root, shard(dataset, i))["id"][row].as_py() for i, row in places]


def ids_of(ds: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in ds.as_numpy_iterator()]


@functools.cache
def sound_ids(sound: Path, *, shuffle: bool) -> list[str]:
    return ids_of(sw.load(str(sound), features=["id"], shuffle=shuffle))


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(READINGS)), ids=lambda number: str(READINGS[number]))
def test_a_bad_record_is_left_out_and_named(
    number: int, sound: Path, dataset: Path, warnings: Callable[[], list[str]]
) -> None:
    reading = READINGS[number]
    lost = ids_at(dataset, *BAD)
    for turn, place in enumerate(BAD):
        flip(dataset, *place, BYTES[(number + turn) % len(BYTES)])

    left = ids_of(sw.load(str(dataset), **reading, max_bad_records=3))

    expected = sound_ids(sound, shuffle=reading.get("shuffle", False))
    assert sorted([*left, *lost]) == sorted(expected)
    if reading.get("deterministic", True):
        assert left == [name for name in expected if name not in lost]
    told = sorted(warnings(), key=lambda message: message.partition(" in ")[2])
    for (index, row), name, message in zip(BAD, lost, told, strict=True):
        at = rf"{re.escape(shard(dataset, index).shard)}: record {row} at byte [\d,]+"
        what = rf"'{re.escape(name)}' in .*{at}: .+: skipped, bad record \d of at most 3"
        assert re.fullmatch(what, message)


@pytest.mark.long_but_first
@pytest.mark.parametrize("reading", [READINGS[0], READINGS[2], READINGS[4]], ids=str)
def test_one_bad_record_too_many_is_an_error(dataset: Path, reading: dict[str, Any]) -> None:
    flip(dataset, 1, 3, DATA)
    flip(dataset, 2, 0, DATA)
    message = (
        r"out-train.tfrecord-0000[12]-of-00004: record [30] at byte \d+: the checksum of the "
        r"record's data is wrong \(2 bad records so far\); max_bad_records=1: copy that shard "
        r"again, or run `shardwright repair`"
    )
    with pytest.raises(tf.errors.DataLossError, match=message):
        ids_of(sw.load(str(dataset), **reading, max_bad_records=1))


@pytest.mark.long_but_first
@pytest.mark.parametrize("shuffle", [False, True])
def test_images_alone_are_read_by_the_index_and_checked(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, *, shuffle: bool
) -> None:
    monkeypatch.setattr(options, "_INDEXED_RECORD_BYTES", 1)
    arguments = {"shuffle": shuffle, "decode": False, "batch_size": 7}
    both = sw.load(str(dataset), features=["image", "id"], **arguments)
    alone = sw.load(str(dataset), features=["image"], **arguments)
    assert alone.element_spec == {"image": both.element_spec["image"]}
    read = [[list(batch["image"]) for batch in ds.as_numpy_iterator()] for ds in (both, alone)]
    assert read[0] == read[1]

    name = shard(dataset, 1)
    at = read_index(Folder(str(dataset)), name)["image_offset"][3].as_py() + 20

    def edit(content: bytearray) -> None:
        content[at] ^= 1

    damage.edit_bytes(dataset / name.shard, edit)
    bad = (
        rf"'{ids_at(dataset, (1, 3))[0]}' in .*{name.shard}: record 3 at byte \d+: the checksum of"
    )
    with pytest.raises(tf.errors.DataLossError, match=bad):
        list(alone)


@pytest.mark.long
@pytest.mark.parametrize("byte", BYTES)
def test_by_default_the_first_bad_record_is_an_error_that_names_it(
    dataset: Path, byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(dataset, 1, 3, byte)
    (name,) = ids_at(dataset, (1, 3))
    place = rf"'{name}' in {dataset}/out-train.tfrecord-00001-of-00004: record 3 at byte \d+: "
    message = place + "the .*; max_bad_records=0: copy that"
    # Small ones are read by TensorFlow, once their ends are those of the index.
    said = message if byte == CHECKSUM else "corrupted record"
    with pytest.raises(tf.errors.DataLossError, match=said):
        list(sw.load(str(dataset), batch_size=5, image_size=SIZE))
    monkeypatch.setattr(options, "_INDEXED_RECORD_BYTES", 1)
    for reading in ({"shuffle": True}, {}):
        with pytest.raises(tf.errors.DataLossError, match=message):
            list(sw.load(str(dataset), batch_size=5, image_size=SIZE, **reading))
    with pytest.raises(tf.errors.DataLossError, match=message):
        list(sw.load(str(dataset), "train[12:15]", decode=False))
    assert len(list(sw.load(str(dataset), "train[:13]", decode=False))) == 13
    assert len(list(sw.load(str(dataset), "train[14:]", decode=False))) == NUM_IMAGES - 14


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("shuffle", [False, True])
def test_iteration_that_goes_on_after_a_bad_record_raises_again(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int | None, *, shuffle: bool
) -> None:
    monkeypatch.setattr(options, "_INDEXED_RECORD_BYTES", 1)
    monkeypatch.setattr(blocks, "_BLOCK_RECORDS", 4)
    flip(dataset, 1, 3, DATA)
    ds = sw.load(str(dataset), shuffle=shuffle, decode=False, batch_size=batch_size)
    records = iter(ds)
    with pytest.raises(tf.errors.DataLossError, match="record 3 at byte"):
        list(records)
    for _ in range(3):
        with pytest.raises(tf.errors.DataLossError, match="record 3 at byte"):
            next(records)


@pytest.mark.long_but_first
@pytest.mark.parametrize("arguments", [
    {}, {"shuffle": True, "image_size": SIZE, "batch_size": 5},
    {"image_size": SIZE, "keep": "images"},
], ids=str)  # fmt: skip
def test_images_that_cannot_be_decoded(
    sound: Path, dataset: Path, arguments: dict[str, Any], warnings: Callable[[], list[str]]
) -> None:
    lost = ids_at(dataset, (0, 0), (2, 5))
    spoil_images(dataset, 0, [0])
    spoil_images(dataset, 2, [5])

    def left(**more: Any) -> list[str]:
        ds = sw.load(str(dataset), **arguments, **more)
        return ids_of(ds.unbatch() if "batch_size" in arguments else ds)

    with pytest.raises(tf.errors.InvalidArgumentError):
        left()
    expected = sound_ids(sound, shuffle="shuffle" in arguments)
    assert left(max_bad_records=2) == [name for name in expected if name not in lost]
    reason = "image cannot be decoded by tf.io.decode_image: skipped"
    assert sorted(message.partition(": its ")[2] for message in warnings()) == [
        f"{reason}, bad record {number} of at most 2" for number in (1, 2)
    ]
    message = r"record [05] at byte \d+: its image cannot be decoded .* \(2 bad records so far\)"
    with pytest.raises(tf.errors.DataLossError, match=message):
        left(max_bad_records=1)


def test_images_that_are_not_decoded_are_not_checked(dataset: Path) -> None:
    spoil_images(dataset, 0, [0])
    assert len(ids_of(sw.load(str(dataset), decode=False, max_bad_records=1))) == NUM_IMAGES
    assert len(list(sw.load(str(dataset), features=["id"], max_bad_records=1))) == NUM_IMAGES


def test_bad_records_count_once(dataset: Path, warnings: Callable[[], list[str]]) -> None:
    flip(dataset, 1, 3, DATA)
    spoil_images(dataset, 2, [5])
    ds = sw.load(str(dataset), shuffle=True, image_size=SIZE, max_bad_records=2)
    assert [len(set(ids_of(ds))) for _ in range(2)] == [NUM_IMAGES - 2] * 2
    assert len(ids_of(ds.repeat(2))) == 2 * (NUM_IMAGES - 2)
    assert len(warnings()) == 2


def test_an_endless_dataset_of_bad_records_ends(dataset: Path) -> None:
    for index in range(4):
        spoil_images(dataset, index, range(10))
    ds = sw.load(str(dataset), repeat=True, max_bad_records=1000, image_size=SIZE)
    with pytest.raises(tf.errors.DataLossError, match=r"\(40 bad records so far\)"):
        next(iter(ds))


def test_a_missing_index_is_an_error_at_once(dataset: Path) -> None:
    (dataset / shard(dataset, 2).sidecar).unlink()
    message = (
        r"index/train-00002-of-00004.parquet is missing: the index of out-train.tfrecord-00002"
    )
    for arguments in ({}, {"shuffle": True}, {"deterministic": False}, {"max_bad_records": 1}):
        with pytest.raises(MissingError, match=message):
            sw.load(str(dataset), **arguments)
    with pytest.raises(MissingError, match=message):
        sw.load(str(dataset), "train[25:]")
    assert len(ids_of(sw.load(str(dataset), "train[:20]", decode=False))) == 20


@pytest.mark.parametrize(("cut", "message"), [
    (None, "is damaged, or of another build"), (-20, "is damaged, or of another build"),
])  # fmt: skip
def test_a_wrong_index_is_an_error_once_read(dataset: Path, cut: int, message: str) -> None:
    other = (dataset / shard(dataset, 1).sidecar).read_bytes()
    (dataset / shard(dataset, 2).sidecar).write_bytes(other[:cut])
    with pytest.raises(tf.errors.OpError, match=rf"index/train-00002-of-00004.parquet {message}"):
        ids_of(sw.load(str(dataset), shuffle=True, max_bad_records=5))


def test_a_shard_cut_after_opening(dataset: Path, warnings: Callable[[], list[str]]) -> None:
    ds = sw.load(str(dataset), shuffle=True, decode=False, max_bad_records=5)
    whole = ids_of(ds)
    rows = damage.row_offsets(dataset, shard(dataset, 3))
    with open(dataset / shard(dataset, 3).shard, "r+b") as file:
        file.truncate(rows[7] + 20)
    lost = ids_at(dataset, (3, 7), (3, 8), (3, 9))
    assert sorted(ids_of(ds)) == sorted(set(whole) - set(lost))
    assert ["the file ends inside the record" in message for message in warnings()] == [True] * 3


@pytest.mark.parametrize("reading", [{"decode": False}, {"shuffle": True, "decode": False}])
@pytest.mark.parametrize("link", ["manifest.json", "shard", "sidecar", "index"])
def test_links_are_errors(link: str, reading: dict[str, Any], dataset: Path, sound: Path) -> None:
    first = shard(dataset, 0)
    name = {"shard": first.shard, "sidecar": first.sidecar}.get(link, link)
    (dataset / name).rename(dataset.with_name("aside"))
    (dataset / name).symlink_to(sound / name)
    # TensorFlow gives the message of an error in the pipeline another type.
    error = tf.errors.OpError if link == "sidecar" else LinkError
    with pytest.raises(error, match=re.escape(f"{dataset / name} is a link")):
        list(sw.load(str(dataset), "train", **reading))
