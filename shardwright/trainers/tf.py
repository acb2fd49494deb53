"""Expose a reader's batches as a `tf.data.Dataset`: `Reader.tf_data()`.

The reader's threads make the batches ahead, and tf.data requests them one at a time. The only
state of an iterator, and so of its checkpoint, is the position: one integer.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardwright.errors import UsageError
from shardwright.reader.batches import MASK, Batch
from shardwright.reader.reader import Reader
from shardwright.trainers.look_ahead import LookAhead
from shardwright.trainers.supervised import SupervisedNames
from shardwright.trainers.tf_columns import TensorColumn, tensor_columns

_WHERE_THE_READER_IS = -1  # position that stands for the reader's current one
_QUIET_SECONDS = 0.1


def make_dataset(reader: Reader, *, as_supervised: bool = False) -> tf.data.Dataset:
    """Return a reader's batches as a `tf.data.Dataset` of dicts by feature name, or (image, label).

    Images have the dtype and static shape of `image`; images of different sizes are ragged
    [rows, None, None, 3], encoded ones tf.string. Numbers are int64 and float32; text (UTF-8) and
    bytes are tf.string; lists are tf.RaggedTensor [rows, None], and tf.SparseTensor [rows, None]
    with `Sparse`; bags of words are tf.SparseTensor [rows, words]. The number of rows is static if
    all batches have the same.

    If the reader has no end, the dataset is infinite, and each iteration starts at the reader's
    position at that moment. With `epochs`, each starts at the reader's position when this function
    was called, so the length is known. Iteration does not move the reader, and several iterators
    may run at once. `tf.train.Checkpoint(iterator=iter(dataset))` takes about a kilobyte.

    A damaged record or an unreadable shard raises a `tf.errors.OpError` whose message includes
    that of the `BadRecordError` or `StorageError`.

    Args:
        reader: Source of the batches. Its `threads` and `prefetch` apply whatever tf.data's
            options are.
        as_supervised: Yield (image, label), or with `remainder="pad"` (image, label, sample
            weight); weights are float32, 0 for padding rows.

    Raises:
        UsageError: `as_supervised` with a reader that yields no image or no label.
    """
    names = SupervisedNames.of(reader) if as_supervised else None
    numbers, start = _numbers_and_start(reader)
    calls = _Calls(reader, tensor_columns(reader))

    def make_batch(position: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, Any]:
        following, batch = calls.in_graph(position)
        return following, batch if names is None else _pick(names, batch)

    dataset = numbers.scan(tf.constant(start, tf.int64), make_batch).with_options(_make_options())
    dataset._shardwright_calls = calls  # derived datasets and iterators refer to it
    return dataset


def _numbers_and_start(reader: Reader) -> tuple[tf.data.Dataset, int]:
    """Return a dataset with one element per batch, and the position of the first batch."""
    steps, start = reader.steps, reader.position
    if steps.end is None:
        return tf.data.Dataset.from_tensors(0).repeat(), _WHERE_THE_READER_IS
    start = 0 if steps.step_at(start) is None else start
    return tf.data.Dataset.range(steps.count_steps(start)), start


class _Calls:
    """The functions that tf.data calls from its own threads, concurrently for several iterators."""

    def __init__(self, reader: Reader, columns: dict[str, TensorColumn]) -> None:
        self._reader = reader
        self._columns = columns
        self._dtypes = [dtype for column in columns.values() for dtype in column.dtypes]
        self._batches = LookAhead(reader)
        self._lock = threading.Lock()
        self._running = 0
        self._last_end = 0.0
        self._is_over = False
        _all_calls.add(self)

    def in_graph(self, position: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
        """Return the next position and the batch at this one, as tensors."""
        # TensorFlow never frees a function that it was given. Through a weak reference this one
        # does not keep the reader's threads and batches alive.
        calls = weakref.ref(self)

        def call(position: int) -> list[Any]:
            found = calls()
            if found is None:
                raise UsageError("the dataset of this iterator was freed: keep a reference to it")
            return found.make(position)

        # Stateless: the result depends on the position alone, so checkpoints need none of it.
        following, *parts = tf.numpy_function(
            call, [position], [tf.int64, *self._dtypes], stateful=False
        )
        batch, taken = {}, 0
        for name, column in self._columns.items():
            count = len(column.dtypes)
            batch[name] = column.to_tensor(parts[taken : taken + count])
            taken += count
        return tf.ensure_shape(following, ()), batch

    def make(self, position: int) -> list[Any]:
        """Return the next position and the arrays of the batch at this one."""
        with self._lock:
            if self._is_over:
                raise UsageError("the process is exiting: no more batches are read")
            self._running += 1
        try:
            following, batch = self._batches.take(
                self._reader.position if position == _WHERE_THE_READER_IS else int(position)
            )
            return [np.int64(following), *self._arrays(batch)]
        finally:
            with self._lock:
                self._running -= 1
                self._last_end = time.monotonic()

    def _arrays(self, batch: Batch) -> list[npt.NDArray[Any]]:
        return [
            array
            for name, column in self._columns.items()
            for array in column.to_arrays(batch[name])
        ]

    def end(self) -> None:
        """Refuse new calls, and wait for those in progress, as of a `prefetch` after this dataset.

        A thread that enters Python after the interpreter has shut down never returns, and
        TensorFlow would wait for it forever. No signal tells that one is about to enter, so wait
        until none has been running for `_QUIET_SECONDS`.
        """
        with self._lock:
            self._is_over = True
        while self._running or time.monotonic() < self._last_end + _QUIET_SECONDS:
            time.sleep(_QUIET_SECONDS / 10)


_all_calls: weakref.WeakSet[_Calls] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for calls in list(_all_calls):
        calls.end()


def _pick(names: SupervisedNames, batch: dict[str, Any]) -> tuple[Any, ...]:
    pair = (batch[names.image], batch[names.label])
    return (*pair, tf.cast(batch[MASK], tf.float32)) if names.is_masked else pair


def _make_options() -> tf.data.Options:
    options = tf.data.Options()
    # A thread waits for batches: in TensorFlow's shared pool the training step would lack it.
    # The others are for the transformations that users add to this dataset.
    options.threading.private_threadpool_size = len(os.sched_getaffinity(0)) + 1
    options.experimental_symbolic_checkpoint = True
    # The reader prefetches already. A prefetch of TensorFlow's own would keep calling Python in the
    # background, and the process would have to wait for it on exit.
    options.experimental_optimization.inject_prefetch = False
    # The reader yields this host's part of each batch, so nothing is left to shard.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options
