"""Reading a dataset with tf.data. The one module of this package that imports TensorFlow."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from shardwright.cache import CacheSettings, ShardCache
from shardwright.errors import UsageError
from shardwright.naming import ShardName
from shardwright.read_plan import ReadPlan, plan_read
from shardwright.schema import Feature, FeatureKind
from shardwright.storage import Folder, StorageOptions

_DTYPES = {FeatureKind.CLASS_LABEL: tf.int64, FeatureKind.INT64: tf.int64, FeatureKind.FLOAT32: tf.float32}
# How many shards are read at a time when shuffling, and how many records in turn from each: as TFDS has them.
_CYCLE_SHARDS, _BLOCK_RECORDS = 16, 16
_READ_BUFFER_BYTES = 8 << 20


def load(
    dataset: str,
    split: str = "train",
    *,
    batch_size: int | None = None,
    image_size: tuple[int, int] | None = None,
    shuffle: bool = False,
    seed: int | None = 0,
    as_supervised: bool = False,
    features: Sequence[str] | None = None,
    decode: bool = True,
    repeat: bool = False,
    drop_remainder: bool = False,
    storage_options: Mapping[str, object] | StorageOptions | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
) -> tf.data.Dataset:
    """A split as a `tf.data.Dataset`, in the manner of `tfds.load`.

    Each element is a dict of the features by their names (a name such as `image/class/label` stays one flat key):
    `image` uint8 [height, width, 3]; `label` int64 []; `id` string []; a table's columns int64, float32 or string, [] for one
    value and [None] for a list. Class names are `shardwright.open(dataset).schema.class_names`, in label order.

    Images are decoded by `tf.io.decode_image` as RGB: gray is repeated, alpha dropped, an animation's first frame taken, and
    EXIF orientation not applied, as in TFDS. A record whose checksum is wrong raises `tf.errors.DataLossError`.

    Shards of a dataset in a store (`s3://`, `gs://`, `https://`) are downloaded whole, a few ahead of those that are read, into
    a cache on the local disk (`shardwright.cache`) that all processes of the machine share; the order of the records is that
    of the same dataset in a local folder. Once everything is in the cache, the store is not needed any more. A shard that
    cannot be had raises a `tf.errors.OpError` whose message names it and says what to do.

    Args:
        dataset: The dataset's folder or address, as given to `shardwright build` for OUTPUT.
        split: A split's name, several joined by `+`, or "all".
        batch_size: Give batches [batch_size, ...]; lists become RaggedTensors. Needs images of one size: an `image_size`,
            a dataset built with `--resize`, or images that are all of one size anyway.
        image_size: (height, width) in pixels to resize to, bilinear with antialiasing; the aspect ratio is not kept.
        shuffle: Shuffle anew for every epoch: the order of the shards, and records within a buffer of up to 256 MB. Records
            are stored in a global shuffle already, so this is enough. Without it, records come in the order they are
            stored in.
        seed: The same seed (and the same `tf.random.set_seed`, where that is used) gives the same orders, epoch by epoch, in
            every run. None gives other ones in every run, and lets the reader hand on whatever is ready first.
        as_supervised: Give (image, label) instead of a dict.
        features: Names of the features to give, None for all.
        decode: Decode images. Without it `image` is a string [], the bytes as stored.
        repeat: Go on for ever. Batches then run across the ends of epochs, so that all are full.
        drop_remainder: Leave out a last batch that is not full, so that the batch dimension is static.
        storage_options: As for `shardwright.open`.
        cache: The cache's folder, None for `$SHARDWRIGHT_CACHE`, `$XDG_CACHE_HOME/shardwright` or `~/.cache/shardwright`. A
            dataset in a local folder needs none.
        cache_bytes: How much it may hold, a number of bytes or a size such as "200GB", None for `$SHARDWRIGHT_CACHE_BYTES` or
            half of what the disk has free. Shuffling needs room for 16 shards, reading in order for 1; with less than the
            whole dataset, shards are downloaded again in each epoch.

    Returns:
        A dataset that knows its length, prefetches, and leaves its degree of parallelism to tf.data.

    Raises:
        NotADatasetError: No finished dataset is there; the message says what to do about it.
        StorageError: A shard is not there, or not of the length that the manifest states; or the store or the cache cannot
            be used.
        UsageError: An argument breaks its rule; it is a ValueError too.
    """
    if as_supervised and features is not None:
        raise UsageError("as_supervised=True gives (image, label): leave features out, or as_supervised")
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    shards = ShardCache.open(root, CacheSettings.of(cache, cache_bytes)) if root.is_remote else None
    plan = plan_read(root, split, features, shards.manifest if shards else None)
    image_size = _check_image_size(image_size, decode=decode)
    _check_batches(plan, batch_size, image_size, decode=decode)
    label = _find_label(plan) if as_supervised else None
    wanted = plan.features if label is None else (plan.image, label)
    if shards is None:
        records = _read_records(plan, shuffle=shuffle, seed=seed)
    else:
        records = _read_cached_records(plan, shards, shuffle=shuffle, seed=seed)
    if repeat:
        records = records.repeat()
    parse = _make_parser(plan, wanted, image_size, decode=decode)
    examples = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    if batch_size is not None:
        examples = _batch(examples, wanted, batch_size, drop_remainder=drop_remainder or repeat)
    if label is not None:
        image_name, label_name = plan.image.name, label.name
        examples = examples.map(lambda example: (example[image_name], example[label_name]))
    options = tf.data.Options()
    options.deterministic = not shuffle or seed is not None
    return examples.prefetch(tf.data.AUTOTUNE).with_options(options)


def _check_image_size(image_size: object, *, decode: bool) -> tuple[int, int] | None:
    if image_size is None:
        return None
    sides = tuple(image_size) if isinstance(image_size, (tuple, list)) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise UsageError(f"image_size={image_size!r} must be (height, width), two whole numbers of pixels above 0")
    if not decode:
        raise UsageError("image_size resizes decoded images: leave it out with decode=False")
    return sides[0], sides[1]


def _check_batches(plan: ReadPlan, batch_size: object, image_size: tuple[int, int] | None, *, decode: bool) -> None:
    if batch_size is None:
        return
    if type(batch_size) is not int or batch_size < 1:
        raise UsageError(f"batch_size={batch_size!r} must be a whole number above 0, or None for single examples")
    if decode and plan.image in plan.features and image_size is None and plan.image_shape is None:
        raise UsageError(
            f"batch_size={batch_size} needs images of one size, and those of this split differ: give image_size=(height, width), "
            "build with `--encode jpeg --resize WIDTHxHEIGHT`, or leave batch_size out"
        )


def _find_label(plan: ReadPlan) -> Feature:
    for feature in plan.features:
        if feature.kind == FeatureKind.CLASS_LABEL:
            return feature
    raise UsageError("as_supervised=True gives (image, label), and this dataset has no labels: leave it out")


def _read_records(plan: ReadPlan, *, shuffle: bool, seed: int | None) -> tf.data.Dataset:
    """Serialized examples: in stored order, or shuffled anew at each iteration. An epoch of another length is an error."""
    shards = tf.constant(plan.shards, tf.string)
    buffer_bytes = _buffer_bytes(plan)
    cardinality = tf.data.experimental.assert_cardinality(plan.num_records)
    if not shuffle:
        return tf.data.TFRecordDataset(shards, buffer_size=buffer_bytes).apply(cardinality)
    shuffled = tf.data.Dataset.from_tensor_slices(shards).shuffle(max(len(plan.shards), 1), seed=seed)
    records = shuffled.interleave(
        lambda shard: tf.data.TFRecordDataset(shard, buffer_size=buffer_bytes),
        cycle_length=_CYCLE_SHARDS,
        block_length=_BLOCK_RECORDS,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=seed is not None,
    )
    return records.apply(cardinality).shuffle(plan.shuffle_buffer_records, seed=seed)


def _buffer_bytes(plan: ReadPlan) -> int:
    return min(_READ_BUFFER_BYTES, plan.largest_shard_bytes)


def _read_cached_records(plan: ReadPlan, cache: ShardCache, *, shuffle: bool, seed: int | None) -> tf.data.Dataset:
    """The same from a store by way of the cache. Each shard is held there from its first record to its last, or the iterator's end."""
    filenames = [posixpath.basename(shard) for shard in plan.shards]
    names = {filename: name for filename in filenames if (name := ShardName.parse(filename))}
    cycle = max(1, min(_CYCLE_SHARDS if shuffle else 1, len(filenames)))
    ahead = cache.shards_ahead(list(names.values()), cycle, "shuffling" if shuffle else "reading")

    def announce(filename: bytes) -> bytes:
        cache.prefetch([names[filename.decode()]])
        return filename

    def hold(filename: bytes) -> Iterator[str]:
        with cache.open_shard(names[filename.decode()]) as shard:
            yield shard.path

    def read(filename: tf.Tensor) -> tf.data.Dataset:
        held = tf.data.Dataset.from_generator(hold, args=(filename,), output_signature=tf.TensorSpec((), tf.string))
        return held.flat_map(lambda path: tf.data.TFRecordDataset(path, buffer_size=_buffer_bytes(plan)))

    shards = tf.data.Dataset.from_tensor_slices(tf.constant(filenames, tf.string))
    if shuffle:
        shards = shards.shuffle(max(len(filenames), 1), seed=seed)
    if ahead:  # what waits in this buffer is on its way
        shards = shards.map(lambda filename: tf.ensure_shape(tf.numpy_function(announce, [filename], tf.string), ())).prefetch(ahead)
    # One after the other: in parallel, tf.data opens twice as many shards again before their turn, all of which would be held.
    records = shards.interleave(read, cycle_length=cycle, block_length=_BLOCK_RECORDS, num_parallel_calls=None)
    records = records.apply(tf.data.experimental.assert_cardinality(plan.num_records))
    return records.shuffle(plan.shuffle_buffer_records, seed=seed) if shuffle else records


def _make_parser(
    plan: ReadPlan, features: Sequence[Feature], image_size: tuple[int, int] | None, *, decode: bool
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    spec = {feature.name: _parsing_spec(feature) for feature in features}
    image_name = plan.image.name

    def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed: Mapping[str, tf.Tensor] = tf.io.parse_single_example(record, spec)
        example = {name: parsed[name] for name in spec}
        if decode and image_name in example:
            example[image_name] = _resize(_decode(example[image_name], plan), image_size)
        return example

    return parse


def _parsing_spec(feature: Feature) -> Any:
    dtype = _DTYPES.get(feature.kind, tf.string)
    return tf.io.RaggedFeature(dtype) if feature.is_list else tf.io.FixedLenFeature((), dtype)


def _decode(data: tf.Tensor, plan: ReadPlan) -> tf.Tensor:
    """uint8 [height, width, 3], static where the plan knows the shape; an image of another shape is then an error."""
    if plan.image.encoding == "raw":
        return tf.reshape(tf.io.decode_raw(data, tf.uint8), plan.image_shape)
    image = tf.io.decode_image(data, channels=3, expand_animations=False)
    return tf.ensure_shape(image, plan.image_shape or (None, None, 3))


def _resize(image: tf.Tensor, size: tuple[int, int] | None) -> tf.Tensor:
    if size is None or image.shape[:2] == size:
        return image
    resized = tf.image.resize(image, size, method="bilinear", antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)


def _batch(examples: tf.data.Dataset, features: Sequence[Feature], batch_size: int, *, drop_remainder: bool) -> tf.data.Dataset:
    if any(feature.is_list for feature in features):
        return examples.ragged_batch(batch_size, drop_remainder=drop_remainder)
    return examples.batch(batch_size, drop_remainder=drop_remainder, num_parallel_calls=tf.data.AUTOTUNE)
