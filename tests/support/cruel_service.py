"""A cruel stand-in for the service that runs the bundles of a build in worker processes.

It kills workers, and stops some for longer than their lease. Then it gives their bundles to others,
up to four times, and starts copies of slow bundles. A stopped worker goes on later and does its
work to the end, perhaps while the dataset is being published or after that. Of each bundle the
first result counts, as on Dataflow.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

from shardwright.transforms.write import shard_writing
from tests.support.build_helpers import forks

MAX_TRIES = 4
NUM_WORKERS = 3
SHARE_KILLED, SHARE_STOPPED = 0.2, 0.2  # of the workers that begin a bundle
SHARE_COPIED = 0.01  # per look, about a millisecond
Bundle = Callable[[], Any]


class JobFailedError(Exception):
    """A bundle failed four times."""


class Task(NamedTuple):
    """A bundle that a worker works on.

    Attributes:
        number: The number of its bundle in this call of `Service.run`.
        begun: The moment of its begin.
        signal: The signal that the worker gets, or None.
        after_sec: The signal comes so long after the begin.
    """

    number: int
    begun: float
    signal: int | None
    after_sec: float


class Worker:
    """A process that runs bundles, one at a time."""

    def __init__(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._process = forks().Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.task: Task | None = None

    def begin(self, task: Task, bundle: Bundle) -> None:
        self.task = task
        self.connection.send(bundle)

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection) -> None:
    # A child process after each death would take half a second (tests/transforms/write).
    shard_writing.make_alone = shard_writing.make_chunks
    with suppress(EOFError):
        while True:
            bundle = connection.recv()
            try:
                connection.send((True, bundle()))
            except Exception as error:
                connection.send((False, f"{type(error).__name__}: {error}"))


class Service:
    """Worker processes that are reused, and what happened to them.

    Attributes:
        events: Number of bundles, kills, stops, copies, late results and failures.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.events: Counter[str] = Counter()
        self._rng = rng
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._lost: list[Worker] = []  # their leases ended; some are stopped
        self._mean_sec = 0.02  # of a bundle

    def run(self, bundles: Sequence[Bundle]) -> list[Any]:
        """Return the result of each bundle.

        Raises:
            JobFailedError: A bundle was lost or failed four times.
        """
        waiting, tries = deque(range(len(bundles))), Counter[int]()
        results: dict[int, Any] = {}
        while len(results) < len(bundles):
            self._assign(waiting, bundles, results)
            for number, why in (*self._strike(), *self._collect(results)):
                tries[number] += 1
                if number in results or any(
                    worker.task and worker.task.number == number for worker in self._busy
                ):
                    continue
                if tries[number] >= MAX_TRIES:
                    self._lose_all()
                    raise JobFailedError(why)
                waiting.append(number)
        self._lose_all()  # copies
        self.events["bundles"] += len(bundles)
        return [results[number] for number in range(len(bundles))]

    def _assign(
        self, waiting: deque[int], bundles: Sequence[Bundle], results: dict[int, Any]
    ) -> None:
        while len(self._busy) < NUM_WORKERS:
            running = [worker.task.number for worker in self._busy if worker.task]
            copied = [number for number in set(running) if running.count(number) == 1]
            if waiting:
                number = waiting.popleft()
            elif copied and self._rng.random() < SHARE_COPIED:
                number = copied[0]
                self.events["copies"] += 1
            else:
                return
            if number not in results:
                worker = self._idle.pop() if self._idle else Worker()
                worker.begin(self._task(number), bundles[number])
                self._busy.append(worker)

    def _task(self, number: int) -> Task:
        fates = [signal.SIGKILL, signal.SIGSTOP, None]
        shares = [SHARE_KILLED, SHARE_STOPPED, 1 - SHARE_KILLED - SHARE_STOPPED]
        fate = fates[self._rng.choice(3, p=shares)]
        return Task(number, time.monotonic(), fate, self._rng.uniform(0, 1.1) * self._mean_sec)

    def _strike(self) -> list[tuple[int, str]]:
        """Send the signals that are due; return the bundles whose leases ended."""
        ended, now = [], time.monotonic()
        for worker in list(self._busy):
            task = worker.task
            assert task is not None
            if task.signal is None or now < task.begun + task.after_sec:
                continue
            self._busy.remove(worker)
            ended.append((task.number, "its worker was lost"))
            if task.signal == signal.SIGKILL:
                self.events["kills"] += 1
                worker.kill()
            else:
                self.events["stops"] += 1
                worker.signal(signal.SIGSTOP)
                self._lost.append(worker)
        return ended

    def _collect(self, results: dict[int, Any]) -> list[tuple[int, str]]:
        """Take results; return the bundles that failed. A lost worker may go on meanwhile."""
        if self._lost and self._rng.random() < 0.1:
            self._rng.choice(np.array(self._lost, object)).signal(signal.SIGCONT)
        failed = []
        for worker in self._ready([*self._busy, *self._lost], 0.001):
            succeeded, result = worker.connection.recv()
            task, worker.task = worker.task, None
            assert task is not None
            self._idle.append(worker)
            if worker in self._lost:
                worker.signal(signal.SIGCONT)  # it may have been stopped when it was done
                self._lost.remove(worker)
                self.events["late results"] += 1
                continue
            self._busy.remove(worker)
            took_sec = time.monotonic() - task.begun
            self._mean_sec += 0.05 * (took_sec - self._mean_sec)
            if succeeded:
                results.setdefault(task.number, result)
            else:
                self.events["failures"] += 1
                failed.append((task.number, result))
        return failed

    @staticmethod
    def _ready(workers: Sequence[Worker], seconds: float) -> list[Worker]:
        by_connection = {worker.connection: worker for worker in workers}
        return [by_connection[found] for found in wait(list(by_connection), seconds)]

    def _lose_all(self) -> None:
        self._lost += self._busy
        self._busy = []

    def let_all_go_on(self) -> None:
        """Let the lost workers end their work."""
        for worker in self._lost:
            worker.signal(signal.SIGCONT)
        deadline = time.monotonic() + 240
        while self._lost:
            self._collect({})
            assert time.monotonic() < deadline, "a lost worker hangs"

    def close(self) -> None:
        for worker in (*self._idle, *self._busy, *self._lost):
            worker.kill()
