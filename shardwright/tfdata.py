"""`shardwright.load`: a split as a `tf.data.Dataset`, by way of the files `shardwright/trainers/tf_*.py`."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Mapping, Sequence

import tensorflow as tf

from shardwright.cache import CacheSettings
from shardwright.errors import UsageError
from shardwright.read_plan import ReadPlan, check_sidecars, plan_read
from shardwright.reader.corpus import Source
from shardwright.reader.order import ShuffledOrder, StoredOrder
from shardwright.schema import Feature, FeatureKind
from shardwright.storage import Folder, StorageOptions
from shardwright.trainers.tf_blocks import BlockReader
from shardwright.trainers.tf_examples import ExampleMaker
from shardwright.trainers.tf_load_options import LoadOptions
from shardwright.trainers.tf_records import (
    Indexed,
    read_cached_in_stored_order,
    read_in_any_order,
    read_in_stored_order,
)


def load(
    dataset: str,
    split: str = "train",
    *,
    batch_size: int | None = None,
    image_size: tuple[int, int] | None = None,
    shuffle: bool = False,
    seed: int | None = 0,
    window: int | None = None,
    as_supervised: bool = False,
    features: Sequence[str] | None = None,
    decode: bool = True,
    repeat: bool = False,
    drop_remainder: bool = False,
    deterministic: bool = True,
    max_bad_records: int = 0,
    keep: str | None = None,
    keep_in: str | os.PathLike[str] = "memory",
    ram_bytes: int | str | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, object] | StorageOptions | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
) -> tf.data.Dataset:
    """A split, or a part of one, as a `tf.data.Dataset`, in the manner of `tfds.load`.

    Each element is a dict of the features by their names (a name such as `image/class/label` stays one flat key):
    `image` uint8 [height, width, 3]; `label` int64 []; `id` string []; a table's columns int64, float32 or string, [] for one
    value and [None] for a list. Class names are `shardwright.open(dataset).schema.class_names`, in label order.

    Images are decoded by `tf.io.decode_image` as RGB: gray is repeated, alpha dropped, an animation's first frame taken, and
    EXIF orientation not applied, as in TFDS. A record whose checksum is wrong raises `tf.errors.DataLossError`.

    Shards of a dataset in a store (`s3://`, `gs://`, `https://`) are downloaded whole, a few ahead of those that are read, into
    a cache on the local disk (`shardwright.cache`) that all processes of the machine share. Once everything is in the cache, the
    store is not needed any more. A shard that cannot be had raises a `tf.errors.OpError` whose message names it and says what to do.

    An iterator over a dataset in a local folder can be saved by `tf.train.Checkpoint(iterator=iter(ds))` at any element, in a few
    kilobytes, and goes on from there exactly, in another process, too.

    Args:
        dataset: The dataset's folder or address, as given to `shardwright build` for OUTPUT.
        split: A split's name, a part such as "train[:10%]" or "train[5000:]", several joined by `+`, or "all".
        batch_size: Give batches [batch_size, ...]; lists become RaggedTensors. Needs images of one size: an `image_size`,
            a dataset built with `--resize`, or images that are all of one size anyway.
        image_size: (height, width) in pixels to resize to, bilinear with antialiasing; the aspect ratio is not kept.
        shuffle: Give the records in an exact random order, another one in each epoch: each iteration of the dataset, and each
            round of `repeat()`, is the next epoch. The order is a function of seed and epoch alone, the same as `sw.Reader`'s.
            Without it, records come in the order they are stored in, which is a global shuffle made by the build.
        seed: The same seed gives the same orders, epoch by epoch, in every run; `tf.random.set_seed` has no part in it. None
            draws one, so that every run has others.
        window: How many shards are shuffled with each other; the shards themselves come in a new order in each epoch. None for
            all of a local folder, and for 16 of a store, which must all be in the cache at a time.
        as_supervised: Give (image, label) instead of a dict.
        features: Names of the features to give, None for all. Others are not parsed.
        decode: Decode images. Without it `image` is a string [], the bytes as stored.
        repeat: Go on for ever. Batches then run across the ends of epochs, so that all are full.
        drop_remainder: Leave out a last batch that is not full, so that the batch dimension is static.
        deterministic: False hands on whatever is ready first: the same records in every epoch, in an order that differs a little
            (shuffled) or altogether (not shuffled, several shards being read at a time) from run to run.
        max_bad_records: How many damaged records (a wrong checksum, an image that cannot be decoded) are left out, each named in
            a warning of the logger "shardwright". One more is a `tf.errors.DataLossError` that names it. A damaged record counts
            once, in however many epochs. 0 makes the first one an error. Above 0, the dataset does not know its length, and
            decoding takes more CPU, most of it in the first epoch.
        keep: "records" keeps each record once it has been read, "images" each image once it has been decoded and resized, so
            that it is not decoded again; its record is still read. None keeps nothing: the operating system keeps files that
            have been read in memory anyway, as long as there is room.
        keep_in: "memory", or a folder, on a fast local disk, for a nameless file that is gone when the process ends.
        ram_bytes: How much memory the pipeline may take for what is kept in memory and for read-ahead, a number of bytes or a
            size such as "8GB". None leaves read-ahead to tf.data, and what is kept may be half of the memory that is free.
        threads: How many threads decode, in a pool of this dataset's own. None for TensorFlow's pool, as many as there are cores.
        storage_options: As for `shardwright.open`.
        cache: Of a dataset in a store, the folder of the shards' cache; None for `$SHARDWRIGHT_CACHE`,
            `$XDG_CACHE_HOME/shardwright` or `~/.cache/shardwright`. A dataset in a local folder needs none.
        cache_bytes: How much that may hold, a number of bytes or a size such as "200GB", None for `$SHARDWRIGHT_CACHE_BYTES` or
            half of what the disk has free. Shuffling needs room for `window` shards, reading in order for 1; with less than the
            whole dataset, shards are downloaded again in each epoch.

    Returns:
        A dataset that knows its length, prefetches, and leaves its degree of parallelism to tf.data.

    Raises:
        NotADatasetError: No finished dataset is there; the message says what to do about it.
        StorageError: A shard, or an index that is needed, is not there, or a shard is not of the length that the manifest states;
            or the store, the cache or `keep_in` cannot be used.
        UsageError: An argument breaks its rule, or what is to be kept does not fit; it is a ValueError too.
    """
    options = LoadOptions(
        batch_size=batch_size,
        image_size=image_size,
        shuffle=shuffle,
        seed=seed,
        window=window,
        decode=decode,
        repeat=repeat,
        drop_remainder=drop_remainder,
        deterministic=deterministic,
        max_bad_records=max_bad_records,
        keep=keep,
        keep_in=os.fspath(keep_in),
        ram_bytes=ram_bytes,
        threads=threads,
    )
    if as_supervised and features is not None:
        raise UsageError(
            "as_supervised=True gives (image, label): leave features out, or as_supervised"
        )
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    source = Source.open(root, CacheSettings.of(cache, cache_bytes) if root.is_remote else None)
    plan = plan_read(source, split, features)
    options.check_images(plan)
    label = _find_label(plan) if as_supervised else None
    examples = _read_examples(
        plan, plan.features if label is None else (plan.image, label), options
    )
    if label is not None:
        image_name, label_name = plan.image.name, label.name
        examples = examples.map(lambda example: (example[image_name], example[label_name]))
    return examples.prefetch(tf.data.AUTOTUNE).with_options(options.of_tf_data(plan))


def _find_label(plan: ReadPlan) -> Feature:
    for feature in plan.features:
        if feature.kind == FeatureKind.CLASS_LABEL:
            return feature
    raise UsageError(
        "as_supervised=True gives (image, label), and this dataset has no labels: leave it out"
    )


def _read_examples(
    plan: ReadPlan, features: Sequence[Feature], options: LoadOptions
) -> tf.data.Dataset:
    reader, kept_images = _make_reader(plan, options), options.keep_images(plan, features)
    maker = ExampleMaker(
        plan=plan,
        features=features,
        decode=options.decode,
        image_size=options.image_size,
        kept=kept_images,
        leave_out=reader if options.max_bad_records else None,
    )
    records = _read_records(plan, reader, options, with_slots=maker.needs_slots)
    # TensorFlow keeps the Python functions of a pipeline, and all they refer to, until the process ends.
    if reader is not None:
        weakref.finalize(records, reader.let_go).atexit = False
    if kept_images is not None:
        weakref.finalize(records, kept_images.forget).atexit = False
    return maker.make(
        records, options.batch_size, drop_remainder=options.drop_remainder or options.repeat
    )


def _make_reader(plan: ReadPlan, options: LoadOptions) -> BlockReader | None:
    """None where TensorFlow's own reader does it alone."""
    if not plan.num_records or not (options.by_number or plan.corpus.is_remote):
        return None
    if options.by_number:
        check_sidecars(plan.corpus)
    return BlockReader(
        plan.corpus,
        at_a_time=plan.corpus.window(options.window) if options.shuffle else 1,
        max_bad_records=options.max_bad_records,
        kept=options.keep_records(plan),
    )


def _read_records(
    plan: ReadPlan, reader: BlockReader | None, options: LoadOptions, *, with_slots: bool
) -> tf.data.Dataset:
    """Serialized examples, string [], with their slots where these are wanted."""
    if not plan.num_records:
        nothing = (tf.constant([], tf.string), tf.constant([], tf.int64))
        return tf.data.Dataset.from_tensor_slices(nothing if with_slots else nothing[0])
    if options.by_number and reader is not None:
        indexed = Indexed(
            plan.corpus, _make_order(plan, options), reader, with_slots, options.deterministic
        )
        records = indexed.records(repeat=options.repeat)
        return (
            records
            if options.max_bad_records
            else _state_length(records, plan, repeat=options.repeat)
        )
    if reader is not None:
        records = read_cached_in_stored_order(plan.corpus, reader, repeat=options.repeat)
    else:
        records = (read_in_stored_order if options.deterministic else read_in_any_order)(
            plan.corpus
        )
    records = _state_length(records, plan, repeat=False)
    return records.repeat() if options.repeat else records


def _make_order(plan: ReadPlan, options: LoadOptions) -> StoredOrder | ShuffledOrder:
    if not options.shuffle:
        return StoredOrder(plan.corpus.sizes)
    seed = secrets.randbits(63) if options.seed is None else options.seed
    return ShuffledOrder(plan.corpus.sizes, seed, plan.corpus.window(options.window))


def _state_length(records: tf.data.Dataset, plan: ReadPlan, *, repeat: bool) -> tf.data.Dataset:
    """The same, of a known length: an epoch of another one is an error."""
    length = tf.data.INFINITE_CARDINALITY if repeat else plan.num_records
    return records.apply(tf.data.experimental.assert_cardinality(length))
