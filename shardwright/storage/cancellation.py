"""Work of threads that ends when nobody wants it any more.

A reader's threads wait for stores, locks and room, for minutes if need be. Whoever interrupts or
closes the reader waits for them, and Python does before a process ends.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - before ours, see below
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import ParamSpec, TypeVar

from shardwright.errors import ShardwrightError

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_EVERY_SECONDS = 0.1
_thread = threading.local()  # `canceled`: the event that cancels what this thread does now
_ending = threading.Event()
# The last registered is called first. That of concurrent.futures joins the threads of all pools;
# functions of `atexit` are called only afterwards.
threading._register_atexit(_ending.set)  # type: ignore[attr-defined]


class CanceledError(ShardwrightError):
    """The work of this thread was canceled, or the process is ending.

    No `StorageError`: it says nothing about a store or a file, and nobody may conclude that.
    """


def cancelable(
    canceled: threading.Event | None,
    function: Callable[P, T],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function in a pool's thread, whose waits end once the event is set."""
    _thread.canceled, before = canceled, current()
    try:
        return function(*args, **kwargs)
    finally:
        _thread.canceled = before


def current() -> threading.Event | None:
    """Return the event that cancels what this thread does, for threads that it asks for help."""
    found: threading.Event | None = getattr(_thread, "canceled", None)
    return found


def check_not_canceled() -> None:
    """Raise `CanceledError` if what this thread does is not wanted any more."""
    canceled = current()
    if canceled is not None and (canceled.is_set() or _ending.is_set()):
        raise CanceledError("canceled: its reader was stopped, or the process is ending")


def result_of(future: Future[T]) -> T:
    """Wait for another thread's result; raise as `pause`."""
    while not wait([future], _LOOK_EVERY_SECONDS).done:
        check_not_canceled()
    return future.result()


def pause(seconds: float) -> None:
    """Sleep; raise `CanceledError` as soon as what this thread does is not wanted any more."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check_not_canceled()
        time.sleep(min(left, _LOOK_EVERY_SECONDS))
    check_not_canceled()
