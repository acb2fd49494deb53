"""The processes of a local build: their death, temporary files, collector of garbage."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from shardwright.errors import BuildError

_DIED = (
    "died, by a crash in native code, a lack of memory, or an image that takes too long: run the "
    "same command again to resume; images of the shards that were being written are then tried "
    "one by one, and those that crash are rejected"
)
_SHELL = "/bin/sh"
# Errors of Beam's launcher when a worker process is gone.
_LOST_WORKER = ("Channel closed prematurely", "Worker subprocess exited with return code")
# Packages whose threads lose their workers and channels when a run ends by an exception.
_OF_BEAM = ("apache_beam", "grpc")
_THREADS = "apache_beam.runners.worker.sdk_worker"
_silence = ExitStack()  # closed, it ends `silence_beam`
_VARIABLE = "TMPDIR"
_PREFIX = "shardwright-run-"
_NEW_SECONDS = 60.0  # its owner may not have locked it yet


@contextmanager
def reporting_death() -> Iterator[None]:
    """Let a shell, if there is one, report on stderr if this process dies in the block.

    `os._exit(0)` in the block, such as in a user's function, ends this process with 1.
    """
    end, pid = os._exit, os.getpid()

    def exit_failed(code: int) -> NoReturn:
        end(code or (os.getpid() == pid))  # a forked child may end well

    os._exit = exit_failed  # type: ignore[assignment]
    try:
        if not os.path.exists(_SHELL):
            yield
            return
        # The kernel closes the pipe however this process dies. `read` then fails, as it got no
        # line.
        script = f"read -r ended || echo 'shardwright: error: the build {_DIED}' >&2"
        # A session of its own, so that Ctrl-C does not end it first.
        with subprocess.Popen(
            [_SHELL, "-c", script], stdin=subprocess.PIPE, start_new_session=True
        ) as shell:
            assert shell.stdin is not None, "it is a pipe"
            try:
                yield
            finally:
                # After an exception, too: the command reports that itself.
                with suppress(OSError):  # the shell was killed
                    shell.stdin.write(b"ended\n")
                    shell.stdin.flush()
    finally:
        os._exit = end


def lost_worker(error: Exception) -> BuildError | None:
    """Return the error for a worker process that died, if that is what Beam reports."""
    if any(said in str(error) for said in _LOST_WORKER):
        return BuildError(f"a worker process {_DIED}")
    return None


@contextmanager
def ending_workers() -> Iterator[None]:
    """Kill the worker processes that Beam starts in the block if an exception ends it.

    Beam 2.77 waits until they have done their work, which is a share of the whole build. Each has a
    session of its own, so that Ctrl-C is for this process alone: they would print their traces.
    """
    from apache_beam.runners.portability import local_job_service
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    started: list[subprocess.Popen[Any]] = []
    killed = threading.Event()
    handler = worker_handlers.SubprocessSdkWorkerHandler

    def start(*words: Any, **settings: Any) -> subprocess.Popen[Any]:
        process = subprocess.Popen(*words, **settings, start_new_session=True)
        started.append(process)
        if killed.is_set():  # Beam starts each in a thread, which may come late
            _kill(process)
        return process

    def close(worker: Any) -> None:
        if sys.exc_info()[0] is not None:  # Beam closes them as an exception passes
            silence_beam()
            killed.set()
            for process in started:
                _kill(process)
        super(handler, worker).close()

    local_job_service.subprocess = SimpleNamespace(Popen=start)
    handler.close = close
    try:
        yield
    finally:
        del handler.close  # it is inherited again
        local_job_service.subprocess = subprocess


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def silence_beam() -> None:
    """Drop the traces of Beam's threads until `hear_beam`.

    After a stop or a lost worker they log, raise and print errors that do not help the user. Beam's
    threads outlive the run, so its end does not end the silence.
    """
    hear_beam()
    for name in _OF_BEAM:
        logger = logging.getLogger(name)
        _silence.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL + 1)
    for module, name in ((threading, "excepthook"), (sys, "unraisablehook")):
        report = getattr(module, name)
        _silence.callback(setattr, module, name, report)
        setattr(module, name, _without_beam(report))
    if _THREADS in sys.modules:  # with multi_threading they print what a bundle raises
        threads = vars(sys.modules[_THREADS])
        threads["print"] = lambda *_, **__: None
        _silence.callback(threads.pop, "print", None)


def hear_beam() -> None:
    """Print all traces again."""
    _silence.close()


def _without_beam(report: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a hook that reports what has no function of Beam or gRPC in its traceback."""

    def report_others(failed: Any) -> None:
        frames = (frame for frame, _ in traceback.walk_tb(failed.exc_traceback))
        names = (str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames)
        if not any(name in _OF_BEAM for name in names):
            report(failed)

    return report_others


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give this process and its children a temporary folder, which is removed after the block.

    Beam 2.77 leaves folders behind: `beam-pipeline-temp*` of a pipeline that fails before it runs,
    and `beam-temp*`, `beam-requirements-cache` and staged files of each run of its DirectRunner.
    """
    # Before a new folder: what earlier killed runs left may have filled the disk.
    remove_abandoned()
    before, inherited = tempfile.tempdir, os.environ.get(_VARIABLE)
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder,
        _locked(folder),
    ):
        # Both: `tempfile` has read the variable already, and children read only the variable.
        tempfile.tempdir = os.environ[_VARIABLE] = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            if inherited is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = inherited


def remove_abandoned() -> None:
    """Remove the temporary folders of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is in use, of another user, or gone
            if time.time() - folder.lstat().st_mtime > _NEW_SECONDS:
                # The lock of a living owner makes this fail. A pid could be another process's by
                # now.
                with _locked(folder):
                    shutil.rmtree(folder)


@contextmanager
def _locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder in the block; the lock of a process that is killed ends. Raises `OSError`."""
    # No link: /tmp is shared, and another user may have put one there.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def no_collections() -> Iterator[None]:
    """Collect no garbage while the block runs, because nearly all objects that it makes live on."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
