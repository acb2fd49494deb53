"""Limit the rate of requests to a store that refuses some of them because they are too many.

Additive increase, multiplicative decrease, per process and store: a refusal lowers the limit by a
tenth, or to the share that was served since it was last lowered; a success raises it, the more the
longer ago that was. So each process loses a request every one or two seconds, however many share
the store and whatever it serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FASTEST = 2000.0  # requests a second: one core of a process sends about as many
# 128 reads that wait for their turn then wait at most 13 seconds.
SLOWEST = 10.0
# Halving each time would leave a quarter of what the store serves to a single process unused.
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 0.9
_INCREASE = 0.1  # requests a second, per success and per second since the last refusal
# Of requests. If a store refuses fewer, at random, no request is refused ten times in a row.
_LEAST_OVERLOAD = 0.1


class RequestRate:
    """A limit on the requests a second that this process sends to a store.

    Until the store refuses a request there is no limit.

    Args:
        clock: Returns the time in seconds.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self.limit = FASTEST
        self._turn = threading.Lock()  # held by the one thread whose request is the next
        self._change = threading.Lock()
        self._next = self._lowered = 0.0
        self._served = 0  # since the limit was lowered
        self._num_served = self._num_refused = 0  # roughly: of two at the same time one may be lost

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of refusals and of successes so far."""
        return self._num_refused, self._num_served

    def is_overload_since(self, counts: tuple[int, int]) -> bool:
        """Return whether more than a tenth of the requests since then were refused."""
        refused, served = self._num_refused - counts[0], self._num_served - counts[1]
        return refused > _LEAST_OVERLOAD * (refused + served)

    def wait(self) -> float:
        """Wait until a request may be sent; return the seconds waited."""
        # Without a lock: most stores never refuse anything.
        if self.limit >= FASTEST:
            return 0.0
        arrived = self._clock()
        with self._turn:
            now = self._clock()
            if now < self._next:
                # Inside the lock: the threads behind wait for their turn there, in order.
                self._sleep(self._next - now)
            self._next = max(now, self._next) + 1 / self.limit
        return self._clock() - arrived

    def served(self) -> None:
        """Raise the limit after a success."""
        self._num_served += 1
        if self.limit < FASTEST:
            with self._change:
                self._served += 1
                # By the time since the last refusal: slowly around what the store serves, fast when
                # it has recovered.
                self.limit += _INCREASE * (self._clock() - self._lowered)

    def refused(self, sent: float) -> None:
        """Lower the limit after the refusal of a request that was sent at this time.

        Requests that were sent before the limit was last lowered say nothing about it.
        """
        self._num_refused += 1
        with self._change:
            # One overload refuses many requests in flight: it must lower the limit once.
            if sent >= self._lowered:
                share = self._served / (self._served + 1)
                factor = min(max(share, _LEAST_FACTOR), _MOST_FACTOR)
                self.limit = max(SLOWEST, factor * min(self.limit, FASTEST))
                self._lowered, self._served = self._clock(), 0
