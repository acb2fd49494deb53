"""A temporary folder for one run of Beam, which removes the files that Beam leaves behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "TMPDIR"


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give this process and its children a temporary folder, which is removed after the block.

    Beam 2.77 leaves folders behind: `beam-pipeline-temp*` of a pipeline that fails before it runs,
    and `beam-temp*`, `beam-requirements-cache` and staged files of each run of its DirectRunner.
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
