"""The classes that `plan` and `build` print, their rule, and warnings without a choice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.pipelines.commands import plan
from tests.support import detection_makers as det
from tests.support.archive_files import pack_tar, pack_zip
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images
from tests.support.helpers import TINY_PNG, make_files

PAIR = dict.fromkeys(("cat/1.png", "dog/2.png"), TINY_PNG)


def class_lines(out: str) -> list[str]:
    return [line for line in out.splitlines() if " class" in line or "warning:" in line]


def written(root: Path, files: dict[str, bytes | str], name: str = "") -> Path:
    return det.write(root, files) / name


def make_inputs(root: Path) -> dict[str, tuple[Path, str]]:
    """Return kind of INPUT -> (INPUT, the line that a plan prints about its classes)."""
    tables, splits = root / "tables", ("test", "val")
    samples = {"0.png": TINY_PNG, "0.cls": b"0", "1.png": TINY_PNG, "1.cls": b"1"}
    rows = "".join(f"{name},{name[:3]}\n" for name in PAIR)
    files: dict[str, bytes | str] = {**PAIR, "t.csv": f"file,class\n{rows}"}
    pq.write_table(
        pa.table({"image": [TINY_PNG, TINY_PNG], "label": [4, 7]}), root / "embedded.parquet"
    )
    np.savez(root / "a.npz", image=np.zeros((2, 2, 2, 3), np.uint8), label=np.array([5, 6]))
    boxes = {**det.pictures("images"), "labels/a.txt": det.yolo_txt(det.OBJECTS["a"])}
    voc = {**det.pictures("JPEGImages"), "Annotations/a.xml": det.voc_xml(det.OBJECTS["a"])}
    return {
        "folders": (
            make_files(root / "f", *PAIR),
            "2 classes: cat, dog; from the folders of INPUT",
        ),
        "many": (
            make_files(root / "m", *(f"{number}/1.png" for number in range(1, 8))),
            "7 classes: 1, 2, 3, 4, 5, ...; from the folders of INPUT",
        ),
        "splits": (
            make_files(root / "s", *(f"{split}/{name}" for split in splits for name in PAIR)),
            "2 classes: cat, dog; from the folders below test/ and val/",
        ),
        "zip": (
            pack_zip(root / "a.zip", PAIR),
            "2 classes: cat, dog; from the folders of the archives",
        ),
        "webdataset": (
            pack_tar(root / "a.tar", samples),
            "2 classes: 0, 1; from .cls",
        ),
        "table": (written(tables, files, "t.csv"), "2 classes: cat, dog; from column 'class'"),
        "embedded": (
            root / "embedded.parquet",
            "8 classes: 0, 1, 2, 3, 4, ...; from column 'label'",
        ),
        "arrays": (root / "a.npz", "7 classes: 0, 1, 2, 3, 4, ...; from column 'label'"),
        "coco": (
            written(root / "c", {**det.pictures("."), "a.json": json.dumps(det.coco())}, "a.json"),
            "3 classes: cat, dog, zebra; from the categories of a.json",
        ),
        "yolo": (
            written(root / "y", {**boxes, "data.yaml": "names: [cat, dog, zebra]"}),
            f"3 classes: cat, dog, zebra; from the names in {root}/y//data.yaml".replace("//", "/"),
        ),
        "voc": (written(root / "v", voc), "2 classes: cat, zebra; from the names in the xml files"),
    }  # fmt: skip


def test_the_classes_of_each_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, (given, line) in make_inputs(tmp_path).items():
        more = ["--max-reject-fraction", "1"]
        assert plan.main([str(given), str(tmp_path / "out"), *more]) == 0
        assert (kind, class_lines(capsys.readouterr().out)) == (kind, [line])


def test_given_names_and_tables_of_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_files(tmp_path / "in", *PAIR)
    (tmp_path / "names.txt").write_text("wolf\nlynx\n")
    (tmp_path / "t.csv").write_text("id,target\ncat/1.png,lynx\ndog/2.png,wolf\n")
    argv = [str(root), str(tmp_path / "out"), "--labels", str(tmp_path / "t.csv")]
    assert plan.main([*argv, "--class-names", str(tmp_path / "names.txt")]) == 0
    said = capsys.readouterr()
    rule = "2 classes: wolf, lynx; from column 'target' of --labels, named by --class-names"
    assert class_lines(said.out) == [rule]
    assert "; column 'target' is stored as the feature 'label'\n" in said.err


@pytest.mark.parametrize(("name", "told"), [
    ("a/photos/cat/1.png", "warning: every image has the label 'photos': if the classes are the "
     "folders in photos/, give that as INPUT; else put the images of each class in a folder of "
     "their own below INPUT, or give a table with --labels"),
    ("a/1.png", "warning: no image has a label: put the images of each class in a folder of their "
     "own below INPUT, or give a table with --labels"),
    ("a/t.csv", "warning: no image has a label: name the column of the labels with --label-column"),
])  # fmt: skip
def test_a_warning_without_a_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    root = make_files(tmp_path, name).joinpath("a")
    if name.endswith(".csv"):
        make_files(root, "1.png")
        (root / "t.csv").write_text("image,species\n1.png,cat\n")
        root /= "t.csv"
    assert plan.main([str(root), str(tmp_path / "out")]) == 0
    assert class_lines(capsys.readouterr().out)[-1] == told


def test_names_that_look_alike_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["Cat", "d og", "do\u200bg", "owl", "\uff43at"]
    root = make_files(tmp_path / "in", *(f"{name}/1.png" for name in names))
    assert plan.main([str(root), str(tmp_path / "out")]) == 0
    assert class_lines(capsys.readouterr().out)[1:] == [
        "warning: classes that differ only in case, width, spaces or invisible characters: "
        "'Cat', '\uff43at', 'd og', 'do\\u200bg'; if two are one class, give them one name"
    ]


def test_what_has_no_labels_by_choice_is_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = det.coco(categories=[], annotations=[{"image_id": 0, "id": 1, "caption": "a cat"}])
    root = det.write(
        tmp_path, {**det.pictures("."), "a.json": json.dumps(captions), "t.csv": "a\n1\n"}
    )
    for given, *more in (["a.json"], ["t.csv", "--schema", "records"]):
        assert plan.main([str(root / given), str(tmp_path / "out"), *more]) == 0
        assert class_lines(capsys.readouterr().out) == []


def test_a_build_prints_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_images(tmp_path / "in", 6)
    assert build(root, tmp_path / "out") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("/in, with the folders Löwe, bird, cat")
    assert "shardwright: 3 classes: Löwe, bird, cat; from the folders of INPUT" in lines


@pytest.mark.long
def test_a_choice_is_a_setting_of_the_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Splits that were chosen are chosen again to add; classes are as before the option."""
    root = make_files(tmp_path / "in", "train/cat/1.png", "extra/dog/2.png")
    for reading in ("splits", "classes"):
        out = tmp_path / reading
        assert build(root, out, "--top-folders", reading) == 0
        settings = json.loads((out / "manifest.json").read_text())["settings"]
        assert settings.get("top_folders") == (reading if reading == "splits" else None)
    assert build(root, tmp_path / "classes", "--top-folders", "splits") == 1
    assert "top_folders is None there and 'splits' here" in capsys.readouterr().err
