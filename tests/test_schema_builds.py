"""Builds with --schema: records hold what it declares, pictures beside the image too."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardwright.manifest import read_manifest
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage import Folder
from tests.build_helpers import build, make_images, png_of
from tests.helpers import make_files
from tests.schema_tables import IMAGE, LABEL, OWN_PYTHON, mask_of, records_of, rejects_in, table
from tests.store_places import Kind, Places


def test_a_finished_datasets_schema_brings_its_vocabularies(tmp_path: Path) -> None:
    rows = [
        {"image": "a.png", "label": "dog", "note": "good good", "age": 1},
        {"image": "b.png", "label": "cat", "note": "", "age": 2},
    ]
    (tmp_path / "own.py").write_text(OWN_PYTHON)
    assert build(table(tmp_path, rows), tmp_path / "first", "--schema", tmp_path / "own.py") == 0
    schema = read_manifest(Folder(str(tmp_path / "first"))).schema
    (tmp_path / "old.json").write_text(json.dumps(schema.to_json()))
    again = [{"image": "a.png", "label": "dog", "note": "new new good", "age": 1}]
    assert (
        build(table(tmp_path, again), tmp_path / "second", "--schema", tmp_path / "old.json") == 0
    )
    assert records_of(tmp_path / "second")["a.png"] | {"image": []} == {
        "id": [b"a.png"], "label": [1], "age": [1], "words/indices": [0], "words/values": [1.0], "image": [],
    }  # fmt: skip
    built = read_manifest(Folder(str(tmp_path / "second"))).schema
    assert (built.class_names, built.vocabularies) == (schema.class_names, schema.vocabularies)


def test_a_label_that_nothing_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_files(tmp_path / "in", "a.png", data=png_of(1))
    (tmp_path / "own.json").write_text(json.dumps(ExampleSchema((IMAGE, LABEL)).to_json()))
    assert build(tmp_path / "in", tmp_path / "out", "--schema", tmp_path / "own.json") == 1
    assert (
        "the schema has the label 'label', and no image of INPUT has one: leave it out of the schema"
        in capsys.readouterr().err
    )


def test_lists_of_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = table(
        tmp_path, [{"image": "a.png", "label": ["b", "a"]}, {"image": "b.png", "label": []}]
    )
    assert build(given, tmp_path / "out") == 2
    assert (
        "the column 'label' has lists: give --schema multi_label, or name"
        in capsys.readouterr().err
    )
    assert build(given, tmp_path / "out", "--schema", "multi_label") == 0
    assert {name: record["labels"] for name, record in records_of(tmp_path / "out").items()} == {
        "a.png": [0, 1],
        "b.png": [],
    }


def test_a_build_with_a_schema_of_ones_own(tmp_path: Path) -> None:
    rows = [
        {"image": "a.png", "label": "dog", "age": 3, "note": "good dog", "left": "out"},
        {"image": "b.png", "label": "cat", "age": None, "note": "good cat", "left": "out"},
        {"image": "c.png", "label": "cat", "age": 300, "note": "rare words", "left": "out"},
    ]
    (tmp_path / "own.py").write_text(OWN_PYTHON)
    out = tmp_path / "out"
    assert (
        build(
            table(tmp_path, rows),
            out,
            "--schema",
            tmp_path / "own.py",
            "--max-reject-fraction",
            "0.5",
        )
        == 0
    )
    records = records_of(out)
    assert records["a.png"] == {
        "id": [b"a.png"], "label": [1], "age": [3], "words/indices": [0], "words/values": [1.0], "image": [png_of(0)],
    }  # fmt: skip
    assert records["b.png"]["age"] == [0]
    assert rejects_in(out) == [
        ("c.png", "bad_value", "row 2: 'age' is 300, which does not fit uint8")
    ]
    schema = read_manifest(Folder(str(out))).schema
    assert (schema.class_names, schema.vocabularies) == (("cat", "dog"), {"words": ("good",)})


def test_pictures_beside_the_image(tmp_path: Path) -> None:
    """A mask and a second image: stored as they are, in front of the image; a fault in one rejects the record by the feature's name."""
    make_files(tmp_path, "same.png", "broken.png", data=b"no image")
    (tmp_path / "same.png").write_bytes(png_of(99))
    for number in range(3):
        (tmp_path / f"m{number}.png").write_bytes(mask_of(number))
    rows = [
        {"image": "a.png", "mask": "m0.png", "image2": "same.png"},
        {"image": "b.png", "mask": "m1.png", "image2": "gone.png"},
        {"image": "c.png", "mask": "m2.png", "image2": "broken.png"},
        {"image": "d.png", "mask": "", "image2": "same.png"},
        {"image": "e.png", "mask": "m1.png", "image2": str(tmp_path / "same.png")},
    ]
    features = (
        Feature("mask", FeatureKind.MASK),
        Feature("other", FeatureKind.IMAGE, column="image2"),
    )
    (tmp_path / "own.json").write_text(
        json.dumps(
            ExampleSchema((IMAGE, Feature("id", FeatureKind.TEXT, Source.ID), *features)).to_json()
        )
    )
    out = tmp_path / "out"
    assert (
        build(
            table(tmp_path, rows),
            out,
            "--schema",
            tmp_path / "own.json",
            "--max-reject-fraction",
            "0.9",
        )
        == 0
    )
    records = records_of(out)
    assert {
        name: (record["mask"], record["other"], record["image"]) for name, record in records.items()
    } == {
        "a.png": ([mask_of(0)], [png_of(99)], [png_of(0)]),
        "e.png": ([mask_of(1)], [png_of(99)], [png_of(4)]),
    }
    (shard,) = (path.read_bytes() for path in out.glob("*.tfrecord-*"))
    assert shard.index(mask_of(0)) < shard.index(png_of(99)) < shard.index(png_of(0))
    told = rejects_in(out)
    assert [(image_id, reason) for image_id, reason, _ in told] == [
        ("b.png", "missing_file"), ("c.png", "not_an_image"), ("d.png", "bad_value"),
    ]  # fmt: skip
    assert told[0][2] == "image2: named in the table, but there is no such file"
    assert told[1][2].startswith("other: ")
    assert told[2][2] == "row 3: 'mask' has no picture, and the feature has no default"


@pytest.mark.parametrize("writer", ["planned", "beam"])
def test_pictures_are_encoded_with_the_image(tmp_path: Path, writer: str) -> None:
    """Masks keep their numbers at any size."""
    for number in range(2):
        (tmp_path / f"m{number}.png").write_bytes(mask_of(number + 3))
    rows = [{"image": f"{name}.png", "mask": f"m{number}.png"} for number, name in enumerate("ab")]
    out = tmp_path / "out"
    assert (
        build(
            table(tmp_path, rows),
            out,
            "--schema",
            "segmentation",
            "--encode",
            "raw",
            "--resize",
            "5x4",
            "--writer",
            writer,
        )
        == 0
    )
    for number, name in enumerate("ab"):
        record = records_of(out)[f"{name}.png"]
        assert len(record["image"][0]) == 4 * 5 * 3
        mask = np.asarray(Image.open(io.BytesIO(record["segmentation_mask"][0])))
        assert (mask.shape, set(mask.flat)) == ((4, 5), {number + 3})


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_pictures_in_a_store_are_those_on_disk(places: Places, tmp_path: Path, kind: Kind) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for number in range(6):
        (root / f"m{number}.png").write_bytes(mask_of(number))
    rows = [
        {"image": f"{number}.png", "mask": f"m{number}.png" if number else "gone.png"}
        for number in range(6)
    ]
    given, store = table(root, rows), places.make(kind).fill(root)
    options = ("--schema", "segmentation", "--max-reject-fraction", "0.5", "--name", "x")
    assert build(given, tmp_path / "here", *options) == 0
    assert build(store.at(given.name), tmp_path / "there", *store.args, *options) == 0
    assert records_of(tmp_path / "there") == records_of(tmp_path / "here")
    assert len(records_of(tmp_path / "here")) == 5
    assert [(image_id, reason) for image_id, reason, _ in rejects_in(tmp_path / "there")] == [
        ("0.png", "missing_file")
    ]


def test_a_changed_mask_makes_its_shard_stale(tmp_path: Path) -> None:
    (tmp_path / "m.png").write_bytes(mask_of(1))
    given, out = table(tmp_path, [{"image": "a.png", "mask": "m.png"}]), tmp_path / "out"
    assert build(given, out, "--schema", "segmentation") == 0
    (tmp_path / "m.png").write_bytes(mask_of(200) + b"")
    (tmp_path / "m.png").touch()
    assert build(given, out, "--schema", "segmentation") == 1  # the input has changed
    assert build(given, out, "--schema", "segmentation", "--if-exists", "overwrite") == 0
    assert records_of(out)["a.png"]["segmentation_mask"] == [mask_of(200)]


@pytest.mark.parametrize(
    ("columns", "schema", "expected"),
    [
        ("labels\n{}a|b\n{}\n{}b\n", "multi_label", {"0.png": [0, 1], "1.png": [], "2.png": [1]}),
        (
            "text\n{}007\n{}1.50\n{}\n",
            "image_text",
            {"0.png": [b"007"], "1.png": [b"1.50"], "2.png": [b""]},
        ),
        ("kind\n{}b\n{}\n{}a\n", "tabular", {"0.png": [2], "1.png": [0], "2.png": [1]}),
    ],
)
def test_ready_schemas_on_a_csv(
    tmp_path: Path, columns: str, schema: str, expected: dict[str, Any]
) -> None:
    """Texts are read as they are written, lists have "|" between their parts, and an empty category is one of its own."""
    make_images(tmp_path, 0)
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    lines = columns.split("\n")
    text = f"image,{lines[0]}\n" + "".join(
        line.format(f"{number}.png,") + "\n" for number, line in enumerate(lines[1:4])
    )
    (tmp_path / "t.csv").write_text(text)
    assert build(tmp_path / "t.csv", tmp_path / "out", "--schema", schema) == 0
    key = {"multi_label": "labels", "image_text": "text", "tabular": "kind"}[schema]
    assert {name: record[key] for name, record in records_of(tmp_path / "out").items()} == expected


def test_unlabeled_leaves_class_folders_out(tmp_path: Path) -> None:
    make_images(tmp_path / "in", 4)
    assert build(tmp_path / "in", tmp_path / "out", "--schema", "unlabeled") == 0
    assert {frozenset(record) for record in records_of(tmp_path / "out").values()} == {
        frozenset({"id", "image"})
    }
    assert read_manifest(Folder(str(tmp_path / "out"))).schema.class_names == ()


def test_another_schema_is_another_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_images(tmp_path / "in", 4)
    assert build(tmp_path / "in", tmp_path / "out", "--schema", "unlabeled") == 0
    assert build(tmp_path / "in", tmp_path / "out") == 1
    assert (
        "with other settings (schema is 'unlabeled' there and None here)" in capsys.readouterr().err
    )
