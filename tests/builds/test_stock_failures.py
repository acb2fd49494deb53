"""`shardwright build --writer beam` where it fails: rejects, foreign outputs, changing input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.pipelines.commands.stock_writer import run_stock_build, stock_graph
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.transforms.plan.packing import ShardCuts
from tests.builds.test_stock_build import BEAM, check_sound
from tests.support.build_helpers import build, make_images, png_of, reasons_of, stamps_of


@pytest.mark.long
def test_rejects_are_listed_and_counted(tmp_path: Path) -> None:
    source, output = make_images(tmp_path / "in", 12), tmp_path / "small"
    (source / "bird" / "zero.png").write_bytes(b"")
    (source / "cat" / "text.png").write_text("no image at all")
    (source / "cat" / "notes.txt").write_text("no image by name either")
    options = ("--records-per-shard", "5", "--max-reject-fraction", "0.2")
    assert build(source, output, *BEAM, *options) == 0
    manifest = check_sound(output)
    files = {
        path.name: pq.read_table(path).to_pylist()
        for path in (output / naming.REJECTS_DIR).iterdir()
    }
    assert reasons_of(output) == {
        "bird/zero.png": "empty_file",
        "cat/text.png": "not_an_image",
        "cat/notes.txt": "other_file",
    }
    # No pixel is read for these; the text file is in the file of the shard it was planned for.
    unread = [row["id"] for row in files.pop("plan.parquet")]
    assert unread == ["bird/zero.png", "cat/notes.txt"]
    assert len(files) == 1
    assert files.keys() <= {f"train-{index:05d}-of-00003.parquet" for index in range(3)}
    assert manifest.rejects == {"empty_file": 1, "not_an_image": 1, "other_file": 1}
    assert (manifest.num_records, manifest.num_inputs) == (12, 15)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("number", "told", "rejects"),
    [
        (
            6,
            "1 of 7 inputs (14.29%) are rejects, more than --max-reject-fraction 0.01",
            {"bird/bad.png": "not_an_image"},
        ),
        (0, "INPUT has no images", {}),
    ],
)
def test_a_failed_build_publishes_nothing(
    number: int,
    told: str,
    rejects: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, output = make_images(tmp_path / "in", number), tmp_path / "small"
    source.mkdir(exist_ok=True)
    for name in rejects:
        (source / name).write_text("no image")
    assert build(source, output, *BEAM, "--max-reject-fraction", "0.01") == 1
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert not (output / naming.MANIFEST).exists()
    assert not list(output.glob("beam-temp-*"))
    assert reasons_of(output) == rejects
    files = {path.name for path in output.glob(f"{naming.REJECTS_DIR}/*")}
    assert files == ({"train-00000-of-00001.parquet"} if rejects else set())


def test_rejects_of_the_plan_fail_before_an_image_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.png").write_bytes(png_of(0))
    table = tmp_path / "table.csv"
    table.write_text("path,label\n0.png,a\n0.png,a\nnone.png,b\n")
    output = tmp_path / "small"
    assert build(table, output, *BEAM, "--max-rejects", "1") == 1
    assert "2 of 3 inputs (66.67%) are rejects" in capsys.readouterr().err
    assert sorted(stamps_of(output)) == [naming.FAILED_REJECTS]
    assert sorted(reasons_of(output).values()) == ["duplicate_id", "missing_file"]


@pytest.mark.parametrize("part", ["a[1]", "a*b", "a?b"])
def test_an_output_that_beam_takes_for_a_pattern(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(make_images(tmp_path / "in", 1), tmp_path / part / "small", *BEAM) == 2
    told = "in its path, which Beam's WriteToTFRecord reads as a pattern"
    assert told in capsys.readouterr().err
    assert not (tmp_path / part).exists()


def test_input_that_changed_between_the_plans_and_foreign_outputs_are_refused(
    tmp_path: Path,
) -> None:
    source, output = make_images(tmp_path / "in", 4), tmp_path / "small"
    job = prepare_job(parse_options([str(source), str(output), *BEAM]))

    def graph(pipeline: beam.Pipeline, job: Any) -> None:
        stock_graph(pipeline, job, planned={"train": ShardCuts(3, 1)})

    with pytest.raises(BuildError, match="INPUT changed during planning"):
        run_pipeline(graph, job)
    assert stamps_of(output) == {}
    output.mkdir(exist_ok=True)
    (output / "mine.txt").write_text("kept")
    with pytest.raises(BuildError, match=r"holds no shardwright build \(found 'mine.txt'\)"):
        run_stock_build(job)
    assert list(stamps_of(output)) == ["mine.txt"]
