"""Running a graph: exit codes, last lines, signals, and the errors of workers on real runners."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from pipelines.job import BuildJob, prepare_job
from pipelines.options import parse_options
from pipelines.running import fail, run_build, run_pipeline, stop_signals, worker_error
from shardwright.errors import (
    BuildError,
    NotADatasetError,
    RecordFault,
    ShardwrightError,
    StorageError,
    UsageError,
)
from tests.build_helpers import make_images

IN_MEMORY: list[str] = []
THREADS = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
ODD_MESSAGES = [
    "cannot write /a b/[1] 'x' \"y\" ü\U0001f600/c: No space left on device",
    "two lines:\nthe second; a path /in/a\\nb, a tab\t, 100 % {braces} $HOME",
    "an empty line\n\nbelow [while running a test] /x: gone",
    "looks like shardwright.errors.UsageError: another error",
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("in"), 2)


def make_job(images: Path, *beam_args: str) -> BuildJob:
    return prepare_job(parse_options([str(images), str(images.parent / "out"), *beam_args]))


def _raise(message: str) -> None:
    raise StorageError(message)


def _raise_bug(_: int) -> None:
    raise KeyError("no such key")


def _raise_bug_after_error(_: int) -> None:
    try:
        _raise("the disk is full")
    except StorageError as error:
        raise TypeError("a slip in the clean-up") from error


def graph_of(
    function: Callable[..., None], element: object = 0
) -> Callable[[beam.Pipeline, BuildJob], object]:
    return lambda pipeline, _: pipeline | beam.Create([element]) | "Fail" >> beam.Map(function)


# Not with Beam's multi_threading workers: after an error they race to put the bundle away, and what they report then varies.
@pytest.mark.parametrize("message", ODD_MESSAGES)
def test_a_workers_error_arrives_as_it_was_raised(
    images: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, message: str
) -> None:
    with pytest.raises(StorageError) as caught:
        run_pipeline(graph_of(_raise, message), make_job(images, *IN_MEMORY))
    assert str(caught.value) == message
    assert caplog.text == "", "the last line says it all"
    assert "Traceback" not in capfd.readouterr().err


def test_it_also_arrives_from_another_process(images: Path) -> None:
    message = "\n".join(ODD_MESSAGES)
    with pytest.raises(StorageError) as caught:
        run_pipeline(graph_of(_raise, message), make_job(images, *PROCESSES))
    assert str(caught.value) == message


@pytest.mark.parametrize("beam_args", [IN_MEMORY, THREADS], ids=["in_memory", "threads"])
@pytest.mark.parametrize(
    ("function", "said"),
    [(_raise_bug, "no such key"), (_raise_bug_after_error, "a slip in the clean-up")],
)
def test_a_programming_error_is_never_taken_for_a_users(
    images: Path,
    caplog: pytest.LogCaptureFixture,
    beam_args: list[str],
    function: Callable[..., None],
    said: str,
) -> None:
    with pytest.raises(Exception, match=said) as caught:
        run_pipeline(graph_of(function), make_job(images, *beam_args))
    assert not isinstance(caught.value, ShardwrightError)
    assert function.__name__ in "".join(traceback.format_exception(caught.value)), (
        "the trace leads to the line"
    )
    assert f"in {function.__name__}" in caplog.text


TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise shardwright.errors.BuildError: no\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", None),
        ("RuntimeError: no", None),
        ("shardwright.errors.BuildError: why", BuildError("why")),
        (f"{TRACE}shardwright.errors.UsageError: why [while running 'A/B']", UsageError("why")),
        (
            f"{TRACE}shardwright.errors.BuildError: why [while running 'A']\n\n\tat java.lang.Thread.run\n",
            BuildError("why"),
        ),
        (
            f"{TRACE}shardwright.errors.BuildError: why\n\n\tat java.lang.Thread.run",
            BuildError("why"),
        ),
        (
            f"{TRACE}shardwright.errors.NotADatasetError: a\n\nb [while running 'A']\n",
            NotADatasetError("a\n\nb"),
        ),
        (
            f"{TRACE}KeyError: 1\n\nDuring handling of ...\n\n{TRACE}shardwright.errors.StorageError: why",
            StorageError("why"),
        ),
        (
            f"{TRACE}shardwright.errors.StorageError: why\n\nDuring handling of ...\n\n{TRACE}KeyError: 1",
            None,
        ),
        (f"{TRACE}shardwright.errors.RecordFault: record at byte 3: bad", None),
        (f"{TRACE}shardwright.errors.os: why", None),
        (f"{TRACE}elsewhere.shardwright.errors.BuildError: why", None),
    ],
)
def test_the_last_error_of_a_runners_text_decides(
    text: str, error: ShardwrightError | None
) -> None:
    found = worker_error(text)
    assert (type(found), str(found)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a"), 2),
        (BuildError("b"), 1),
        (StorageError("c"), 1),
        (NotADatasetError("d"), 1),
    ],
)
def test_exit_codes(capfd: pytest.CaptureFixture[str], error: ShardwrightError, code: int) -> None:
    assert fail(error) == code
    assert capfd.readouterr().err == f"shardwright: error: {error}\n"


def test_errors_survive_the_way_between_processes() -> None:
    for error in (BuildError("b"), RecordFault(3, "bad", 9)):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_before_the_run_needs_no_job(capfd: pytest.CaptureFixture[str]) -> None:
    def prepare() -> BuildJob:
        raise UsageError("no such option")

    assert run_build(lambda _: None, prepare) == 2
    assert capfd.readouterr().err == "shardwright: error: no such option\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("where", ["in the build", "in a worker"])
def test_a_signal_stops_the_build_and_says_how_to_go_on(
    images: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int, where: str
) -> None:
    def kill(_: object) -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came late")

    run = kill if where == "in the build" else lambda job: run_pipeline(graph_of(kill), job)
    before = signal.getsignal(number)
    assert run_build(run, lambda: make_job(images)) == code
    said = capfd.readouterr().err
    assert (
        said.splitlines()[-1]
        == f"shardwright: stopped by {number.name}; run the same command again to go on"
    )
    assert "Traceback" not in said
    assert signal.getsignal(number) == before


def test_a_bug_in_the_build_is_raised(images: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_build(lambda _: 1 // 0, lambda: make_job(images))  # type: ignore[arg-type, return-value]


def test_a_thread_may_build_and_leaves_the_handlers_alone() -> None:
    before, inside = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with stop_signals():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert inside == [before]


def test_beams_own_race_does_not_hide_a_workers_error() -> None:
    trace = "Traceback (most recent call last):\n"
    ours = f"{trace}  File a.py\nshardwright.errors.StorageError: cannot write /a: full [while running 'Fail']\n\n"
    race = f"{trace}    self.bundle_processor_cache.release(instruction_id)\n  File b.py\nKeyError: 'bundle_419'\n"
    found = worker_error(ours + race)
    assert isinstance(found, StorageError)
    assert str(found) == "cannot write /a: full"
    assert worker_error(f"{ours}{trace}  File c.py\nKeyError: 'bundle_419'\n") is None, (
        "an error of another place is a bug"
    )
