"""Tasks ahead of their consumer: order, bounds, and the number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shardwright.transforms.write import shard_chunks
from shardwright.transforms.write.shard_chunks import MAX_THREADS, ReadAhead


class Clock:
    """Seconds of each thread, as its tasks say: those of a busy machine vary."""

    def __init__(self) -> None:
        self._own = threading.local()

    def monotonic(self) -> float:
        return getattr(self._own, "wall", 0.0)

    def thread_time(self) -> float:
        return getattr(self._own, "cpu", 0.0)

    def seconds_waited(self) -> float:
        return getattr(self._own, "waited", 0.0)

    def spend(self, *, wall: float, cpu: float, waited: float = 0.0) -> None:
        self._own.wall, self._own.cpu = self.monotonic() + wall, self.thread_time() + cpu
        self._own.waited = self.seconds_waited() + waited


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shard_chunks, "time", clock)
    return clock


@pytest.mark.parametrize("threads", [1, 2, 8, None])
def test_results_come_in_task_order(threads: int | None) -> None:
    def task(number: int) -> Callable[[], int]:
        return lambda: time.sleep(0.002 * (number % 3)) or number

    results = ReadAhead[int](2, threads).run(task(number) for number in range(50))
    assert list(results) == list(range(50))


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_is_begun_than_is_needed(threads: int) -> None:
    begun = 0

    def tasks() -> Iterator[Callable[[], int]]:
        nonlocal begun
        for number in range(20):
            begun += 1
            yield lambda number=number: number

    for taken, number in enumerate(ReadAhead[int](1, threads).run(tasks())):
        assert number == taken
        assert begun <= taken + threads + 2


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_run_at_a_time_than_it_says(threads: int) -> None:
    running: list[int] = []
    found: list[int] = []
    together = threading.Barrier(threads, lambda: found.append(len(running)), timeout=250)

    def task() -> None:
        running.append(0)
        together.wait()  # for all threads, so that they run at the same time
        running.pop()

    list(ReadAhead[None](1, threads).run(task for _ in range(6 * threads)))
    assert found == [threads] * 6


def test_tasks_that_wait_are_given_more_threads(clock: Clock) -> None:
    ahead = ReadAhead[None](1)
    assert ahead.num_threads == 1
    list(ahead.run((lambda: clock.spend(wall=0.02, cpu=0.0001)) for _ in range(30)))
    assert ahead.num_threads == MAX_THREADS
    together = threading.Barrier(8)
    list(ahead.run((lambda: together.wait(250)) for _ in range(8)))  # fails unless all run at once


@pytest.mark.parametrize(("wall", "threads"), [(1, 1), (2.5, 1), (3.5, 2), (8, 5), (15.5, 10)])
def test_threads_by_wall_and_cpu_time(wall: float, threads: int, clock: Clock) -> None:
    ahead = ReadAhead[None](1)
    list(ahead.run((lambda: clock.spend(wall=wall, cpu=1)) for _ in range(40)))
    assert ahead.num_threads == threads


def test_waiting_for_memory_is_no_reason_for_more_threads(clock: Clock) -> None:
    def task() -> None:
        clock.spend(wall=5, cpu=0.5, waited=4)
        clock.spend(wall=5, cpu=0.5, waited=4)

    ahead = ReadAhead[None](1, seconds_waited=clock.seconds_waited)
    list(ahead.run(task for _ in range(20)))
    assert ahead.num_threads == 1


def test_tasks_that_decode_start_with_a_thread_a_core() -> None:
    assert ReadAhead[None](4).num_threads == 4
    assert ReadAhead[None](4, fixed=2).num_threads == 2
    assert ReadAhead[None](1000).num_threads == MAX_THREADS


def test_an_error_reaches_the_taker_and_stops_the_rest() -> None:
    ran: list[int] = []

    def fail() -> int:
        raise ValueError("the third task")

    def task(number: int) -> Callable[[], int]:
        return fail if number == 2 else lambda: ran.append(number) or number

    results = ReadAhead[int](1, 1).run(task(number) for number in range(100))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="the third task"):
        next(results)
    assert len(ran) < 10
