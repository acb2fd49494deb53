"""`sw.load`: read a split as a `tf.data.Dataset`; the files beside this one hold its parts."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Mapping, Sequence

import tensorflow as tf

from shardwright.cache.settings import CacheSettings
from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.format.versions import LATEST, VersionKey
from shardwright.python_errors import PythonErrors
from shardwright.reader.corpus import DatasetSource
from shardwright.reader.order import ShuffledOrder, StoredOrder
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.tfdata.blocks import BlockReader
from shardwright.tfdata.examples import ExampleMaker
from shardwright.tfdata.options import LoadOptions
from shardwright.tfdata.read_plan import ReadPlan, check_sidecars, plan_read
from shardwright.tfdata.records import (
    Indexed,
    read_cached_in_stored_order,
    read_in_any_order,
    read_in_stored_order,
)


@PythonErrors()
def load(
    dataset: str | os.PathLike[str],
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
    version: VersionKey = LATEST,
) -> tf.data.Dataset:
    """Return a split, or a part of one, as a `tf.data.Dataset`, like `tfds.load`.

    Each element is a dict of the features by name; a name such as `image/class/label` is one flat
    key. `image` is uint8 [height, width, 3], `label` int64 [], `id` string []. Table columns are
    int64, float32 or string: [] for one value, [None] for a list. Class names are
    `shardwright.open(dataset).schema.class_names`, in label order.

    `tf.io.decode_image` decodes images as RGB: gray is repeated, alpha dropped, only the first
    frame of an animation decoded, and EXIF orientation ignored, as in TFDS. A record with a wrong
    checksum raises `tf.errors.DataLossError`.

    Shards in a store (`s3://`, `gs://`, `https://`) are downloaded whole, a few ahead of the
    reader, into a cache on the local disk (`shardwright.cache`) that all processes of the machine
    share. Once all shards are cached, the store is not needed. A shard that cannot be downloaded
    raises a `tf.errors.OpError` with the shard's name and the fix.

    For a dataset in a local folder, `tf.train.Checkpoint(iterator=iter(ds))` saves an iterator at
    any element in a few kilobytes; it resumes exactly there, in another process too.

    Args:
        dataset: The dataset's folder or address, as given to `shardwright build` for OUTPUT.
        split: A split, a part such as "train[:10%]" or "train[5000:]", several joined by `+`, or
            "all".
        batch_size: Return batches [batch_size, ...]; lists become RaggedTensors. Needs images of
            one size: set `image_size`, build with `--resize`, or have such images.
        image_size: (height, width) in pixels to resize to, bilinear with antialiasing; the aspect
            ratio changes.
        shuffle: Return the records in an exact random order, different in each epoch; each
            iteration of the dataset and each round of `repeat()` is an epoch. The order depends on
            seed and epoch only, and equals `sw.Reader`'s. Without it, records come in stored order,
            which the build has shuffled globally.
        seed: The same seed gives the same order of each epoch in every run, independent of
            `tf.random.set_seed`. None draws a new seed per run.
        window: Number of shards that are shuffled together; the order of the shards is new in each
            epoch. None means all shards of a local folder, or 16 of a store, which must all be
            cached at the same time.
        as_supervised: Return (image, label) instead of a dict.
        features: Names of the features to return, None for all. Others are not parsed.
        decode: Decode images. Without it, `image` is a string [], the stored bytes.
        repeat: Repeat forever. Batches then span the ends of epochs, so that all are full.
        drop_remainder: Drop a last batch that is not full; makes the batch dimension static.
        deterministic: False returns records as soon as they are ready: the same records in every
            epoch, but the order varies between runs, slightly with `shuffle`, fully without (which
            reads several shards at the same time).
        max_bad_records: Number of damaged records (wrong checksum, undecodable image) to skip, each
            with a warning of the logger "shardwright"; one more raises `tf.errors.DataLossError`.
            A record counts once, even over several epochs. Above 0, the dataset does not know its
            length, and decoding takes more CPU, mostly in the first epoch.
        keep: "records" keeps each record that was read. "images" keeps each decoded and resized
            image, so that it is decoded once; its record is still read again. None keeps nothing;
            the operating system still caches files while memory is free.
        keep_in: "memory", or a folder on a fast local disk, for an unnamed file that disappears
            when the process ends.
        ram_bytes: Limit of the memory for `keep` and for read-ahead: a number of bytes or a size
            such as "8GB". None leaves read-ahead to tf.data, and `keep` may take half of the free
            memory.
        threads: Decoding threads, in a pool of this dataset. None uses TensorFlow's pool, with one
            thread per core.
        storage_options: As for `shardwright.open`.
        cache: Folder of the cache, for a dataset in a store. None means `$SHARDWRIGHT_CACHE`,
            `$XDG_CACHE_HOME/shardwright` or `~/.cache/shardwright`.
        cache_bytes: Limit of the cache: a number of bytes or a size such as "200GB". None means
            `$SHARDWRIGHT_CACHE_BYTES` or half of the disk's free space. Shuffling needs room for
            `window` shards, stored order for one; if the dataset does not fit, shards are
            downloaded again in each epoch.
        version: The version of a dataset that has several: its number, a day such as "2026-11-22"
            (its last version), or "latest".

    Returns:
        A dataset that knows its length, prefetches, and lets tf.data choose its parallelism.

    Raises:
        NotADatasetError: The folder has no finished dataset.
        StorageError: A shard or a needed index is missing, a shard does not have the length in the
            manifest, or the store, the cache or `keep_in` cannot be used.
        UsageError: An argument is invalid, or `keep` does not fit. It is also a ValueError.
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
            "as_supervised=True cannot be combined with features: leave one of them out"
        )
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    settings = CacheSettings.of(cache, cache_bytes) if root.is_remote else None
    source = DatasetSource.open(root, settings, version)
    plan = plan_read(source, split, features)
    options.check_images(plan)
    examples = _read_examples(plan, _find_label(plan) if as_supervised else None, options)
    return examples.prefetch(tf.data.AUTOTUNE).with_options(options.of_tf_data(plan))


def _find_label(plan: ReadPlan) -> Feature:
    labels = [feature for feature in plan.features if feature.kind == FeatureKind.CLASS_LABEL]
    if plan.image is None or not labels:
        raise UsageError(
            f"as_supervised=True needs {'a label' if plan.image else 'an image'}, "
            "but this dataset has none: leave as_supervised out"
        )
    return labels[0]


# No function of the pipeline has Python control flow that depends on a tensor, and converting all
# of them takes most of the time to the first batch.
@tf.autograph.experimental.do_not_convert
def _read_examples(plan: ReadPlan, label: Feature | None, options: LoadOptions) -> tf.data.Dataset:
    """Return a dataset of dicts, or of (image, `label`)."""
    features = (plan.image, label) if plan.image and label else plan.features
    images_alone = _needs_images_alone(plan, features, options)
    reader = _make_reader(plan, options, of_images=images_alone)
    kept_images = options.keep_images(plan, features)
    maker = ExampleMaker(
        plan=plan,
        features=features,
        decode=options.decode,
        image_size=options.image_size,
        kept=kept_images,
        leave_out=reader if options.max_bad_records else None,
    )
    if options.batch_size is not None and maker.parses_batches:
        records = _read_batches(plan, reader, options)
        # A record need not be parsed, nor its image copied, if nothing else of it is wanted.
        examples = records.map(maker.name_images) if images_alone else maker.parse(records)
    else:
        records = _read_records(plan, reader, options, with_slots=maker.needs_slots)
        examples = maker.make(records, options.batch_size, drop_remainder=options.has_full_batches)
    # TensorFlow keeps a pipeline's Python functions, and all objects they refer to, until the
    # process ends. So files and memory are freed with the dataset instead.
    if reader is not None:
        weakref.finalize(records, reader.close).atexit = False
    if kept_images is not None:
        weakref.finalize(records, kept_images.forget).atexit = False
    if label is None:
        return examples
    return examples.map(lambda example: (example[plan.image_name], example[label.name]))


def _needs_images_alone(plan: ReadPlan, features: Sequence[Feature], options: LoadOptions) -> bool:
    """Return whether to read batches of image bytes by the index: nothing else is wanted."""
    return (
        list(features) == [plan.image]
        and options.batch_size is not None
        and not options.decode
        and not (options.keep or options.max_bad_records or plan.corpus.is_remote)
        and options.reads_by_index(plan.corpus)
    )


def _make_reader(plan: ReadPlan, options: LoadOptions, *, of_images: bool) -> BlockReader | None:
    """Return the reader of records, or their checker; None if there are none."""
    if not plan.num_records:
        return None
    check_sidecars(plan.corpus)
    return BlockReader(
        plan.corpus,
        at_a_time=plan.corpus.window(options.window) if options.shuffle else 1,
        max_bad_records=options.max_bad_records,
        kept=options.keep_records(plan),
        in_order=not options.shuffle,
        of_images=of_images,
    )


def _read_batches(
    plan: ReadPlan, reader: BlockReader | None, options: LoadOptions
) -> tf.data.Dataset:
    """Return a dataset of batches of serialized examples, string [batch_size]."""
    size, drop_remainder = options.batch_size, options.has_full_batches
    # Skipped records, and shards that the cache holds for a window, need records one by one.
    one_by_one = options.max_bad_records or plan.corpus.is_remote
    if reader is None or one_by_one or not options.reads_by_index(plan.corpus):
        records = _read_records(plan, reader, options, with_slots=False)
        return records.batch(size, drop_remainder=drop_remainder)
    batches = _index(plan, reader, options).batches(
        size, repeat=options.repeat, drop_remainder=drop_remainder
    )
    full, rest = divmod(plan.num_records, size)
    num_batches = full + (rest > 0 and not drop_remainder)
    return _state_length(batches, num_batches, repeat=options.repeat)


def _read_records(
    plan: ReadPlan, reader: BlockReader | None, options: LoadOptions, *, with_slots: bool
) -> tf.data.Dataset:
    """Return a dataset of serialized examples, string []; (example, slot) if `with_slots`."""
    if reader is None:
        nothing = (tf.constant([], tf.string), tf.constant([], tf.int64))
        return tf.data.Dataset.from_tensor_slices(nothing if with_slots else nothing[0])
    # TensorFlow's own reader can only read in stored order and skip nothing.
    if options.reads_by_index(plan.corpus):
        records = _index(plan, reader, options, with_slots=with_slots).records(
            repeat=options.repeat
        )
        return (
            records
            if options.max_bad_records
            else _state_length(records, plan.num_records, repeat=options.repeat)
        )
    if plan.corpus.is_remote:
        records = read_cached_in_stored_order(plan.corpus, reader, repeat=options.repeat)
    else:
        records = (read_in_stored_order if options.deterministic else read_in_any_order)(
            plan.corpus, reader
        )
    records = _state_length(records, plan.num_records, repeat=False)
    return records.repeat() if options.repeat else records


def _index(
    plan: ReadPlan, reader: BlockReader, options: LoadOptions, *, with_slots: bool = False
) -> Indexed:
    sizes = plan.corpus.sizes
    order: StoredOrder | ShuffledOrder = StoredOrder(sizes)
    if options.shuffle:
        seed = secrets.randbits(63) if options.seed is None else options.seed
        order = ShuffledOrder(sizes, seed, plan.corpus.window(options.window))
    return Indexed(plan.corpus, order, reader, with_slots, options.deterministic)


def _state_length(dataset: tf.data.Dataset, length: int, *, repeat: bool) -> tf.data.Dataset:
    """Return the dataset with a known length, which TensorFlow then asserts."""
    known = tf.data.INFINITE_CARDINALITY if repeat else length
    return dataset.apply(tf.data.experimental.assert_cardinality(known))
