"""End the process of a command without the interpreter's teardown, which pyarrow may abort."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress


def run_to_end(main: Callable[[], int]) -> int:
    """Return the exit code of a command, and make it that of the process.

    A thread of pyarrow 25.0.1 may free a buffer of Python's while the interpreter is torn down.
    It then waits for the GIL, Python ends the thread, and C++ aborts the process: exit code 134
    and "terminate called without an active exception" after complete output, in up to 4 of 190
    commands on a loaded machine (https://github.com/apache/arrow/issues/49942). Python joins
    threads and calls exit handlers before the teardown, so nothing of ours is left out.
    """
    code, pid = 1, os.getpid()  # the code of an exception

    def end() -> None:
        if os.getpid() != pid:  # a forked child has an exit code of its own
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(end)  # the first to be registered is the last to be called
    try:
        code = main()
    except SystemExit as stop:  # of argparse
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
    return code
