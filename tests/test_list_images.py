"""ListImages in a pipeline: every file or row is a reference or a counted reject."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.arguments import ROLES
from tests.helpers import make_files, run_transform
from transforms.inputs.detection import detect_source
from transforms.list_images import ListImages

NONE = dict.fromkeys(ROLES)


def test_a_folder(tmp_path: Path) -> None:
    make_files(tmp_path, "train/cat/1.png", "test/dog/2.png")
    make_files(tmp_path, "train/cat/empty.png", "test/dog/empty.png", data=b"")
    make_files(tmp_path, "train/notes.txt", data=b"text")
    run = run_transform(ListImages(detect_source(str(tmp_path), NONE)))
    assert [(row["id"], row["split"], row["label"]) for row in run.rows] == [
        ("test/dog/2.png", "test", "dog"),
        ("train/cat/1.png", "train", "cat"),
    ]
    assert run.rejects == [
        ("test/dog/empty.png", "empty_file"),
        ("train/cat/empty.png", "empty_file"),
        ("train/notes.txt", "other_file"),
    ]
    assert run.counters == {"rejects_empty_file": 2, "rejects_other_file": 1}


def test_a_table(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png", "2.png")
    make_files(tmp_path, "empty.png", data=b"")
    (tmp_path / "loop.png").symlink_to("loop.png")
    lines = [
        "image,id,n",
        "1.png,a,1",
        "2.png,b,",
        "no.png,c,1",
        "loop.png,d,1",
        "empty.png,e,1",
        "1.png,,1",
        "ftp://b/1.png,g,1",
        "1.png,h",
        ",i,1",
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    run = run_transform(ListImages(detect_source(str(tmp_path / "t.csv"), NONE)))
    assert [(row["id"], row["x/n"]) for row in run.rows] == [("a", 1), ("b", None)]
    assert run.rejects == [
        ("", "bad_id"),
        ("", "bad_value"),
        ("c", "missing_file"),
        ("d", "unreadable"),
        ("e", "empty_file"),
        ("g", "bad_value"),
        ("i", "bad_value"),
    ]
    assert run.counters == {
        "rejects_bad_value": 3,
        "rejects_bad_id": 1,
        "rejects_missing_file": 1,
        "rejects_unreadable": 1,
        "rejects_empty_file": 1,
    }


@pytest.mark.parametrize("name", ["folder", "t.csv"])
def test_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "t.csv").write_text("image,label\n")
    run = run_transform(ListImages(detect_source(str(tmp_path / name), NONE)))
    assert (run.rows, run.rejects, run.counters) == ([], [], {})
