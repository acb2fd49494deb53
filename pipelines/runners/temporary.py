"""A temporary folder for one run of Beam, which removes the files that Beam leaves behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_VARIABLE = "TMPDIR"
_PREFIX = "shardwright-run-"
_NEW_SECONDS = 60.0  # its owner may not have locked it yet


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give this process and its children a temporary folder, which is removed after the block.

    Beam 2.77 leaves folders behind: `beam-pipeline-temp*` of a pipeline that fails before it runs,
    and `beam-temp*`, `beam-requirements-cache` and staged files of each run of its DirectRunner.
    """
    remove_abandoned()
    before, inherited = tempfile.tempdir, os.environ.get(_VARIABLE)
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder,
        _locked(folder),
    ):
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
                with _locked(folder):
                    shutil.rmtree(folder)


@contextmanager
def _locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder in the block; the lock of a process that is killed ends. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
