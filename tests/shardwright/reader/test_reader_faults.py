"""Damaged datasets through `sw.Reader`: errors and counts, and never a hang or a silent loss."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import shardwright as sw
from shardwright.errors import BadRecordError, StorageError
from shardwright.format.index import read_index
from shardwright.format.naming import ShardName
from shardwright.reader.record_reader import BadRecord, add_bad_records
from tests.support import build_helpers as builds
from tests.support.damage import first_shard
from tests.support.readers import ids_of

WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": {"shuffle": True, "remainder": "keep"},
    "decoded": {"image": sw.EvalImage(8)},
    "labels": {"features": ["id", "label"]},
}
# The column of the index that holds the offset, and bytes after it.
PLACES = {
    "payload": ("image_offset", 30),
    "length": ("offset", 1),
    "length's checksum": ("offset", 9),
}


def make_reader(dataset: Path, **options: Any) -> sw.Reader:
    return sw.Reader(str(dataset), **{"global_batch_size": 4, "epochs": 1, **options})


def rows(dataset: Path, name: ShardName) -> list[dict[str, Any]]:
    return read_index(sw.open(str(dataset)).root, name).to_pylist()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_a_damaged_record(dataset: Path, way: dict[str, Any], place: str) -> None:
    name = first_shard(dataset)
    bad = rows(dataset, name)[4]
    column, more = PLACES[place]
    whole = ids_of(make_reader(dataset, **way))
    flip(dataset / name.shard, bad[column] + more)

    what = f"{name.shard}: record 4 at byte {bad['offset']}: .*; max_bad_records=0: copy that shard"
    with pytest.raises(BadRecordError, match=what):
        ids_of(make_reader(dataset, **way))

    tolerant = make_reader(dataset, **{**way, "epochs": 2, "max_bad_records": 1})
    ids = ids_of(tolerant)
    assert sorted(ids) == sorted(2 * [kept for kept in whole if kept != bad["id"]])
    found = [(record.shard, record.row) for record in tolerant.bad_records]
    assert found == [(str(dataset / name.shard), 4)]


def test_a_batch_without_its_bad_record(dataset: Path) -> None:
    name = first_shard(dataset)
    bad = rows(dataset, name)[5]
    flip(dataset / name.shard, bad["image_offset"])
    options: dict[str, Any] = {"max_bad_records": 3, "image": sw.EvalImage(8)}
    short = make_reader(dataset, **options)
    padded = make_reader(dataset, remainder="pad", **options)

    assert [len(batch["image"]) for batch in short][:3] == [4, 3, 4]
    second = list(padded)[1]
    assert second["image"].shape == (4, 8, 8, 3)
    assert second["mask"].tolist() == [True, False, True, True]
    assert not second["image"][1].any()
    assert (short.has_static_rows, padded.has_static_rows) == (False, True)
    assert short.element_spec["image"][0] == (None, 8, 8, 3)


def test_images_and_labels_do_not_need_a_sound_frame(dataset: Path) -> None:
    """They are read at the index's offsets and checked by its checksums."""

    def images() -> list[Any]:
        reader = make_reader(dataset, features=["image", "label"])
        return [batch["image"].tolist() for batch in reader]

    name = first_shard(dataset)
    whole = images()
    flip(dataset / name.shard, rows(dataset, name)[4]["offset"] + 1)
    assert images() == whole
    flip(dataset / name.shard, rows(dataset, name)[4]["image_offset"] + 7)
    what = "the checksum of the image bytes does not match the index"
    with pytest.raises(BadRecordError, match=what):
        images()


def exchange_sidecars(dataset: Path, name: ShardName) -> None:
    other = ShardName(name.name, name.split, name.index + 1, name.count)
    shutil.copyfile(dataset / other.sidecar, dataset / name.sidecar)


DAMAGES: dict[str, tuple[Callable[[Path, ShardName], Any], str]] = {
    "missing": (lambda d, name: (d / name.shard).unlink(),
                "train.tfrecord-00000-of-00003 is missing, and the manifest states"),
    "empty": (lambda d, name: (d / name.shard).write_bytes(b""),
              "is 0 bytes long, and the manifest states"),
    "no sidecar": (lambda d, name: (d / name.sidecar).unlink(),
                   "train-00000-of-00003.parquet is missing: the index of"),
    "damaged sidecar": (
        lambda d, name: (d / name.sidecar).write_bytes(b"PAR1"),
        "train-00000-of-00003.parquet is damaged, or of another build .the file has 4 bytes"),
    "stale sidecar": (exchange_sidecars,
                      "train-00000-of-00003.parquet is damaged, or of another build"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("damage", "why"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_dataset(dataset: Path, way: Any, damage: Any, why: str) -> None:
    damage(dataset, first_shard(dataset))
    with pytest.raises(StorageError, match=why):
        ids_of(make_reader(dataset, **way))


def test_a_disk_that_fails(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(StorageError, match=r"tfrecord-0.* cannot be read: Input/output error"):
        ids_of(make_reader(dataset))


def test_an_image_that_was_damaged_before_the_build_is_told_from_a_record_damaged_since(
    tmp_path: Path,
) -> None:
    images, built = builds.make_images(tmp_path / "in", 3), tmp_path / "out"
    before, after = "bird/0000.png", "cat/0001.png"
    (images / before).write_bytes((images / before).read_bytes()[:60])
    assert builds.build(images, built, "--name", "x", "--check", "none") == 0
    (row,) = (row for row in builds.index_of(built).popitem()[1].to_pylist() if row["id"] == after)
    shard = built / "x-train.tfrecord-00000-of-00001"
    data = bytearray(shard.read_bytes())
    data[row["image_offset"] + 20 : row["image_offset"] + 60] = bytes(40)
    shard.write_bytes(data)
    fixes = {
        before: "the record's checksum is right, .* already damaged when .* --check decode",
        after: "copy that shard again, or run `shardwright repair`",
    }
    options: dict[str, Any] = {"global_batch_size": 1, "image": sw.EvalImage(8)}
    tolerant = make_reader(built, max_bad_records=2, **options)
    assert sum(len(batch["id"]) for batch in tolerant) == 1
    bad = {record.id: record.is_as_built for record in tolerant.bad_records}
    assert bad == {before: True, after: False}
    for name, fix in fixes.items():
        with pytest.raises(BadRecordError, match=f"{name}.*: {fix}"):
            list(make_reader(built, where=pc.field("id") == name, **options))


FIRST, SECOND = (BadRecord("a-shard", row, 90 * row, "damaged") for row in range(2))


def test_a_record_counts_once() -> None:
    """A batch of a balanced sample may draw it twice; a later epoch meets it again."""
    assert add_bad_records([], [FIRST, FIRST], most=1) == [FIRST]
    assert add_bad_records([FIRST], [FIRST, SECOND, SECOND], most=2) == [FIRST, SECOND]
    with pytest.raises(BadRecordError, match=r"\(2 bad records so far\); max_bad_records=1"):
        add_bad_records([FIRST], [FIRST, SECOND], most=1)
