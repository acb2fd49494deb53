"""Read serialized examples: in stored order by TensorFlow's reader, or by number in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from shardwright.reader.corpus import Corpus, ShardRef
from shardwright.reader.order import I64, ShuffledOrder, StoredOrder
from shardwright.tfdata.blocks import BlockReader, HeldShards, block_records
from shardwright.tfdata.epochs import epoch_numbers
from shardwright.tfdata.errors import failure, prepare, unless_failed
from shardwright.tfdata.features import Tensor

_READ_BUFFER_BYTES = 1 << 20  # fits into a core's cache; 8 MB do not, and are slower
# Checked at once before TensorFlow reads them: few enough to begin soon, and each opens the file.
_SEGMENT_BYTES = 32 << 20
_PLACES_AT_ONCE = 4096  # to locate per call: 0.5 us a record; ten times that in blocks of 64
# Calls into Python: two wait for each other, and give fewer records. One keeps a disk busy, because
# it announces its block before it reads.
_BLOCKS_AT_ONCE = 1
_SERIALIZED = tf.TensorSpec((), tf.string)


def read_in_any_order(corpus: Corpus, reader: BlockReader) -> tf.data.Dataset:
    """Return string []: records of local shards, several interleaved, in any order."""
    prepare()
    read = _segment_reader(corpus, reader)
    segments = _segments(corpus, corpus.num_records)
    return segments.interleave(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)


def read_in_stored_order(corpus: Corpus, reader: BlockReader) -> tf.data.Dataset:
    """Return string []: records of local shards, one shard after another, unread parts skipped."""
    prepare()
    segments = _segments(corpus, _segment_records(corpus))
    return segments.flat_map(_segment_reader(corpus, reader))


def read_cached_in_stored_order(
    corpus: Corpus, reader: BlockReader, *, repeat: bool
) -> tf.data.Dataset:
    """Return string []: records of shards in a store, each shard pinned in the cache while read."""
    prepare()
    held, at_once = HeldShards(reader), _segment_records(corpus)
    numbers = list(range(len(corpus.shards)))

    # One generator for all shards: one that failed yields nothing more, so no later shard is read
    # as if the one before it had been.
    def hold() -> Iterator[tuple[int, int, int]]:
        for number, shard in enumerate(corpus.shards):
            following = numbers[number + 1 :] + (numbers[:number] if repeat else [])
            with held.hold([number], following), reader.files.path(number):
                if shard.source.cache is not None:  # TensorFlow's reader reads no record again
                    shard.source.cache.heal(shard.name)
                # tf.data resumes the generator once these records are read: until then the
                # shard is pinned.
                for row, num_rows in _runs(shard, at_once):
                    yield number, row, num_rows

    signature = (tf.TensorSpec((), tf.int64),) * 3
    segments = tf.data.Dataset.from_generator(hold, output_signature=signature)
    return segments.flat_map(_segment_reader(corpus, reader))


@dataclass(frozen=True)
class Indexed:
    """A reader of records by number.

    Attributes:
        corpus: The shards.
        order: The order of the records in an epoch.
        reader: The reader of the blocks.
        with_slots: Whether each record comes with its slot, its number over all shards.
        deterministic: Whether blocks come in order, or as soon as they are ready.
    """

    corpus: Corpus
    order: StoredOrder | ShuffledOrder
    reader: BlockReader
    with_slots: bool
    deterministic: bool

    def records(self, *, repeat: bool) -> tf.data.Dataset:
        """Return string [], or (string [], slot int64 []); `repeat` never ends."""
        prepare()  # not in `_fetch`, which is traced if the shards are remote
        epochs, size = self._epochs(repeat=repeat), block_records(self.corpus.mean_record_bytes)
        if not self.corpus.is_remote:
            return self._fetch(
                epochs.flat_map(lambda epoch: self._blocks(epoch, 0, self.order.size, size))
            )
        hold = self._window_holder(repeat=repeat)
        bounds = tf.TensorSpec((), tf.int64)

        def read_epoch(epoch: Tensor) -> tf.data.Dataset:
            windows = tf.data.Dataset.from_generator(
                hold, args=(epoch[0],), output_signature=(bounds, bounds)
            )
            return windows.flat_map(
                lambda start, stop: self._fetch(self._blocks(epoch, start, stop, size))
            )

        return epochs.flat_map(read_epoch)

    def batches(self, size: int, *, repeat: bool, drop_remainder: bool) -> tf.data.Dataset:
        """Return string [size]: records of local shards, read a batch at a time; none is skipped.

        Batches of `records` would copy each record twice more.
        """
        prepare()
        # Endless batches span the ends of epochs, but not of a group of epochs that they fill.
        total = math.lcm(self.order.size, size) if repeat else self.order.size
        stop = total - total % size if drop_remainder else total
        blocks = self._epochs(repeat=repeat, at_once=total // self.order.size).flat_map(
            lambda epochs: self._blocks(epochs, 0, stop, size)
        )
        shape = [size if drop_remainder else None]

        def give(records: Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensors(tf.ensure_shape(records, shape))

        return self._fetch(blocks, give)

    def _epochs(self, *, repeat: bool, at_once: int = 1) -> tf.data.Dataset:
        """Return int64 [at_once]: the numbers of the epochs."""
        epochs = (
            epoch_numbers()
            if isinstance(self.order, ShuffledOrder)
            else tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        )
        return (epochs.repeat() if repeat else epochs).batch(at_once, drop_remainder=True)

    def _window_holder(self, *, repeat: bool) -> Callable[[np.int64], Iterator[tuple[int, int]]]:
        held, size = HeldShards(self.reader), self.order.window

        def hold(epoch: np.int64) -> Iterator[tuple[int, int]]:
            table = self.order.table(int(epoch))
            following = self.order.table(int(epoch) + 1).shards.tolist() if repeat else []
            for number, (start, stop) in enumerate(pairwise(table.window_starts.tolist())):
                shards = table.shards[number * size :].tolist()
                with held.hold(shards[:size], shards[size:] + following):
                    yield start, stop  # resumed once the window is read, as above

        return hold

    def _locate(self, epochs: I64, start: np.int64, stop: np.int64) -> tuple[I64, I64]:
        numbers, places = np.divmod(np.arange(start, stop), self.order.size)
        return self.order.locate(epochs[numbers], places)

    def _blocks(
        self, epochs: Tensor, start: Tensor | int, stop: Tensor | int, size: int
    ) -> tf.data.Dataset:
        """Return (shards, rows), [size] each, of the places [start, stop) of epochs in a row."""
        at_once = max(_PLACES_AT_ONCE // size, 1) * size

        def locate(first: Tensor) -> tuple[Tensor, Tensor]:
            last = tf.minimum(first + at_once, stop)
            shards, rows = tf.numpy_function(
                self._locate, [epochs, first, last], (tf.int64, tf.int64), stateful=False
            )
            return tf.ensure_shape(shards, [None]), tf.ensure_shape(rows, [None])

        def split(shards: Tensor, rows: Tensor) -> tf.data.Dataset:
            begins = tf.data.Dataset.range(0, tf.size(rows, tf.int64), size)
            return begins.map(
                lambda begin: (shards[begin : begin + size], rows[begin : begin + size])
            )

        places = tf.data.Dataset.range(start, stop, at_once).map(locate).prefetch(1)
        return places.flat_map(split)

    def _fetch(
        self,
        blocks: tf.data.Dataset,
        give: Callable[..., tf.data.Dataset] = tf.data.Dataset.from_tensor_slices,
    ) -> tf.data.Dataset:
        """Read blocks of places, and `give` the records of each."""

        def read(shards: Any, rows: Any) -> tuple[Any, Any, bytes]:
            records, slots, message = self.reader.read(shards, rows)
            return records, slots, failure(message)

        def fetch(shards: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # Stateless: the result depends on the arguments alone, so checkpoints need none of it.
            records, slots, failed = tf.numpy_function(
                read, [shards, rows], (tf.string, tf.int64, tf.string), stateful=False
            )
            return (
                tf.ensure_shape(records, [None]),
                tf.ensure_shape(slots, [None]),
                tf.ensure_shape(failed, ()),
            )

        def split(records: Tensor, slots: Tensor, failed: Tensor) -> tf.data.Dataset:
            return unless_failed(failed, give((records, slots) if self.with_slots else records))

        fetched = blocks.map(
            fetch, num_parallel_calls=_BLOCKS_AT_ONCE, deterministic=self.deterministic
        )
        return fetched.flat_map(split)


def _runs(shard: ShardRef, at_once: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, number) of at most `at_once` records that follow one another in a shard."""
    for row, number in shard.runs():
        for start in range(0, number, at_once):
            yield row + start, min(at_once, number - start)


def _segments(corpus: Corpus, at_once: int) -> tf.data.Dataset:
    """Return int64 []: shard, first row and number of the records to read, in stored order."""
    found = [
        (number, *run)
        for number, shard in enumerate(corpus.shards)
        for run in _runs(shard, at_once)
    ]
    return tf.data.Dataset.from_tensor_slices(tuple(np.array(found, np.int64).T))


def _segment_records(corpus: Corpus) -> int:
    return int(max(_SEGMENT_BYTES // max(corpus.mean_record_bytes, 1), 1))


def _segment_reader(
    corpus: Corpus, reader: BlockReader
) -> Callable[[Tensor, Tensor, Tensor], tf.data.Dataset]:
    buffer_bytes = _buffer_bytes(corpus)

    def check(*segment: Any) -> tuple[bytes, np.int64, bytes]:
        path, first_byte, message = reader.check(*map(int, segment))
        return path, np.int64(first_byte), failure(message)

    def read(*segment: Tensor) -> tf.data.Dataset:
        checked = tf.numpy_function(
            check, segment, (tf.string, tf.int64, tf.string), stateful=False
        )
        path, first_byte, failed = (tf.ensure_shape(each, ()) for each in checked)
        # TensorFlow 2.21 fails if this is the root dataset, and crashes if `filenames` is a scalar.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=path[tf.newaxis],
            compression_type="",
            buffer_size=buffer_bytes,
            byte_offsets=first_byte[tf.newaxis],
        )
        records = tf.data.experimental.from_variant(variant, _SERIALIZED).take(segment[-1])
        return unless_failed(failed, records)

    return read


def _buffer_bytes(corpus: Corpus) -> int:
    return min(
        _READ_BUFFER_BYTES, max((shard.info.num_bytes for shard in corpus.shards), default=0)
    )
