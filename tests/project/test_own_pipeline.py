"""The example of a pipeline of one's own runs, and makes a dataset like any other."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest

import shardwright as sw
from shardwright.errors import UsageError
from tests import ROOT
from tests.support.build_helpers import hashes_of, make_images, png_of, reasons_of
from tests.support.judge import judge

EXAMPLE = ROOT / "examples" / "own_pipeline.py"


@pytest.mark.long
def test_it_runs_and_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = make_images(tmp_path / "in", 40, side=16), tmp_path / "out"
    (source / "cat" / "tiny.png").write_bytes(png_of(0, side=2))
    words = [str(source), str(out), "--min-kb", "0.5"]
    command = [sys.executable, str(EXAMPLE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "40 records, rejects: {'bad_value': 1}" in done.stdout
    dataset = sw.open(str(out))
    assert set(dataset.splits) == {"train", "test"}
    assert dataset.num_classes == 3
    assert reasons_of(out) == {"cat/tiny.png": "bad_value"}
    assert judge(str(out)).faults == ()
    before = hashes_of(out)
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    importlib.import_module("own_pipeline").main(words)
    assert hashes_of(out) == before


def test_records_of_a_pipeline_become_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    example = importlib.import_module("write_records")
    out = tmp_path / "out"

    example.main([str(out), "--number", "120"])

    dataset = sw.open(str(out))
    assert dataset.num_records == 120
    assert dataset.class_names == ("bright", "dark")
    assert {shard.num_records for shard in dataset.splits["train"].shards[:-1]} == {50}
    assert not list((out / "spool").iterdir())
    assert judge(str(out)).faults == ()


def test_records_of_a_pipeline_need_ids(tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    shutil.rmtree(pipeline.local_tempdir)  # which only a run would remove
    records = pipeline | beam.Create([{"image": png_of(0)}])

    with pytest.raises(UsageError, match="need the key 'id'"):
        _ = records | sw.WriteRecords(str(tmp_path / "out"), like={"image": png_of(0)})
    with pytest.raises(UsageError, match=r"like: key 'x' .* declare the key, such as schema="):
        _ = records | "x" >> sw.WriteRecords(str(tmp_path / "out"), like={"id": "a", "x": None})


def test_records_of_a_pipeline_without_images(tmp_path: Path) -> None:
    """The schema is inferred from `like`, as `sw.write` infers it from its first records."""
    rows = [{"id": f"r{row}", "x": row / 2, "tags": ["a"] * row} for row in range(3)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records = pipeline | beam.Create(rows)
        _ = records | sw.WriteRecords(str(tmp_path / "out"), like=rows[1])

    found = sw.open(str(tmp_path / "out")).to_numpy()
    assert dict(zip(found["id"], found["x"], strict=True)) == {"r0": 0, "r1": 0.5, "r2": 1}
    assert sorted(map(len, found["tags"])) == [0, 1, 2]
