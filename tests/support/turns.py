"""Tasks that take turns at their requests to a disk or a store, in an order by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Semaphore, Thread, local
from typing import Any

import pytest

from shardwright.errors import ShardwrightError
from tests.support.folder_patches import wrap_method

_REQUESTS = (
    "names", "files", "info", "num_bytes_of", "read_bytes", "create_bytes", "write_bytes", "remove",
    "remove_all",
)  # fmt: skip
# A switch at each request, now and then, or seldom: then most of one task is done at once.
_STAYS = (0.2, 0.8, 0.97)


@dataclass(eq=False)
class _Task:
    run: Callable[[], Any]
    may_go: Semaphore = field(default_factory=lambda: Semaphore(0))
    is_done: bool = False
    result: Any = None


class Turns:
    """Threads of which one runs at any moment.

    Args:
        seed: Decides their order. Requests of a task's own threads wait for nobody.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._stays = self._random.choice(_STAYS)
        self._stopped = Semaphore(0)
        self._here = local()

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run tasks to their ends, and return their results; an exception is one.

        Each runs in a thread whose name is its number, from 0.
        """
        every = [_Task(task) for task in tasks]
        threads = [
            Thread(target=self._run, args=(task,), name=str(number))
            for number, task in enumerate(every)
        ]
        with before_requests(self._pause):
            for thread in threads:
                thread.start()
            self._schedule(every)
            for thread in threads:
                thread.join()
        return [task.result for task in every]

    def _schedule(self, every: Sequence[_Task]) -> None:
        current = self._random.choice(every)
        while left := [task for task in every if not task.is_done]:
            if current.is_done or self._random.random() > self._stays:
                current = self._random.choice(left)
            current.may_go.release()
            self._stopped.acquire()

    def _run(self, task: _Task) -> None:
        self._here.task = task
        task.may_go.acquire()
        try:
            task.result = task.run()
        except Exception as error:
            task.result = error
        finally:
            task.is_done = True
            self._stopped.release()

    def _pause(self) -> None:
        task = getattr(self._here, "task", None)
        if task is not None:
            self._stopped.release()
            task.may_go.acquire()


@contextmanager
def before_requests(task: Callable[[], object]) -> Iterator[None]:
    """Do a task before each request to a disk or a store inside the block, but its own ones."""
    here = local()

    def after_task(request: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if not getattr(here, "is_busy", False):
                here.is_busy = True
                try:
                    task()
                finally:
                    here.is_busy = False
            return request(*args, **options)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in _REQUESTS:
            wrap_method(name, after_task, patch.setattr)
        yield


def retry(task: Callable[[], object], tries: int) -> None:
    """Do it, and again if another task has come between."""
    for left in reversed(range(tries)):
        try:
            task()
            return
        except ShardwrightError:
            if not left:
                raise
