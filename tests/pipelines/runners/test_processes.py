"""Temporary files of builds, and worker processes of runs that end by an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import data_plane, sdk_worker

from shardwright.pipelines.commands import plan
from shardwright.pipelines.runners.processes import (
    ending_workers,
    hear_beam,
    remove_abandoned,
    silence_beam,
    temporary_folder,
)
from tests.support.build_helpers import build, make_images


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--runner=DirectRunner"], 0),
        (["--writer", "beam"], 0),
        (["--min-side", "100"], 1),  # every image is rejected
        (["--runner=NoRunner"], 2),
    ],
)
def test_a_build_leaves_nothing(
    options: list[str], code: int, temporary: Path, tmp_path: Path
) -> None:
    assert build(make_images(tmp_path / "in", 2), tmp_path / "out", *options) == code
    assert os.listdir(temporary) == []
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(temporary)


def test_a_plan_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
    source = make_images(tmp_path / "in", 2)
    assert plan.main([str(source), str(tmp_path / "out")]) == 0
    assert os.listdir(temporary) == []


def test_the_next_run_removes_the_folder_of_a_killed_one(temporary: Path) -> None:
    code = (
        "import os, signal; from shardwright.pipelines.runners.processes import temporary_folder\n"
        "with temporary_folder() as folder:\n"
        "    open(f'{folder}/image', 'w').close(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    [left] = temporary.iterdir()
    os.utime(left, (1, 1))
    with temporary_folder() as used:
        assert os.listdir(temporary) == [Path(used).name]
        os.utime(used, (1, 1))
        tempfile.tempdir = str(temporary)
        remove_abandoned()
        assert os.path.exists(used)


def test_a_pipeline_that_never_runs_leaves_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR")
    with temporary_folder() as folder:
        beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
        assert [path.name[:18] for path in Path(folder).iterdir()] == ["beam-pipeline-temp"]
        assert os.environ["TMPDIR"] == folder
    assert os.listdir(temporary) == []
    assert "TMPDIR" not in os.environ


class Finalized:
    """An object whose end fails."""

    def __init__(self, fail: Callable[[], object]) -> None:
        self.fail = fail

    def __del__(self) -> None:
        self.fail()


def divide_by_zero() -> None:
    _ = 1 / 0


def lose_channel() -> None:
    """Fail as Beam's thread that reads what a worker sends, after the worker is gone."""

    def elements() -> Iterator[None]:
        raise ConnectionError("Channel closed prematurely")
        yield

    data_plane._GrpcDataChannel._read_inputs(Mock(_closed=False), elements())


def fail_everywhere() -> None:
    """Fail in threads, finalizers and a bundle."""
    for fail in (divide_by_zero, lose_channel):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        Finalized(fail)
    sdk_worker.SdkHarness._execute(Mock(), lose_channel, Mock(instruction_id="1"))


def test_after_a_stop_traces_of_beam_alone_are_dropped_until_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reported: list[type[BaseException]] = []
    for module, name in ((threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(module, name, lambda failed: reported.append(failed.exc_type))
    silence_beam()
    fail_everywhere()
    assert reported == [ZeroDivisionError] * 2
    assert (caplog.text, capsys.readouterr().err) == ("", "")
    hear_beam()
    fail_everywhere()
    assert reported[2:] == [ZeroDivisionError, ZeroDivisionError, ConnectionError, ConnectionError]
    assert "Failed to read inputs in the data plane" in caplog.text
    assert "Channel closed prematurely" in capsys.readouterr().err


def test_workers_are_killed_also_those_that_start_late() -> None:
    """Beam starts each in a thread, which may come after the stop."""
    worker = object.__new__(worker_handlers.SubprocessSdkWorkerHandler)
    worker.control_conn = worker.data_conn = worker.worker_thread = Mock()
    with ending_workers():
        before = local_job_service.subprocess.Popen("sleep 600", shell=True)
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            worker.close()
        late = local_job_service.subprocess.Popen("sleep 600", shell=True)
        assert before.wait() == late.wait() == -signal.SIGKILL
    hear_beam()
