"""Calls in a child process: what they return, what they raise, and how they die."""

from __future__ import annotations

import os
import signal
import time

import pytest

from shardwright.transforms.child_process import Death, call_in_child


def act(number: int) -> int:
    """Die of some numbers."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 3:
        os._exit(7)
    if number == 4:
        time.sleep(60)
    return 10 * number


def fail(number: int) -> int:
    raise ValueError(f"the number {number}")


@pytest.mark.long
def test_the_calls_after_a_death_are_made_in_another_child() -> None:
    assert list(call_in_child(act, 6, 5)) == [
        0,
        Death("ends its process: SIGSEGV"),
        20,
        Death("ends its process: exit code 7"),
        Death("takes more than 5 seconds (SIGALRM)"),
        50,
    ]


def test_an_exception_is_raised_here() -> None:
    with pytest.raises(ValueError, match="the number 0"):
        list(call_in_child(fail, 1, 250))
