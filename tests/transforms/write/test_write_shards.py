"""WriteShards: its summaries, rejects and counters; finished shards are not written again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.index import ShardSummary
from shardwright.format.manifest import json_bytes
from shardwright.format.naming import ShardName
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import Routed
from shardwright.transforms.write import shard_writing
from shardwright.transforms.write.shard_writing import write_records
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob
from shardwright.transforms.write.write_shards import WriteShards
from tests.support.build_helpers import leftovers_of, png_of, stamps_of
from tests.support.helpers import Run, file_references, run_transform

Finished = tuple[ShardSummary, list[Reject]]
FAULTS = {"rejects_not_an_image": 1, "rejects_missing_file": 1}


class _Cleared(beam.PTransform):
    """WriteShards with a clearance of its own."""

    def __init__(self, job: WriteJob, clearance: Clearance) -> None:
        super().__init__()
        self._job = job
        self._clearance = clearance

    def expand(self, plans: beam.PCollection) -> Routed:
        clearance = plans.pipeline | "Clearance" >> beam.Create([self._clearance])
        return plans | WriteShards(self._job, clearance=clearance)


@pytest.fixture
def plans(tmp_path: Path) -> list[ShardPlan]:
    """Plans of two shards: three images and a text file, two images and a missing file."""
    plans = []
    for index, names in enumerate((("0", "1", "2", "text"), ("3", "4", "gone"))):
        paths = [tmp_path / f"{name}.png" for name in names]
        for path in paths:
            path.write_bytes(png_of(int(path.stem)) if path.stem.isdigit() else b"no image")
        batch = file_references(paths, labelled=True)
        plans.append(ShardPlan.make(ShardName("t", "train", index, 2), batch, b"s"))
    (tmp_path / "gone.png").unlink()
    return plans


def job_of(root: Path) -> WriteJob:
    return WriteJob(
        Folder(str(root)), image_classification(), StoredRecords("header", EncodeOptions()), 2
    )


def write(root: Path, plans: list[ShardPlan], *, unpublished: bool = True) -> Run:
    PROGRESS.start(total_images=7, total_shards=2)
    clearance = Clearance({"label": ("a",)}, "f", {}, unpublished)
    Folder(str(root)).write_if_new(naming.PLAN, json_bytes({"fingerprint": "f"}))
    return run_transform(_Cleared(job_of(root), clearance), plans)


def counters_of(run: Run) -> dict[str, int]:
    """Return the counters, but for requests, which may be of an earlier test of this process."""
    return {name: value for name, value in run.counters.items() if not name.startswith("storage_")}


def summaries(run: Run) -> list[ShardSummary]:
    return sorted(run.outputs["main"], key=lambda summary: summary.name)


def test_every_image_is_in_a_summary_or_a_reject(plans: list[ShardPlan], tmp_path: Path) -> None:
    run = write(tmp_path / "out", plans)
    first, second = summaries(run)
    assert (first.num_records, first.rejects) == (3, {"not_an_image": 1})
    assert (second.num_records, second.rejects) == (2, {"missing_file": 1})
    assert [list(summary.stats["labels"]) for summary in (first, second)] == [["0"], ["0"]]
    assert run.rejects == [("gone.png", "missing_file"), ("text.png", "not_an_image")]
    assert counters_of(run) == FAULTS | {
        "images_in": 7,
        "records_out": 5,
        "bytes_out": first.num_bytes + second.num_bytes,
        "shards_written": 2,
    }
    assert (PROGRESS.images, PROGRESS.shards, PROGRESS.reused_shards) == (7, 2, 0)


def test_finished_shards_are_reused_with_their_rejects(
    plans: list[ShardPlan], tmp_path: Path
) -> None:
    first = write(tmp_path / "out", plans, unpublished=False)
    before = stamps_of(tmp_path / "out")
    again = write(tmp_path / "out", plans, unpublished=False)
    assert stamps_of(tmp_path / "out") == before
    assert again.rejects == first.rejects
    assert counters_of(again) == FAULTS | {"shards_reused": 2}
    made, found = ([s.to_json() for s in summaries(run)] for run in (first, again))
    assert found == made
    assert (PROGRESS.images, PROGRESS.reused_images, PROGRESS.reused_shards) == (7, 7, 2)


def test_only_a_shard_with_a_transient_fault_is_written_again(
    plans: list[ShardPlan], tmp_path: Path
) -> None:
    write(tmp_path / "out", plans)
    (tmp_path / "gone.png").write_bytes(png_of(9))
    counters = write(tmp_path / "out", plans).counters
    counts = [counters[name] for name in ("shards_reused", "shards_written", "images_in")]
    assert counts == [1, 1, 3]


def test_a_shard_is_finished_while_the_next_is_written(
    plans: list[ShardPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ShardPlan] = []
    second = threading.Event()

    def records_written(plan: ShardPlan, job: WriteJob) -> Callable[[], Finished]:
        finish = write_records(plan, job)
        begun.append(plan)
        if len(begun) == 2:
            second.set()
            return finish
        return lambda: finish() if second.wait(250) else pytest.fail("finished too early")

    monkeypatch.setattr(shard_writing, "write_records", records_written)
    run = write(tmp_path / "out", plans)
    assert len(summaries(run)) == run.counters["shards_written"] == 2
    assert run.counters["records_out"] == 5


@pytest.mark.parametrize("number", [0, 1], ids=["first", "last"])
def test_a_shard_that_cannot_be_finished_fails_the_build(
    number: int, plans: list[ShardPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ShardPlan] = []

    def fail() -> Finished:
        raise StorageError("the upload is gone")

    def records_written(plan: ShardPlan, job: WriteJob) -> Callable[[], Finished]:
        begun.append(plan)
        return fail if len(begun) == number + 1 else write_records(plan, job)

    monkeypatch.setattr(shard_writing, "write_records", records_written)
    with pytest.raises(Exception, match="the upload is gone"):
        write(tmp_path / "out", plans)
    assert leftovers_of(tmp_path / "out") == []
    assert len(begun) == 2


def test_without_vocabularies_there_is_no_label(tmp_path: Path) -> None:
    features = job_of(tmp_path).with_vocabularies({}).schema.features
    assert [feature.name for feature in features] == ["image", "id"]
