"""verify: examples that are framed, indexed and summed up correctly, and are still not what the schema says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.faults import Fault
from shardwright.verify import verify
from tests.damage import (
    Features,
    assert_fault,
    build,
    example,
    first_shard,
    forge_records,
    forge_shard,
    read_features,
    row_offsets,
)


def set_feature(name: str, values: list[Any]) -> Callable[[list[Features]], None]:
    return lambda features: features[2].update({name: values})


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (set_feature("label", [3]), "label 3 is not one of the 3 classes (0 to 2)"),
        (set_feature("label", [-1]), "label -1 is not one of the 3 classes"),
        (set_feature("label", [0, 1]), "feature 'label' has 2 values, the schema says 1"),
        (set_feature("label", [1.5]), "feature 'label' holds float values, the schema says int64"),
        (
            set_feature("label", [b"ape"]),
            "feature 'label' holds bytes values, the schema says int64",
        ),
        (set_feature("id", [5]), "feature 'id' holds int64 values, the schema says bytes"),
        (set_feature("image", []), "feature 'image' has 0 values"),
        (set_feature("image", [b""]), "feature 'image' is an image of 0 bytes"),
        (set_feature("extra", [1]), "feature 'extra' is not in the schema"),
        (lambda features: features[2].pop("label"), "feature 'label' is missing"),
        (lambda features: features[2].clear(), "feature 'id' is missing"),
    ],
)
def test_examples_that_are_not_the_schemas(
    edit: Callable[[list[Features]], None], what: str, dataset: Path
) -> None:
    name = first_shard(dataset)
    forge_shard(dataset, name, edit)
    assert_fault(dataset, Fault(name.shard, 2, row_offsets(dataset, name)[2], what))
    files = {fault.file for fault in verify(str(dataset)).faults if fault.record not in (None, 2)}
    assert files == set(), "no other record is blamed"


def test_a_record_that_is_no_example(dataset: Path) -> None:
    name = first_shard(dataset)
    records = [example(features) for features in read_features(dataset, name)]
    forge_records(dataset, name, [*records[:2], b"\xff\xff\xff", *records[3:]])
    assert_fault(dataset, Fault(name.shard, 2, row_offsets(dataset, name)[2], "not a tf.Example"))


def test_an_id_twice_across_splits(dataset: Path) -> None:
    train, test = first_shard(dataset), first_shard(dataset, "test")
    taken = read_features(dataset, test)[1]["id"]
    forge_shard(dataset, train, lambda features: features[2].update({"id": taken}))
    assert isinstance(taken[0], bytes)
    what = f"the id {taken[0].decode()!r} is also that of record 1 of {test.shard}"
    assert_fault(dataset, Fault(train.shard, 2, row_offsets(dataset, train)[2], what))
    assert len(verify(str(dataset)).faults) == 1


def test_other_labels_than_the_statistics_count(dataset: Path) -> None:
    name = first_shard(dataset)
    old = read_features(dataset, name)[2]["label"][0]
    forge_shard(dataset, name, set_feature("label", [(int(old) + 1) % 3]))
    found = verify(str(dataset)).faults
    assert [fault.file for fault in found] == ["manifest.json"]
    assert "the statistics of split 'train' count other labels than its records" in found[0].what


def test_model_garden_text_and_sizes_are_compared(zoo_images: Path, tmp_path: Path) -> None:
    dataset = build(
        zoo_images,
        tmp_path / "mg",
        "--feature-names",
        "model-garden",
        "--max-reject-fraction",
        "0.5",
    )
    name = first_shard(dataset)

    def edit(features: list[Features]) -> None:
        features[2]["image/class/text"] = [b"gnu"]
        features[3]["image/height"] = [999]
        features[4]["image/format"] = [b"tiff"]

    forge_shard(dataset, name, edit)
    offsets = row_offsets(dataset, name)
    assert_fault(
        dataset, Fault(name.shard, 2, offsets[2], "feature 'image/class/text' is 'gnu', but label")
    )
    assert_fault(dataset, Fault(name.sidecar, 3, offsets[3], "the record's 999"))
    assert_fault(
        dataset,
        Fault(name.sidecar, 4, offsets[4], "the row's format is 'png', the record's 'tiff'"),
    )


def test_a_raw_image_of_another_size(zoo_images: Path, tmp_path: Path) -> None:
    dataset = build(
        zoo_images,
        tmp_path / "raw",
        "--encode",
        "raw",
        "--resize",
        "4x5",
        "--max-reject-fraction",
        "0.5",
    )
    name = first_shard(dataset)
    forge_shard(dataset, name, set_feature("image", [bytes(59)]))
    what = "feature 'image' has 59 bytes, a raw image of 5x4x3 has 60"
    assert_fault(dataset, Fault(name.shard, 2, row_offsets(dataset, name)[2], what))
