"""Serve a dataset to torch's DataLoader: batches in the reader's order, or examples by number.

    reader = sw.Reader("dataset/", global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
    for batch in DataLoader(reader.torch(), batch_size=None): ...
    DataLoader(reader.torch(map_style=True), batch_size=256, sampler=DistributedSampler(...))

The reader's threads decode, so `num_workers=0` is the fast choice on a few cores. One process hands
out some thousand images a second, because its threads share the interpreter's lock: feed a faster
GPU by workers (`benchmarks/gpu_feed.py`), or by a reader with `processes=`. For distributed
training create the Reader with host_index=torch.distributed.get_rank() and
host_count=torch.distributed.get_world_size(); without them a warning says what that means.

A DataLoader calls its dataset in its workers only, which are new in each pass, or stay. So this
process learns from shared memory where they are, and they learn where to begin (`SharedCursor`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from shardwright.errors import UsageError
from shardwright.reader.examples import ExampleSource
from shardwright.reader.options import ReaderOptions, share_of_cores
from shardwright.reader.reader import Reader, reopen
from shardwright.reader.state import Cursor, ReaderState
from shardwright.reader.steps import Bounds, Remainder, Steps, check_whole
from shardwright.reader.values import SparseColumn

_LOG = logging.getLogger("shardwright.reader")
_EVERY_EPOCH = -1
_STOP_KEY = "stop"  # in the state of a worker: where its pass ends
_MOST_WORKERS = 1024
_NO_PASS, _NO_END = 0, -1  # values of `_STOP`, besides the position where a pass of workers ends
_START, _STOP, _NUM_WORKERS, _TURN = range(4)
_KEY_BITS = 32
_WAIT_SECONDS = 1e-3


class ReaderBatches(IterableDataset[dict[str, Any]]):
    """A reader's batches as tensors, for `DataLoader(batches, batch_size=None)`.

    A pass runs from the reader's position to the end of its epochs, and iterating again reads the
    next pass, with workers too, whether they persist or not. After `set_epoch(e)` a pass runs over
    epoch e alone.

    With `num_workers=0` a pass moves the reader, and `reader.state()` is the state after the last
    batch yielded. With workers, each reads its share of the steps, and the loader restores the
    exact order. They make batches ahead, so `reader.state()` raises `UsageError`: use
    `state_after(number of batches taken in this pass)`, or `state_after()` when all were. A pass
    that was left does not continue: the next one begins after its end. torchdata's
    StatefulDataLoader keeps count itself. Each worker allows `max_bad_records` of its own. Workers
    that read from a store must not be forked: set `multiprocessing_context` to "spawn" or
    "forkserver".

    Args:
        reader: Source of the batches.
        channels_first: Images as [b, 3, h, w], but channels last in memory, the fastest layout for
            convolutions; otherwise [b, h, w, 3].
    """

    def __init__(self, reader: Reader, *, channels_first: bool = True) -> None:
        self._reader: Reader | None = reader
        self._source: tuple[ReaderOptions, Mapping[str, Any]] | None = None
        self._tensors = TensorMaker(_image_names(reader), channels_first=channels_first)
        # Shared memory: persistent workers see a later `set_epoch`, too.
        self._epoch = torch.tensor(_EVERY_EPOCH).share_memory_()
        if not isinstance(reader._cursor, SharedCursor):
            reader._cursor = SharedCursor(reader.position)
        self._cursor = reader._cursor
        self._pass: Bounds | None = None
        self._next = self._turn = 0
        self._stop: int | None = None
        self._resume: Bounds | None = None
        self._owner = os.getpid()
        in_group = dist.is_available() and dist.is_initialized()
        if in_group and dist.get_world_size() > 1 and reader.options.host_count == 1:
            _LOG.warning(
                "this is process %d of %d, and its reader has all of each batch: unless the others "
                "are to get the same, open it with host_index=torch.distributed.get_rank(), "
                "host_count=torch.distributed.get_world_size()",
                dist.get_rank(),
                dist.get_world_size(),
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None, "_source": self._options_and_state()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over one pass; in a worker process, over that worker's share of it."""
        worker = get_worker_info()
        if worker is None:
            return self._iterate()
        reader, resume = self._open_in_worker(worker.num_workers), self._resume
        self._resume = None
        self._turn, (self._next, self._stop) = self._cursor.join(
            worker, reader.steps, lambda: self._bounds(reader.steps), resume
        )
        return self._iterate_share(reader, worker)

    def __len__(self) -> int:
        """Return the number of batches in a whole pass; raise `TypeError` if it has no end."""
        reader = self._here()
        return len(reader) if int(self._epoch) == _EVERY_EPOCH else reader.steps_per_epoch

    def set_epoch(self, epoch: int) -> None:
        """Limit each pass to this epoch, from its start or from the reader's position inside it.

        Raises:
            UsageError: It is not a whole number of at least 0, or batches span epochs.
        """
        check_whole("epoch", epoch, 0)
        if self._here().options.remainder == Remainder.CARRY:
            raise UsageError(
                "set_epoch: with remainder='carry' batches span epochs: read them in one pass"
            )
        self._epoch.fill_(epoch)
        self._pass = None

    def state_after(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after that many batches of this pass, or all, for `Reader(state=...)`.

        Raises:
            UsageError: The pass has no such number of batches, or no end.
        """
        reader = self._here()
        bounds = self._cursor.ahead or self._pass or self._bounds(reader.steps)
        return reader.state_at(reader.steps.position_after(bounds, num_batches))

    def state_dict(self) -> dict[str, Any]:
        """Return the reader's state; in a worker, that of its share, for the same worker count."""
        if get_worker_info() is None:
            return self._here().state()
        return {**self._here().state_at(self._next), _STOP_KEY: self._stop}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state.

        Raises:
            UsageError: The state is of other records or another order.
        """
        saved = ReaderState.from_json(state)
        worker = get_worker_info()
        reader = self._here() if worker is None else self._open_in_worker(worker.num_workers)
        saved.check_same(ReaderState.from_json(reader.state_at(saved.position)))
        if worker is None:
            reader.go_to(saved.position)
            self._pass = None
        else:
            stop = state[_STOP_KEY] if _STOP_KEY in state else reader.steps.pass_end(saved.position)
            self._resume = saved.position, stop

    def _iterate(self) -> Iterator[dict[str, Any]]:
        reader = self._here()
        start, stop = self._bounds(reader.steps)
        reader.go_to(start)
        self._pass = reader.position, stop
        for batch in reader:
            yield self._tensors.batch(batch)
            if stop is not None and reader.position >= stop:
                reader.go_to(reader.position)  # cancels the prefetching of the next epoch
                return

    def _iterate_share(self, reader: Reader, worker: Any) -> Iterator[dict[str, Any]]:
        turn, stop = self._turn, self._stop
        while stop is None or self._next < stop:
            batch = reader.batch_at(self._next)
            self._next = reader.steps.skip(self._next, worker.num_workers)
            # Before the yield: what follows it runs only when the next batch is asked for.
            self._cursor.note(turn, worker.id, self._next)
            yield self._tensors.batch(batch)

    def _bounds(self, steps: Steps) -> Bounds:
        """Return the positions [start, stop) of the next pass."""
        epoch, position = int(self._epoch), self._cursor.position
        if epoch == _EVERY_EPOCH:
            return position, steps.pass_end(position)
        start, stop = epoch * steps.epoch_size, (epoch + 1) * steps.epoch_size
        return (position if start < position < stop else start), stop

    def _here(self) -> Reader:
        if self._reader is None:
            self._reader = reopen(*self._options_and_state())
            self._reader._cursor = self._cursor
            self._owner = os.getpid()
        return self._reader

    def _options_and_state(self) -> tuple[ReaderOptions, Mapping[str, Any]]:
        if self._reader is not None:
            return self._reader.options, self._reader.state_at(self._reader.position)
        assert self._source is not None, "without a reader, its options and state are known"
        return self._source

    def _open_in_worker(self, num_workers: int) -> Reader:
        """Return this process's own reader, with its share of the threads.

        A forked reader is not used: its locks may be held by threads that do not exist here.
        """
        if self._reader is None or self._owner != os.getpid():
            options, state = self._options_and_state()
            self._reader = reopen(
                replace(options, processes=None, threads=_share_of_threads(options, num_workers)),
                state,
            )
            self._owner = os.getpid()
        return self._reader


class ReaderExamples(Dataset[dict[str, Any]]):
    """A reader's records by number, for a DataLoader with `shuffle=True` or any sampler.

    `examples[number]` is the record with that number in stored order: its image uint8 [3, h, w] or
    [h, w, 3], numbers as tensors [], text as str. Lists are tensors of different lengths, which
    the default `collate_fn` rejects: encode them as `Dense`, or pass your own. The random part of
    an image is drawn from (seed, epoch, number); see `set_epoch`.
    """

    def __init__(self, reader: Reader, *, channels_first: bool = True) -> None:
        self._source = ExampleSource(reader.options)
        self._tensors = TensorMaker(_image_names(reader), channels_first=channels_first)
        self._epoch = torch.tensor(0).share_memory_()

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
        return [
            self._tensors.example(example)
            for example in self._source.examples(numbers, epoch=int(self._epoch))
        ]

    def set_epoch(self, epoch: int) -> None:
        """Draw random images for this epoch, in persistent workers too."""
        self._epoch.fill_(epoch)


def as_torch(
    reader: Reader, *, map_style: bool = False, channels_first: bool = True
) -> ReaderBatches | ReaderExamples:
    """Return `ReaderExamples` if `map_style`, else `ReaderBatches`."""
    return (ReaderExamples if map_style else ReaderBatches)(reader, channels_first=channels_first)


def _image_names(reader: Reader) -> frozenset[str]:
    images = reader.engine.images
    return frozenset(name for name, image in images.items() if image is not None)


def _share_of_threads(options: ReaderOptions, num_workers: int) -> int:
    if options.threads is None:
        return share_of_cores(num_workers)
    return max(1, options.threads // num_workers)


class TensorMaker:
    """A converter of arrays to tensors that share their memory.

    Arrays and NumPy scalars of numbers become tensors; arrays of objects (text, bytes, lists,
    images of different sizes) become lists; a `SparseColumn` of numbers becomes a sparse COO
    tensor.

    Args:
        image_names: The arrays of decoded images.
        channels_first: Return images as [..., 3, h, w], a view of [..., h, w, 3].
    """

    def __init__(self, image_names: Collection[str], *, channels_first: bool) -> None:
        self._image_names = image_names if channels_first else ()

    def batch(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the tensors of a batch."""
        return {name: self._channels(name, _as_tensor(column)) for name, column in columns.items()}

    example = batch

    def _channels(self, name: str, value: Any) -> Any:
        if name not in self._image_names:
            return value
        if isinstance(value, list):
            return [image.movedim(-1, -3) for image in value]
        return value.movedim(-1, -3)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, SparseColumn):
        if value.values.dtype == object:
            return value
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
        self.move(position)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for value in (self._numbers, self._next, self._joined):
            value.share_memory_()

    @property
    def position(self) -> int:  # type: ignore[override]
        """The start of the next pass, or the position of this process in its own."""
        if (bounds := self.pass_of_workers) is None:
            return int(self._numbers[_START])
        stop = bounds[1]
        # The worker that is furthest behind: batches before its position were all made.
        return int(self._shares.min()) if stop is None else stop

    @property
    def ahead(self) -> Bounds | None:  # type: ignore[override]
        """The bounds of the last pass, if it was one of workers or of a framework here."""
        return self.pass_of_workers or self._ahead

    def move(self, position: int, ahead: Bounds | None = None) -> None:
        """Set the position of this process, and end the pass of workers."""
        self._numbers[_START] = position
        self._numbers[_STOP] = _NO_PASS
        self._ahead = ahead

    @property
    def pass_of_workers(self) -> Bounds | None:
        """The bounds of the last pass if it was one of workers."""
        start, stop = int(self._numbers[_START]), int(self._numbers[_STOP])
        if stop == _NO_PASS:
            return None
        return start, None if stop == _NO_END else stop

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
        # Persistent workers keep their seeds, so a turn that this worker has been in is not the new
        # one.
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
