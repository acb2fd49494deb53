"""Actors that run one at a time, and everything else that is random: their order, times, faults.

An actor is a thread, because the code under test knows nothing of this. Only one runs at any
moment, and hands over to another one at its requests to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from threading import Semaphore, Thread
from typing import Any, TypeVar

T = TypeVar("T")
_START = 1_800_000_000.0  # of the clock, in seconds since 1970


class Killed(BaseException):
    """The death of an actor's process; no `except Exception` catches it."""


@dataclass(eq=False)
class Actor:
    """A process that does one task.

    Attributes:
        name: For the trace.
        run: The task.
        dies_after: Requests until it is killed, before the next one; -1 to let it end.
        skew: Seconds by which its machine's clock is wrong.
        result: What the task has returned or raised, `Killed` too.
    """

    name: str
    run: Callable[[], Any]
    dies_after: int
    skew: float
    result: Any = None
    may_go: Semaphore = field(default_factory=lambda: Semaphore(0))


class Scheduler:
    """Decides which actor runs next, and what becomes of each request.

    Attributes:
        random: All decisions come from it, so a seed repeats them.
        current: The actor that runs; None outside of `run`.
        left: The actors that have not ended.
        now: The time of the store, in seconds since 1970.
        trace: Each request so far, if it is kept.
    """

    def __init__(self) -> None:
        self.trace: list[str] | None = None
        self.start(Random(0))

    def start(self, random: Random) -> None:
        """Begin a history."""
        self.random, self.now = random, _START
        self.current: Actor | None = None
        # A switch at each request, now and then, or seldom: then most of one task is done at once.
        self._stays = random.choice((0.3, 0.8, 0.97))
        self._faulty = random.choice((0.0, 0.0, 0.01, 0.05))
        self._slow = random.choice((0.0, 0.001))
        self.left: list[Actor] = []
        self._ended = Semaphore(0)

    def run(self, actors: Sequence[Actor]) -> None:
        """Run actors to their ends, taking turns."""
        self.left = list(actors)
        threads = [Thread(target=self._run, args=(actor,), daemon=True) for actor in actors]
        for thread in threads:
            thread.start()
        self._go_on()
        self._ended.acquire()
        for thread in threads:
            thread.join()
        self.current = None

    def _go_on(self) -> None:
        self.current = self.random.choice(self.left)
        self.current.may_go.release()

    def _run(self, actor: Actor) -> None:
        actor.may_go.acquire()
        try:
            actor.result = actor.run()
        except BaseException as error:
            actor.result = error
        self.left.remove(actor)
        if self.left:
            self._go_on()
        else:
            self._ended.release()

    def pause(self, request: str) -> str:
        """Let others run before a request, and return its fate: "", "lost" or "unanswered".

        Raises:
            Killed: The actor is dead.
        """
        actor, random = self.current, self.random
        if actor is None:  # whoever is alone has no faults
            self.now += 0.03
            return ""
        if actor.dies_after == 0:
            raise Killed
        actor.dies_after -= 1
        if random.random() > self._stays:
            self._go_on()
            actor.may_go.acquire()
        self.now += random.random() * 3600 if random.random() < self._slow else 0.03
        fate = random.choice(("lost", "unanswered")) if random.random() < self._faulty else ""
        if self.trace is not None:
            self.trace.append(f"{self.now - _START:9.2f} {actor.name:10} {request} {fate}")
        return fate

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """Return items in the order in which parallel tasks happen to do them."""
        found = list(items)
        self.random.shuffle(found)
        return found

    def time(self) -> float:
        """Return the time of the current actor's machine."""
        return self.now + (self.current.skew if self.current else 0.0)

    def monotonic(self) -> float:
        """Return the seconds since any moment."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(seconds, 0.0)

    def hexadecimal(self, num_bytes: int) -> str:
        """Return random digits, as `secrets.token_hex`."""
        return f"{self.random.getrandbits(8 * num_bytes):0{2 * num_bytes}x}"


class InlinePool:
    """A thread pool that runs each task at once, in the caller's thread; maps in any order."""

    scheduler: Scheduler

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take the arguments of `ThreadPoolExecutor`."""

    def submit(self, task: Callable[..., T], *args: Any, **options: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(task(*args, **options))
        except BaseException as error:
            future.set_exception(error)
        return future

    def map(self, task: Callable[..., T], *items: Iterable[Any], **_: Any) -> Iterator[T]:
        calls = list(zip(*items, strict=False))
        order = self.scheduler.shuffled(range(len(calls)))
        begun = {number: self.submit(task, *calls[number]) for number in order}
        return (begun[number].result() for number in range(len(calls)))

    def shutdown(self, wait: bool = True, **_: Any) -> None:
        """Do nothing: no task is left."""

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""
