"""Expose a reader's batches as a `tf.data.Dataset`: `sw.load` and `Reader.tf_data()`.

The reader's threads make the batches ahead, and tf.data requests them one at a time. An iterator,
and so its checkpoint, holds the start of its pass, its position, and the number of the pass.

Columns become tensors through `tf.numpy_function`, which takes dense arrays only.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardwright.errors import UsageError
from shardwright.format.manifest import Manifest
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.images.masks import mask_dtype
from shardwright.images.specs import CropImage, DecodedImage, MultiCrop
from shardwright.python_errors import PythonErrors
from shardwright.reader.batches import MASK, Batch
from shardwright.reader.encodings import Bags
from shardwright.reader.options import features_of
from shardwright.reader.reader import Reader, reopen
from shardwright.reader.state import Pass
from shardwright.reader.steps import NO_END
from shardwright.reader.subsets import parse_split
from shardwright.reader.values import as_bytes, item_shape, value_dtype
from shardwright.trainers.supervised import SupervisedNames
from shardwright.trainers.tf_epochs import epoch_of, epoch_tokens

_ROWS = 64  # of the batches that single examples come from
_QUIET_SECONDS = 0.1
_KEPT_BYTES = 32 << 20  # of freed memory, which the next batch uses: more than most batches have
Array = npt.NDArray[Any]


@PythonErrors()
def load(
    dataset: str | os.PathLike[str],
    split: str = "train",
    *,
    batch_size: int | None = None,
    image: CropImage | MultiCrop | None = None,
    image_size: tuple[int, int] | None = None,
    as_supervised: bool = False,
    features: Sequence[str] | None = None,
    decode: bool = True,
    repeat: bool = False,
    drop_remainder: bool = False,
    **options: Any,
) -> tf.data.Dataset:
    """Return a split, or a part of one, as a `tf.data.Dataset`, by the argument names of TFDS.

        train = sw.load("dataset/", "train", batch_size=64, image=sw.TrainImage(224), shuffle=True)
        test = sw.load("dataset/", "test", batch_size=64, image_size=(224, 224))

    It is a `sw.Reader`, in the same order, and `make_dataset` (`Reader.tf_data()`) says what types
    its batches have, when a pass begins, and how an iterator is saved. Without `image`, images are
    whole: uint8 [height, width, 3].

    Args:
        dataset: As for `Reader`.
        batch_size: Rows of a batch; None for single examples.
        image: As for `Reader`: random crops for training, such as `TrainImage(224)`. It reads and
            decodes only what they show, so it is faster than crops in a `map` of whole images or
            of bytes.
        image_size: (height, width) in pixels to resize whole images to; the aspect ratio changes.
            Without `image`, batches of images of different sizes need it.
        as_supervised: Yield (image, label), and read nothing else but boxes and masks that move
            with the image.
        decode: Decode images; without it `image` is tf.string, the stored bytes.
        repeat: Repeat forever. Batches then span the ends of epochs, so that all are full.
        drop_remainder: Drop a last batch that is not full; makes the batch dimension static.
        options: More arguments of `Reader`, such as `shuffle`, `seed`, `where` and `cache`.

    Raises:
        NotADatasetError: There is no finished dataset at the address.
        StorageError: The dataset cannot be read.
        UsageError: An argument is invalid, or images of different sizes would be batched.
    """
    if not isinstance(dataset, (str, os.PathLike)):
        raise UsageError("load reads one dataset: mix several by sw.Reader({...}).tf_data()")
    if [image is None, image_size is None, decode].count(False) > 1:
        raise UsageError("image=, image_size= and decode=False are three ways: give one of them")
    # Only the second reader needs what these read of the index.
    filters = {name: options.pop(name, None) for name in ("where", "sampling")}
    opened = Reader(
        dataset,
        split,
        batch_size=_ROWS if batch_size is None else batch_size,
        features=features,
        epochs=None if repeat else 1,
        remainder="carry" if repeat else "drop" if drop_remainder and batch_size else "keep",
        **options,
    )
    source = opened.engine.corpus.shards[0].source
    moves = isinstance(image, CropImage) and (image.boxes or image.masks)
    if as_supervised and features is None and not moves:
        features = _supervised_features(source.manifest.schema)
    if image is None and decode:
        is_batched = batch_size is not None
        image = _decoded_image(source.manifest, split, features, image_size, is_batched=is_batched)
    known = replace(opened.options, image=image, features=features_of(features), **filters)
    reader = reopen(known, source=source)  # which does not read the manifest again
    made = make_dataset(reader, as_supervised=as_supervised)
    return made if batch_size is not None else _single_examples(made, reader)


def _supervised_features(schema: ExampleSchema) -> list[str] | None:
    """Return the names of the image and the first label; None for all, if one is missing."""
    labels = [each.name for each in schema.features if each.kind == FeatureKind.CLASS_LABEL]
    return [schema.image.name, labels[0]] if schema.image and labels else None


def _decoded_image(
    manifest: Manifest,
    split: str,
    names: Sequence[str] | None,
    size: tuple[int, int] | None,
    *,
    is_batched: bool,
) -> DecodedImage | None:
    """Return how `load` decodes the image and its masks; None if the image is not read."""
    image, features = manifest.schema.image, manifest.schema.features
    wanted = [each for each in features if names is None or each.name in names]
    if image is None or image not in wanted:
        return None
    size = size or _common_size(manifest, split, image)
    if size is None and is_batched:
        raise UsageError(
            "batch_size needs images of one size, but those of this split differ: set "
            "image_size=(height, width), build with `--encode jpeg --resize WIDTHxHEIGHT`, or "
            "leave batch_size out"
        )
    return DecodedImage(size, masks=[each.name for each in wanted if each.kind == FeatureKind.MASK])


def _common_size(manifest: Manifest, split: str, image: Feature) -> tuple[int, int] | None:
    """Return (height, width) of all images, by the schema or the statistics; None if unknown."""
    if len(image.shape) == 3:
        height, width, _ = image.shape
        return (height, width) if height and width else None
    counts = {name: found.num_records for name, found in manifest.splits.items()}
    names = {span.split for span in parse_split(split, counts, manifest.name) if span.num_records}
    sizes = set()
    for name in names:
        stats = [manifest.splits[name].stats.get(axis, {}) for axis in ("height", "width")]
        if any(found.get("count") != counts[name] for found in stats):
            return None
        sizes |= {tuple(found[end] for found in stats) for end in ("min", "max")}
    return sizes.pop() if len(sizes) == 1 else None


@tf.autograph.experimental.do_not_convert
def _single_examples(batches: tf.data.Dataset, reader: Reader) -> tf.data.Dataset:
    """Return the rows of batches; what is ragged in a batch of images is dense in each."""
    rows = batches.unbatch().map(
        lambda *row: tf.nest.map_structure(_dense, row[0] if len(row) == 1 else row)
    )
    if reader.options.max_bad_records:
        return rows
    is_endless = reader.options.epochs is None
    length = tf.data.INFINITE_CARDINALITY if is_endless else reader.num_records
    return rows.apply(tf.data.experimental.assert_cardinality(length))


def _dense(column: Any) -> Any:
    return column.to_tensor() if isinstance(column, tf.RaggedTensor) else column


# No function here has Python control flow by a tensor, and to look for it takes seconds.
@tf.autograph.experimental.do_not_convert
def make_dataset(reader: Reader, *, as_supervised: bool = False) -> tf.data.Dataset:
    """Return a reader's batches as a `tf.data.Dataset` of dicts by feature name, or (image, label).

    Images have the dtype and static shape of `image`; images of different sizes are ragged
    [rows, None, None, 3], encoded ones tf.string. Numbers are int64 and float32; text (UTF-8) and
    bytes are tf.string; lists are tf.RaggedTensor [rows, None]; bags of words are
    tf.SparseTensor [rows, words]. The number of rows is static if
    all batches have the same.

    `iter()` begins the reader's next pass when its first batch is asked for. Batches are made ahead
    of a loop behind a `prefetch`, so `reader.state()` raises `UsageError`: use
    `reader.state_after(number of batches taken in this pass)`, or save the iterator:
    `tf.train.Checkpoint(iterator=iter(dataset))` takes three kilobytes. The length is known unless
    the reader is inside a pass.

    A damaged record or an unreadable shard raises a `tf.errors.OpError` whose message includes
    that of the `BadRecordError` or `StorageError`.

    Args:
        reader: Source of the batches. Its `threads` and `prefetch` apply whatever tf.data's
            options are.
        as_supervised: Yield (image, label), or with `remainder="pad"` (image, label, sample
            weight); weights are float32, 0 for padding rows. If boxes move with the image, `label`
            is a dict of the boxes and the lists of their objects, by feature name; if a mask does,
            it is the mask.

    Raises:
        UsageError: `as_supervised` with a reader that yields no image or no label.
    """
    names = SupervisedNames.of(reader) if as_supervised else None
    columns = tensor_columns(reader)
    if any(tf.string in column.dtypes for column in columns.values()):
        _keep_freed_memory()
    calls = _Calls(reader, columns)

    def make_batch(state: Any, _: tf.Tensor) -> tuple[Any, Any]:
        start, position = state
        following, batch = calls.in_graph(start, position)
        if names is None:
            return (start, following), batch
        weights = [tf.cast(batch[MASK], tf.float32)] if names.is_masked else []
        return (start, following), (*names.pair(batch), *weights)

    def read_pass(start: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(count).scan((start, start), make_batch)

    # The pass is not begun in `read_pass`, which a restored iterator calls again.
    dataset = epoch_tokens().map(calls.begin_in_graph).flat_map(read_pass)
    if calls.length is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(calls.length))
    dataset = dataset.with_options(_make_options(is_host=reader.options.host_count > 1))
    dataset._shardwright_calls = calls  # derived datasets and iterators refer to it
    return dataset


def _keep_freed_memory() -> None:
    """Have glibc keep `_KEPT_BYTES` of freed memory; nothing happens with another allocator.

    By default it returns more than 128 KB to the system, and TensorFlow frees the bytes of a batch
    one by one: to get their pages anew took a third of the CPU time of reading 80 KB records.
    """
    # glibc raises the threshold to twice the largest block that was freed ("M_MMAP_THRESHOLD" in
    # mallopt(3)). To set it by `mallopt` would end this for the program's other memory.
    np.empty(_KEPT_BYTES // 2, np.uint8)


class _Calls:
    """The functions that tf.data calls from its own threads, concurrently for several iterators."""

    def __init__(self, reader: Reader, columns: Columns) -> None:
        self._reader = reader
        self._columns = columns
        self._dtypes = [dtype for column in columns.values() for dtype in column.dtypes]
        self._batches = reader._look_ahead()
        self._passes: dict[int, Pass] = {}  # those begun here, by their starts
        self._first = reader._passes.next_start
        whole = reader.steps.count_steps(0)
        endless = tf.data.INFINITE_CARDINALITY
        self.length = (
            (endless if whole is None else whole) if reader.steps.is_whole(self._first) else None
        )
        self._lock = threading.Lock()
        self._running = 0
        self._last_end = 0.0
        self._is_over = False
        _all_calls.add(self)

    def begin_in_graph(self, token: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the start of the next pass and the number of its batches, as tensors."""
        start, count = self._call("begin", [token], [tf.int64, tf.int64])
        return tf.ensure_shape(start, ()), tf.ensure_shape(count, ())

    def in_graph(self, start: tf.Tensor, position: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
        """Return the next position and the batch at this one, of the pass begun at `start`."""
        following, *parts = self._call("make", [start, position], [tf.int64, *self._dtypes])
        batch, taken = {}, 0
        for name, column in self._columns.items():
            count = len(column.dtypes)
            batch[name] = column.to_tensor(parts[taken : taken + count])
            taken += count
        return tf.ensure_shape(following, ()), batch

    def _call(self, name: str, numbers: list[tf.Tensor], dtypes: list[tf.DType]) -> list[tf.Tensor]:
        # TensorFlow never frees a function that it was given. Through a weak reference this one
        # does not keep the reader's threads and batches alive.
        calls = weakref.ref(self)

        def call(*numbers: int) -> list[Any]:
            found = calls()
            if found is None:
                raise UsageError("the dataset of this iterator was freed: keep a reference to it")
            made: list[Any] = getattr(found, name)(*map(int, numbers))
            return made

        # Stateless: checkpoints hold the results, or the number that a batch depends on.
        tensors: list[tf.Tensor] = tf.numpy_function(call, numbers, dtypes, stateful=False)
        return tensors

    def begin(self, token: int) -> list[Any]:
        """Return the start of the next pass and the number of its batches.

        Args:
            token: Of `epoch_tokens`, whose place the checkpoint of an iterator holds.
        """
        number = epoch_of(token)
        steps, passes = self._reader.steps, self._reader._passes
        if number and not self._passes:  # the others were in the process that saved a checkpoint
            size = steps.following_pass(0)
            passes.go_to(steps.following_pass(self._first) + (number - 1) * size)
        current = self._reader._begin_pass(is_ahead=True, is_divided=True)
        self._passes[current.start] = current
        count = steps.count_steps(current.start)
        if self.length not in (None, tf.data.INFINITE_CARDINALITY, count):
            raise UsageError(
                "the reader was moved after tf_data(), and this pass has another number of "
                "batches: call tf_data() again"
            )
        return [np.int64(current.start), np.int64(NO_END if count is None else count)]

    def make(self, start: int, position: int) -> list[Any]:
        """Return the next position and the arrays of the batch at this one.

        Args:
            start: Of the pass, to know an iterator that was restored in the middle of one.
            position: That of the batch.
        """
        with self._lock:
            if self._is_over:
                raise UsageError("the process is exiting: no more batches are read")
            self._running += 1
        try:
            current = self._passes.get(start)
            if current is None or current.position != position:
                stop = self._reader.steps.pass_end(start)
                current = self._passes[start] = self._reader._passes.resume(position, stop)
            following, batch = self._batches.take(position)
            current.position = following
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
            # Under the lock of `make`, so that no call begins after it has been seen.
            self._is_over = True
        while self._running or time.monotonic() < self._last_end + _QUIET_SECONDS:
            time.sleep(_QUIET_SECONDS / 10)


_all_calls: weakref.WeakSet[_Calls] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for calls in list(_all_calls):
        calls.end()


def _make_options(*, is_host: bool) -> tf.data.Options:
    options = tf.data.Options()
    # A thread waits for batches: in TensorFlow's shared pool the training step would lack it.
    # The others are for the transformations that users add to this dataset.
    options.threading.private_threadpool_size = len(os.sched_getaffinity(0)) + 1
    options.experimental_symbolic_checkpoint = True
    # The reader prefetches already. A prefetch of TensorFlow's own would keep calling Python in the
    # background, and the process would have to wait for it on exit.
    options.experimental_optimization.inject_prefetch = False
    # The reader of a host yields its part of each batch, so nothing is left to shard. A reader of
    # all rows in each worker of a `tf.distribute` strategy would train with every record N times.
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.OFF if is_host else policy.DATA
    return options


@dataclass(frozen=True)
class TensorColumn:
    """A column as dense arrays, which `tf.numpy_function` takes, and as a tensor.

    Attributes:
        shape: (rows, *item) of a tensor; of lists, their rows and the shape of one value.
        dtype: Of the values; objects, which are text and bytes, become tf.string.
        num_ragged: Axes after the rows that differ: 1 for lists, as tf.RaggedTensor [rows, None,
            *item]; 2 for images of different sizes, [rows, None, None, channels].
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    num_ragged: int = 0

    @property
    def dtypes(self) -> list[tf.DType]:
        return [_tensor_dtype(self.dtype), *[tf.int64] * self.num_ragged]

    def to_arrays(self, column: Any) -> list[Array]:
        if not self.num_ragged:
            return [_encode_texts(column)]
        item = tuple(size or 0 for size in self.shape[1:])
        lengths = [np.array([len(row) for row in column], np.int64)]
        if self.num_ragged == 2:
            widths = np.array([row.shape[1] for row in column], np.int64)
            lengths.append(np.repeat(widths, lengths[0]))
        values = [np.empty((0, *item), self.dtype), *(row.reshape(-1, *item) for row in column)]
        return [_encode_texts(np.concatenate(values)), *lengths]

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> Any:
        if not self.num_ragged:
            return tf.ensure_shape(parts[0], self.shape)
        values = tf.ensure_shape(parts[0], (None, *self.shape[1:]))
        lengths = [tf.ensure_shape(part, (None,)) for part in parts[1:]]
        lengths[0] = tf.ensure_shape(lengths[0], self.shape[:1])
        # Not validated: the lengths were just counted, and the check is an operation per batch.
        return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)


@dataclass(frozen=True)
class SparseTensorColumn:
    """A `SparseColumn` as tf.SparseTensor [rows, words]."""

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    @property
    def dtypes(self) -> list[tf.DType]:
        return [tf.int64, _tensor_dtype(self.dtype), tf.int64]

    def to_arrays(self, column: Any) -> list[Array]:
        shape = np.array(column.dense_shape, np.int64)
        return [column.indices, _encode_texts(column.values), shape]

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> tf.SparseTensor:
        rows, words = self.shape
        found = tf.ensure_shape(parts[2], (2,))[0] if rows is None else tf.constant(rows, tf.int64)
        shape = tf.stack([found, tf.constant(words, tf.int64)])  # constants make static sizes
        return tf.SparseTensor(
            tf.ensure_shape(parts[0], (None, 2)), tf.ensure_shape(parts[1], (None,)), shape
        )


Columns = dict[str, TensorColumn | SparseTensorColumn]


def tensor_columns(reader: Reader) -> Columns:
    """Return the columns of a reader's batches, by name."""
    columns, specs = reader.engine.columns, reader.element_spec
    found: Columns = {name: TensorColumn(*spec) for name, spec in specs.items()}
    rows = reader.steps.host_batch_size if reader.has_static_rows else None
    for feature in columns.features:
        shape, dtype = specs[feature.name]
        if isinstance(columns.encodings[feature.name], Bags):
            found[feature.name] = SparseTensorColumn((rows, *shape[1:]), dtype)
        elif feature.kind == FeatureKind.TENSOR and dtype.hasobject:
            found[feature.name] = _tensors_column(feature, rows)
        elif None in feature.stored_shape and len(shape) == 1 and dtype.hasobject:
            item = item_shape(feature)
            found[feature.name] = TensorColumn((rows, *item), value_dtype(feature), 1)
    pictures = {mask.name: (1, mask_dtype(mask)) for mask in columns.masks}
    for name, image in reader.engine.images.items():
        if image is not None:
            pictures[name] = (image.shape[2], image.dtype)
    for name, (num_channels, dtype) in pictures.items():
        if specs[name][1].hasobject:
            found[name] = TensorColumn((rows, num_channels), dtype, 2)
    return found


def _tensors_column(feature: Feature, rows: int | None) -> TensorColumn:
    """Return the column of tensors that differ in length only, as lists of arrays.

    Raises:
        UsageError: The tensors have no fixed dtype, or differ in another axis.
    """
    if not feature.dtype or feature.shape[:1] != (None,) or None in feature.shape[1:]:
        raise UsageError(
            f"feature {feature.name!r} is a tensor {list(feature.shape)} of "
            f"{feature.dtype or 'any type'}, which cannot be batched as a tf.Tensor: "
            "leave it out of features=, or read single records"
        )
    return TensorColumn((rows, *feature.shape[1:]), np.dtype(feature.dtype), 1)


def _tensor_dtype(dtype: np.dtype[Any]) -> tf.DType:
    return tf.string if dtype.hasobject else tf.as_dtype(dtype)


def _encode_texts(values: Array) -> Array:
    """Return text encoded as UTF-8, and bytes and numbers unchanged."""
    if values.dtype != object:
        return values
    encoded = np.empty(values.shape, object)
    flat, given = encoded.reshape(-1), values.reshape(-1)
    for place, value in enumerate(given):
        flat[place] = as_bytes(value) if isinstance(value, str) else value
    return encoded
