"""Images beside metadata files that name them: Hugging Face's ImageFolder, and Roboflow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import ids_below, make_images, write_table
from tests.support.listing_cases import Case, by_case, pngs
from tests.support.tfrecord_makers import records_of

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
FISH = "filename, fish, 10 cents\n1.png, 1, 1\n2.png, 0, 0\n3.png, 0, 2\n"
NAMES = "file_name\n1.png\n"
ROWS = [{"file_name": f"images/{n}.png", "label": "ab"[n - 1], "n": n} for n in (2, 1)]
FISHES = {**pngs(*(f"train/{n}.png" for n in range(1, 5))), "train/_classes.csv": FISH}


def metadata(name: str, rows: Any) -> Case:
    return Case(
        {**pngs("images/1.png", "images/2.png", "loose.png"), "README.md": "x", name: rows},
        says=f"a folder at FOLDER with a {name.partition('.')[2]} table of",
        source={"name": "image-folder", "states_splits": False,
                "features": (Feature("n", FeatureKind.INT64),)},
        rows={"id": ["images/2.png", "images/1.png"], "label": ["b", "a"], "x/n": [2, 1]},
        rejects={"README.md": "other_file", "loose.png": "missing_label"},
    )  # fmt: skip


CASES = {
    "csv": metadata("metadata.csv", "file_name,label,n\nimages/2.png,b,2\nimages/1.png,a,1\n"),
    **{ending: metadata(f"metadata.{ending}", ROWS) for ending in ("jsonl", "parquet")},
    "split folders": Case(
        {
            **pngs("train/1.png", "train/sub/2.png", "Val/1.png", "Val/more.png", "test/3.png"),
            "train/metadata.csv": "file_name,label\n1.png,0\nsub/2.png,1\n",
            "Val/metadata.csv": "file_name,label\n./1.png,1\ngone.png,1\n",
        },
        source={"states_splits": True}, rows={
            "id": ["Val/1.png", "train/1.png", "train/sub/2.png"],
            "split": ["validation", "train", "train"], "label": ["1", "0", "1"],
        },
        rejects={
            "Val/gone.png": "missing_file: listed in the table, but there is no such file below "
            "FOLDER/Val/: give --image-root, the folder that relative paths start from",
            "Val/more.png": "missing_label: the metadata has no row for it",
            "test/3.png": "missing_label: it has no metadata file",
        },
    ),
    "one file for all split folders": Case(
        {**pngs("train/1.png", "test/1.png"),
         "metadata.csv": "file_name\ntrain/1.png\ntest/1.png\n"},
        rows={"id": ["train/1.png", "test/1.png"], "split": ["train", "test"]},
    ),
    **{
        f"another column {name}": Case(
            {**pngs("cat/1.png"), "metadata.csv": "path,label\ncat/1.png,x\n"}, **expected
        )
        for name, expected in {
            "": {"source": {"name": "folder"}},
            "forced": {"options": {"input_format": "image-folder"}, "error": UsageError(
                "has no metadata.csv, .jsonl or .parquet with a column 'file_name'")},
            "given": {"columns": {"image": "path"}, "source": {"name": "image-folder"}},
        }.items()
    },
    "an image root": Case(
        {**pngs("1.png"), "metadata.csv": NAMES}, options={"image_root": "FOLDER"},
        error=UsageError("--image-root needs a table, but INPUT .* is a folder with metadata files"
                         ": give"),
    ),
    "several formats": Case(
        {**pngs("train/1.png", "test/1.png"), "train/metadata.csv": NAMES,
         "test/metadata.jsonl": [{"file_name": "1.png"}]},
        error=UsageError("of several formats, test/metadata.jsonl, train/metadata.csv: keep one, "
                         "or convert them"),
    ),
    "two in one folder": Case(
        {**pngs("train/1.png"), "train/metadata.csv": NAMES,
         "train/metadata.jsonl": [{"file_name": "1.png"}]},
        error=UsageError("in one folder, .*train/metadata.csv, train/metadata.jsonl: keep one"),
    ),
    # Images without a row are those without boxes, as Roboflow leaves them out of its table.
    "boxes of Roboflow": Case(
        {
            **pngs("train/1.png", "train/none.png", "valid/1.png"), "valid/README.txt": "x",
            "train/_annotations.csv": f"{HEADER}1.png,40,20,cat,4,2,12,12\n",
            "valid/_annotations.csv": f"{HEADER}1.png,40,20,dog,0,0,40,20\n",
        },
        source={"states_splits": True}, rows={
            "id": ["train/1.png", "train/none.png", "valid/1.png"],
            "split": ["train", "train", "validation"], "label": [None] * 3,
            "x/objects/label": [["cat"], [], ["dog"]],
            "x/objects/bbox": [[pytest.approx([0.1, 0.1, 0.6, 0.3])], [], [[0, 0, 1, 1]]],
        },
        rejects={"valid/README.txt": "other_file"},
    ),
    # The table has spaces after its commas.
    "classes of Roboflow": Case(
        FISHES, rows={"x/labels": [["fish", "10 cents"], []]},
        rejects={"train/3.png": "bad_value", "train/4.png": "missing_label"},
    ),
    "a table of Roboflow": Case(
        FISHES, "train/_classes.csv", rows={"x/labels": [["fish", "10 cents"], []]},
        rejects={"3.png": "bad_value"},
    ),
    **{
        f"another column of Roboflow {at}": Case(
            FISHES, at, {"image": "x"}, error=UsageError("--image-column 'x' is not in")
        )
        for at in ("", "train/_classes.csv")
    },
    "columns in another order": Case(
        {
            **pngs("test/3.png", "train/1.png", "valid/2.png"),
            "train/_classes.csv": "filename,fish,cat\n1.png,1,0\n",
            "valid/_classes.csv": "filename,cat,fish\n2.png,1,0\n",
            "test/_classes.csv": "cat,filename,fish\n0,3.png,1\n",
        },
        rows={"x/labels": [["fish"], ["fish"], ["cat"]]},
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_classes_of_roboflow_are_a_feature(tmp_path: Path) -> None:
    [feature] = CASES["classes of Roboflow"].listed(tmp_path).source.features
    assert (feature.kind, feature.names) == (FeatureKind.MULTI_LABEL, ("fish", "10 cents"))


def test_metadata_beside_class_folders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folders are not classes then, which the log says, with the way to have both."""
    make_images(tmp_path / "in", 6)
    names = sorted(ids_below(tmp_path / "in"))
    rows = [{"file_name": name, "age": age} for age, name in enumerate(names)]
    table = write_table(tmp_path / "in/metadata.jsonl", rows)
    assert build(tmp_path / "in", tmp_path / "a") == 0
    (told,) = (text for text in caplog.messages if "states no labels" in text)
    assert "the images lie in the folders Löwe, bird, cat. For labels by folders" in told
    assert not any("label" in record for record in records_of(tmp_path / "a").values())
    options = ("--input-format", "folder", "--labels", table, "--labels-key", "path")
    assert " ".join(map(str, options)) in told
    assert build(tmp_path / "in", tmp_path / "b", *options) == 0
    found = records_of(tmp_path / "b")
    assert [(found[name]["label"][0], found[name]["age"][0]) for name in names] == [
        (("Löwe", "bird", "cat").index(name.split("/")[0]), age) for age, name in enumerate(names)
    ]
