"""Builds with --schema: records have the declared features, pictures beside the image too."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardwright.format.manifest import read_manifest
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, png_of
from tests.support.helpers import make_files, write_schema
from tests.support.schema_tables import (
    IMAGE,
    LABEL,
    OWN_PYTHON,
    mask_of,
    records_of,
    rejects_in,
    table,
)
from tests.support.store_places import Kind, Places

Capture = pytest.CaptureFixture[str]
Records = dict[str, dict[str, Any]]
Masked = tuple[Path, Records]
HALF = ("--max-reject-fraction", "0.5")


def built(given: Path, out: Path, schema: str | Path, *options: str) -> Records:
    assert build(given, out, "--schema", schema, *options) == 0
    return records_of(out)


def schema_of(out: Path) -> ExampleSchema:
    return read_manifest(Folder(str(out))).schema


def column_of(records: Records, name: str) -> dict[str, Any]:
    return {image_id: record[name] for image_id, record in records.items()}


@pytest.mark.long
def test_own_schema_and_vocabularies_of_a_finished_dataset(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_PYTHON)
    rows = [
        {"image": "a.png", "label": "dog", "age": 3, "note": "good dog", "left": "out"},
        {"image": "b.png", "label": "cat", "age": None, "note": "good cat", "left": "out"},
        {"image": "c.png", "label": "cat", "age": 300, "note": "rare words", "left": "out"},
    ]
    first, second = tmp_path / "first", tmp_path / "second"
    records = built(table(tmp_path, rows), first, tmp_path / "own.py", *HALF)
    assert records["a.png"] == {
        "id": [b"a.png"], "label": [1], "age": [3], "words/indices": [0], "words/values": [1.0],
        "image": [png_of(0)],
    }  # fmt: skip
    assert (set(records), records["b.png"]["age"]) == ({"a.png", "b.png"}, [0])
    detail = "row 2: 'age' is 300, which does not fit uint8"
    assert rejects_in(first) == [("c.png", "bad_value", detail)]
    schema = schema_of(first)
    assert (schema.class_names, schema.vocabularies) == (("cat", "dog"), {"words": ("good",)})

    again = table(tmp_path, [{"image": "a.png", "label": "dog", "note": "new new good", "age": 1}])
    records = built(again, second, write_schema(tmp_path / "old.json", schema))
    assert records == {
        "a.png": {
            "id": [b"a.png"], "label": [1], "age": [1], "words/indices": [0],
            "words/values": [1.0], "image": [png_of(0)],
        },
    }  # fmt: skip
    found = schema_of(second)
    assert (found.class_names, found.vocabularies) == (("cat", "dog"), {"words": ("good",)})


def test_a_label_without_values_fails(tmp_path: Path, capsys: Capture) -> None:
    make_files(tmp_path / "in", "a.png", data=png_of(1))
    own = write_schema(tmp_path / "own.json", ExampleSchema((IMAGE, LABEL)))
    assert build(tmp_path / "in", tmp_path / "out", "--schema", own) == 1
    message = "the schema has the label 'label', but no image of INPUT has one: remove it from"
    assert f"{message} the schema" in capsys.readouterr().err


def test_lists_of_labels(tmp_path: Path, capsys: Capture) -> None:
    rows = [{"image": "a.png", "label": ["b", "a"]}, {"image": "b.png", "label": []}]
    given, out = table(tmp_path, rows), tmp_path / "out"
    assert build(given, out) == 2
    message = "column 'label' holds lists: give --schema multi_label, or another column"
    assert message in capsys.readouterr().err
    labels = column_of(built(given, out, "multi_label"), "labels")
    assert labels == {"a.png": [0, 1], "b.png": []}


@pytest.mark.long
def test_pictures_beside_the_image(tmp_path: Path) -> None:
    """They are stored unchanged; a fault in one rejects the record with the feature's name."""
    make_files(tmp_path, "same.png", data=png_of(99))
    make_files(tmp_path, "broken.png", data=b"no image")
    for number in range(3):
        make_files(tmp_path, f"m{number}.png", data=mask_of(number))
    rows = [
        {"image": "a.png", "mask": "m0.png", "image2": "same.png"},
        {"image": "b.png", "mask": "m1.png", "image2": "gone.png"},
        {"image": "c.png", "mask": "m2.png", "image2": "broken.png"},
        {"image": "d.png", "mask": "", "image2": "same.png"},
        {"image": "e.png", "mask": "m1.png", "image2": str(tmp_path / "same.png")},
    ]
    mask = Feature("mask", FeatureKind.MASK)
    other = Feature("other", FeatureKind.IMAGE, column="image2")
    schema = ExampleSchema((IMAGE, Feature("id", FeatureKind.TEXT, Source.ID), mask, other))
    own, out = write_schema(tmp_path / "own.json", schema), tmp_path / "out"
    records = built(table(tmp_path, rows), out, own, "--max-reject-fraction", "0.9")
    assert records == {
        "a.png": {
            "id": [b"a.png"],
            "mask": [mask_of(0)],
            "other": [png_of(99)],
            "image": [png_of(0)],
        },
        "e.png": {
            "id": [b"e.png"],
            "mask": [mask_of(1)],
            "other": [png_of(99)],
            "image": [png_of(20)],
        },
    }
    (shard,) = (path.read_bytes() for path in out.glob("*.tfrecord-*"))
    assert shard.index(mask_of(0)) < shard.index(png_of(99)) < shard.index(png_of(0))
    missing, broken, empty = rejects_in(out)
    gone = (
        f"image2: listed in the table, but there is no such file below {tmp_path}/: give "
        "--image-root, the folder that relative paths start from"
    )
    assert missing == ("b.png", "missing_file", gone)
    assert broken[:2] == ("c.png", "not_an_image")
    assert broken[2].startswith("other: ")
    needs = "row 3: 'mask' has no picture, and the feature has no default"
    assert empty == ("d.png", "bad_value", needs)


@pytest.mark.long_but_first
@pytest.mark.parametrize("writer", ["planned", "beam"])
def test_pictures_are_encoded_with_the_image(tmp_path: Path, writer: str) -> None:
    """Masks keep their class numbers at any size."""
    masks = {"a.png": 3, "b.png": 4}
    for number in masks.values():
        make_files(tmp_path, f"m{number}.png", data=mask_of(number))
    rows = [{"image": name, "mask": f"m{number}.png"} for name, number in masks.items()]
    options = ("--encode", "raw", "--resize", "5x4", "--writer", writer)
    records = built(table(tmp_path, rows), tmp_path / "out", "segmentation", *options)
    for name, number in masks.items():
        assert len(records[name]["image"][0]) == 4 * 5 * 3
        mask = np.asarray(Image.open(io.BytesIO(records[name]["segmentation_mask"][0])))
        assert (mask.shape, set(mask.flat)) == ((4, 5), {number})


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Masked:
    """A table of 6 images with masks, one of them missing, and the records of its build."""
    root = tmp_path_factory.mktemp("masked") / "in"
    rows = []
    for number in range(6):
        rows.append({"image": f"{number}.png", "mask": f"m{number}.png" if number else "gone.png"})
        make_files(root, f"m{number}.png", data=mask_of(number))
    given = table(root, rows)
    return given, built(given, root.parent / "out", "segmentation", *HALF, "--name", "x")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_store(masked: Masked, places: Places, tmp_path: Path, kind: Kind) -> None:
    """Pictures in a store give the same records as files."""
    given, wanted = masked
    store = places.make(kind).fill(given.parent)
    options = ("--schema", "segmentation", *HALF, "--name", "x")
    assert build(store.at(given.name), tmp_path / "there", *store.args, *options) == 0
    assert records_of(tmp_path / "there") == wanted
    assert len(wanted) == 5
    assert [reject[:2] for reject in rejects_in(tmp_path / "there")] == [("0.png", "missing_file")]


def test_a_changed_mask_is_a_changed_input(tmp_path: Path, capsys: Capture) -> None:
    make_files(tmp_path, "m.png", data=mask_of(1))
    given, out = table(tmp_path, [{"image": "a.png", "mask": "m.png"}]), tmp_path / "out"
    built(given, out, "segmentation")
    make_files(tmp_path, "m.png", data=mask_of(200))
    assert build(given, out, "--schema", "segmentation") == 1
    assert "INPUT has changed" in capsys.readouterr().err


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("column", "values", "schema", "key", "stored"),
    [
        ("labels", ["a|b", "", "b"], "multi_label", "labels", [[0, 1], [], [1]]),
        ("text", ["007", "1.50", ""], "image_text", "text", [[b"007"], [b"1.50"], [b""]]),
        ("kind", ["b", "", "a"], "tabular", "kind", [[2], [0], [1]]),
    ],
)
def test_ready_schemas_on_a_csv(
    tmp_path: Path, column: str, values: list[str], schema: str, key: str, stored: list[Any]
) -> None:
    """Texts stay as written, "|" separates the items of lists, an empty category is a category."""
    names = ["0.png", "1.png", "2.png"]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(png_of(number))
    rows = [f"{name},{value}\n" for name, value in zip(names, values, strict=True)]
    (tmp_path / "t.csv").write_text(f"image,{column}\n" + "".join(rows))
    records = built(tmp_path / "t.csv", tmp_path / "out", schema)
    assert column_of(records, key) == dict(zip(names, stored, strict=True))


def test_unlabeled_leaves_class_folders_out(tmp_path: Path, capsys: Capture) -> None:
    given, out = make_images(tmp_path / "in", 4), tmp_path / "out"
    assert all(set(record) == {"id", "image"} for record in built(given, out, "unlabeled").values())
    assert schema_of(out).class_names == ()
    assert build(given, out) == 1
    said = "with other settings (schema is 'unlabeled' there and None here)"
    assert said in capsys.readouterr().err


COMPUTING = """
import numpy as np
from shardwright.transforms import Record

def measure(record: Record) -> Record:
    pixels = record.pixels()
    if pixels.shape[1] == 12:  # 4.png
        return record
    means = pixels.mean((0, 1), np.float32) / 255
    wide = {"means": means.tolist() + [0.0] * (pixels.shape[1] == 9), "wide": 1, "sizes": [1, 2]}
    return record.replace(features=record.features | wide, pictures={"gray": pixels[..., :1]})
"""


def test_features_that_a_transform_computes_need_no_column(tmp_path: Path, capsys: Capture) -> None:
    features = (
        IMAGE,
        Feature("id", FeatureKind.TEXT, Source.ID),
        Feature("means", FeatureKind.FLOAT32, shape=(3,)),
        Feature("wide", FeatureKind.CLASS_LABEL, names=("no", "yes")),
        Feature("sizes", FeatureKind.INT64, shape=(None,)),
        Feature("gray", FeatureKind.MASK),
    )
    make_files(tmp_path / "in", "a.png", data=png_of(0))
    make_files(tmp_path / "in", "1.png", data=png_of(1))
    make_files(tmp_path / "in", "4.png", data=png_of(4))
    own = write_schema(tmp_path / "own.json", ExampleSchema(features))
    (tmp_path / "own.py").write_text(COMPUTING)
    options = ("--transform", f"{tmp_path}/own.py:measure", "--max-reject-fraction", "1")
    records = built(tmp_path / "in", tmp_path / "out", own, *options)
    (record,) = records.values()
    pixels = np.asarray(Image.open(io.BytesIO(png_of(0))))
    np.testing.assert_allclose(record["means"], pixels.mean((0, 1)) / 255, rtol=1e-5)
    assert (record["wide"], record["sizes"]) == ([1], [1, 2])
    assert (np.asarray(Image.open(io.BytesIO(record["gray"][0]))) == pixels[..., 0]).all()
    wrong, missing = rejects_in(tmp_path / "out")
    assert wrong[:2] == ("1.png", "bad_value")
    assert "which is list<item: float>: it must have 3 values" in wrong[2]
    assert missing == ("4.png", "bad_value",
                       "a transform returned None for feature 'means', which is "
                       "list<item: float>: it is missing")  # fmt: skip
    assert build(tmp_path / "in", tmp_path / "b", "--schema", own) == 2
    assert "feature 'means' needs the column 'means', which INPUT" in capsys.readouterr().err
    unnamed = ExampleSchema((IMAGE, Feature("wide", FeatureKind.CLASS_LABEL)))
    own = write_schema(tmp_path / "own.json", unnamed)
    assert build(tmp_path / "in", tmp_path / "b", "--schema", own, *options) == 2
    assert "no column 'wide' to learn the names of feature 'wide'" in capsys.readouterr().err


def test_several_columns_of_labels(tmp_path: Path, capsys: Capture) -> None:
    given = table(tmp_path, [{"image": "a.png", "label": "x", "Tags": ["b", "a"]}])
    assert build(given, tmp_path / "out", "--schema", "multi_label") == 2
    assert "columns 'label' and 'Tags' could all be the labels" in capsys.readouterr().err
