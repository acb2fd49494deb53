"""`shardwright.load` of damaged datasets: a bad record is an error that names it, or is left out and named; nothing is lost silently."""

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
from shardwright.errors import MissingError, StorageError
from shardwright.index import read_index
from shardwright.naming import ShardName
from shardwright.storage import Folder
from tests import damage
from tests.small_datasets import build, write_flat_folder

NUM_IMAGES = 40  # in 4 shards of 10
SIZE = (8, 8)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    return Path(
        build(write_flat_folder(folder / "in", NUM_IMAGES), folder / "out", "--shard-count", "4")
    )


@pytest.fixture
def dataset(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "out"))


def shard(dataset: Path, index: int) -> ShardName:
    return sw.open(str(dataset)).shard_names("train")[index]


def flip(dataset: Path, index: int, row: int, byte: int) -> None:
    """Flip a bit of a byte of a record's frame, counted from its start, or from its end."""
    rows = read_index(Folder(str(dataset)), shard(dataset, index), ["offset", "length"]).to_pylist()
    at = rows[row]["offset"] + (byte if byte >= 0 else rows[row]["length"] + byte)

    def edit(content: bytearray) -> None:
        content[at] ^= 1

    damage.edit_bytes(dataset / shard(dataset, index).shard, edit)


def spoil_images(dataset: Path, index: int, rows: Sequence[int]) -> None:
    """Put other bytes in an image's place; all checksums are right."""

    def edit(examples: list[damage.Features]) -> None:
        for row in rows:
            examples[row]["image"] = [b"no image"]

    damage.forge_shard(dataset, shard(dataset, index), edit)


def ids_at(dataset: Path, places: Sequence[tuple[int, int]]) -> list[str]:
    return [
        read_index(Folder(str(dataset)), shard(dataset, index), ["id"])["id"][row].as_py()
        for index, row in places
    ]


def ids_of(ds: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in ds.as_numpy_iterator()]


@functools.cache
def whole_ids(sound: Path, reading: int) -> list[str]:
    """What a reading gives where nothing is damaged, read once for all damages: TensorFlow traces every dataset anew."""
    return ids_of(sw.load(str(sound), **READINGS[reading]))


READINGS = [
    {"decode": False},
    {"shuffle": True, "decode": False},
    {"shuffle": True, "image_size": SIZE},
    {"image_size": SIZE},
    {"keep": "records"},
    {"shuffle": True, "deterministic": False},
]


@pytest.mark.parametrize(
    "byte",
    [0, 4, 9, 20, -3],
    ids=["length", "high length", "length's checksum", "data", "checksum"],
)
@pytest.mark.parametrize("arguments", READINGS, ids=str)
def test_a_bad_record_is_left_out_and_named(
    sound: Path,
    dataset: Path,
    arguments: dict[str, Any],
    byte: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = whole_ids(sound, READINGS.index(arguments))
    lost = ids_at(dataset, [(1, 3), (2, 0), (3, 9)])
    for index, row in ((1, 3), (2, 0), (3, 9)):
        flip(dataset, index, row, byte)

    with caplog.at_level(logging.WARNING, "shardwright"):
        left = ids_of(sw.load(str(dataset), **arguments, max_bad_records=3))

    assert sorted([*left, *lost]) == sorted(whole)
    if arguments.get("deterministic", True):
        assert left == [name for name in whole if name not in lost]
    told = "\n".join(record.getMessage() for record in caplog.records)
    for index, row in ((1, 3), (2, 0), (3, 9)):
        assert re.search(
            rf"{re.escape(shard(dataset, index).shard)}: record {row} at byte [\d,]+: .+: left out, the \d\. of at most 3",
            told,
        )
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    "arguments", [reading for reading in READINGS if "deterministic" not in reading], ids=str
)
def test_one_more_is_an_error_that_names_it_and_says_what_to_do(
    dataset: Path, arguments: dict[str, Any]
) -> None:
    flip(dataset, 1, 3, 20)
    flip(dataset, 2, 0, 20)
    message = (
        r"out-train.tfrecord-0000[12]-of-00004: record [30] at byte \d+: the checksum of the record's data is wrong "
        r"\(2 bad records so far\); max_bad_records=1: copy that shard again, or `shardwright verify`"
    )

    with pytest.raises(tf.errors.DataLossError, match=message):
        ids_of(sw.load(str(dataset), **arguments, max_bad_records=1))


def test_without_leave_the_first_one_is_an_error(dataset: Path) -> None:
    flip(dataset, 1, 3, 20)
    ds = sw.load(str(dataset), shuffle=True, batch_size=5, image_size=SIZE)

    with pytest.raises(
        tf.errors.DataLossError,
        match=r"00001-of-00004: record 3 at byte \d+: .* is wrong; max_bad_records=0: copy that",
    ):
        list(ds)
    with pytest.raises(tf.errors.DataLossError):
        list(sw.load(str(dataset), batch_size=5, image_size=SIZE))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"image_size": SIZE},
        {"image_size": SIZE, "batch_size": 5},
        {"shuffle": True},
        {"image_size": SIZE, "keep": "images"},
    ],
    ids=str,
)
def test_images_that_cannot_be_decoded(
    dataset: Path, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    lost = ids_at(dataset, [(0, 0), (2, 5)])
    whole = ids_of(sw.load(str(dataset), **{**arguments, "batch_size": None}))
    spoil_images(dataset, 0, [0])
    spoil_images(dataset, 2, [5])

    def left(**more: Any) -> list[str]:
        ds = sw.load(str(dataset), **arguments, **more)
        return ids_of(ds.unbatch() if "batch_size" in arguments else ds)

    with pytest.raises(tf.errors.InvalidArgumentError):
        left()
    with caplog.at_level(logging.WARNING, "shardwright"):
        assert left(max_bad_records=2) == [name for name in whole if name not in lost]
    assert sorted(record.getMessage().partition(": its")[2] for record in caplog.records) == [
        f" image cannot be decoded by tf.io.decode_image: left out, the {number}. of at most 2 bad records"
        for number in (1, 2)
    ]
    with pytest.raises(
        tf.errors.DataLossError,
        match=r"record [05] at byte \d+: its image cannot be decoded .* \(2 bad records so far\)",
    ):
        left(max_bad_records=1)


def test_images_that_are_not_decoded_are_not_looked_at(dataset: Path) -> None:
    spoil_images(dataset, 0, [0])

    assert len(ids_of(sw.load(str(dataset), decode=False, max_bad_records=1))) == NUM_IMAGES
    assert len(list(sw.load(str(dataset), features=["id"], max_bad_records=1))) == NUM_IMAGES


def test_a_record_counts_once_in_however_many_epochs(
    dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(dataset, 1, 3, 20)
    spoil_images(dataset, 2, [5])
    ds = sw.load(str(dataset), shuffle=True, image_size=SIZE, max_bad_records=2)

    with caplog.at_level(logging.WARNING, "shardwright"):
        epochs = [ids_of(ds) for _ in range(3)]
        assert len(ids_of(ds.repeat(2))) == 2 * (NUM_IMAGES - 2)

    assert [len(set(epoch)) for epoch in epochs] == [NUM_IMAGES - 2] * 3
    assert len(caplog.records) == 2


def test_where_every_record_is_bad_it_ends(dataset: Path) -> None:
    for index in range(4):
        spoil_images(dataset, index, range(10))

    with pytest.raises(tf.errors.DataLossError, match=r"\(40 bad records so far\)"):
        next(iter(sw.load(str(dataset), repeat=True, max_bad_records=1000, image_size=SIZE)))


def _replace(sidecar: Path, other: Path) -> None:
    shutil.copy(other, sidecar)


def _garble(sidecar: Path, other: Path) -> None:
    sidecar.write_bytes(other.read_bytes()[:-20])


@pytest.mark.parametrize(
    "arguments", [{"shuffle": True}, {"keep": "records"}, {"max_bad_records": 1}], ids=str
)
def test_a_missing_index_is_told_at_once(dataset: Path, arguments: dict[str, Any]) -> None:
    (dataset / shard(dataset, 2).sidecar).unlink()

    with pytest.raises(
        MissingError,
        match=r"index/train-00002-of-00004.parquet is missing: the index of out-train.tfrecord-00002-of-00004",
    ):
        sw.load(str(dataset), **arguments)
    with pytest.raises(StorageError, match=r"index/train-00002-of-00004.parquet is missing"):
        sw.load(str(dataset), "train[25:]")
    assert len(ids_of(sw.load(str(dataset)))) == NUM_IMAGES
    assert len(ids_of(sw.load(str(dataset), "train[:25]"))) == 25  # begins where a shard does


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_replace, "is not the index of the shard that the manifest states"),
        (_garble, "cannot be read"),
    ],
)
def test_a_stale_or_damaged_index_is_told_when_it_is_read(
    dataset: Path, change: Callable[[Path, Path], None], message: str
) -> None:
    change(dataset / shard(dataset, 2).sidecar, dataset / shard(dataset, 1).sidecar)

    with pytest.raises(tf.errors.OpError, match=rf"index/train-00002-of-00004.parquet {message}"):
        ids_of(sw.load(str(dataset), shuffle=True, max_bad_records=5))


def test_a_shard_that_is_cut_after_it_was_opened(
    dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cut shard is refused when the dataset is opened; cut later, its lost records are bad ones."""
    ds = sw.load(str(dataset), shuffle=True, decode=False, max_bad_records=5)
    whole = ids_of(ds)
    rows = read_index(Folder(str(dataset)), shard(dataset, 3), ["offset"])["offset"].to_pylist()
    with open(dataset / shard(dataset, 3).shard, "r+b") as file:
        file.truncate(rows[7] + 20)

    with caplog.at_level(logging.WARNING, "shardwright"):
        assert sorted(ids_of(ds)) == sorted(
            set(whole) - set(ids_at(dataset, [(3, 7), (3, 8), (3, 9)]))
        )
    assert all(
        "the file ends inside the record" in record.getMessage() for record in caplog.records
    )
