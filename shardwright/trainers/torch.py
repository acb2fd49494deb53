"""Serve a dataset to torch's DataLoader: batches in the reader's order, or examples by number.

    reader = sw.Reader("dataset/", global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
    for batch in DataLoader(reader.torch(), batch_size=None): ...
    DataLoader(reader.torch(map_style=True), batch_size=256, sampler=DistributedSampler(...))

The reader's threads decode, so `num_workers=0` is the fast choice on a few cores. One process hands
out some thousand images a second, because its threads share the interpreter's lock: feed a faster
GPU by workers (`benchmarks/gpu_feed.py`), or by a reader with `processes=`. For distributed
training create the Reader with host_index=torch.distributed.get_rank() and
host_count=torch.distributed.get_world_size(); without them a warning says what that means.

A DataLoader calls its dataset in its workers only, which are new in each pass, or stay. So they
learn from shared memory which pass is the next, and this process which was (`SharedPasses`).
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from shardwright.errors import UsageError
from shardwright.reader.examples import ExampleSource
from shardwright.reader.hosts import check_hosts
from shardwright.reader.options import ReaderOptions, share_of_cores
from shardwright.reader.reader import Reader, reopen
from shardwright.reader.state import Pass, Passes
from shardwright.reader.steps import Bounds, Steps
from shardwright.reader.values import SparseColumn

_SHARE_KEY = "share"  # in the state of a worker
_MOST_WORKERS = 1024
_NO_END = -1  # in place of the position where a pass ends
_NEXT, _BY_WORKERS, _TURN = range(3)
_RECENT = 16  # passes of workers at once
_WAIT_SECONDS = 1e-3


class ReaderBatches(IterableDataset[dict[str, Any]]):
    """A reader's batches as tensors, for `DataLoader(batches, batch_size=None)`.

    `iter()`, of this or of a loader with or without workers, is the reader's next pass. With
    workers, each reads its share of the steps, and the loader restores the exact order. Loaders
    and what wraps them may take batches ahead of your loop, so `reader.state()` raises
    `UsageError`: use `state_after(number of batches taken in this pass)`, or `state_after()` when
    all were. torchdata's StatefulDataLoader keeps count itself. Each worker allows
    `max_bad_records` of its own. Workers that read from a store must not be forked: set
    `multiprocessing_context` to "spawn" or "forkserver".

    Args:
        reader: Source of the batches.
        channels_first: Images as [b, 3, h, w], but channels last in memory, the fastest layout for
            convolutions; otherwise [b, h, w, 3].
    """

    def __init__(self, reader: Reader, *, channels_first: bool = True) -> None:
        self._reader: Reader | None = reader
        self._source = reader.options, reader.state_at(0)
        self._tensors = TensorMaker(reader, channels_first=channels_first)
        if not isinstance(reader._passes, SharedPasses):
            reader._passes = SharedPasses(reader.steps, reader._passes)
        self._passes = reader._passes
        self._pass: Pass | None = None  # of this process, or its share of one
        self._resume: Bounds | None = None
        self._owner = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return an iterator over the next pass; in a worker process, over its share of it."""
        worker = get_worker_info()
        reader = self._here()
        if worker is None:
            return self._iterate(reader)
        if worker.id == 0:
            check_hosts(reader.options, reader.steps, reader._told, is_divided=True)
        resume, self._resume = self._resume, None
        self._pass = self._passes.join(worker, resume)
        return self._iterate_share(reader, self._pass, worker.num_workers)

    def __len__(self) -> int:
        """Return the number of batches in a pass.

        Raises:
            TypeError: A pass has no end, or the next one begins in the middle, or the last one has:
                frameworks ask at any time, once for all epochs, and this error says "unknown".
        """
        reader, last = self._here(), self._passes.last
        starts = {self._passes.next_start, self._passes.next_start if last is None else last.start}
        count = len(reader)
        if not all(map(reader.steps.is_whole, starts)):
            raise TypeError(
                "torch() of a reader that begins in the middle of a pass has no one length: "
                "use len(reader) for the next pass, or reader.steps_per_epoch"
            )
        return count

    def state_after(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after that many batches of this pass, or all, for `Reader(state=...)`.

        Raises:
            UsageError: The pass has no such number of batches, or no end.
        """
        return self._here().state_after(num_batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the reader's state; in a worker, that of its share, for the same worker count."""
        reader, worker = self._here(), get_worker_info()
        if self._pass is None:
            return reader.state_at(self._passes.next_start)
        state = reader.state_at(self._pass.position)
        return state if worker is None else {**state, _SHARE_KEY: self._share(worker)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state.

        Raises:
            UsageError: The state is of other records or another order, or it is of a worker, and
                the workers or the batch size are others now.
        """
        reader, worker = self._here(), get_worker_info()
        saved = reader._checked_state(state)
        share = state.get(_SHARE_KEY)
        if share is not None and (
            worker is None or {**self._share(worker), "stop": share["stop"]} != share
        ):
            raise UsageError(
                f"this state is of a share of the batches, {share}, which no other number of "
                "workers and no other batch size can go on with: resume with the same, or by "
                "Reader(state=state_after(...))"
            )
        if worker is None:
            reader.go_to(saved.position)
            self._pass = None
        else:
            stop = reader.steps.pass_end(saved.position) if share is None else share["stop"]
            self._resume = saved.position, stop

    def _share(self, worker: Any) -> dict[str, Any]:
        return {
            "worker": worker.id,
            "num_workers": worker.num_workers,
            "global_batch_size": self._source[0].global_batch_size,
            "stop": self._pass.stop if self._pass else None,
        }

    def _iterate(self, reader: Reader) -> Iterator[dict[str, Any]]:
        # Not in `__iter__`: torchdata makes an iterator that it does not use.
        self._pass = reader._begin_pass(is_ahead=True)
        yield from map(self._tensors, reader._iterate(self._pass))

    def _iterate_share(
        self, reader: Reader, of: Pass, num_workers: int
    ) -> Iterator[dict[str, Any]]:
        while of.stop is None or of.position < of.stop:
            batch = reader.batch_at(of.position)
            # Before the yield: what follows it runs only when the next batch is asked for.
            of.position = reader.steps.skip(of.position, num_workers)
            yield self._tensors(batch)

    def _here(self) -> Reader:
        """Return the reader of this process; in a worker, with its share of the threads.

        A forked reader is not used: its locks may be held by threads that do not exist here.
        """
        if self._reader is None or self._owner != os.getpid():
            (options, state), worker = self._source, get_worker_info()
            if worker is not None:
                threads = _share_of_threads(options, worker.num_workers)
                options = replace(options, processes=None, threads=threads)
            self._reader = reopen(options, state)  # which is refused of other records
            self._reader._passes = self._passes
            self._owner = os.getpid()
        return self._reader


class ReaderExamples(Dataset[dict[str, Any]]):
    """A reader's records by number, for a DataLoader with `shuffle=True` or any sampler.

    `examples[number]` is the record with that number in stored order: its image uint8 [3, h, w] or
    [h, w, 3], numbers as tensors [], text as str. Lists are tensors of different lengths, which
    the default `collate_fn` rejects: encode them as `Dense`, or pass your own. The random part of
    an image is drawn each time that it is read, by `torch.manual_seed`, as of torch's own
    transforms.
    """

    def __init__(self, reader: Reader, *, channels_first: bool = True) -> None:
        self._source = ExampleSource(reader.options)
        self._tensors = TensorMaker(reader, channels_first=channels_first)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return one example; raise what `ExampleSource` raises."""
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return a batch of examples: DataLoader calls this, and all threads decode the batch."""
        worker = get_worker_info()
        if worker is not None:
            self._source.use_threads(_share_of_threads(self._source.options, worker.num_workers))
        draws = torch.randint(1 << 31, (len(numbers),)).tolist()
        return [self._tensors(example) for example in self._source.examples(numbers, epoch=draws)]


def _share_of_threads(options: ReaderOptions, num_workers: int) -> int:
    if options.threads is None:
        return share_of_cores(num_workers)
    return max(1, options.threads // num_workers)


class TensorMaker:
    """A converter of arrays to tensors that share their memory.

    Arrays and NumPy scalars of numbers become tensors; arrays of objects (text, bytes, lists,
    images of different sizes) become lists; a `SparseColumn` becomes a sparse COO tensor.

    Args:
        reader: Source of the arrays.
        channels_first: Return images as [..., 3, h, w], a view of [..., h, w, 3].
    """

    def __init__(self, reader: Reader, *, channels_first: bool) -> None:
        images = reader.engine.images if channels_first else {}
        self._image_names = {name for name, image in images.items() if image is not None}

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the tensors of a batch or an example."""
        return {name: self._channels(name, _as_tensor(column)) for name, column in columns.items()}

    def _channels(self, name: str, value: Any) -> Any:
        if name not in self._image_names:
            return value
        if isinstance(value, list):
            return [image.movedim(-1, -3) for image in value]
        return value.movedim(-1, -3)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, SparseColumn):
        return torch.sparse_coo_tensor(
            torch.from_numpy(value.indices.T),
            _of_numbers(value.values),
            value.dense_shape,
            is_coalesced=True,
        )
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_as_tensor(item) for item in value]
    return _of_numbers(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


def _of_numbers(array: NDArray[Any]) -> torch.Tensor:
    if array.dtype.name == "bfloat16":  # `from_numpy` does not know NumPy's bfloat16
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class SharedPasses(Passes):
    """The passes of a reader, in memory that worker processes share.

    Worker 0 begins a pass, and the others wait for it: they start at any time, and each must read
    its share of the same pass.

    Args:
        steps: Of the reader.
        passes: Those of the reader until now.
    """

    def __init__(self, steps: Steps, passes: Passes) -> None:
        self._numbers = torch.zeros(3, dtype=torch.int64).share_memory_()
        # Of each recent turn, a pass of workers: their key, and its bounds; and the turn itself
        # for each worker that has joined it.
        self._turns = torch.zeros((_RECENT, 3), dtype=torch.int64).share_memory_()
        self._joined = torch.zeros((_RECENT, _MOST_WORKERS), dtype=torch.int64).share_memory_()
        super().__init__(steps, passes.next_start)
        self.last = passes.last
        self._lock = _lock()

    def __getstate__(self) -> dict[str, Any]:
        # A lock can only be given to a process that is being started.
        lock = self._lock if get_spawning_popen() is not None else None
        return {**self.__dict__, "_lock": lock, "_last": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=state["_lock"] or _lock())
        for value in (self._numbers, self._turns, self._joined):
            value.share_memory_()

    @property
    def next_start(self) -> int:
        """The position where the next pass begins."""
        return int(self._numbers[_NEXT])

    @next_start.setter
    def next_start(self, position: int) -> None:
        self._numbers[_NEXT] = position

    @property
    def last(self) -> Pass | None:
        """The pass begun last, by workers or here."""
        return self._bounds(int(self._numbers[_TURN])) if self._numbers[_BY_WORKERS] else self._last

    @last.setter
    def last(self, last: Pass | None) -> None:
        self._numbers[_BY_WORKERS] = 0
        self._last = last

    def join(self, worker: Any, resume: Bounds | None) -> Pass:
        """Return a worker's share of a pass.

        Args:
            worker: `torch.utils.data.get_worker_info()`.
            resume: Bounds of the share to resume from; None for a new pass.
        """
        # The workers of a pass have seeds that follow one another, and another pass other seeds.
        key = hash((worker.seed - worker.id, worker.num_workers))
        turn = self._begin_turn(key, resume) if worker.id == 0 else self._find_turn(key, worker.id)
        self._joined[turn % _RECENT, worker.id] = turn
        of = self._bounds(turn)
        start, of.stop = resume or (self._steps.skip(of.start, worker.id), of.stop)
        of.position = start
        return of

    def _begin_turn(self, key: int, resume: Bounds | None) -> int:
        of = self.begin() if resume is None else self.resume(*resume)
        with self._lock:
            turn = int(self._numbers[_TURN]) + 1
            stop = _NO_END if of.stop is None else of.stop
            self._turns[turn % _RECENT] = torch.tensor([key, of.start, stop])
            self._numbers[_BY_WORKERS] = 1
            self._numbers[_TURN] = turn  # last: others go on as soon as they see it
        return turn

    def _find_turn(self, key: int, worker_id: int) -> int:
        """Return the turn of this key; persistent workers keep theirs, and join each turn once."""
        while True:
            newest = int(self._numbers[_TURN])
            for turn in range(newest, max(newest - _RECENT, 0), -1):
                slot = turn % _RECENT
                if self._turns[slot, 0] == key and self._joined[slot, worker_id] != turn:
                    return turn
            time.sleep(_WAIT_SECONDS)

    def _bounds(self, turn: int) -> Pass:
        _, start, stop = self._turns[turn % _RECENT].tolist()
        # Nobody knows how far the workers are.
        return Pass(start, None if stop == _NO_END else stop, max(start, stop), is_ahead=True)


def _lock() -> Any:
    # That of "fork", the default, cannot be given to other processes than forked ones.
    return multiprocessing.get_context("spawn").Lock()
