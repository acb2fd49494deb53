"""`Reader.tf_data()`: the reader's batches as a `tf.data.Dataset`.

The batches are those of the plain reader, made ahead by its threads; tf.data asks for one after another. What an iterator carries
from step to step is one whole number, the position, so that is all a checkpoint of it holds.
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

_WHERE_THE_READER_IS = -1  # for a position: an iteration of an endless reader begins there
_QUIET_SECONDS = 0.1


def make_dataset(reader: Reader, *, as_supervised: bool = False) -> tf.data.Dataset:
    """A reader's batches as a `tf.data.Dataset`: dicts by feature name, or (image, label).

    Images are tensors of the type and static shape that `image` has, [rows, None, None, 3] ragged where they differ, tf.string where
    they stay bytes. Numbers are int64 and float32; texts (UTF-8) and bytes tf.string; lists tf.RaggedTensor [rows, None], and
    tf.SparseTensor [rows, None] as `Sparse`. The number of rows is static where all batches have the same.

    Of a reader without end each iteration begins where the reader is at that moment, and the dataset is infinite. With `epochs` it
    begins where the reader was when this was called, so that the length is known. Iterating leaves the reader where it is, and several
    iterators may run at a time. `tf.train.Checkpoint(iterator=iter(dataset))` saves one, in about a kilobyte.

    A damaged record or a shard that cannot be read raises a `tf.errors.OpError`, whose message holds that of the `BadRecordError` or
    `StorageError`.

    Args:
        reader: What makes the batches. Its `threads` decode, and its `prefetch` batches are made ahead, whatever tf.data's options say.
        as_supervised: Give (image, label), or with `remainder="pad"` (image, label, sample weight), float32, 0 for no record.

    Raises:
        UsageError: `as_supervised` of a reader that gives no image or no label.
    """
    names = SupervisedNames.of(reader) if as_supervised else None
    steps, start = reader.steps, reader.position
    if steps.end is None:
        numbers, start = tf.data.Dataset.from_tensors(0).repeat(), _WHERE_THE_READER_IS
    else:
        start = 0 if steps.step_at(start) is None else start
        numbers = tf.data.Dataset.range(steps.count_steps(start))
    calls = _Calls(reader, tensor_columns(reader))

    def make_batch(position: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, Any]:
        following, batch = calls.in_graph(position)
        return following, batch if names is None else _pick(names, batch)

    dataset = numbers.scan(tf.constant(start, tf.int64), make_batch).with_options(_make_options())
    dataset._shardwright_calls = calls  # datasets and iterators made from it keep it, and so these
    return dataset


class _Calls:
    """What tf.data calls, from its own threads; of iterators that run at a time, several at once."""

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
        """The next position, and the batch at this one."""
        # TensorFlow keeps every function it was ever given. What this one leads to, threads and batches, must not stay with it.
        calls = weakref.ref(self)

        def call(position: int) -> list[Any]:
            found = calls()
            if found is None:
                raise UsageError(
                    "the dataset that this iterator reads is gone: keep a reference to what tf_data() gave"
                )
            return found.make(position)

        # Stateless: what it gives is a pure function of the position, so nothing of it belongs in a checkpoint.
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
        """The next position, and the arrays of the batch at this one."""
        with self._lock:
            if self._is_over:
                raise UsageError("the process is ending: nothing is read any more")
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
        """Wait for the calls in progress, of a `prefetch` behind this dataset.

        A thread that comes into Python after its end is lost, and TensorFlow would wait for it for ever. Nothing tells that one is on
        its way: after some quiet none is.
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
    # One thread waits for batches: of TensorFlow's common pool it would be one that the training step lacks. The others are for what
    # users put behind this dataset.
    options.threading.private_threadpool_size = len(os.sched_getaffinity(0)) + 1
    options.experimental_symbolic_checkpoint = True
    # The reader has made the next batch already. So nothing runs behind an iterator's back, which a process would have to wait for.
    options.experimental_optimization.inject_prefetch = False
    # Each host has its own part of every batch from the reader.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options
