"""A temporary folder for one run of Beam, removed with all that Beam leaves in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "TMPDIR"


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give this process and those that it starts a temporary folder of their own in the block, and remove it afterwards.

    Beam 2.77 leaves folders behind: of a pipeline that fails before it runs (`beam-pipeline-temp*`), and of each run of its
    DirectRunner (`beam-temp*`, `beam-requirements-cache`, and staged files).
    """
    before, inherited = tempfile.tempdir, os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="shardwright-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ[_VARIABLE] = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            if inherited is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = inherited
