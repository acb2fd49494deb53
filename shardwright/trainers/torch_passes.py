"""Share a reader's position with the worker processes of torch's DataLoader.

A DataLoader calls its dataset in its workers only, which are new in each pass, or stay. So this
process learns from shared memory where they are, and they learn where to begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from shardwright.errors import UsageError
from shardwright.reader.state import Cursor
from shardwright.reader.steps import Steps

_MOST_WORKERS = 1024
_NO_PASS, _NO_END = 0, -1  # values of `_STOP`, besides the position where a pass of workers ends
_START, _STOP, _NUM_WORKERS, _TURN = range(4)
_KEY_BITS = 32
_WAIT_SECONDS = 1e-3

Bounds = tuple[int, int | None]  # positions [start, stop); stop is None for no end


class SharedCursor(Cursor):
    """The position of a reader, in memory that worker processes share.

    Worker 0 decides where a pass begins, and the others wait for it: they start at any time, and
    each must read its share of the same pass. A pass that was left does not continue, because
    nobody knows how many of the batches made ahead were taken: the next one begins after its end,
    or if it has no end, with the first batch that was not made.
    """

    def __init__(self, position: int) -> None:
        self._numbers = torch.zeros(4, dtype=torch.int64).share_memory_()
        # Of each worker: the next position of its share, and the last turn that it took part in.
        self._next, self._joined = torch.zeros(
            (2, _MOST_WORKERS), dtype=torch.int64
        ).share_memory_()
        self.position = position

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value.share_memory_() for name, value in state.items()})

    @property
    def position(self) -> int:
        """The start of the next pass, or the position of this process in its own."""
        stop = int(self._numbers[_STOP])
        if stop == _NO_PASS:
            return self.pass_start
        return int(self._shares.min()) if stop == _NO_END else stop

    @position.setter
    def position(self, position: int) -> None:
        self._numbers[_START] = position
        self._numbers[_STOP] = _NO_PASS

    @property
    def pass_start(self) -> int:
        """The start of the workers' pass, or the position if no worker is in a pass."""
        return int(self._numbers[_START])

    @property
    def pass_of_workers(self) -> Bounds | None:
        """The bounds of the last pass if it was one of workers."""
        stop = int(self._numbers[_STOP])
        if stop == _NO_PASS:
            return None
        return self.pass_start, None if stop == _NO_END else stop

    def check(self) -> None:
        if self.pass_of_workers is not None:
            raise UsageError(
                "reader.state() after batches of DataLoader workers, which make them ahead: only "
                "you know how many were taken. Use state_after(that number) of the dataset that "
                "reader.torch() returned, or state_after() if the pass is over"
            )

    def join(
        self, worker: Any, steps: Steps, bounds: Callable[[], Bounds], resume: Bounds | None
    ) -> tuple[int, Bounds]:
        """Return the turn of this pass, and the bounds of a worker's share of it.

        Args:
            worker: `torch.utils.data.get_worker_info()`.
            steps: Of the reader.
            bounds: Returns the bounds of the next pass; called in worker 0 only.
            resume: Bounds of the share to resume from; None for a new pass.
        """
        # The workers of a pass have seeds that follow one another, and another pass other seeds.
        key = hash((worker.seed - worker.id, worker.num_workers)) % (1 << _KEY_BITS)
        if worker.id == 0:
            self._begin(worker.num_workers, steps, bounds() if resume is None else resume, key)
        while (turn := self._turn_of(key)) <= int(self._joined[worker.id]):
            time.sleep(_WAIT_SECONDS)
        self._joined[worker.id] = turn
        assert self.pass_of_workers is not None, "worker 0 has begun it"
        start, stop = self.pass_of_workers
        found = (steps.skip(start, worker.id), stop)
        self.note(turn, worker.id, (resume or found)[0])
        return turn, resume or found

    def note(self, turn: int, worker_id: int, position: int) -> None:
        """Note the next position of a worker's share, unless another pass has begun."""
        if int(self._numbers[_TURN]) >> _KEY_BITS == turn:
            self._next[worker_id] = position

    def _begin(self, num_workers: int, steps: Steps, bounds: Bounds, key: int) -> None:
        start, stop = bounds
        for number in range(num_workers):  # a share may be empty, and its worker start late
            self._next[number] = steps.skip(start, number)
        self._numbers[_START] = start
        self._numbers[_STOP] = _NO_END if stop is None else stop
        self._numbers[_NUM_WORKERS] = num_workers
        turn = (int(self._numbers[_TURN]) >> _KEY_BITS) + 1
        # Last, and as one number: others go on as soon as they see it.
        self._numbers[_TURN] = turn << _KEY_BITS | key

    def _turn_of(self, key: int) -> int:
        """Return the turn in progress if it is that of this key, else 0."""
        turn, its = divmod(int(self._numbers[_TURN]), 1 << _KEY_BITS)
        return turn if its == key else 0

    @property
    def _shares(self) -> torch.Tensor:
        return self._next[: int(self._numbers[_NUM_WORKERS])]
