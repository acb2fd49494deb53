"""`shardwright plan`: it counts what a build writes, says what a build does, and writes nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.pipelines.commands import plan as plan_command
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, make_images, stamps_of

SPLITS = ("--split", "train=0.7,test=0.3", "--records-per-shard", "7")
PlanJson = Callable[..., tuple[int, dict[str, Any]]]


def plan(source: Path, output: Path, *options: str) -> int:
    return plan_command.main([str(source), str(output), *options])


@pytest.fixture
def plan_json(capsys: pytest.CaptureFixture[str]) -> PlanJson:
    """A function that gives the exit code and what `--json` prints; all of stdout must be JSON."""

    def run(source: Path, output: Path, *options: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = plan(source, output, *options, "--json")
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images, and one that only a reader would find out to be none."""
    root = make_images(tmp_path_factory.mktemp("in"), 30)
    (root / "cat" / "text.png").write_text("no image")
    (root / "cat" / "notes.txt").write_text("no name of an image")
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    output = tmp_path_factory.mktemp("out") / "pets"
    assert build(folder, output, *SPLITS, "--max-reject-fraction", "0.1") == 0
    return output


def test_a_plan_is_what_the_build_writes(
    folder: Path, built: Path, tmp_path: Path, plan_json: PlanJson
) -> None:
    output = tmp_path / "none" / "pets"
    code, found = plan_json(folder, output, *SPLITS)
    written = json.loads((built / naming.PLAN).read_text())
    splits = written["splits"].values()
    num_shards = sum(split["num_shards"] for split in splits)
    assert code == 0
    assert sum(split["num_records"] for split in splits) == 31
    assert list(found.items()) == [  # the keys and their order are stable
        ("fingerprint", None),
        ("settings", written["settings"]),
        ("splits", written["splits"]),
        ("num_records", 31),
        ("num_shards", num_shards),
        ("num_bytes", sum(split["num_bytes"] for split in splits)),
        ("shards", found["shards"]),
        ("num_classes", 3),
        ("class_names", ["Löwe", "bird", "cat"]),
        ("classes_from", "the folders of INPUT"),
        ("rejects", {"other_file": 1}),
        ("warning", ""),
        ("shards_done", 0),
        ("shards_to_write", num_shards),
        ("state", "new"),
        ("reason", ""),
    ]
    keys = ["num_shards", "num_records", "num_bytes", "records_per_shard"]
    assert list(found["splits"]["train"]) == keys
    assert list(found["splits"]["train"]["records_per_shard"]) == ["min", "max"]
    for split, spreads in found["shards"].items():
        assert {name: list(spread) for name, spread in spreads.items()} == {
            "records": ["min", "median", "max"],
            "bytes": ["min", "median", "max"],
        }
        assert spreads["records"]["max"] == found["splits"][split]["records_per_shard"]["max"]
    assert not output.parent.exists()


def test_no_image_is_opened(tmp_path: Path, plan_json: PlanJson) -> None:
    table = tmp_path / "table.parquet"
    paths = [f"/none/{n}.jpg" for n in range(1000)]
    rows = {"path": paths, "label": ["a", "b"] * 500, "size": [50_000] * 1000}
    pq.write_table(pa.table(rows), table)
    options = ("--size-column", "size", "--shard-size", "10MB", "--allow-outside", "/none")
    code, found = plan_json(table, tmp_path / "pets", *options)
    assert (code, found["rejects"]) == (0, {})
    split = found["splits"]["train"]
    assert 50_000_000 < split.pop("num_bytes") < 50_200_000
    size = {"min": 166, "max": 167}
    assert split == {"num_records": 1000, "num_shards": 6, "records_per_shard": size}
    assert found["shards"]["train"]["records"] == {"min": 166, "median": 167, "max": 167}


@pytest.mark.long
def test_a_shard_size_below_ten_records(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    small = ("--shard-size", "100", "--max-reject-fraction", "0.1")
    assert plan(folder, tmp_path / "pets", *small) == 0
    said = "--shard-size 100 is less than 10 records of the median size, "
    (line,) = [line for line in capsys.readouterr().out.splitlines() if said in line]
    assert "so 31 records are in 31 shards: use --shard-size " in line
    assert build(folder, tmp_path / "pets", *small) == 0
    assert line.removeprefix("warning: ") in caplog.messages


def test_words(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pets"
    assert plan(folder, output, "--records-per-shard", "10") == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "splits, with estimated bytes"
    assert re.fullmatch(
        r"  train +31  100.0%  [\d.]+ kB +4  1 to 10, median 10  "
        r"\d+ B to [\d.]+ kB, median [\d.]+ kB",
        lines[2],
    )
    assert lines[3].startswith(f"{output}: 31 records, 4 shards, about ")
    assert lines[4:] == [
        "3 classes: Löwe, bird, cat; from the folders of INPUT",
        "rejects so far: 1 other_file",
        "a build would write all shards: 4 shards to write, 0 already written",
    ]
    assert "INPUT is a folder at" in said.err


def test_a_finished_dataset_is_up_to_date(folder: Path, built: Path, plan_json: PlanJson) -> None:
    before = stamps_of(built)
    code, found = plan_json(folder, built, *SPLITS)
    manifest = read_manifest(Folder(str(built)))
    shards = sum(len(split.shards) for split in manifest.splits.values())
    assert (code, found["state"], found["fingerprint"]) == (0, "up_to_date", manifest.fingerprint)
    assert (found["shards_done"], found["shards_to_write"]) == (shards, 0)
    assert stamps_of(built) == before


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (
            ("--seed", "1"),
            1,
            "holds a finished dataset with other settings (seed is 0 there and 1 here)",
        ),
        (("--writer", "beam"), 1, "writer is 'planned' there and 'beam' here"),
        (("--if-exists", "error"), 1, "already holds a dataset, and --if-exists error was given"),
        (("--seed", "1", "--if-exists", "overwrite"), 0, ""),
    ],
)
def test_a_dataset_with_other_options(
    options: tuple[str, ...], code: int, reason: str, folder: Path, built: Path, plan_json: PlanJson
) -> None:
    before = stamps_of(built)
    found_code, found = plan_json(folder, built, *SPLITS, *options)
    assert (found_code, found["state"]) == (code, "refused" if reason else "overwrite")
    assert (found["shards_done"], found["fingerprint"], found["num_records"]) == (0, None, 31)
    assert reason in found["reason"]
    assert bool(found["reason"]) == bool(reason)
    assert stamps_of(built) == before


def test_changed_input_of_a_finished_dataset(
    folder: Path, built: Path, plan_json: PlanJson
) -> None:
    new = folder / "cat" / "new.png"
    shutil.copy(folder / "cat" / "0001.png", new)
    try:
        code, found = plan_json(folder, built, *SPLITS)
    finally:
        new.unlink()
    assert (code, found["state"]) == (1, "refused")
    assert "INPUT has changed since the dataset at" in found["reason"]
    assert 0 < found["shards_done"] < found["num_shards"]


def test_an_unfinished_build_goes_on(
    folder: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Path(shutil.copytree(built, tmp_path / "pets"))
    (output / naming.MANIFEST).unlink()
    sorted((output / naming.INDEX_DIR).iterdir())[0].unlink()
    before = stamps_of(output)
    assert plan(folder, output, *SPLITS, "--max-reject-fraction", "0.1") == 0
    left = f"1 shard to write, {len(list(output.glob('pets-*'))) - 1} already written"
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"a build would resume: {left}"
    assert stamps_of(output) == before


def test_an_unfinished_stock_build_starts_over(
    folder: Path, tmp_path: Path, plan_json: PlanJson
) -> None:
    _, new = plan_json(folder, tmp_path, "--writer", "beam")
    there = {"fingerprint": "", "settings": new["settings"], "splits": {}}
    (tmp_path / naming.PLAN).write_text(json.dumps(there))
    code, found = plan_json(folder, tmp_path, "--writer", "beam")
    assert (code, new["state"], found["state"], found["shards_done"]) == (0, "new", "restart", 0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "INPUT has no images; the folder or table is empty"),
        (
            "a.txt",
            "INPUT has no images: every file is a reject (1 other_file)\n"
            "  other_file: a.txt: its name has no image's extension: add one, or name the file in "
            "a table",
        ),
    ],
)
def test_an_input_without_images(
    name: str | None, reason: str, tmp_path: Path, plan_json: PlanJson
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    if name is not None:
        (source / name).write_text("text")
    code, found = plan_json(source, tmp_path / "pets")
    assert (code, found["state"], found["reason"], found["splits"]) == (1, "failed", reason, {})
    assert not (tmp_path / "pets").exists()


def test_too_many_rejects_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("path,label,size\n/a.png,x,10\n/a.png,y,10\n/b.png,,10\n")
    options = ("--size-column=size", "--max-reject-fraction=0.5", "--allow-outside=/")
    assert plan(table, tmp_path / "pets", *options) == 1
    said = capsys.readouterr()
    assert "rejects so far: 1 duplicate_id, 1 missing_label" in said.out
    told = "2 of 3 inputs (66.67%) are rejects, more than --max-reject-fraction 0.5 allows"
    last = said.err.splitlines()[-1]
    assert last.startswith(f"shardwright: a build would fail: {told}")
    assert "lists them" not in last, "a plan writes nothing"
    assert "shardwright:   missing_label: /b.png: " in said.err


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (".", "", "is a file"),
        ("mine.txt", "kept", "'mine.txt'"),
        (naming.MANIFEST, "{", "is not readable JSON"),
    ],
)
def test_output_states_that_stop_a_build(
    name: str, text: str, reason: str, folder: Path, tmp_path: Path, plan_json: PlanJson
) -> None:
    output = tmp_path / "pets"
    if name != ".":
        output.mkdir()
    (output / name).write_text(text)
    code, found = plan_json(folder, output)
    assert (code, found["state"]) == (1, "refused")
    assert reason in found["reason"]


def test_another_runner_is_not_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--runner", "PortableRunner", "--job_endpoint", "nowhere:1", "--shared-filesystem")
    assert plan(folder, tmp_path / "pets", *options) == 0
    said = capsys.readouterr()
    assert "planning on this machine (FnApiRunner), not on PortableRunner" in said.err
    assert "31 records" in said.out


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (".", "--records-per-shard 0", "--records-per-shard must be at least 1, got 0"),
        (".", "--jsn", "'--jsn' is not an option of shardwright or Beam; did you mean --json?"),
        (".", "--label-column x", "--label-column needs a table"),
        (".", "--input-format none", "--input-format 'none' is unknown"),
        ("none", "", "does not exist"),
    ],
)
def test_wrong_usage(
    source: str, options: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(folder / source, Path("/pets"), *options.split()) == 2
    assert said in capsys.readouterr().err


def test_a_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_command.main(["in"]) == 2
    told = "shardwright: error: missing OUTPUT: shardwright plan INPUT OUTPUT [options]\n"
    assert capsys.readouterr().err == told
