"""Threads whose work ends when nobody wants it any more.

A reader's threads wait for stores, locks and room, for minutes if need be. Whoever closes the
reader waits for them, and Python does before a process ends.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from shardwright.errors import StorageError

T = TypeVar("T")

_LOOK_EVERY_SECONDS = 0.1
_thread = threading.local()  # `canceled`: the event of its pool
_ending = threading.Event()
# As concurrent.futures does, whose own function, registered before, joins the threads of all pools:
# those of `atexit` are called only afterwards.
threading._register_atexit(_ending.set)  # type: ignore[attr-defined]


class CanceledError(StorageError):
    """The pool of this thread was closed, or the process is ending."""


class CancelablePool(ThreadPoolExecutor):
    """A thread pool that can be closed although its threads wait in `pause`.

    A pool that one of its threads makes is canceled with it.

    Args:
        threads: The largest number of threads.
        name: The prefix of their names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._canceled = getattr(_thread, "canceled", None) or threading.Event()
        super().__init__(threads, name, _begin, (self._canceled,))

    def close(self) -> None:
        """Cancel what its threads do, and wait for them."""
        self._canceled.set()
        self.shutdown(cancel_futures=True)


def _begin(canceled: threading.Event) -> None:
    _thread.canceled = canceled


def check_not_canceled() -> None:
    """Raise `CanceledError` if this thread's work is not wanted any more."""
    canceled = getattr(_thread, "canceled", None)
    if canceled is not None and (canceled.is_set() or _ending.is_set()):
        raise CanceledError("canceled: its reader was closed, or the process is ending")


def result_of(future: Future[T]) -> T:
    """Wait for another thread's result; raise as `pause`."""
    while not wait([future], _LOOK_EVERY_SECONDS).done:
        check_not_canceled()
    return future.result()


def pause(seconds: float) -> None:
    """Sleep; raise `CanceledError` as soon as this thread's work is not wanted any more."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check_not_canceled()
        time.sleep(min(left, _LOOK_EVERY_SECONDS))
    check_not_canceled()
