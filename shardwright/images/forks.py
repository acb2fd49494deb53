"""Keep a fork from copying OpenCV's lock while a thread holds it.

OpenCV 5.0 takes one mutex of the process when a thread calls it for the first time and when such a
thread ends (`TlsStorage` in modules/core/src/system.cpp). In a process forked meanwhile, as by
torch's DataLoader, the mutex stays locked, and the first decode of a new thread hangs. So a fork
waits for first calls, and for threads that have called OpenCV and are ending.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_POLL_S, _DEADLINE_S = 0.0005, 1.0  # thread numbers are reused, so one may never disappear
_TASKS = "/proc/self/task"  # Linux only: elsewhere processes are not forked by default

_first_calls = threading.Lock()
_this_thread = threading.local()
_numbers: dict[threading.Thread, int] = {}  # of the threads that have called OpenCV


def enter_thread(first_call: Callable[[], object]) -> None:
    """Make this thread's first call of OpenCV, but not during a fork; later calls do nothing."""
    if getattr(_this_thread, "is_known", False):
        return
    with _first_calls:
        _forget_ended()
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
    _first_calls.acquire()
    deadline = time.monotonic() + _DEADLINE_S
    while _forget_ended(surely=time.monotonic() > deadline):
        time.sleep(_POLL_S)


def _in_child() -> None:
    _numbers.clear()
    _first_calls.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_first_calls.release, after_in_child=_in_child
)
