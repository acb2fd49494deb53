"""What a user can get wrong: each is a reject with a reason or one clear line, and nothing half done is published."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import NotADatasetError
from shardwright.manifest import read_manifest
from shardwright.storage import Folder
from tests.build_helpers import (
    build,
    hashes_of,
    leftovers_of,
    make_images,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
    shards_of,
    stamps_of,
    write_table,
)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "in", 12)


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    """The last line on stderr; a user's mistake never shows a stack trace."""
    said = capfd.readouterr().err
    assert "Traceback" not in said
    line = said.splitlines()[-1]
    assert line.startswith("shardwright: error: ")
    return line


def make_table(folder: Path, rows: list[dict[str, Any]]) -> Path:
    for number in range(10):
        (folder / f"good{number}.png").write_bytes(png_of(number))
        rows.append({"path": f"good{number}.png"})
    return write_table(folder / "table.jsonl", rows)


def test_every_bad_file_of_a_table_is_a_reject_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "cut.png").write_bytes(png_of(0)[:100])
    (tmp_path / "text.jpg").write_text("Dear diary, " * 99)
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    bad = {
        "empty.png": ("empty_file", "the file has no bytes"),
        "cut.png": ("truncated", "without an IEND chunk"),
        "text.jpg": ("not_an_image", ""),
        "loop.png": ("unreadable", "Too many levels of symbolic links"),
        "folder.png": ("unreadable", "not a regular file"),
        "pipe.png": ("unreadable", "not a regular file"),
        "missing.png": ("missing_file", "there is no such file"),
        "good0.png/below.png": ("missing_file", "there is no such file"),
        "nul\0.png": ("unreadable", "null byte"),
        "ftp://host/key.png": ("bad_value", "is no address of an object"),
    }
    table = make_table(tmp_path, [{"path": path} for path in bad])
    assert build(table, tmp_path / "out", "--max-reject-fraction", "0.6") == 0
    found = {row["id"]: (row["reason"], row["detail"]) for row in rejects_of(tmp_path / "out")}
    assert {image_id: reason for image_id, (reason, _) in found.items()} == {
        image_id: reason for image_id, (reason, _) in bad.items()
    }
    for image_id, (_, detail) in bad.items():
        assert detail in found[image_id][1]
        assert "\n" not in found[image_id][1]
    assert len(record_ids(tmp_path / "out")) == 10


def test_the_same_files_with_a_size_column_are_found_out_when_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    bad = [
        "empty.png",
        "folder.png",
        "pipe.png",
        "missing.png",
        "good0.png/below.png",
        "nul\0.png",
        "n" * 300,
    ]
    table = make_table(tmp_path, [{"path": path} for path in bad])
    rows = [
        {"path": path, "bytes": 300}
        for path in [*bad, *(f"good{number}.png" for number in range(10))]
    ]
    write_table(table, rows)
    options = ("--size-column", "bytes", "--max-reject-fraction", "0.6", "--records-per-shard", "3")
    assert build(table, tmp_path / "out", *options) == 0
    assert list(reasons_of(tmp_path / "out").values()).count("unreadable") == 4
    assert set(reasons_of(tmp_path / "out")) == set(bad)
    assert len(record_ids(tmp_path / "out")) == 10


def test_the_extension_decides_nothing(tmp_path: Path) -> None:
    for name in ("png.jpg", "png.JPEG", "png", "png.txt"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(png_of(len(name)))
    assert build(tmp_path / "in", tmp_path / "out") == 0
    assert sorted(record_ids(tmp_path / "out")) == ["png", "png.JPEG", "png.jpg", "png.txt"]


def test_an_unknown_label_is_a_reject(images: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("bird\ncat\n", "utf-8")
    options = ("--class-names", tmp_path / "names.txt")
    assert build(images, tmp_path / "out", *options, "--max-reject-fraction", "0.4") == 0
    assert set(reasons_of(tmp_path / "out").values()) == {"unknown_label"}
    assert rejects_of(tmp_path / "out")[0]["detail"] == "label 'Löwe' is not a known class name"
    assert len(record_ids(tmp_path / "out")) == 8


def test_too_many_rejects_before_writing(
    images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (images / "cat/empty.png").touch()
    assert build(images, tmp_path / "out") == 1
    said = last_line(capfd)
    assert (
        "1 of 13 inputs (7.69%) are rejects, more than --max-reject-fraction 0.01 allows (1 empty_file)"
        in said
    )
    assert sorted(stamps_of(tmp_path / "out")) == ["rejects/failed.parquet"]
    assert reasons_of(tmp_path / "out") == {"cat/empty.png": "empty_file"}
    assert build(images, tmp_path / "out", "--max-reject-fraction", "0.1") == 0, (
        "the list is no obstacle"
    )
    assert not (tmp_path / "out/rejects/failed.parquet").exists()


def test_too_many_rejects_after_writing(
    images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (images / "cat/text.png").write_text("no image")
    assert build(images, tmp_path / "out", "--records-per-shard", "4") == 1
    assert "1 of 13 inputs (7.69%) are rejects" in last_line(capfd)
    with pytest.raises(NotADatasetError, match="unfinished build"):
        read_manifest(Folder(str(tmp_path / "out")))
    assert reasons_of(tmp_path / "out") == {"cat/text.png": "not_an_image"}
    before = {path.name: path.stat().st_ino for path in shards_of(tmp_path / "out")}
    assert (
        build(images, tmp_path / "out", "--records-per-shard", "4", "--max-reject-fraction", "0.1")
        == 0
    )
    assert {path.name: path.stat().st_ino for path in shards_of(tmp_path / "out")} == before, (
        "only published, not written again"
    )


@pytest.mark.parametrize("content", ["nothing", "folders", "other files", "bad images"])
def test_an_input_without_any_image(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "in/cat").mkdir(parents=True)
    if content == "nothing":
        (tmp_path / "in/cat").rmdir()
    elif content != "folders":
        (tmp_path / "in/cat" / ("notes.txt" if content == "other files" else "a.png")).touch()
    assert build(tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "1") == 1
    assert "INPUT has no images" in last_line(capfd)
    assert not (tmp_path / "out/plan.json").exists()


def test_images_that_all_turn_out_to_be_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.png").write_text("no image")
    assert build(tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "1") == 1
    assert "INPUT has no images: every file is a reject (1 not_an_image)" in last_line(capfd)
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize(
    ("source", "output", "code", "said"),
    [
        ("in", "in/out", 2, "is inside INPUT"),
        ("in", "in", 2, "is inside INPUT"),
        ("in/cat", "in", 2, "is inside OUTPUT"),
        ("in", "link/out", 2, "is inside INPUT"),
        ("nowhere", "out", 2, "INPUT nowhere does not exist"),
        ("file.png", "out", 2, ""),
        ("in", "file.png", 1, "is a file; give a folder"),
        ("in", "file.png/out", 1, "cannot write"),
        ("in", "ftp://host/out", 2, "ftp:// addresses are not read or written"),
        (
            "in",
            "/proc/nope/out",
            1,
            "cannot write /proc/nope/out/plan.json: No such file or directory",
        ),
    ],
)
def test_places_that_cannot_be(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    source: str, output: str, code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.png").write_bytes(png_of(0))
    (tmp_path / "link").symlink_to(images)
    before = stamps_of(tmp_path)
    assert build(source, output) == code
    assert said in last_line(capfd)
    assert stamps_of(tmp_path) == before


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond this: like a disk that fills up in mid-write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [0, 3000])
def test_a_disk_that_is_full(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: int
) -> None:
    root = tmp_path / "out"
    with largest_file(limit):
        assert build(images, root, "--name", "x") == 1
    said = last_line(capsys)  # not capfd: its file would be full too
    assert f"error: cannot write {root}/" in said
    assert said.endswith(": File too large")
    assert leftovers_of(root) == []
    assert shards_of(root) == []
    assert not (root / "manifest.json").exists()
    assert build(images, root, "--name", "x") == 0, "and goes on once there is room"
    assert len(record_ids(root)) == 12


def test_a_disk_that_fills_up_under_a_finished_dataset_leaves_it_whole(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "out"
    assert build(images, root, "--name", "x") == 0
    whole = shutil.copytree(root, tmp_path / "copy")
    (root / "features.json").unlink()
    with largest_file(10):
        assert build(images, root, "--name", "x") == 1
    assert last_line(capsys).endswith("features.json: File too large")
    assert hashes_of(root) == hashes_of(Path(whole))
    assert read_manifest(Folder(str(root))).num_records == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-reject-fraction", "1.5"), "--max-reject-fraction is 1.5"),
        (("--shard-size", "0"), "--shard-size '0' is no size"),
        (("--records-per-shard", "0"), "--records-per-shard is 0; it must be 1 or more"),
        (
            ("--records-per-shard", "3", "--shard-count", "2"),
            "give one of --shard-size, --records-per-shard and --shard-count",
        ),
        (("--split", "train=0.5"), "fractions must each be above 0 and add up to 1"),
        (("--resize", "big"), "--resize 'big' is no size"),
        (("--class-names", "nowhere.txt"), "--class-names nowhere.txt cannot be read"),
        (("--record-per-shard", "3"), "did you mean --records-per-shard?"),
        (("--label-column", "x"), "--label-column is for a table"),
        (("--name", "Über"), "--name 'Über' must be"),
        (("--threads", "-1"), "--threads is -1"),
    ],
)
def test_bad_options_are_told_with_the_rule(
    images: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    assert build(images, tmp_path / "out", *options) == 2
    assert said in last_line(capfd)
    assert not (tmp_path / "out").exists()
