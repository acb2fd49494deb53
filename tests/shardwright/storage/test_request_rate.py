"""The limit of requests to a store that refuses some: simulated stores, processes and clocks."""

from __future__ import annotations

import heapq
import itertools

import pytest

from shardwright.storage.request_rate import FASTEST, SLOWEST, RequestRate

SECONDS, START = 15, 3  # simulated; in the first ones processes learn what the store serves


class Process:
    """A process with more to send than the store serves, on a simulated clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rate = RequestRate(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def next_send(self, last: float) -> float:
        """Return when the next request is sent, after one that was sent at `last`."""
        self.now = last + 1 / FASTEST / 4  # four cores of it
        self.rate.wait()
        return self.now

    def answered(self, now: float, sent: float, *, served: bool) -> None:
        self.now = now
        if served:
            self.rate.served()
        else:
            self.rate.refused(sent)


def simulate(num_processes: int, per_second: int, round_trip: float) -> tuple[float, float]:
    """Return the served share of what a store would serve, and of what it was sent."""
    processes = [Process() for _ in range(num_processes)]
    order = itertools.count()
    # (time, order, process, when the answered request was sent or None for a send, served)
    events: list[tuple[float, int, int, float | None, bool]] = [
        (number / 1000, next(order), number, None, False) for number in range(num_processes)
    ]
    free = num_sent = num_served = 0.0
    while True:
        now, _, number, sent, served = heapq.heappop(events)
        if now > SECONDS:
            return num_served / ((SECONDS - START) * per_second), num_served / num_sent
        process = processes[number]
        if sent is not None:
            process.answered(now, sent, served=served)
            continue
        # A bucket of tokens that holds those of a tenth of a second.
        served = (free := max(free, now - 0.1)) <= now
        free += served / per_second
        num_sent, num_served = num_sent + (now > START), num_served + (served and now > START)
        heapq.heappush(events, (now + round_trip, next(order), number, now, served))
        heapq.heappush(events, (process.next_send(now), next(order), number, None, False))


@pytest.mark.parametrize(
    ("num_processes", "per_second", "round_trip"),
    [(1, 1000, 0.03), (2, 300, 0.001), (16, 1000, 0.03), (16, 1000, 0.1), (100, 5000, 0.03)],
)
def test_what_the_store_serves_is_used(
    num_processes: int, per_second: int, round_trip: float
) -> None:
    share, accepted = simulate(num_processes, per_second, round_trip)
    assert share > 0.97
    assert accepted > 0.95


def test_the_limit_ends_when_the_store_refuses_no_more() -> None:
    process = Process()
    assert process.rate.wait() == 0
    for _ in range(200):
        process.now += 0.01
        process.rate.refused(process.now)
    assert process.rate.limit == SLOWEST
    assert [process.rate.wait() for _ in range(3)] == pytest.approx([0, 0.1, 0.1])
    while process.rate.limit < FASTEST:
        process.rate.wait()
        process.rate.served()
    assert process.now < 13
    assert process.rate.wait() == 0


def test_refusals_of_one_moment_count_once() -> None:
    process = Process()
    process.now = 5.0
    for _ in range(50):
        process.rate.refused(4.9)
    assert process.rate.limit == 0.5 * FASTEST
