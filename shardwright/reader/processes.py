"""Make batches in other processes, because the interpreter's lock holds the threads of one back.

Any process can make any batch. Each opens the dataset itself, gets the step of a batch and a slot
in shared memory, fills the slot with the arrays of fixed shape, and sends the rest back. The memory
is a file without a name, so that nothing is left of it, however a process ends.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import LostProcessError, UsageError
from shardwright.reader.batches import ALIGNMENT_BYTES, Batch, PendingBatch
from shardwright.reader.engine import Engine
from shardwright.reader.options import ReaderOptions
from shardwright.reader.record_reader import BadRecord
from shardwright.reader.steps import Step

# Batches that a process makes at a time; two keep its threads busy across batch boundaries.
_AT_A_TIME = 2
# Enough for the batches that a user keeps: a slot takes memory when it is used first. Without a
# free one, a batch is pickled.
_SLOTS_PER_PROCESS = 32
_JOIN_SECONDS = 5.0  # for the exit code of a process that has closed its connection
_GUARD = "put what the script runs under `if __name__ == '__main__':`, as each process imports it"

_Made = tuple[Batch, list[BadRecord]]
_Memory = NDArray[np.uint8]


class ProcessEngine(Engine):
    """An engine whose batches are made by other processes, which start with the first batch."""

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._processes: Processes | None = None

    def begin(self, step: Step, memory: Mapping[str, _Memory] | None = None) -> PendingBatch:
        del memory
        with self._lock:
            # A forked child has the object but neither its threads nor the right to read the pipes,
            # whose answers the parent would miss: it starts processes of its own.
            if self._processes is None or self._processes.owner != os.getpid():
                self._processes = Processes(self)
            return RemoteBatch(step, self._processes)

    def finish(self, batch: PendingBatch) -> _Made:
        """Return a batch that was begun.

        Raises:
            LostProcessError: A process has ended; the next batch starts new ones.
        """
        try:
            return cast(_Made, batch.tasks[0].result())
        except LostProcessError:
            with self._lock:
                # Other batches of the same lost processes fail, too. Only the first one ends them:
                # a later one would end their successors.
                if self._processes is cast(RemoteBatch, batch).processes:
                    self._end()
            raise

    def close(self) -> None:
        """End the processes and close the shards."""
        with self._lock:
            self._end()
        super().close()

    def _end(self) -> None:
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.end()


class RemoteBatch(PendingBatch):
    """A batch in progress in another process."""

    def __init__(self, step: Step, processes: Processes) -> None:
        self.step, self.processes, self.owner = step, processes, processes.owner
        self.tasks, self.canceled = [processes.submit(step)], threading.Event()


class Processes:
    """The processes of an engine.

    They end when nobody uses them any more.

    Attributes:
        owner: The process that started them.
    """

    def __init__(self, engine: ProcessEngine) -> None:
        self._count = engine.options.processes or 1
        self._columns, num_bytes = _layout(engine)
        self._slots = Slots(self._count * _SLOTS_PER_PROCESS, num_bytes)
        self._idle: queue.SimpleQueue[tuple[BaseProcess, Connection]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(self._count * _AT_A_TIME, "shardwright-processes")
        self._lock = threading.Lock()
        self.owner = os.getpid()
        processes: list[BaseProcess] = []
        # Before the first start, with a list that grows: if the third process fails to start, the
        # first two are killed as well. `finalize` must not hold `self`.
        self._kill = weakref.finalize(self, _kill, processes, self.owner)
        # `threads` is a process's share of the cores.
        options = replace(engine.options, processes=None, threads=engine.threads)
        try:
            for _ in range(self._count):
                processes.append(self._start(options, engine.fingerprint))
        finally:
            # Each process has a duplicate, and `mmap` has its own: the memory goes with the last of
            # them.
            os.close(self._slots.file)

    def end(self) -> None:
        """End them at once; batches that they make fail."""
        self._kill()
        self._pool.shutdown(wait=False)

    def submit(self, step: Step) -> Future[_Made]:
        """Have the next free process make a batch."""
        return self._pool.submit(self._make, step)

    def _start(self, options: ReaderOptions, fingerprint: str) -> BaseProcess:
        context = multiprocessing.get_context("spawn")  # threads, as of JAX, forbid to fork
        # A connection for each batch in progress: with a single one, the answers of two threads
        # would have to be matched to their questions.
        ours, theirs = zip(*(context.Pipe() for _ in range(_AT_A_TIME)), strict=True)
        arguments = (theirs, DupFd(self._slots.file), options, fingerprint)
        process = context.Process(target=_serve, args=arguments, daemon=True)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"processes={self._count}: the arguments of the reader cannot be sent to another "
                f"process ({error}): define their functions and classes in a module, without "
                "lambda, or leave processes= out"
            ) from error
        except (RuntimeError, AssertionError) as error:  # multiprocessing checks where it is
            raise UsageError(
                f"processes={self._count}: this process cannot start others: {_GUARD}; in a "
                "worker of DataLoader or multiprocessing.Pool, leave processes= out"
            ) from error
        for connection in ours:
            self._idle.put((process, connection))
        for connection in theirs:
            # With our copy open, `recv` would not see the end of a process that was killed.
            connection.close()
        return process

    def _make(self, step: Step) -> _Made:
        # Never waits long: the pool has as many threads as there are connections.
        process, connection = self._idle.get()
        number, slot = self._slots.take()
        try:
            connection.send((step, number))
            made = connection.recv()
        except (EOFError, OSError) as error:
            # The pipe ends before the process is reaped, so its exit code may not be there yet.
            raise LostProcessError(self._told_end(process)) from error
        finally:
            # Also after an error: a thread that waits for a connection would wait forever
            # otherwise. What it gets then fails at once.
            self._idle.put((process, connection))
        if isinstance(made, Exception):
            raise made
        batch, bad = made
        for name, (start, dtype) in self._columns.items():
            if isinstance(batch[name], tuple):
                # This array and all views of it refer to `slot`, so the slot is not free while the
                # caller keeps any.
                batch[name] = np.ndarray(batch[name], dtype, slot, start)
        return batch, bad

    def _told_end(self, process: BaseProcess) -> str:
        with self._lock:  # one thread alone may wait for a process
            process.join(_JOIN_SECONDS)
            code = process.exitcode
        if code is not None and code < 0:
            what = f"was killed by {signal.Signals(-code).name}"
            fix = "if memory ran out, use fewer processes or a smaller prefetch="
        else:
            what = f"ended with exit code {code}"
            fix = f"its error was printed above; if it tells of `__main__`, {_GUARD}"
        return f"process {process.pid}, one of processes={self._count}, {what}: {fix}"


class Slots:
    """Equal parts of shared memory, each for a batch. A slot is free when no array uses it."""

    def __init__(self, count: int, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        # Not in /dev/shm, which containers limit to 64 MB, and where a killed process leaves files.
        self.file = os.memfd_create("shardwright-reader")
        os.ftruncate(self.file, count * num_bytes)
        self._memory = mmap.mmap(self.file, 0)
        self._free = list(range(count))

    def take(self) -> tuple[int | None, _Memory | None]:
        """Return the number and the memory of a free slot; None if all are used."""
        try:
            number = self._free.pop()  # the one used last, whose memory exists
        except IndexError:
            return None, None
        slot = _slot(self._memory, number, self._num_bytes)
        weakref.finalize(slot, self._free.append, number).atexit = False  # views keep `slot` alive
        return number, slot


def _slot(memory: mmap.mmap, number: int, num_bytes: int) -> _Memory:
    return np.frombuffer(memory, np.uint8, num_bytes, number * num_bytes)


def _layout(engine: Engine) -> tuple[dict[str, tuple[int, np.dtype[Any]]], int]:
    """Return (start, dtype) of each column of fixed shape in a slot, and the bytes of a slot."""
    options, columns, start = engine.options, {}, 0
    for name, (shape, dtype) in engine.spec(
        options.global_batch_size // options.host_count
    ).items():
        if not dtype.hasobject and None not in shape:
            columns[name] = start, dtype
            num_bytes = math.prod(cast(tuple[int, ...], shape)) * dtype.itemsize
            start += -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return columns, max(start, ALIGNMENT_BYTES)


def _kill(processes: list[BaseProcess], owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked from it
        for process in processes:
            # Not `terminate`, which a module that the process has imported may handle: there is
            # nothing to clean up.
            process.kill()
        for process in processes:
            process.join()


def _serve(
    connections: Sequence[Connection], file: Any, options: ReaderOptions, fingerprint: str
) -> None:
    """Make the batches that connections ask for, in a process of its own.

    Args:
        connections: Each asks for a batch at a time: (step, number of a slot or None).
        file: The `DupFd` of the slots.
        options: Those of an engine here.
        fingerprint: That of the reader's engine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    memory = mmap.mmap(file.detach(), 0)
    with suppress(EOFError, ConnectionError):  # the parent has ended
        _answer(connections, memory, options, fingerprint)


def _answer(
    connections: Sequence[Connection], memory: mmap.mmap, options: ReaderOptions, fingerprint: str
) -> None:
    maker: _Maker | None = None
    waiting: deque[tuple[Connection, PendingBatch, _Memory | None]] = deque()
    while True:
        for connection in cast(list[Connection], wait(connections, 0 if waiting else None)):
            step, number = connection.recv()
            try:
                maker = maker or _Maker(memory, options, fingerprint)
                waiting.append((connection, *maker.begin(step, number)))
            except Exception as error:
                connection.send(_noted(error))
        if maker is not None and waiting:
            # In the order of positions, which the plan of downloads relies on.
            connection, batch, slot = waiting.popleft()
            try:
                # New steps are begun before one is finished, so that the threads have work beyond
                # this batch.
                made: Any = maker.finish(batch, slot)
            except Exception as error:
                made = _noted(error)
            connection.send(made)


def _noted(error: Exception) -> Exception:
    """Add the trace, which another process does not get, nor any error that cannot be pickled."""
    trace = f"In process {os.getpid()} of a reader:\n{traceback.format_exc()}"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of a class of the user, which may raise anything
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(trace)
    return error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a process that another one started"
    # The end of the pipes is not enough: a fork of the parent, such as a DataLoader's worker, may
    # have copies of them open, and a process that decodes does not look at pipes.
    wait([parent.sentinel])
    # At once: `sys.exit` in a thread ends the thread, and an orderly exit waits for the decoding
    # threads.
    os._exit(1)


class _Maker:
    """A maker of batches in slots."""

    def __init__(self, memory: mmap.mmap, options: ReaderOptions, fingerprint: str) -> None:
        # A step would be other records of another dataset.
        self._engine = Engine.of_same(options, fingerprint)
        self._memory = memory
        self._columns, self._num_bytes = _layout(self._engine)

    def begin(self, step: Step, number: int | None) -> tuple[PendingBatch, _Memory | None]:
        if number is None:
            return self._engine.begin(step), None
        slot = _slot(self._memory, number, self._num_bytes)
        # Images are decoded into shared memory directly; the small columns are copied there at the
        # end.
        images = self._engine.images.keys() & self._columns
        return self._engine.begin(
            step, {name: slot[self._columns[name][0] :] for name in images}
        ), slot

    def finish(self, batch: PendingBatch, slot: _Memory | None) -> _Made:
        """Return a batch whose arrays in the slot are replaced by their shapes."""
        made, bad = self._engine.finish(batch)
        for name, (start, dtype) in self._columns.items():
            column = made[name]
            # A batch with bad records left out is shorter, which the shape that is sent says; it
            # still fits.
            if slot is not None and isinstance(column, np.ndarray) and column.dtype == dtype:
                place = np.ndarray(column.shape, dtype, slot, start)
                if place.ctypes.data != column.ctypes.data:  # images are decoded into their place
                    place[...] = column
                made[name] = column.shape
        return made, bad
