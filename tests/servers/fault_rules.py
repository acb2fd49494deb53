"""Faults of fault_proxy.py, and the requests that they hit."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

BURST_S = 0.1  # what a limit per second leaves over in a pause, for a burst of requests
Kind = Literal["status", "reset", "truncate", "stall", "corrupt", "latency", "reset_after_upstream"]


@dataclass(frozen=True)
class Fault:
    """A fault for the requests that it matches.

    Kinds:
        status: Answer with `status` and an S3 error document, without asking the server.
        reset: TCP reset before byte `at_byte` of the body; None: before the server is asked.
        truncate: Clean close before byte `at_byte`, whatever length the head promised.
        stall: Silence from byte `at_byte` on, until the client leaves; None: no answer at all.
        corrupt: Flip one bit of byte `at_byte`.
        latency: Wait `latency_msec` before the request is passed on; other faults may hit it too.
        reset_after_upstream: The server succeeds (2xx); the client gets a reset instead.

    Attributes:
        times: Number of requests it hits; None for all. A body without byte `at_byte` is no hit.
        method: Only requests with this method.
        path_contains: Only requests whose target (path and query, as sent) has this text.
        skip: Number of matching requests that pass first.
        beyond_per_second: Only requests beyond so many matching ones a second.
        upload: The body is the request's, not the answer's (`reset`, `stall`, `corrupt`).
        at_byte: An offset in the body, from 0; chunk sizes do not count.

    Raises:
        ValueError: The kind lacks an attribute, or has no use for one.
    """

    kind: Kind
    times: int | None = 1
    _: KW_ONLY
    method: str | None = None
    path_contains: str | None = None
    skip: int = 0
    beyond_per_second: float | None = None
    upload: bool = False
    at_byte: int | None = None
    status: int = 503
    retry_after_sec: int | None = None
    latency_msec: float = 0.0

    def __str__(self) -> str:
        """Return a short name, for the ids of tests."""
        shown = (self.kind, self.status, self.path_contains or self.method, self.at_byte)
        return "-".join(str(value) for value in shown)

    def __post_init__(self) -> None:
        if self.kind in ("truncate", "corrupt") and self.at_byte is None:
            raise ValueError(f"{self.kind} needs at_byte, a body offset")
        if self.at_byte is not None and self.kind not in ("reset", "truncate", "stall", "corrupt"):
            raise ValueError(f"{self.kind} has no use for at_byte={self.at_byte}")
        if self.upload and (self.at_byte is None or self.kind == "truncate"):
            raise ValueError(
                f"upload=True needs reset, stall or corrupt with at_byte, got {self!r}"
            )
        if self.kind == "latency" and not self.latency_msec:
            raise ValueError("latency needs latency_msec")

    def matches(self, method: str, target: str) -> bool:
        return self.method in (None, method) and (self.path_contains or "") in target

    @property
    def precedes_upstream(self) -> bool:
        """True if it strikes before the server is asked."""
        return self.kind == "status" or (self.kind in ("reset", "stall") and self.at_byte is None)


@dataclass
class _Rule:
    """A fault with its counters."""

    fault: Fault
    skipped: int = 0
    next_passes_at: float = 0.0  # of a limit per second
    claimed: int = 0  # by requests that it hit, and those under way that it may hit yet
    hits: int = 0

    def claim(self) -> bool:
        if self.skipped < self.fault.skip:
            self.skipped += 1
            return False
        if self.fault.times is not None and self.claimed >= self.fault.times:
            return False
        if self.fault.beyond_per_second is not None:
            now = time.monotonic()
            self.next_passes_at = max(self.next_passes_at, now - BURST_S)
            if self.next_passes_at <= now:
                self.next_passes_at += 1 / self.fault.beyond_per_second
                return False
        self.claimed += 1
        return True


class Claim:
    """One request's claim to a fault: it hits the request, or is left to another one."""

    def __init__(self, rule: _Rule, lock: threading.Lock) -> None:
        self.fault = rule.fault
        self._rule = rule
        self._lock = lock
        self._hit = False

    def hit(self) -> None:
        """Count it, before the client can see the fault: tests then see the count as soon."""
        with self._lock:
            self._hit = True
            self._rule.hits += 1

    def release(self) -> None:
        """Leave the fault to another request, unless it hit this one."""
        with self._lock:
            self._rule.claimed -= not self._hit


class Rules:
    """The faults in force, for any thread."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    def add(self, faults: Sequence[Fault]) -> None:
        with self._lock:
            self._rules.extend(map(_Rule, faults))

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def hits(self, fault: Fault) -> int:
        with self._lock:
            return sum(rule.hits for rule in self._rules if rule.fault == fault)

    def claim(self, method: str, target: str) -> tuple[float, Claim | None]:
        """Return the milliseconds that a request waits, and its claim to the first other fault."""
        wait_msec = 0.0
        with self._lock:
            for rule in self._rules:
                if rule.fault.matches(method, target) and rule.claim():
                    if rule.fault.kind != "latency":
                        return wait_msec, Claim(rule, self._lock)
                    rule.hits += 1
                    wait_msec += rule.fault.latency_msec
        return wait_msec, None
