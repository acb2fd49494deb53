"""The judge of writers finds wrong records, index rows, ids, statistics and companion files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.listed_files import DatasetFault
from tests.support.damage import (
    Features,
    assert_fault,
    build,
    edit_json,
    edit_rows,
    example,
    first_shard,
    forge_records,
    forge_shard,
    read_features,
    row_offsets,
)
from tests.support.judge import judge

Edit = Callable[[dict[str, Any]], object]
EditFeatures = Callable[[list[Features]], object]


assert_judged = partial(assert_fault, check=judge)


def restate(dataset: Path, file: str) -> None:
    """Let the manifest state a file as it is."""
    content = FileContent.of((dataset / file).read_bytes())._asdict()
    edit_json(dataset / naming.MANIFEST, lambda manifest: manifest["files"].update({file: content}))


def test_a_built_dataset_is_judged_sound(zoo: Path) -> None:
    assert judge(str(zoo)).faults == ()


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
    assert_judged(dataset, DatasetFault(name.sidecar, 2, offset, what))
    assert len(judge(str(dataset)).faults) == 1


@pytest.mark.parametrize(("file", "edit", "what"), [
    ("manifest.json", lambda m: m.update(num_records=5),
     "totals that do not match the shards: num_records"),
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
    if file != naming.MANIFEST:
        restate(dataset, file)
    assert_judged(dataset, DatasetFault(file, None, None, what))


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
    assert_judged(dataset, DatasetFault(name.shard, 2, row_offsets(dataset, name)[2], what))
    files = {fault.file for fault in judge(str(dataset)).faults if fault.record not in (None, 2)}
    assert files == set(), "no other record is blamed"


def test_a_record_that_is_no_example(dataset: Path) -> None:
    name = first_shard(dataset)
    records = [example(features) for features in read_features(dataset, name)]
    forge_records(dataset, name, [*records[:2], b"\xff\xff\xff", *records[3:]])
    assert_judged(
        dataset, DatasetFault(name.shard, 2, row_offsets(dataset, name)[2], "not a tf.Example")
    )


def test_an_id_twice_across_splits(dataset: Path) -> None:
    train, test = first_shard(dataset), first_shard(dataset, "test")
    taken = read_features(dataset, test)[1]["id"]
    forge_shard(dataset, train, lambda features: features[2].update({"id": taken}))
    assert isinstance(taken[0], bytes)
    what = f"2 records have id {taken[0].decode()!r}"
    assert_judged(dataset, DatasetFault.of_file(naming.MANIFEST, what))
    assert len(judge(str(dataset)).faults) == 1


def test_labels_that_differ_from_the_statistics(dataset: Path) -> None:
    name = first_shard(dataset)
    old = read_features(dataset, name)[2]["label"][0]
    forge_shard(dataset, name, set_feature("label", [(int(old) + 1) % 3]))
    found = judge(str(dataset)).faults
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
        assert_judged(dataset, DatasetFault(file, row, offsets[row], what))


def test_a_raw_image_of_another_size(zoo_images: Path, tmp_path: Path) -> None:
    dataset = build(zoo_images / "bee", tmp_path / "raw", "--encode", "raw", "--resize", "4x5")
    name = first_shard(dataset)
    forge_shard(dataset, name, set_feature("image", [bytes(59)]))
    what = "feature 'image' has 59 bytes, a raw image of 5x4x3 has 60"
    assert_judged(dataset, DatasetFault(name.shard, 2, row_offsets(dataset, name)[2], what))
