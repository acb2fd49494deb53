"""read_ahead: order, bounds, and how many threads are thought to pay."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

import pytest

from transforms.writing.read_ahead import MAX_THREADS, ReadAhead, note_idle


def compute() -> None:
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("threads", [1, 2, 8, None])
def test_results_come_in_task_order(threads: int | None) -> None:
    def task(number: int) -> Callable[[], int]:
        return lambda: time.sleep(0.002 * (number % 3)) or number

    assert list(ReadAhead[int](2, threads).run(task(number) for number in range(50))) == list(
        range(50)
    )


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


def test_tasks_that_wait_are_given_more_threads() -> None:
    ahead = ReadAhead[None](1)
    assert ahead.num_threads == 1
    started = time.monotonic()
    list(ahead.run((lambda: time.sleep(0.02)) for _ in range(200)))
    assert ahead.num_threads == MAX_THREADS
    assert time.monotonic() - started < 200 * 0.02 / 4


def test_tasks_that_compute_are_not() -> None:
    ahead = ReadAhead[None](1)
    list(ahead.run(compute for _ in range(100)))
    assert ahead.num_threads <= 2  # a busy machine makes a task look a little like one that waits


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


def test_waiting_for_memory_is_no_reason_for_more_threads() -> None:
    def task(*, told: bool) -> None:
        busy, start = time.thread_time() + 0.003, time.monotonic()
        while time.thread_time() < busy:
            pass
        computed = time.monotonic()
        time.sleep(10 * (computed - start))
        if told:
            note_idle(time.monotonic() - computed)

    learned = {}
    for told in (False, True):
        ahead: ReadAhead[None] = ReadAhead(1)
        list(ahead.run(iter([functools.partial(task, told=told)] * 20)))
        learned[told] = ahead.num_threads
    assert learned[True] <= learned[False] / 2
