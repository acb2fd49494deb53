"""Import the decoding libraries on first use: reading without decoding does not need them.

OpenCV splits large images among its own threads, one pool per process (`cv2.setNumThreads`). Calls
do not share the pool: one that finds it busy runs on its caller's thread. So OpenCV cannot multiply
the reader's threads, and keeps its default.

OpenCV 5.0 takes one mutex of the process when a thread calls it for the first time and when such a
thread ends (`TlsStorage` in modules/core/src/system.cpp). In a process forked meanwhile, as by
torch's DataLoader, the mutex stays locked, and the first decode of a new thread hangs. So a fork
waits for first calls, and for threads that have called OpenCV and are ending.

"""

from __future__ import annotations

import functools
import importlib
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from shardwright.errors import UsageError

_POLL_S, _DEADLINE_S = 0.0005, 1.0  # thread numbers are reused, so one may never disappear
_TASKS = "/proc/self/task"  # Linux only: elsewhere processes are not forked by default

_first_calls = threading.Lock()
_this_thread = threading.local()
_numbers: dict[threading.Thread, int] = {}  # of the threads that have called OpenCV


@functools.cache
def load_library(module: str) -> Any:
    """Import an optional module.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        found = f"decoding images needs the module {module}, which cannot be imported ({error})"
        raise UsageError(f"{found}: pip install 'shardwright[reader]'") from error


def dtype_name(dtype: object, names: Collection[str]) -> str:
    """Return the name of a dtype, as any library has it.

    Raises:
        UsageError: It is none of these names.
    """
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
    if (text := str(name).removeprefix("torch.")) not in names:
        raise UsageError(f"dtype must be one of {', '.join(names)}, got {dtype!r}")
    return text


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name; raise `UsageError` if ml_dtypes, for bfloat16, is missing."""
    return np.dtype(load_library("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def cv2() -> Any:
    """Return OpenCV, ready for calls in this thread."""
    library = load_library("cv2")
    enter_thread(lambda: _call_once(library))
    return library


def _call_once(library: Any) -> None:
    """Call all functions that decoding uses, so that later calls need no lock of the process."""
    pixels = np.zeros((2, 2, 3), np.uint8)
    library.imdecode(library.imencode(".png", pixels)[1], library.IMREAD_COLOR_RGB)
    library.flip(library.resize(pixels, (1, 1)), 1)


def simplejpeg() -> Any:
    """Return simplejpeg, a wrapper of libjpeg-turbo."""
    return load_library("simplejpeg")


def enter_thread(first_call: Callable[[], object]) -> None:
    """Make this thread's first call of OpenCV, but not during a fork; later calls do nothing."""
    if getattr(_this_thread, "is_known", False):
        return
    with _first_calls:
        _forget_ended()
        # Before the call: a fork that comes right after it must know of this thread.
        _numbers[threading.current_thread()] = threading.get_native_id()
        first_call()
    _this_thread.is_known = True


def _forget_ended(*, surely: bool = False) -> bool:
    """Forget threads of which the system has nothing left; return whether others are ending.

    If no thread is ending, this waits for nothing, so the interpreter's lock is kept up to the
    fork, and without it no thread can come to its end.

    Args:
        surely: Forget those that are still ending, too.
    """
    ended = [known for known in _numbers.items() if not known[0].is_alive()]
    for thread, number in ended:
        if surely or not os.path.exists(f"{_TASKS}/{number}"):
            del _numbers[thread]
    return bool(ended)


def _before_fork() -> None:
    # Held until after the fork, so that no thread makes its first call during it.
    _first_calls.acquire()
    deadline = time.monotonic() + _DEADLINE_S
    while _forget_ended(surely=time.monotonic() > deadline):
        time.sleep(_POLL_S)


def _in_child() -> None:
    # The child has none of these threads.
    _numbers.clear()
    _first_calls.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_first_calls.release, after_in_child=_in_child
)
