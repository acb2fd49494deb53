"""`shardwright plan`: what it counts is what a build writes, what it says is what a build does, and it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines import build_dataset, plan_dataset
from shardwright import naming
from shardwright.manifest import read_manifest
from shardwright.storage import Folder

SPLITS = ("--split", "train=0.7,test=0.3", "--records-per-shard", "7")


def plan(source: Path, output: Path, *options: str) -> int:
    return plan_dataset.main([str(source), str(output), *options])


def plan_json(
    capsys: pytest.CaptureFixture[str], source: Path, output: Path, *options: str
) -> tuple[int, dict[str, Any]]:
    """The exit code and what `--json` prints; all of stdout must be JSON."""
    capsys.readouterr()
    code = plan(source, output, *options, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images, and one that only a reader would find out to be none."""
    root = tmp_path_factory.mktemp("in")
    for number in range(30):
        path = root / f"class{number % 3}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 6), (number, 2, 3)).save(path, "png")
    (root / "class0" / "text.png").write_text("no image")
    (root / "class0" / "notes.txt").write_text("no name of an image")
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    output = tmp_path_factory.mktemp("out") / "pets"
    code = build_dataset.main([str(folder), str(output), *SPLITS, "--max-reject-fraction", "0.1"])
    assert code == 0
    return output


def test_a_plan_is_what_the_build_writes(
    folder: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "none" / "pets"
    code, found = plan_json(capsys, folder, output, *SPLITS)
    written = json.loads((built / naming.PLAN).read_text())
    assert (code, found["state"], found["reason"]) == (0, "new", "")
    assert found["splits"] == written["splits"]
    assert found["settings"] == written["settings"]
    assert found["fingerprint"] is None
    assert found["rejects"] == {"other_file": 1}
    splits = found["splits"].values()
    assert found["num_records"] == sum(split["num_records"] for split in splits) == 31
    assert (
        found["num_shards"]
        == sum(split["num_shards"] for split in splits)
        == found["shards_to_write"]
    )
    assert found["num_bytes"] == sum(split["num_bytes"] for split in splits)
    assert (found["num_classes"], found["shards_done"]) == (3, 0)
    assert not output.parent.exists()


def test_the_keys_of_the_json_are_stable(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = plan_json(capsys, folder, tmp_path / "pets")
    assert list(found) == [
        *(
            "fingerprint",
            "settings",
            "splits",
            "num_records",
            "num_shards",
            "num_bytes",
            "num_classes",
        ),
        *("rejects", "shards_done", "shards_to_write", "state", "reason"),
    ]
    assert list(found["splits"]["train"]) == [
        "num_shards",
        "num_records",
        "num_bytes",
        "records_per_shard",
    ]
    assert list(found["splits"]["train"]["records_per_shard"]) == ["min", "max"]


def test_no_image_is_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.parquet"
    rows = pa.table(
        {
            "path": [f"/none/{n}.jpg" for n in range(1000)],
            "label": ["a", "b"] * 500,
            "size": [50_000] * 1000,
        }
    )
    pq.write_table(rows, table)
    code, found = plan_json(
        capsys, table, tmp_path / "pets", "--size-column", "size", "--shard-size", "10MB"
    )
    assert (code, found["rejects"]) == (0, {})
    split = found["splits"]["train"]
    assert (split["num_records"], split["num_shards"], split["records_per_shard"]) == (
        1000,
        6,
        {"min": 166, "max": 167},
    )
    assert 50_000_000 < split["num_bytes"] < 50_200_000


def test_words(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pets"
    assert plan(folder, output, "--records-per-shard", "10") == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith("train: 31 records, 4 shards of 1 to 10 records, about ")
    assert lines[1].startswith(f"{output}: 31 records, 4 shards, about ")
    assert lines[1].endswith(", 3 classes")
    assert lines[2:] == [
        "rejects so far: 1 other_file",
        "a build would write all shards: 4 shards to write, 0 already written",
    ]
    assert "INPUT is a folder at" in said.err


def test_a_finished_dataset_is_up_to_date(
    folder: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(built)
    code, found = plan_json(capsys, folder, built, *SPLITS)
    manifest = read_manifest(Folder(str(built)))
    shards = sum(len(split.shards) for split in manifest.splits.values())
    assert (code, found["state"], found["fingerprint"]) == (0, "up_to_date", manifest.fingerprint)
    assert (found["shards_done"], found["shards_to_write"]) == (shards, 0)
    assert tree(built) == before


@pytest.mark.parametrize(
    ("options", "code", "state", "reason"),
    [
        (
            ("--seed", "1"),
            1,
            "refused",
            "holds a finished dataset with other settings (seed is 0 there and 1 here)",
        ),
        (("--writer", "beam"), 1, "refused", "writer is 'planned' there and 'beam' here"),
        (
            ("--if-exists", "error"),
            1,
            "refused",
            "already holds a dataset, and --if-exists error was given",
        ),
        (("--seed", "1", "--if-exists", "overwrite"), 0, "overwrite", ""),
    ],
)
def test_a_dataset_with_other_options(
    options: tuple[str, ...],
    code: int,
    state: str,
    reason: str,
    folder: Path,
    built: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = tree(built)
    found_code, found = plan_json(capsys, folder, built, *SPLITS, *options)
    assert (found_code, found["state"], found["shards_done"], found["fingerprint"]) == (
        code,
        state,
        0,
        None,
    )
    assert reason in found["reason"]
    assert bool(found["reason"]) == bool(reason)
    assert found["num_records"] == 31
    assert tree(built) == before


def test_changed_input_of_a_finished_dataset(
    folder: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = folder / "class1" / "new.png"
    new.write_bytes((folder / "class1" / "1.png").read_bytes())
    try:
        code, found = plan_json(capsys, folder, built, *SPLITS)
    finally:
        new.unlink()
    assert (code, found["state"]) == (1, "refused")
    assert "INPUT has changed since the dataset at" in found["reason"]
    assert 0 < found["shards_done"] < found["num_shards"]


def test_an_unfinished_build_goes_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "pets"
    options = (*SPLITS, "--max-reject-fraction", "0.1")
    assert build_dataset.main([str(folder), str(output), *options]) == 0
    (output / naming.MANIFEST).unlink()
    first = sorted((output / naming.INDEX_DIR).iterdir())[0]
    first.unlink()
    before = tree(output)
    assert plan(folder, output, *options) == 0
    shards = len(list(output.glob("pets-*")))
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        last
        == f"a build would go on with what is there: 1 shards to write, {shards - 1} already written"
    )
    assert tree(output) == before


def test_an_unfinished_stock_build_starts_over(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "pets"
    output.mkdir()
    _, new = plan_json(capsys, folder, output, "--writer", "beam")
    (output / naming.PLAN).write_text(
        json.dumps({"fingerprint": "", "settings": new["settings"], "splits": {}})
    )
    code, found = plan_json(capsys, folder, output, "--writer", "beam")
    assert (code, new["state"], found["state"], found["shards_done"]) == (0, "new", "restart", 0)


FAILURES = {
    "empty": ([], "INPUT has no images; the folder or table is empty"),
    "only others": (["a.txt"], "INPUT has no images: every file is a reject (1 other_file)"),
}


@pytest.mark.parametrize(("names", "reason"), FAILURES.values(), ids=FAILURES)
def test_what_a_build_would_fail_of(
    names: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for name in names:
        (source / name).write_text("text")
    code, found = plan_json(capsys, source, tmp_path / "pets")
    assert (code, found["state"], found["reason"], found["splits"]) == (1, "failed", reason, {})
    assert not (tmp_path / "pets").exists()


def test_too_many_rejects_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("path,label,size\n/a.png,x,10\n/a.png,y,10\n/b.png,,10\n")
    assert (
        plan(table, tmp_path / "pets", "--size-column", "size", "--max-reject-fraction", "0.5") == 1
    )
    said = capsys.readouterr()
    assert "rejects so far: 1 duplicate_id, 1 missing_label" in said.out
    assert (
        "a build would fail: 2 of 3 inputs (66.67%) are rejects, more than --max-reject-fraction 0.5 allows"
        in said.err
    )


def test_output_states_that_stop_a_build(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "mine.txt").write_text("kept")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / naming.MANIFEST).write_text("{")
    for output, reason in (
        (file, "is a file"),
        (strange, "'mine.txt'"),
        (damaged, "is not readable JSON"),
    ):
        code, found = plan_json(capsys, folder, output)
        assert (code, found["state"]) == (1, "refused")
        assert reason in found["reason"]


def test_another_runner_is_not_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--runner", "PortableRunner", "--job_endpoint", "nowhere:1", "--shared-filesystem")
    assert plan(folder, tmp_path / "pets", *options) == 0
    said = capsys.readouterr()
    assert "a plan is made on this machine (FnApiRunner), not on PortableRunner" in said.err
    assert "31 records" in said.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--records-per-shard", "0"), "--records-per-shard is 0; it must be 1 or more"),
        (("--jsn",), "'--jsn' is no option of shardwright or of Beam; did you mean --json?"),
        (("--label-column", "x"), "--label-column is for a table"),
    ],
)
def test_wrong_usage(
    options: tuple[str, ...],
    said: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert plan(folder, tmp_path / "pets", *options) == 2
    assert said in capsys.readouterr().err


def test_a_missing_input_and_a_missing_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(tmp_path / "none", tmp_path / "pets") == 2
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        plan_dataset.main([str(tmp_path)])
    assert stopped.value.code == 2
