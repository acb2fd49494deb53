"""Bad input: each mistake is a reject with a reason or one clear line, and costs nothing else."""

from __future__ import annotations

import os
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardwright.errors import NotADatasetError
from shardwright.format.manifest import read_manifest
from shardwright.pipelines.commands.results import run_build
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import (
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

Said = Callable[[], str]
STRICT = ("--max-reject-fraction", "0.01")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "in", 12)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def error_in(said: str) -> str:
    """Return the last line on stderr; a user's mistake never shows a stack trace."""
    assert "Traceback" not in said
    line = said.splitlines()[-1]
    assert line.startswith("shardwright: error: ")
    return line


@pytest.fixture
def last_line(capfd: pytest.CaptureFixture[str]) -> Said:
    return lambda: error_in(capfd.readouterr().err)


BAD_FILES = {
    "empty.png": ("empty_file", "the file has no bytes"),
    "folder.png": ("unreadable", "not a regular file"),
    "pipe.png": ("unreadable", "not a regular file"),
    "missing.png": ("missing_file", "there is no such file"),
    "good0.png/below.png": ("missing_file", "there is no such file"),
    "nul\0.png": ("unreadable", "null byte"),
}
OTHER_BAD_FILES = {
    "cut.png": ("truncated", "without an IEND chunk"),
    "text.jpg": ("not_an_image", ""),
    "loop.png": ("unreadable", "Too many levels of symbolic links"),
    "ftp://host/key.png": ("bad_value", "is not an object's address"),
}
GOOD_FILES = [f"good{number}.png" for number in range(10)]


@pytest.fixture
def bad_folder(tmp_path: Path) -> Path:
    """A folder with ten good files and, as far as they can exist, the bad ones."""
    for number, name in enumerate(GOOD_FILES):
        (tmp_path / name).write_bytes(png_of(number))
    (tmp_path / "empty.png").touch()
    (tmp_path / "cut.png").write_bytes(png_of(0)[:100])
    (tmp_path / "text.jpg").write_text("Dear diary, " * 99)
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    return tmp_path


def test_every_bad_file_of_a_table_is_a_reject_with_a_reason(bad_folder: Path, out: Path) -> None:
    bad = {**BAD_FILES, **OTHER_BAD_FILES}
    rows = [{"path": path} for path in [*bad, *GOOD_FILES]]
    table = write_table(bad_folder / "table.jsonl", rows)
    assert build(table, out, "--max-reject-fraction", "0.6") == 0
    assert reasons_of(out) == {image_id: reason for image_id, (reason, _) in bad.items()}
    for row in rejects_of(out):
        assert bad[row["id"]][1] in row["detail"]
        assert "\n" not in row["detail"]
    assert sorted(record_ids(out)) == GOOD_FILES


def test_the_same_files_with_a_size_column_are_found_out_when_they_are_read(
    bad_folder: Path, out: Path
) -> None:
    bad = [*BAD_FILES, "n" * 300]
    rows = [{"path": path, "bytes": 300} for path in [*bad, *GOOD_FILES]]
    table = write_table(bad_folder / "table.jsonl", rows)
    options = "--size-column bytes --max-reject-fraction 0.6 --records-per-shard 3"
    assert build(table, out, *options.split()) == 0
    assert list(reasons_of(out).values()).count("unreadable") == 4
    assert set(reasons_of(out)) == set(bad)
    assert sorted(record_ids(out)) == GOOD_FILES


def test_any_extension_of_an_image_makes_one(tmp_path: Path, out: Path) -> None:
    """Its content decides about the format. A table may name images without an extension."""
    (tmp_path / "in").mkdir()
    names = ["png", "png.JPEG", "png.jpg", "png.txt"]
    for number, name in enumerate(names):
        (tmp_path / "in" / name).write_bytes(png_of(number))
    assert build(tmp_path / "in", out) == 0
    assert sorted(record_ids(out)) == ["png.JPEG", "png.jpg"]
    assert reasons_of(out) == dict.fromkeys(("png", "png.txt"), "other_file")
    table = write_table(tmp_path / "in" / "t.jsonl", [{"image": name} for name in names])
    assert build(table, out, "--if-exists", "overwrite") == 0
    assert sorted(record_ids(out)) == names


def test_an_unknown_label_is_a_reject(images: Path, tmp_path: Path, out: Path) -> None:
    (tmp_path / "names.txt").write_text("bird\ncat\n", "utf-8")
    options = ("--class-names", tmp_path / "names.txt", "--max-reject-fraction", "0.4")
    assert build(images, out, *options) == 0
    assert set(reasons_of(out).values()) == {"unknown_label"}
    assert rejects_of(out)[0]["detail"] == "label 'Löwe' is not a known class name"
    assert len(record_ids(out)) == 8


@pytest.mark.long
def test_too_many_rejects_before_writing(images: Path, out: Path, last_line: Said) -> None:
    (images / "cat/empty.png").touch()
    assert build(images, out, *STRICT) == 1
    told = "1 of 13 inputs (7.69%) are rejects, more than --max-reject-fraction 0.01 allows"
    last = last_line()
    assert f"{told} (1 empty_file)" in last
    assert last.endswith(f"; no image was checked yet; {out}/rejects/ lists them")
    assert sorted(stamps_of(out)) == ["rejects/failed.parquet"]
    assert reasons_of(out) == {"cat/empty.png": "empty_file"}
    assert build(images, out, "--max-reject-fraction", "0.1") == 0, "the list is no obstacle"
    assert not (out / "rejects/failed.parquet").exists()


@pytest.mark.long
def test_too_many_rejects_after_writing(images: Path, out: Path, last_line: Said) -> None:
    (images / "cat/text.png").write_text("no image")
    size = ("--records-per-shard", "4")
    assert build(images, out, *size, *STRICT) == 1
    last = last_line()
    assert "1 of 13 inputs (7.69%) are rejects" in last
    assert last.endswith(f"raise --max-reject-fraction; {out}/rejects/ lists them")
    with pytest.raises(NotADatasetError, match="unfinished build"):
        read_manifest(Folder(str(out)))
    assert reasons_of(out) == {"cat/text.png": "not_an_image"}
    before = {path.name: path.stat().st_ino for path in shards_of(out)}
    allowed = (*size, "--max-reject-fraction", "0.1")
    assert build(images, out, *allowed) == 0
    after = {path.name: path.stat().st_ino for path in shards_of(out)}
    assert after == before, "only published, not written again"


@pytest.mark.parametrize("runs", ["graph", "in this process"])
def test_a_few_bad_images_never_end_a_build_and_more_do_when_all_were_looked_at(
    images: Path, tmp_path: Path, out: Path, capfd: pytest.CaptureFixture[str], runs: str
) -> None:
    """10 of 22 are no reason to stop, and 13 of 25 are; the bad ones are in many shards."""
    for number in range(10):
        (images / f"cat/cut{number}.png").write_bytes(png_of(number)[:100])

    def run(output: Path) -> int:
        argv = (images, output, "--name", "x", "--records-per-shard", "3", "--check", "decode")
        if runs == "graph":
            return build(*argv)
        return run_build(build_here, lambda: prepare_job(parse_options([str(arg) for arg in argv])))

    assert run(tmp_path / "first") == 0
    assert len(rejects_of(tmp_path / "first")) == 10
    (images / "cat/text0.png").write_text("no image")
    (images / "cat/text1.png").write_text("no image")
    (images / "cat/empty.png").touch()
    capfd.readouterr()
    assert run(out) == 1
    *lines, last = capfd.readouterr().err.splitlines()
    examples = [line.split(": ")[1:3] for line in lines if line.startswith("shardwright:   ")]
    found = rejects_of(out)
    assert len(found) == 13, "all images were looked at"
    assert Counter(reason.strip() for reason, _ in examples) == {
        "empty_file": 1, "not_an_image": 2, "truncated": 3,
    }  # fmt: skip
    listed = {(row["reason"], row["id"]) for row in found}
    assert {(reason.strip(), name) for reason, name in examples} <= listed
    assert last == (
        "shardwright: error: 13 of 25 inputs (52.00%) are rejects, more than the default limit of "
        "10 and 1% allows (10 truncated, 2 not_an_image, 1 empty_file): fix these inputs, or raise "
        f"--max-reject-fraction or --max-rejects; {out}/rejects/ lists them"
    )


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("name", "text", "left"),
    [
        (None, "", None),
        ("a.png", "", None),
        ("b.png", "no image", ": every file is a reject (1 not_an_image)"),
    ],
    ids=["folders", "empty files", "bad images"],
)
def test_an_input_without_any_image(
    tmp_path: Path, out: Path, last_line: Said, name: str | None, text: str, left: str | None
) -> None:
    (tmp_path / "in/cat").mkdir(parents=True)
    if name is not None:
        (tmp_path / "in/cat" / name).write_text(text)
    assert build(tmp_path / "in", out, "--max-reject-fraction", "1") == 1
    assert f"INPUT has no images{left or ''}" in last_line()
    assert (out / "plan.json").exists() == (left is not None)
    assert not (out / "manifest.json").exists()


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        ("in/out", 2, "is inside INPUT"),
        ("file.png", 1, "is a file; give a folder"),
        ("file.png/out", 1, "cannot write"),
        ("/proc/no/out", 1, "cannot write /proc/no/out/plan.json: No such file or directory"),
    ],
)
def test_outputs_that_cannot_be(
    images: Path, tmp_path: Path, last_line: Said, output: str, code: int, said: str
) -> None:
    (tmp_path / "file.png").write_bytes(png_of(0))
    before = stamps_of(tmp_path)
    assert build(images, tmp_path / output) == code
    assert said in last_line()
    assert stamps_of(tmp_path) == before


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond this: like a disk that fills up in mid-write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.long
@pytest.mark.parametrize("limit", [0, 3000])
def test_a_disk_that_is_full(
    images: Path, out: Path, capsys: pytest.CaptureFixture[str], limit: int
) -> None:
    with largest_file(limit):
        assert build(images, out, "--name", "x") == 1
    # Not capfd: its file would be full too.
    said = error_in(capsys.readouterr().err)
    assert f"error: cannot write {out}/" in said
    assert said.endswith(": File too large")
    assert leftovers_of(out) == shards_of(out) == []
    assert not (out / "manifest.json").exists()
    assert build(images, out, "--name", "x") == 0, "and goes on once there is room"
    assert len(record_ids(out)) == 12


def test_a_disk_that_fills_up_under_a_finished_dataset_leaves_it_whole(
    images: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(images, out, "--name", "x") == 0
    whole = Path(shutil.copytree(out, tmp_path / "copy"))
    (out / "features.json").unlink()
    with largest_file(10):
        assert build(images, out, "--name", "x") == 1
    assert error_in(capsys.readouterr().err).endswith("features.json: File too large")
    assert hashes_of(out) == hashes_of(whole)
    assert read_manifest(Folder(str(out))).num_records == 12
