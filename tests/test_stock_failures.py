"""`shardwright build --writer beam` where it fails: rejects, outputs it must not touch, and input that changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
import pytest

from pipelines.job import prepare_job
from pipelines.options import parse_options
from pipelines.running import run_pipeline
from pipelines.stock_build import run_stock_build, stock_graph
from shardwright import naming
from shardwright.errors import BuildError
from shardwright.manifest import read_json
from shardwright.storage import Folder
from tests.test_stock_build import BEAM, build, check_sound, tree, write_folder, write_png
from transforms.planning.packing import ShardCuts


def test_rejects_are_listed_and_counted(tmp_path: Path) -> None:
    source, output = write_folder(tmp_path / "in", 12), tmp_path / "small"
    (source / "class0" / "zero.png").write_bytes(b"")
    (source / "class1" / "text.png").write_text("no image at all")
    (source / "class2" / "notes.txt").write_text("no image by name either")
    assert (
        build(source, output, *BEAM, "--records-per-shard", "5", "--max-reject-fraction", "0.2")
        == 0
    )
    manifest = check_sound(output)
    files = {
        path.name: pq.read_table(path).to_pylist()
        for path in (output / naming.REJECTS_DIR).iterdir()
    }
    found = {row["id"]: row["reason"] for rows in files.values() for row in rows}
    assert found == {
        "class0/zero.png": "empty_file",
        "class1/text.png": "not_an_image",
        "class2/notes.txt": "other_file",
    }
    assert [row["id"] for row in files.pop("plan.parquet")] == [
        "class0/zero.png",
        "class2/notes.txt",
    ]  # no pixel is read for these
    assert len(files) == 1  # that of the shard that the text file was planned for
    assert files.keys() <= {f"train-{index:05d}-of-00003.parquet" for index in range(3)}
    assert manifest.rejects == {"empty_file": 1, "not_an_image": 1, "other_file": 1}
    assert (manifest.num_records, manifest.num_inputs) == (12, 15)


@pytest.mark.parametrize(
    ("files", "listed"), [({"class0/bad.png": "no image"}, "train-00000-of-00001"), ({}, None)]
)
def test_a_failed_build_publishes_nothing(
    files: dict[str, str], listed: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in", tmp_path / "small"
    if files:
        write_folder(source, 6)
    source.mkdir(exist_ok=True)
    for name, text in files.items():
        (source / name).write_text(text)
    assert build(source, output, *BEAM) == 1
    said = capsys.readouterr().err
    assert (
        "1 of 7 inputs (14.29%) are rejects, more than --max-reject-fraction 0.01"
        if files
        else "INPUT has no images"
    ) in said
    assert "Traceback" not in said
    assert read_json(Folder(str(output)), naming.MANIFEST) is None
    assert not list(output.glob("beam-temp-*"))
    if listed:
        rows = pq.read_table(output / naming.REJECTS_DIR / f"{listed}.parquet").to_pylist()
        assert [(row["id"], row["reason"]) for row in rows] == [("class0/bad.png", "not_an_image")]


def test_rejects_of_the_plan_fail_before_an_image_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "in" / "table.csv"
    write_png(table.parent / "0.png", 0)
    table.write_text("path,label\n0.png,a\n0.png,a\nnone.png,b\n")
    output = tmp_path / "small"
    assert build(table, output, *BEAM) == 1
    assert "2 of 3 inputs (66.67%) are rejects" in capsys.readouterr().err
    assert sorted(tree(output)) == [naming.FAILED_REJECTS]
    rows = pq.read_table(output / naming.FAILED_REJECTS).to_pylist()
    assert sorted(row["reason"] for row in rows) == ["duplicate_id", "missing_file"]


@pytest.mark.parametrize("part", ["a[1]", "a*b", "a?b"])
def test_an_output_that_beam_takes_for_a_pattern(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(write_folder(tmp_path / "in", 1), tmp_path / part / "small", *BEAM) == 2
    assert (
        "in its path, which Beam's WriteToTFRecord takes for a pattern" in capsys.readouterr().err
    )
    assert not (tmp_path / part).exists()


def test_input_that_changed_between_the_plans_is_refused(tmp_path: Path) -> None:
    source, output = write_folder(tmp_path / "in", 4), tmp_path / "small"
    job = prepare_job(parse_options([str(source), str(output), *BEAM]))

    def graph(pipeline: beam.Pipeline, job: Any) -> None:
        stock_graph(pipeline, job, planned={"train": ShardCuts(3, 1)})

    with pytest.raises(BuildError, match="INPUT changed while it was planned"):
        run_pipeline(graph, job)
    assert tree(output) == {}


def test_an_output_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    source, output = write_folder(tmp_path / "in", 2), tmp_path / "small"
    job = prepare_job(parse_options([str(source), str(output), *BEAM]))
    output.mkdir()
    (output / "mine.txt").write_text("kept")
    with pytest.raises(BuildError, match=r"holds no shardwright build \(there is 'mine.txt'\)"):
        run_stock_build(job)
    assert tree(output) == {"mine.txt": b"kept"}
