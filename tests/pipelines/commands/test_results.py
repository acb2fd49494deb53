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

from shardwright.errors import (
    BuildError,
    NotADatasetError,
    RecordFault,
    ShardwrightError,
    StorageError,
    UsageError,
)
from shardwright.pipelines.commands.results import fail, run_build, stop_signals
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline, worker_error
from tests.support.build_helpers import make_images

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


# Not on Beam's multi_threading workers: after an error they race to release the bundle, and what
# they report then varies.
@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("message", "beam_args"),
    [*((message, []) for message in ODD_MESSAGES), ("\n".join(ODD_MESSAGES), PROCESSES)],
)
def test_a_workers_error_arrives_as_it_was_raised(
    images: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    message: str,
    beam_args: list[str],
) -> None:
    with pytest.raises(StorageError) as caught:
        run_pipeline(graph_of(_raise, message), make_job(images, *beam_args))
    assert str(caught.value) == message
    if not beam_args:
        assert caplog.text == "", "the last line says it all"
        assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("beam_args", [[], THREADS], ids=["in_memory", "threads"])
@pytest.mark.parametrize(
    ("function", "said"),
    [(_raise_bug, "no such key"), (_raise_bug_after_error, "a slip in the clean-up")],
)
def test_a_programming_error_keeps_its_traceback(
    images: Path,
    caplog: pytest.LogCaptureFixture,
    beam_args: list[str],
    function: Callable[..., None],
    said: str,
) -> None:
    with pytest.raises(Exception, match=said) as caught:
        run_pipeline(graph_of(function), make_job(images, *beam_args))
    assert not isinstance(caught.value, ShardwrightError)
    assert function.__name__ in "".join(traceback.format_exception(caught.value))
    assert f"in {function.__name__}" in caplog.text


HEAD = "Traceback (most recent call last):\n"
TRACE = f'{HEAD}  File "x.py", line 1, in f\n    raise shardwright.errors.BuildError: no\n'
OURS = f"{TRACE}shardwright.errors."
JAVA = "\n\n\tat java.lang.Thread.run"
DURING = f"\n\nDuring handling of ...\n\n{TRACE}"
STEP = "[while running 'A']"
RELEASE = "    self.bundle_processor_cache.release(instruction_id)\n  File b.py\n"
KEY = "KeyError: 'bundle_4'\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", None),
        ("RuntimeError: no", None),
        ("shardwright.errors.BuildError: why", BuildError("why")),
        (f"{OURS}UsageError: why [while running 'A/B']", UsageError("why")),
        (f"{OURS}BuildError: why {STEP}{JAVA}\n", BuildError("why")),
        (f"{OURS}BuildError: why{JAVA}", BuildError("why")),
        (f"{OURS}NotADatasetError: a\n\nb {STEP}\n", NotADatasetError("a\n\nb")),
        (f"{TRACE}KeyError: 1{DURING}shardwright.errors.StorageError: why", StorageError("why")),
        (f"{OURS}StorageError: why{DURING}KeyError: 1", None),
        (f"{OURS}RecordFault: record at byte 3: bad", None),
        (f"{OURS}os: why", None),
        (f"{TRACE}elsewhere.shardwright.errors.BuildError: why", None),
        # Beam's own race at the release of a bundle does not hide a worker's error.
        (f"{OURS}StorageError: why {STEP}\n\n{HEAD}{RELEASE}{KEY}", StorageError("why")),
        (f"{OURS}StorageError: why {STEP}\n\n{HEAD}  File c.py\n{KEY}", None),
    ],
)
def test_the_last_error_of_a_runners_text_counts(text: str, error: ShardwrightError | None) -> None:
    found = worker_error(text)
    assert (type(found), str(found)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("a"), 2), (BuildError("b"), 1), (StorageError(""), 1), (NotADatasetError(""), 1)],
)
def test_exit_codes(capfd: pytest.CaptureFixture[str], error: ShardwrightError, code: int) -> None:
    def prepare() -> BuildJob:
        raise error

    assert fail(error) == run_build(lambda _: None, prepare) == code
    assert capfd.readouterr().err == f"shardwright: error: {error}\n" * 2


@pytest.mark.parametrize("error", [BuildError("b"), RecordFault(3, "bad", 9)])
def test_errors_can_be_pickled(error: Exception) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("where", ["in the build", "in a worker"])
def test_a_signal_stops_the_build_and_reports_how_to_resume(
    images: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int, where: str
) -> None:
    def kill(_: object) -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came late")

    run = kill if where == "in the build" else lambda job: run_pipeline(graph_of(kill), job)
    before = signal.getsignal(number)
    assert run_build(run, lambda: make_job(images)) == code
    said = capfd.readouterr().err
    message = f"shardwright: stopped by {number.name}; run the same command again to resume"
    assert said.splitlines()[-1] == message
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
