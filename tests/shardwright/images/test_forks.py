"""Forks wait for the threads that OpenCV's lock may belong to (`shardwright.images.libraries`)."""

from __future__ import annotations

import os
import threading
import time

import pytest

from shardwright.images import libraries
from shardwright.images.libraries import cv2

PAUSE_S = 0.2
LONG_S = 100.0  # far more than a fork takes under load


@pytest.fixture(autouse=True)
def no_thread_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2()  # this thread's own first call
    monkeypatch.setattr(libraries, "_numbers", {})


def seconds_to_fork(ended: threading.Event | None = None) -> float:
    """Return how long a fork took whose child has decoded in a thread of its own.

    Args:
        ended: Must be set when the child is made.
    """
    start = time.monotonic()
    child = os.fork()
    if not child:
        thread = threading.Thread(target=cv2)
        thread.start()
        thread.join()
        os._exit(0 if ended is None or ended.is_set() else 1)
    took = time.monotonic() - start
    assert os.waitpid(child, 0)[1] == 0
    return took


def test_a_fork_waits_for_a_first_call() -> None:
    started, called = threading.Event(), threading.Event()

    def first_call() -> None:
        started.set()
        time.sleep(PAUSE_S)
        called.set()

    thread = threading.Thread(target=libraries.enter_thread, args=[first_call])
    thread.start()
    started.wait()
    seconds_to_fork(called)
    thread.join()


def test_a_fork_waits_until_the_system_has_released_an_ended_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(libraries, "_DEADLINE_S", LONG_S)
    slept = threading.Event()

    def sleep() -> None:
        time.sleep(PAUSE_S)
        slept.set()

    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    # Another thread's number stands for that of one which has ended in Python alone.
    other = threading.Thread(target=sleep)
    other.start()
    libraries._numbers[ended] = other.native_id or 0
    seconds_to_fork(slept)
    assert libraries._numbers == {}


def test_a_number_that_was_given_to_another_thread_delays_a_fork_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(libraries, "_DEADLINE_S", PAUSE_S)
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    libraries._numbers[ended] = threading.get_native_id()
    assert seconds_to_fork() > PAUSE_S / 2  # the whole pause, on any machine
    assert libraries._numbers == {}


def test_running_threads_delay_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_DEADLINE_S", LONG_S)
    stop = threading.Event()
    threads = [threading.Thread(target=lambda: (cv2(), stop.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(libraries._numbers) < len(threads):
        time.sleep(0.001)
    assert seconds_to_fork() < LONG_S / 2
    stop.set()
    for thread in threads:
        thread.join()


def test_each_thread_makes_one_first_call() -> None:
    calls: list[int] = []

    def decode() -> None:
        for _ in range(3):
            libraries.enter_thread(lambda: calls.append(1))

    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()
    assert calls == [1]
