"""Images that records may lack, as the main image and beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import shardwright as sw
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.inspect import cli
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import png_of, rejects_of, write_table
from tests.support.helpers import write_schema
from tests.support.tfrecord_makers import records_of

NUMBER = 8
SCHEMA = ExampleSchema(
    (
        Feature("image", FeatureKind.IMAGE, Source.IMAGE, default=""),
        Feature("id", FeatureKind.TEXT, Source.ID),
        Feature("width", FeatureKind.INT64, Source.WIDTH),
        Feature("other", FeatureKind.IMAGE, default=""),
        Feature("age", FeatureKind.INT64),
    )
)


def has_image(number: int) -> bool:
    return number % 2 == 0


def has_other(number: int) -> bool:
    return number % 3 == 0


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("in")
    rows: list[dict[str, Any]] = []
    for number in range(NUMBER):
        (root / f"{number}.png").write_bytes(png_of(number))
        image = f"{number}.png" if has_image(number) else ""
        other = f"{number}.png" if has_other(number) else None
        split = "test" if number < 2 else "train"
        rows.append(
            {"id": f"r{number}", "image": image, "other": other, "age": number, "split": split}
        )
    rows.append({"id": "gone", "image": "gone.png", "other": "", "age": 0, "split": "train"})
    return write_table(root / "rows.jsonl", rows)


@pytest.fixture(scope="module")
def dataset(given: Path) -> Path:
    out = given.parent.parent / f"{given.parent.name}-out"
    own = write_schema(given.parent / "own.json", SCHEMA)
    assert build(given, out, "--schema", own, "--max-reject-fraction", "0.2") == 0
    return out


def test_records_lack_only_what_their_rows_lack(dataset: Path) -> None:
    """A path to a missing file is a reject, not a record without an image."""
    found = {name: (one["image"][0], one["other"][0]) for name, one in records_of(dataset).items()}
    assert found == {
        f"r{number}": (
            png_of(number) if has_image(number) else b"",
            png_of(number) if has_other(number) else b"",
        )
        for number in range(NUMBER)
    }
    assert [(one["id"], one["reason"]) for one in rejects_of(dataset)] == [("gone", "missing_file")]
    assert cli.main(["verify", str(dataset)]) == 0
    stats = sw.open(str(dataset)).splits["train"].stats
    assert (stats["width"]["count"], stats["width"]["min"]) == (3, 9)
    assert (stats["formats"], "duplicates" in stats) == ({"png": 3}, False)


@pytest.mark.long
def test_our_readers_give_zeros(dataset: Path) -> None:
    with sw.Reader(
        str(dataset), "all", global_batch_size=NUMBER, image=sw.EvalImage(6), epochs=1
    ) as reader:
        (batch,) = reader
    assert batch["image"].shape == (NUMBER, 6, 6, 3)
    for number, image, other in zip(batch["age"], batch["image"], batch["other"], strict=True):
        assert image.any() == has_image(number)
        assert bool(other) == has_other(number)
    crops = sw.MultiCrop(sw.TrainImage(4), sw.DecodedImage())
    with sw.Reader(str(dataset), "all", batch_size=NUMBER, image=crops, epochs=1) as reader:
        (batch,) = reader
    for number, first, second in zip(batch["age"], batch["image_0"], batch["image_1"], strict=True):
        assert (first.any(), len(second) > 0) == (has_image(number), has_image(number))
    with sw.Reader(
        str(dataset), "all", global_batch_size=NUMBER, features=["image"], epochs=1
    ) as reader:
        (batch,) = reader  # by the index alone
    assert sum(map(bool, batch["image"])) == NUMBER // 2
    encoded = sw.load(
        str(dataset), "all", features=["image"], batch_size=NUMBER, decode=False, shuffle=True
    )
    assert sum(map(bool, next(encoded.as_numpy_iterator())["image"])) == NUMBER // 2
    examples = [*sw.load(str(dataset), "all", image_size=(6, 6), batch_size=NUMBER)]
    assert examples[0]["image"].shape == (NUMBER, 6, 6, 3)
    for number, image, other in zip(
        *(examples[0][name].numpy() for name in ("age", "image", "other")), strict=True
    ):
        assert (image.any(), bool(other)) == (has_image(number), has_other(number))
    sizes = {
        int(example["age"]): example["image"].shape[:2]
        for example in sw.load(str(dataset), "all").as_numpy_iterator()
    }
    assert sizes == {
        number: (8, 8 + number % 5) if has_image(number) else (0, 0) for number in range(NUMBER)
    }


def test_tfds_gives_the_bytes(dataset: Path) -> None:
    """TFDS has no image that may be missing: its feature is a string."""
    for split in tfds.builder_from_directory(str(dataset)).as_dataset().values():
        for found in split.as_numpy_iterator():
            assert bool(found["image"]) == has_image(found["age"])
            if found["image"]:
                pixels = tf.io.decode_image(found["image"]).numpy()
                np.testing.assert_array_equal(pixels.shape[1], found["width"])


def test_a_dataset_with_them_is_an_input(dataset: Path, tmp_path: Path) -> None:
    own = write_schema(tmp_path / "own.json", SCHEMA)
    assert build(dataset, tmp_path / "out", "--schema", own) == 0
    assert records_of(tmp_path / "out") == records_of(dataset)


def test_without_ids_rows_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_of(1))
    rows = [{"image": "a.png"}, {"image": ""}, {"image": None}]
    given = write_table(tmp_path / "rows.jsonl", rows)
    own = write_schema(tmp_path / "own.json", ExampleSchema(SCHEMA.features[:2]))
    assert build(given, tmp_path / "out", "--schema", own, "--duplicates", "drop") == 0
    assert set(records_of(tmp_path / "out")) == {"a.png", "rows.jsonl#1", "rows.jsonl#2"}


@pytest.mark.long
def test_images_without_a_main_one(tmp_path: Path) -> None:
    """Several images are features like others; none of them need be the main one."""
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    rows = [{"left": f"{number}.png", "right": f"{2 - number}.png"} for number in range(3)]
    given, out = write_table(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    pair = (Feature("left", FeatureKind.IMAGE), Feature("right", FeatureKind.IMAGE))
    own = write_schema(tmp_path / "own.json", ExampleSchema((SCHEMA.features[1], *pair)))
    options = ("--schema", own, "--encode", "png", "--resize", "5x4")
    assert build(given, out, *options) == 0
    assert cli.main(["verify", str(out)]) == 0
    examples = {one["id"]: one for one in sw.load(str(out), batch_size=None).as_numpy_iterator()}
    assert set(examples) == {f"rows.jsonl#{number}".encode() for number in range(3)}
    theirs = tfds.builder_from_directory(str(out)).as_dataset("train")
    for one in theirs.as_numpy_iterator():
        for name in ("left", "right"):
            pixels = tf.io.decode_image(examples[one["id"]][name]).numpy()
            assert pixels.shape == (4, 5, 3)
            np.testing.assert_array_equal(one[name], pixels)
