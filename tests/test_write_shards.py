"""WriteShards: what it gives, what it counts, and that it writes nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from schemas.image_classification import image_classification
from shardwright.index import ShardSummary
from shardwright.naming import ShardName
from shardwright.storage import Folder
from tests.build_helpers import png_of, stamps_of
from tests.helpers import Run, references, run_transform
from transforms.images import EncodeOptions
from transforms.inputs.file_rules import etag_of
from transforms.output_state import Clearance
from transforms.planning.shard_plans import ShardPlan
from transforms.progress import PROGRESS
from transforms.routing import Routed
from transforms.write_shards import WriteShards
from transforms.writing.write_job import WriteJob


class _Cleared(beam.PTransform):
    """WriteShards with a clearance of its own."""

    def __init__(self, job: WriteJob, clearance: Clearance) -> None:
        super().__init__()
        self._job = job
        self._clearance = clearance

    def expand(self, plans: beam.PCollection) -> Routed:
        clearance = plans.pipeline | "Clearance" >> beam.Create([self._clearance])
        return plans | WriteShards(self._job, clearance=clearance)


def make_plans(folder: Path) -> list[ShardPlan]:
    """Two shards: of three good images and one that is none, and of two good images and one that is gone."""
    plans = []
    for index, names in enumerate((("0", "1", "2", "text"), ("3", "4", "gone"))):
        paths = [folder / f"{name}.png" for name in names]
        for path in paths:
            path.write_bytes(png_of(int(path.stem)) if path.stem.isdigit() else b"no image")
        status = [path.stat() for path in paths]
        batch = references(
            [path.name for path in paths],
            labelled=True,
            uri=[str(path) for path in paths],
            num_bytes=[found.st_size for found in status],
            etag=[etag_of(found) for found in status],
        )
        plans.append(ShardPlan.make(ShardName("t", "train", index, 2), batch, b"s"))
    (folder / "gone.png").unlink()
    return plans


def write(root: Path, plans: list[ShardPlan], *, retry: bool = True) -> Run:
    job = WriteJob(Folder(str(root)), image_classification(), "header", EncodeOptions(), 2)
    PROGRESS.start(total_images=7, total_shards=2)
    return run_transform(_Cleared(job, Clearance({"label": ("a",)}, "f", {}, retry)), plans)


@pytest.fixture
def plans(tmp_path: Path) -> list[ShardPlan]:
    return make_plans(tmp_path)


def summaries(run: Run) -> list[ShardSummary]:
    return sorted(run.outputs["main"], key=lambda summary: summary.name)


def test_every_image_is_in_a_summary_or_a_reject(plans: list[ShardPlan], tmp_path: Path) -> None:
    run = write(tmp_path / "out", plans)
    assert [(summary.num_records, summary.rejects) for summary in summaries(run)] == [
        (3, {"not_an_image": 1}), (2, {"missing_file": 1})
    ]  # fmt: skip
    assert run.rejects == [("gone.png", "missing_file"), ("text.png", "not_an_image")]


def test_the_counters_tell_what_went_in_and_out(plans: list[ShardPlan], tmp_path: Path) -> None:
    run = write(tmp_path / "out", plans)
    assert run.counters == {
        "images_in": 7,
        "records_out": 5,
        "bytes_out": sum(summary.num_bytes for summary in summaries(run)),
        "shards_written": 2,
        "rejects_not_an_image": 1,
        "rejects_missing_file": 1,
    }
    assert (PROGRESS.images, PROGRESS.shards, PROGRESS.reused_shards) == (7, 2, 0)


def test_finished_shards_are_reused_with_their_rejects(
    plans: list[ShardPlan], tmp_path: Path
) -> None:
    first = write(tmp_path / "out", plans, retry=False)
    before = stamps_of(tmp_path / "out")
    again = write(tmp_path / "out", plans, retry=False)
    assert stamps_of(tmp_path / "out") == before
    assert again.rejects == first.rejects
    assert again.counters == {
        "shards_reused": 2,
        "rejects_not_an_image": 1,
        "rejects_missing_file": 1,
    }
    assert [summary.reused for summary in summaries(again)] == [True, True]
    assert [summary.to_json() for summary in summaries(again)] == [
        summary.to_json() for summary in summaries(first)
    ]
    assert (PROGRESS.images, PROGRESS.reused_images, PROGRESS.reused_shards) == (7, 7, 2)


def test_only_a_shard_with_a_passing_fault_is_tried_again(
    plans: list[ShardPlan], tmp_path: Path
) -> None:
    write(tmp_path / "out", plans)
    (tmp_path / "gone.png").write_bytes(png_of(9))
    counters = write(tmp_path / "out", plans).counters
    assert (counters["shards_reused"], counters["shards_written"], counters["images_in"]) == (
        1,
        1,
        3,
    )


def test_vocabularies_come_with_the_clearance(plans: list[ShardPlan], tmp_path: Path) -> None:
    job = WriteJob(Folder(str(tmp_path)), image_classification(), "header", EncodeOptions(), 2)
    assert [feature.name for feature in job.with_vocabularies({}).schema.features] == [
        "image",
        "id",
    ]
    labels: Any = write(tmp_path / "out", plans).outputs["main"][0].stats["labels"]
    assert list(labels) == ["0"]
