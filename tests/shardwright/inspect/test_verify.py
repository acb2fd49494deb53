"""verify: sound datasets of every kind pass, and wrong index rows and companions are reported."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwright.errors import NotADatasetError
from shardwright.format.contents import file_crc32c
from shardwright.format.manifest import read_manifest
from shardwright.inspect import faults, shard_check
from shardwright.inspect.cli import main
from shardwright.inspect.faults import DatasetFault, Verification
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from tests.support.damage import (
    Features,
    assert_fault,
    build,
    edit_bytes,
    edit_json,
    edit_rows,
    example,
    first_shard,
    forge_records,
    forge_shard,
    read_features,
    row_offsets,
)

Edit = Callable[[dict[str, Any]], object]
EditFeatures = Callable[[list[Features]], object]


def test_a_built_dataset_is_sound(zoo: Path) -> None:
    result = verify(str(zoo))
    manifest = read_manifest(Folder(str(zoo)))
    assert manifest.rejects == {"empty_file": 1}
    assert_sound(result, 36)
    num_shards = len(list(zoo.glob("*.tfrecord-*")))
    assert (result.num_bytes, result.num_shards) == (manifest.num_bytes, num_shards)


def assert_sound(result: Verification, num_records: int) -> None:
    assert (result.faults, result.notes, result.num_records) == ((), (), num_records)


@pytest.mark.long_but_first
@pytest.mark.parametrize(("folder", "output", "num_records", "options"), [
    (".", "out", 36, "--encode jpeg --resize 9x5 --feature-names model-garden"),
    (".", "out", 36, "--writer beam --shard-count 2 --feature-names model-garden"),
    ("bee", "label=3/id=x", 12, "--encode raw --resize 9x5"),  # named like a partition
])  # fmt: skip
def test_every_kind_of_dataset_is_sound(
    folder: str, output: str, num_records: int, options: str, zoo_images: Path, tmp_path: Path
) -> None:
    more = ("--max-reject-fraction", "0.5", *options.split())
    assert_sound(verify(str(build(zoo_images / folder, tmp_path / output, *more))), num_records)


def test_extra_features_of_every_kind_are_sound(zoo_images: Path, tmp_path: Path) -> None:
    rows = [
        {"path": str(path), "label": path.parent.name, "n": number, "f": number / 2,
         "s": f"é{number}", "ns": [number] * (number % 3), "fs": [0.5] * (number % 2),
         "ss": ["a", "b"][: number % 3]}
        for number, path in enumerate(sorted(zoo_images.glob("*/*[0-9].png")))
    ]  # fmt: skip
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = build(table, tmp_path / "out", "--allow-outside", str(zoo_images))
    assert_sound(verify(str(output)), 36)


@pytest.mark.parametrize(("column", "value", "what"), [
    ("id", "somebody/else.png", "the row's id is 'somebody/else.png', the record's"),
    ("label", 77, "the row's label is 77, the record's"),
    ("label", None, "the row's label is None, the record's"),
    ("offset", 1, "bytes at byte 1, the record has"),
    ("length", 17, "the row says 17 bytes at byte"),
    ("image_offset", 5, "at byte 5, but the record's image of"),
    ("image_offset", 10**12, "is not there"),
    ("image_length", 3, "the image is 3 bytes at byte"),
    ("crc32c", 1, "the row's crc32c of the image is 0x00000001, the image's is 0x"),
])  # fmt: skip
def test_wrong_index_rows(column: str, value: Any, what: str, dataset: Path) -> None:
    name = first_shard(dataset)
    offset = row_offsets(dataset, name)[2]
    edit_rows(dataset, name, lambda rows: rows[2].update({column: value}))
    assert_fault(dataset, DatasetFault(name.sidecar, 2, offset, what))
    assert len(verify(str(dataset)).faults) == 1


def test_rows_too_few(dataset: Path) -> None:
    name = first_shard(dataset)
    edit_rows(dataset, name, lambda rows: rows.pop())
    assert_fault(dataset, DatasetFault(name.sidecar, None, None, "it has 9 rows for 10 records"))


@pytest.mark.parametrize(("file", "edit", "what"), [
    ("manifest.json", lambda m: m.update(num_records=5),
     "totals that do not match the shards: num_records"),
    ("manifest.json", lambda m: m["splits"]["train"]["shards"][1].update(index=0),
     "split 'train' has shards [0, 0, 2]"),
    ("manifest.json", lambda m: m.update(num_inputs=50),
     "num_inputs is 50, but there are 36 records and 1 reject"),
    ("dataset_info.json", lambda m: m["splits"][1]["shardLengths"].reverse(),
     "shardLengths of split 'train' is ['"),
    ("dataset_info.json", lambda m: m["splits"].pop(), "shardLengths of split 'train' is None"),
    ("dataset_info.json", lambda m: m.update(name="x"), "name is 'x', the manifest says 'zoo'"),
    ("dataset_info.json", lambda m: m.update(splits=None),
     "$.splits is None: expected array, got null"),
    ("features.json", lambda m: m["featuresDict"]["features"].pop("id"),
     "feature 'id' is missing, the schema says text"),
    ("features.json",
     lambda m: m["featuresDict"]["features"]["label"]["classLabel"].update(numClasses="4"),
     "feature 'label' is class_label of 4, the schema says class_label of 3"),
])  # fmt: skip
def test_files_that_disagree(file: str, edit: Edit, what: str, dataset: Path) -> None:
    edit_json(dataset / file, edit)
    assert_fault(dataset, DatasetFault(file, None, None, what))


def test_stray_files_are_notes_and_no_faults(dataset: Path) -> None:
    name = first_shard(dataset)
    strays = [
        "zoo-train.tfrecord-00000-of-00009",
        ".zoo-train.tfrecord-00000-of-00003.1a2b3c4d.tmp",
        "index/old-00000-of-00001.parquet",
    ]
    for stray in strays:
        shutil.copy(dataset / name.shard, dataset / stray)
    (dataset / "README.md").write_text("a file of the user's own is none of ours")
    result = verify(str(dataset))
    assert result.is_sound
    assert {note.file for note in result.notes} == set(strays)


def test_faults_above_the_limit_are_only_counted() -> None:
    def many() -> Iterator[DatasetFault]:
        for number in range(faults.MAX_FAULTS_PER_FILE + 7):
            yield DatasetFault("a", number, 0, "x")
        yield DatasetFault("b", 0, 0, "y")

    kept = list(faults.limit_faults(many()))
    assert len(kept) == faults.MAX_FAULTS_PER_FILE + 2
    assert str(kept[-1]) == "a: 7 more faults in this file are not listed"


def test_memory_is_bounded_by_records_and_not_by_the_shard(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(bytes(48 << 20))
    tracemalloc.start()
    with open(path, "rb", buffering=shard_check.BLOCK_BYTES) as file:
        file_crc32c(file)
        file.seek(0)
        assert len(list(shard_check.walk_records(file, np.zeros(0, np.int64)))) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20


def test_the_command(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(dataset)]) == 0
    assert f"{dataset}: sound (" in capsys.readouterr().out
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)

    def flip(data: bytearray) -> None:
        data[offsets[3]] ^= 1

    edit_bytes(dataset / name.shard, flip)
    assert main(["verify", str(dataset)]) == 1
    lines = capsys.readouterr().out.splitlines()
    what = "the checksum of the record's length is wrong"
    assert lines[1] == f"{name.shard}: record 3 at byte {offsets[3]}: {what}"
    assert f"{dataset}: 2 faults found (" in lines[-1]
    assert main(["verify", str(dataset), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["sound"]
    fault = {"file": name.shard, "record": 3, "offset": offsets[3], "what": what}
    assert told["faults"][1] == fault
    assert main(["verify", str(tmp_path)]) == 2
    assert "is not a shardwright dataset" in capsys.readouterr().err
    with pytest.raises(NotADatasetError):
        verify(str(tmp_path / "nowhere"))


def set_feature(name: str, values: list[Any]) -> EditFeatures:
    return lambda features: features[2].update({name: values})


@pytest.mark.parametrize(("edit", "what"), [
    (set_feature("label", [3]), "label 3 is not one of the 3 classes (0 to 2)"),
    (set_feature("label", [-1]), "label -1 is not one of the 3 classes"),
    (set_feature("label", [0, 1]), "feature 'label' has 2 values, the schema says 1"),
    (set_feature("label", [1.5]), "feature 'label' holds float values, the schema says int64"),
    (set_feature("label", [b"ape"]), "feature 'label' holds bytes values, the schema says int64"),
    (set_feature("id", [5]), "feature 'id' holds int64 values, the schema says bytes"),
    (set_feature("image", []), "feature 'image' has 0 values"),
    (set_feature("image", [b""]), "feature 'image' is an image of 0 bytes"),
    (set_feature("extra", [1]), "feature 'extra' is not in the schema"),
    (lambda features: features[2].pop("label"), "feature 'label' is missing"),
    (lambda features: features[2].clear(), "feature 'id' is missing"),
])  # fmt: skip
def test_examples_that_do_not_fit(edit: EditFeatures, what: str, dataset: Path) -> None:
    name = first_shard(dataset)
    forge_shard(dataset, name, edit)
    assert_fault(dataset, DatasetFault(name.shard, 2, row_offsets(dataset, name)[2], what))
    files = {fault.file for fault in verify(str(dataset)).faults if fault.record not in (None, 2)}
    assert files == set(), "no other record is blamed"


def test_a_record_that_is_no_example(dataset: Path) -> None:
    name = first_shard(dataset)
    records = [example(features) for features in read_features(dataset, name)]
    forge_records(dataset, name, [*records[:2], b"\xff\xff\xff", *records[3:]])
    assert_fault(
        dataset, DatasetFault(name.shard, 2, row_offsets(dataset, name)[2], "not a tf.Example")
    )


def test_an_id_twice_across_splits(dataset: Path) -> None:
    train, test = first_shard(dataset), first_shard(dataset, "test")
    taken = read_features(dataset, test)[1]["id"]
    forge_shard(dataset, train, lambda features: features[2].update({"id": taken}))
    assert isinstance(taken[0], bytes)
    what = f"the id {taken[0].decode()!r} is also that of record 1 of {test.shard}"
    assert_fault(dataset, DatasetFault(train.shard, 2, row_offsets(dataset, train)[2], what))
    assert len(verify(str(dataset)).faults) == 1


def test_labels_that_differ_from_the_statistics(dataset: Path) -> None:
    name = first_shard(dataset)
    old = read_features(dataset, name)[2]["label"][0]
    forge_shard(dataset, name, set_feature("label", [(int(old) + 1) % 3]))
    found = verify(str(dataset)).faults
    assert [fault.file for fault in found] == ["manifest.json"]
    assert "the label statistics of split 'train' differ from its records" in found[0].what


@pytest.mark.long
def test_model_garden_text_and_sizes_are_compared(zoo_images: Path, tmp_path: Path) -> None:
    options = ("--feature-names", "model-garden", "--max-reject-fraction", "0.5")
    dataset = build(zoo_images, tmp_path / "mg", *options)
    name = first_shard(dataset)

    def edit(features: list[Features]) -> None:
        features[2]["image/class/text"] = [b"gnu"]
        features[3]["image/height"] = [999]
        features[4]["image/format"] = [b"tiff"]

    forge_shard(dataset, name, edit)
    offsets = row_offsets(dataset, name)
    for file, row, what in (
        (name.shard, 2, "feature 'image/class/text' is 'gnu', but label"),
        (name.sidecar, 3, "the record's 999"),
        (name.sidecar, 4, "the row's format is 'png', the record's 'tiff'"),
    ):
        assert_fault(dataset, DatasetFault(file, row, offsets[row], what))


def test_a_raw_image_of_another_size(zoo_images: Path, tmp_path: Path) -> None:
    dataset = build(zoo_images / "bee", tmp_path / "raw", "--encode", "raw", "--resize", "4x5")
    name = first_shard(dataset)
    forge_shard(dataset, name, set_feature("image", [bytes(59)]))
    what = "feature 'image' has 59 bytes, a raw image of 5x4x3 has 60"
    assert_fault(dataset, DatasetFault(name.shard, 2, row_offsets(dataset, name)[2], what))
