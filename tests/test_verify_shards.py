"""verify: damaged, missing and exchanged shards and sidecars are found, named, and do not hide the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.faults import Fault
from shardwright.manifest import read_manifest
from shardwright.records import HEADER_BYTES
from shardwright.storage import Folder
from shardwright.verify import verify
from tests.damage import assert_fault, edit_bytes, edit_json, first_shard, row_offsets


# Damage of the bytes of one shard: what is done to the file, and the faults it must give as (record, "at its place", what).
def flip_image_bit(data: bytearray, offsets: list[int]) -> None:
    data[offsets[4] - 20] ^= 1


def flip_length(data: bytearray, offsets: list[int]) -> None:
    data[offsets[3]] ^= 1


def flip_length_crc(data: bytearray, offsets: list[int]) -> None:
    data[offsets[3] + 9] ^= 0x80


def flip_data_crc(data: bytearray, offsets: list[int]) -> None:
    data[offsets[4] - 1] ^= 0x10


def flip_two_lengths(data: bytearray, offsets: list[int]) -> None:
    data[offsets[3]] ^= 1
    data[offsets[5]] ^= 1


def flip_last_length(data: bytearray, offsets: list[int]) -> None:
    data[offsets[9]] ^= 1


def cut_between(data: bytearray, offsets: list[int]) -> None:
    del data[offsets[7] :]


def cut_inside_header(data: bytearray, offsets: list[int]) -> None:
    del data[offsets[7] + 5 :]


def cut_inside_data(data: bytearray, offsets: list[int]) -> None:
    del data[offsets[7] + HEADER_BYTES + 9 :]


def add_a_byte(data: bytearray, _: list[int]) -> None:
    data.append(0)


def add_a_record(data: bytearray, offsets: list[int]) -> None:
    data += data[: offsets[1]]


def empty(data: bytearray, _: list[int]) -> None:
    data.clear()


def zero_middle(data: bytearray, offsets: list[int]) -> None:
    data[offsets[2] : offsets[6]] = bytes(offsets[6] - offsets[2])


DATA, LENGTH = "checksum of the record's data", "checksum of the record's length"


@pytest.mark.parametrize(
    ("damage", "records", "whats"),
    [
        (flip_image_bit, {3: DATA}, ["crc32c"]),
        (flip_length, {3: LENGTH}, ["crc32c"]),
        (flip_length_crc, {3: LENGTH}, ["crc32c"]),
        (flip_data_crc, {3: DATA}, ["crc32c"]),
        (flip_two_lengths, {3: LENGTH, 5: LENGTH}, ["crc32c"]),
        (flip_last_length, {9: LENGTH}, ["crc32c"]),
        (cut_between, {}, ["bytes, the manifest says", "holds 7 records, the manifest says 10"]),
        (
            cut_inside_header,
            {7: "after 5 of 12 bytes"},
            ["bytes, the manifest says", "last 2 records are cut off"],
        ),
        (
            cut_inside_data,
            {7: "ends inside the record, which claims"},
            ["bytes, the manifest says", "last 2 records are cut off"],
        ),
        (add_a_byte, {10: "after 1 of 12 bytes"}, ["bytes, the manifest says"]),
        (empty, {}, ["has 0 bytes, the manifest says", "holds 0 records, the manifest says 10"]),
        (zero_middle, {2: LENGTH, 3: LENGTH, 4: LENGTH, 5: LENGTH}, ["crc32c"]),
    ],
)
def test_damaged_bytes_are_found_and_the_rest_is_still_checked(
    damage: Callable[[bytearray, list[int]], None],
    records: dict[int, str],
    whats: list[str],
    dataset: Path,
) -> None:
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


def test_a_record_too_many_is_an_id_twice(dataset: Path) -> None:
    name = first_shard(dataset)
    offsets, size = row_offsets(dataset, name), (dataset / name.shard).stat().st_size
    edit_bytes(dataset / name.shard, lambda data: add_a_record(data, offsets))
    assert_fault(dataset, Fault(name.shard, None, None, "holds 11 records, the manifest says 10"))
    assert_fault(dataset, Fault(name.shard, 10, size, f"is also that of record 0 of {name.shard}"))


def test_a_broken_length_without_an_index_ends_the_shard_and_says_so(dataset: Path) -> None:
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    (dataset / name.sidecar).unlink()
    edit_bytes(dataset / name.shard, lambda data: flip_length(data, offsets))
    assert_fault(dataset, Fault(name.shard, 3, offsets[3], LENGTH))
    assert_fault(
        dataset,
        Fault(name.shard, None, None, "the last 6 records are cut off, or behind a broken one"),
    )
    edit_bytes(dataset / name.shard, lambda data: flip_length(data, offsets))
    edit_bytes(dataset / name.shard, lambda data: flip_image_bit(data, offsets))
    assert [fault.record for fault in verify(str(dataset)).faults if fault.file == name.shard] == [
        None,
        3,
    ]


def test_bits_all_over_a_record_are_watched(dataset: Path) -> None:
    """A flipped bit of a record, frame and all, neither goes unseen nor is blamed on another record."""
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    path = dataset / name.shard
    whole = path.read_bytes()
    for position in range(offsets[2], offsets[3], 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        found = verify(str(dataset)).faults
        assert [(fault.record, fault.offset) for fault in found] == [
            (None, None),
            (2, offsets[2]),
        ], position


# Whole files: what is done, the file the fault must name, and what it must say.
def swap_shards(dataset: Path) -> None:
    left, right = (
        dataset / name.shard
        for name in read_manifest(Folder(str(dataset))).shard_names("train")[:2]
    )
    kept = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(kept)


def swap_sidecars(dataset: Path) -> None:
    left, right = (
        dataset / name.sidecar
        for name in read_manifest(Folder(str(dataset))).shard_names("train")[:2]
    )
    kept = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(kept)


def stale_digest(dataset: Path) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["splits"]["train"]["shards"][0]["digest"] = "0" * 32

    edit_json(dataset / "manifest.json", edit)


SHARD, SIDECAR = "zoo-train.tfrecord-00000-of-0000", "index/train-00000-of-0000"


@pytest.mark.parametrize(
    ("damage", "file", "what"),
    [
        (lambda d: (d / first_shard(d).shard).unlink(), SHARD, "the shard is missing, with 10 records"),
        (lambda d: (d / first_shard(d).sidecar).unlink(), SIDECAR, "is missing: the index of zoo-train.tfrecord-00000"),
        (lambda d: (d / first_shard(d).sidecar).write_bytes(b"PAR1 no more"), SIDECAR, "cannot be read"),
        (swap_shards, SHARD, "the file is that of zoo-train.tfrecord-00001-of-00003, swapped or copied"),
        (swap_sidecars, SIDECAR, "it is of another shard than the manifest names (name "),
        (stale_digest, SIDECAR, "and not '00000000000000000000000000000000'); its rows are not compared"),
        (lambda d: (d / "features.json").unlink(), "features.json", "the file is missing"),
        (lambda d: (d / "features.json").write_text("[1]"), "features.json", "does not hold a JSON object"),
        (lambda d: (d / "features.json").write_text('{"featuresDict": 3}'), "features.json", "not built as this file must be"),
        (lambda d: (d / "dataset_info.json").write_text("{"), "dataset_info.json", "not readable JSON"),
        (lambda d: (d / "dataset_info.json").unlink(), "dataset_info.json", "the file is missing"),
        (lambda d: (d / "stats.json").write_text("{}"), "stats.json", "statistics of split 'test' are not those of the manifest"),
        (lambda d: (d / "schema.pbtxt").unlink(), "schema.pbtxt", "the file is missing"),
        (lambda d: (d / "label.labels.txt").write_text("ape\nbee\n"), "label.labels.txt", "names 2 classes that are not the 3"),
        (lambda d: (d / "label.labels.txt").unlink(), "label.labels.txt", "the file is missing"),
        (lambda d: shutil.rmtree(d / "rejects"), "rejects", "hold no rejects, the manifest says 1 empty_file"),
    ],
)  # fmt: skip
def test_missing_and_wrong_files_are_named(
    damage: Callable[[Path], Any], file: str, what: str, dataset: Path
) -> None:
    damage(dataset)
    found = verify(str(dataset)).faults
    assert any(fault.file.startswith(file) and what in fault.what for fault in found), "\n".join(
        map(str, found)
    )
    assert verify(str(dataset)).num_records >= 26, "the other shards were still looked at"


def test_swapped_shards_are_one_fault_each(dataset: Path) -> None:
    swap_shards(dataset)
    assert len(verify(str(dataset)).faults) == 2


def test_one_shard_in_two_places_has_all_its_ids_twice(dataset: Path) -> None:
    left, right = read_manifest(Folder(str(dataset))).shard_names("train")[:2]
    shutil.copy(dataset / left.shard, dataset / right.shard)
    doubled = [fault for fault in verify(str(dataset)).faults if "is also that of" in fault.what]
    assert [(fault.file, fault.record) for fault in doubled] == [
        (right.shard, number) for number in range(10)
    ]
    assert doubled[4].what.endswith(f"is also that of record 4 of {left.shard}")
