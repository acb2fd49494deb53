"""Which requests a fault hits: the rules of fault_proxy.py."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal


@dataclass(frozen=True)
class Fault:
    """What happens to the requests it matches.

    Kinds:
        status: answered with `status` and an S3 error document; the server is not asked.
        reset: TCP reset, before byte `at_byte` of the body, or before the server is asked where that is None.
        truncate: the connection is closed cleanly before byte `at_byte`, whatever length the head promised.
        stall: silence from byte `at_byte` on, or instead of any answer where that is None, until the client leaves.
        corrupt: one bit of byte `at_byte` is flipped.
        latency: the request waits `latency_msec` before it is passed on; other faults may hit it too.
        reset_after_upstream: the server did the work and said so (2xx); the client gets a reset instead.

    Attributes:
        times: How many requests it hits; None for all. A body without byte `at_byte` is passed on whole and is no hit.
        method: Only requests with this method.
        path_contains: Only requests whose target (path and query, as sent) has this text.
        skip: How many matching requests pass first.
        upload: The body is the request's, not the answer's (`reset`, `stall`, `corrupt`).
        at_byte: An offset in the body, from 0; chunk sizes do not count.

    Raises:
        ValueError: the kind needs what is not given, or has no use for what is.
    """

    kind: Literal[
        "status", "reset", "truncate", "stall", "corrupt", "latency", "reset_after_upstream"
    ]
    times: int | None = 1
    _: KW_ONLY
    method: str | None = None
    path_contains: str | None = None
    skip: int = 0
    upload: bool = False
    at_byte: int | None = None
    status: int = 503
    retry_after_sec: int | None = None
    latency_msec: float = 0.0

    def __post_init__(self) -> None:
        if self.kind in ("truncate", "corrupt") and self.at_byte is None:
            raise ValueError(f"{self.kind} needs at_byte, a body offset")
        if self.at_byte is not None and self.kind not in ("reset", "truncate", "stall", "corrupt"):
            raise ValueError(f"{self.kind} has no use for at_byte={self.at_byte}")
        if self.upload and (self.at_byte is None or self.kind == "truncate"):
            raise ValueError(
                f"upload=True is for reset, stall and corrupt with at_byte, not for {self}"
            )
        if self.kind == "latency" and not self.latency_msec:
            raise ValueError("latency needs latency_msec")

    def matches(self, method: str, target: str) -> bool:
        return self.method in (None, method) and (self.path_contains or "") in target

    @property
    def asks_nobody(self) -> bool:
        """It strikes before the server is asked."""
        return self.kind == "status" or (self.kind in ("reset", "stall") and self.at_byte is None)


class _Rule:
    """A fault, and how often it passed and hit."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.skipped = 0
        self.claimed = 0  # by requests that it hit, and those under way that it may hit yet
        self.hits = 0

    def claim(self) -> bool:
        if self.skipped < self.fault.skip:
            self.skipped += 1
            return False
        if self.fault.times is not None and self.claimed >= self.fault.times:
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
        """Count it. Called before the client can see the fault, so that a test sees the count as soon as the fault."""
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
        """Milliseconds that a request is to wait, and its claim to the first fault of another kind, if one matches."""
        wait_msec = 0.0
        with self._lock:
            for rule in self._rules:
                if rule.fault.matches(method, target) and rule.claim():
                    if rule.fault.kind != "latency":
                        return wait_msec, Claim(rule, self._lock)
                    rule.hits += 1
                    wait_msec += rule.fault.latency_msec
        return wait_msec, None
