"""ListImages in a pipeline: every file or row is a reference or a counted reject."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pytest

from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs import list_images
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.formats.folders import FolderSource
from shardwright.transforms.inputs.formats.tables import TableSource
from shardwright.transforms.inputs.list_images import ListImages
from tests.support.helpers import make_files, run_transform
from tests.support.listings import columns_of, detect

NONE = dict.fromkeys(ROLE_COLUMNS)


def test_a_table(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png", "2.png")
    make_files(tmp_path, "empty.png", data=b"")
    (tmp_path / "loop.png").symlink_to("loop.png")
    lines = [
        "image,id,n", "1.png,a,1", "2.png,b,", "no.png,c,1", "loop.png,d,1", "empty.png,e,1",
        "1.png,,1", "ftp://b/1.png,g,1", "1.png,h", ",i,1",
    ]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    run = run_transform(ListImages(detect(str(tmp_path / "t.csv"), NONE)))
    assert columns_of(run.rows, "id", "x/n") == [("a", 1), ("b", None)]
    assert run.rejects == [
        ("", "bad_id"), ("", "bad_value"), ("c", "missing_file"), ("d", "unreadable"),
        ("e", "empty_file"), ("g", "bad_value"), ("i", "bad_value"),
    ]  # fmt: skip
    numbers = {"bad_value": 3, "bad_id": 1, "missing_file": 1, "unreadable": 1, "empty_file": 1}
    assert run.counters == {f"rejects_{reason}": number for reason, number in numbers.items()}


def test_one_machine_lists_a_long_prefix_whole() -> None:
    """Its parts would be found by requests one after another, and it has one process to list it."""
    source = FolderSource("a folder", root="s3://bucket/in", split_folders=(), storage=NO_OPTIONS)
    assert list(list_images._parts(source.pack(), one_machine=True)) == [""]


def test_the_graph_of_a_table_in_100_000_files_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dataflow refuses graphs above 10 MB."""
    # A pipeline that is never run leaves a folder in the temporary folder.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "t.csv").write_text("image,label\n")
    source = detect(str(tmp_path / "t.csv"), NONE)
    assert isinstance(source, TableSource)
    files = tuple(f"year=2020/part-{number:05d}-8f14e45f.c000.csv" for number in range(100_000))
    many = replace(source.layout, files=files).as_source(TableSource)
    pipeline = beam.Pipeline()
    _ = pipeline | ListImages(many)
    assert len(pipeline.to_runner_api().SerializeToString()) < 1_000_000
