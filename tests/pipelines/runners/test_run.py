"""A job on other machines: its end, its progress, and its error in one line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, SetupOptions

from shardwright.errors import BuildError
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.runners.run import (
    ViewedOptions,
    follow,
    reason_of,
    written_so_far,
)
from shardwright.transforms.progress import Progress

NO_MODULE = "ModuleNotFoundError: No module named 'my_package'"
TRACE = f"""Error processing instruction 5. Original traceback is
Traceback (most recent call last):
  File "worker.py", line 1, in work
    do()
    ^^^^
{NO_MODULE}
"""


class Ended:
    """A runner's result; waiting for it returns or raises `end`."""

    def __init__(self, end: object) -> None:
        self.end = end
        self.was_cancelled = False

    def wait_until_finish(self) -> object:
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    def cancel(self) -> None:
        self.was_cancelled = True


@pytest.fixture
def options(tmp_path: Path) -> BuildOptions:
    return BuildOptions(input=str(tmp_path / "in"), output=str(tmp_path / "out"), name="out")


def follow_to(end: object, options: BuildOptions) -> tuple[bool, list[str]]:
    """Follow a job to its end; return if it was cancelled, and the messages."""
    result, said = Ended(end), []
    with suppress(KeyboardInterrupt):
        follow(result, PipelineOptions([]), options, said.append)
        assert end == "DONE"
    return result.was_cancelled, said


def test_the_end_of_a_job(options: BuildOptions) -> None:
    assert follow_to("DONE", options) == (False, [])
    assert follow_to(KeyboardInterrupt(), options) == (True, ["cancelling the job"])
    message = "the job ended as CANCELLED; run the same command again to resume"
    with pytest.raises(BuildError, match=message):
        follow_to("CANCELLED", options)


def test_views_are_made_once_and_see_each_others_values() -> None:
    options = ViewedOptions(["--direct_num_workers", "3"])
    setup = options.view_as(SetupOptions)
    assert options.view_as(SetupOptions) is setup
    setup.save_main_session = True
    setup.view_as(DirectOptions).direct_num_workers = 4
    assert options.view_as(DirectOptions).direct_num_workers == 4
    assert options.get_all_options(drop_default=True) == {
        "direct_num_workers": 4,
        "save_main_session": True,
    }
    assert PipelineOptions.from_runner_api(options.to_runner_api()).get_all_options()[
        "save_main_session"
    ]


def put_plan(options: BuildOptions, settings: object, **splits: tuple[int, int, int]) -> None:
    names = ("num_shards", "num_records", "num_bytes")
    plan = {split: dict(zip(names, numbers, strict=True)) for split, numbers in splits.items()}
    data = json.dumps({"settings": settings, "splits": plan}).encode()
    options.root.write_bytes("plan.json", data)


def test_progress_is_the_part_of_the_plan_in_output(options: BuildOptions) -> None:
    assert written_so_far(options.root, options.settings) is None
    put_plan(options, options.settings, train=(4, 10, 4000), test=(1, 3, 900))
    assert written_so_far(options.root, options.settings) == Progress(13, 5)
    for position in ("00000-of-00004", "00003-of-00004", "00000-of-00009"):
        options.root.write_bytes(f"index/train-{position}.parquet", b"")
    options.root.write_bytes("index/test-00000-of-00001.parquet", b"")
    expected = Progress(13, 5, images=8, shards=3)
    assert written_so_far(options.root, options.settings) == expected
    options.root.write_bytes("manifest.json", b"{}")  # of the dataset that this build is to replace
    assert written_so_far(options.root, options.settings) is None


def test_another_builds_plan_is_no_progress(options: BuildOptions) -> None:
    put_plan(options, {})
    assert written_so_far(options.root, options.settings) is None


@pytest.mark.parametrize(("error", "reason"), [
    (RuntimeError(TRACE), NO_MODULE),
    (RuntimeError(TRACE.replace("\n", "\\n")), NO_MODULE),
    (RuntimeError("Failed. State: FAILED, Error:\nquota"), "Failed. State: FAILED, Error: quota"),
    (grpc.FutureTimeoutError(), "its job server did not respond"),
    (RuntimeError(), "RuntimeError"),
])  # fmt: skip
def test_a_reason_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
