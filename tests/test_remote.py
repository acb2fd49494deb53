"""A job on other machines: its end, how far it is, and what a runner's error says in one line."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.options import BuildOptions
from pipelines.remote import follow, reason_of, written_so_far
from shardwright.errors import BuildError
from transforms.progress import Progress

TRACE = """Error processing instruction 5. Original traceback is
Traceback (most recent call last):
  File "worker.py", line 1, in work
    do()
    ^^^^
ModuleNotFoundError: No module named 'my_package'
"""


class Ended:
    """A result as a runner gives it: `end` is what waiting for it does."""

    def __init__(self, end: object) -> None:
        self.end = end
        self.was_cancelled = False

    def wait_until_finish(self) -> object:
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    def cancel(self) -> None:
        self.was_cancelled = True


def options_of(tmp_path: Path) -> BuildOptions:
    return BuildOptions(input=str(tmp_path / "in"), output=str(tmp_path / "out"), name="out")


def follow_to(end: object, said: list[str], tmp_path: Path) -> Ended:
    result = Ended(end)
    follow(result, PipelineOptions([]), options_of(tmp_path), said.append)
    return result


def test_a_job_that_is_done_says_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    assert not follow_to("DONE", said, tmp_path).was_cancelled
    assert said == []


def test_a_job_that_others_cancelled_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match="the job ended as CANCELLED; run the same command again to go on"
    ):
        follow_to("CANCELLED", [], tmp_path)


def test_a_stop_on_this_side_cancels_the_job(tmp_path: Path) -> None:
    said: list[str] = []
    result = Ended(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        follow(result, PipelineOptions([]), options_of(tmp_path), said.append)
    assert result.was_cancelled
    assert said == ["cancelling the job"]


def test_progress_is_what_is_in_output_of_the_plan(tmp_path: Path) -> None:
    options = options_of(tmp_path)
    assert written_so_far(options) is None
    splits = {"train": (4, 10, 4000), "test": (1, 3, 900)}
    plan = {
        name: {"num_shards": shards, "num_records": records, "num_bytes": size}
        for name, (shards, records, size) in splits.items()
    }
    options.root.write_bytes(
        "plan.json", json.dumps({"settings": options.settings, "splits": plan}).encode()
    )
    assert written_so_far(options) == Progress(13, 5)
    for name in (
        "train-00000-of-00004",
        "train-00003-of-00004",
        "train-00000-of-00009",
        "test-00000-of-00001",
    ):
        options.root.write_bytes(f"index/{name}.parquet", b"")
    assert written_so_far(options) == Progress(13, 5, images=8, shards=3, num_bytes=2900)
    options.root.write_bytes("manifest.json", b"{}")  # of the dataset that this build is to replace
    assert written_so_far(options) is None


def test_another_builds_plan_is_no_progress(tmp_path: Path) -> None:
    options = options_of(tmp_path)
    options.root.write_bytes("plan.json", json.dumps({"settings": {}, "splits": {}}).encode())
    assert written_so_far(options) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(TRACE), "ModuleNotFoundError: No module named 'my_package'"),
        (
            RuntimeError("Dataflow pipeline failed. State: FAILED, Error:\nquota"),
            "Dataflow pipeline failed. State: FAILED, Error: quota",
        ),
        (
            RuntimeError(TRACE.replace("\n", "\\n")),
            "ModuleNotFoundError: No module named 'my_package'",
        ),
        (grpc.FutureTimeoutError(), "its job server does not answer"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_a_reason_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
