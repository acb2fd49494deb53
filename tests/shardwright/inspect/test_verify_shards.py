"""verify: damaged, missing and exchanged shards and sidecars are reported, and the rest checked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from tests.support.damage import edit_bytes, first_shard, row_offsets

Damage = Callable[[bytearray, list[int]], None]  # of the bytes of a shard, given its offsets


def flip(*places: tuple[int, int, int]) -> Damage:
    """Return a damage that flips bits: (record, bytes after its beginning, mask) of each."""

    def damage(data: bytearray, offsets: list[int]) -> None:
        for record, more, mask in places:
            data[offsets[record] + more] ^= mask

    return damage


def cut(record: int, more: int) -> Damage:
    """Return a damage that ends the file so many bytes after the beginning of a record."""
    return lambda data, offsets: data.__delitem__(slice(offsets[record] + more, None))


def add_a_byte(data: bytearray, _: list[int]) -> None:
    data.append(0)


def add_a_record(data: bytearray, offsets: list[int]) -> None:
    data += data[: offsets[1]]


def zero_middle(data: bytearray, offsets: list[int]) -> None:
    data[offsets[2] : offsets[6]] = bytes(offsets[6] - offsets[2])


flip_image_bit, flip_length = flip((4, -20, 1)), flip((3, 0, 1))
DATA, LENGTH = "checksum of the record's data", "checksum of the record's length"
BYTES = "bytes, the manifest says"


@pytest.mark.parametrize(("damage", "records", "whats"), [
    (flip_image_bit, {3: DATA}, ["crc32c"]),
    (flip_length, {3: LENGTH}, ["crc32c"]),
    (flip((3, 9, 0x80)), {3: LENGTH}, ["crc32c"]),
    (flip((4, -1, 0x10)), {3: DATA}, ["crc32c"]),
    (flip((3, 0, 1), (5, 0, 1)), {3: LENGTH, 5: LENGTH}, ["crc32c"]),
    (flip((9, 0, 1)), {9: LENGTH}, ["crc32c"]),
    (cut(7, 0), {}, [BYTES, "its last 3 records are cut off"]),
    (cut(7, 5), {}, [BYTES, "its last 3 records are cut off"]),
    (cut(0, 0), {}, ["has 0 bytes, the manifest says", "its last 10 records are cut off"]),
    (add_a_byte, {}, [BYTES]),
    (add_a_record, {}, [BYTES]),
    (zero_middle, {2: LENGTH, 3: LENGTH, 4: LENGTH, 5: LENGTH}, ["crc32c"]),
])  # fmt: skip
def test_damaged_bytes(damage: Damage, records: dict[int, str], whats: Any, dataset: Path) -> None:
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    ends = [*offsets, (dataset / name.shard).stat().st_size]
    edit_bytes(dataset / name.shard, lambda data: damage(data, offsets))
    result = verify(str(dataset))
    told = {fault.record: fault for fault in result.faults if fault.record is not None}
    assert {number: fault.offset for number, fault in told.items()} == {
        number: ends[number] for number in records
    }
    for number, what in records.items():
        assert what in told[number].what
    others = [fault.what for fault in result.faults if fault.record is None]
    assert len(others) == len(whats), others
    for what, other in zip(whats, others, strict=True):
        assert what in other
    assert {fault.file for fault in result.faults} == {name.shard}


def test_two_sound_records_in_each_others_place(dataset: Path) -> None:
    name = first_shard(dataset)
    path, offsets = dataset / name.shard, row_offsets(dataset, name)

    def exchange(data: bytearray) -> None:
        left, right = data[offsets[2] : offsets[3]], data[offsets[3] : offsets[4]]
        data[offsets[2] : offsets[4]] = right + left

    length = path.stat().st_size
    edit_bytes(path, exchange)
    assert path.stat().st_size == length
    assert [fault.record for fault in verify(str(dataset)).faults] == [None, 2, 3]


def test_without_an_index_no_record_is_named(dataset: Path) -> None:
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    (dataset / name.sidecar).unlink()
    edit_bytes(dataset / name.shard, lambda data: flip_length(data, offsets))
    faults = verify(str(dataset)).faults
    assert [(fault.file, fault.record) for fault in faults] == [
        (name.sidecar, None),
        (name.shard, None),
    ]


def test_any_flipped_bit_is_a_fault_of_its_record(dataset: Path) -> None:
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    path = dataset / name.shard
    whole = path.read_bytes()
    for position in range(offsets[2], offsets[3], 13):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        found = [(fault.record, fault.offset) for fault in verify(str(dataset)).faults]
        assert found == [(None, None), (2, offsets[2])], position


def first_two(dataset: Path) -> list[ShardName]:
    return read_manifest(Folder(str(dataset))).shard_names("train")[:2]


def swap_shards(dataset: Path) -> None:
    swap(*(dataset / name.shard for name in first_two(dataset)))


def swap_sidecars(dataset: Path) -> None:
    swap(*(dataset / name.sidecar for name in first_two(dataset)))


def swap(left: Path, right: Path) -> None:
    kept = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(kept)


FIRST = "-00000-of-00003"
SHARD, SIDECAR = f"zoo-train.tfrecord{FIRST}", f"index/train{FIRST}.parquet"
SWAPPED = "the file has the content of zoo-train.tfrecord-00001-of-00003 (swapped or copied)"


@pytest.mark.parametrize(("file", "change", "what"), [
    # None removes the file, a text replaces it
    (SHARD, None, "the shard is missing, with 10 records"),
    (SHARD, swap_shards, SWAPPED),
    (SIDECAR, None, "the index of zoo-train.tfrecord-00000-of-00003 is missing"),
    (SIDECAR, "PAR1 no more", "the file has 12 bytes, the manifest says"),
    (SIDECAR, swap_sidecars, "the file has the content of index/train-00001-of-00003.parquet"),
    ("features.json", None, "the file is missing"),
    ("features.json", "[1]", BYTES),
    ("dataset_info.json", "{}", BYTES),
    ("dataset_info.json", None, "the file is missing"),
    ("stats.json", "{}", BYTES),
    ("schema.pbtxt", None, "the file is missing"),
    ("label.labels.txt", "ape\nbee\n", BYTES),
    ("label.labels.txt", None, "the file is missing"),
    (naming.PLAN_REJECTS, None, "the file is missing"),
])  # fmt: skip
def test_wrong_files(file: str, change: Any, what: str, dataset: Path) -> None:
    if callable(change):
        change(dataset)
    elif change is None:
        (dataset / file).unlink()
    else:
        (dataset / file).write_text(change)
    result = verify(str(dataset))
    alike = [fault for fault in result.faults if fault.file == file]
    assert any(what in fault.what for fault in alike), "\n".join(map(str, result.faults))
    assert change is not swap_shards or len(result.faults) == 2
    assert result.num_records >= 26, "the other shards are checked too"


def test_one_shard_in_two_places(dataset: Path) -> None:
    left, right = first_two(dataset)
    shutil.copy(dataset / left.shard, dataset / right.shard)
    [fault] = verify(str(dataset)).faults
    assert fault.file == right.shard
    assert f"the content of {left.shard} (swapped or copied)" in fault.what
