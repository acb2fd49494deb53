"""The hand-tuned tf.data pipeline of `read.py` with its variants, and Keras's loader of folders.

The pipeline is the result of typical tuning: shards are interleaved, records parsed, a random crop
of each JPEG decoded (`tf.io.decode_and_crop_jpeg` decodes only that part), resized, flipped,
converted to uint8, batched and prefetched. `VARIANTS` are tried before the rounds, and the fastest
is the baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from read_feeds import RATIO, SCALE, SIDE, Feed, check_images

_BUFFER_BYTES = 8 << 20
_CYCLE = 4
SHUFFLE_BUFFER_RECORDS = 2048
# `decodes`: threads per core that parse and decode, None for AUTOTUNE. `reads`: the same for the
# interleave, 0 for shards one by one. `fast_dct`: the less exact DCT and upsampling. `private`: a
# thread pool with one thread per core, and ops with one thread each.
Variant = dict[str, Any]
VARIANTS: dict[str, Variant] = {
    "AUTOTUNE": {"decodes": None, "reads": None},
    "a decoding thread per core": {"decodes": 1, "reads": 1},
    "two decoding threads per core": {"decodes": 2, "reads": 1},
    "a decoding thread per core, shards one by one": {"decodes": 1, "reads": 0},
    "a decoding thread per core, private pool": {"decodes": 1, "reads": 1, "private": True},
    "a decoding thread per core, fast DCT": {"decodes": 1, "reads": 1, "fast_dct": True},
    "a decoding thread per core, fast DCT, private pool": {
        "decodes": 1,
        "reads": 1,
        "fast_dct": True,
        "private": True,
    },
}
DEFAULT_VARIANT = "a decoding thread per core"


def variant_of(feed: Feed) -> Variant:
    return VARIANTS[feed.settings.get("variant", DEFAULT_VARIANT)]


def parallel_calls(share: int | None, cores: int) -> Any:
    return tf.data.AUTOTUNE if share is None else max(1, share * cores)


def random_crop(variant: Variant) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from a JPEG to a random-resized, flipped crop, uint8 [224, 224, 3]."""
    fast = (
        {"dct_method": "INTEGER_FAST", "fancy_upscaling": False} if variant.get("fast_dct") else {}
    )
    whole = tf.zeros((1, 0, 4), tf.float32)

    def crop(jpeg: tf.Tensor) -> tf.Tensor:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(jpeg),
            whole,
            area_range=SCALE,
            aspect_ratio_range=RATIO,
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3, **fast)
        image = tf.image.resize(image, (SIDE, SIDE))
        return tf.image.random_flip_left_right(tf.saturate_cast(tf.round(image), tf.uint8))

    return crop


def read_records(feed: Feed, variant: Variant) -> tf.data.Dataset:
    """Return endless serialized examples; to shuffle, the order of shards and a buffer are."""
    shards = feed.files("dataset/*.tfrecord-*")
    names = tf.data.Dataset.from_tensor_slices(shards)
    if feed.shuffle:
        names = names.shuffle(len(shards))
    names = names.repeat()
    if variant["reads"] == 0:
        records = tf.data.TFRecordDataset(names, buffer_size=_BUFFER_BYTES)
    else:
        records = names.interleave(
            lambda name: tf.data.TFRecordDataset(name, buffer_size=_BUFFER_BYTES),
            cycle_length=_CYCLE,
            num_parallel_calls=parallel_calls(variant["reads"], feed.cores),
            deterministic=not feed.shuffle,
        )
    return records.shuffle(SHUFFLE_BUFFER_RECORDS) if feed.shuffle else records


def finish(
    images: tf.data.Dataset, feed: Feed, variant: Variant, batch_size: int | None
) -> Iterator[Any]:
    """Return an iterator of batches, prefetched, with the variant's threading options."""
    options = tf.data.Options()
    if variant.get("private"):
        options.threading.private_threadpool_size = feed.cores
        options.threading.max_intra_op_parallelism = 1
    batches = images.batch(batch_size, drop_remainder=True) if batch_size else images
    return iter(batches.prefetch(tf.data.AUTOTUNE).with_options(options))


def open_pipeline(feed: Feed) -> Iterator[Any]:
    """Return batches of images; labels are parsed too, as for a trainer, and then dropped."""
    variant = variant_of(feed)
    crop = random_crop(variant)
    spec = {
        "image": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, spec)
        return crop(example["image"]), example["label"]

    examples = read_records(feed, variant).map(
        parse,
        num_parallel_calls=parallel_calls(variant["decodes"], feed.cores),
        deterministic=not feed.shuffle,
    )
    return (images for images, _ in finish(examples, feed, variant, feed.batch_size))


def tune(feed: Feed, items: int) -> dict[str, float]:
    """Return the images/s of each variant: the better of two runs, which are interleaved."""
    rates = dict.fromkeys(VARIANTS, 0.0)
    for _ in range(2):
        for name in VARIANTS:
            batches = open_pipeline(
                Feed(feed.data, feed.shuffle, feed.batch_size, feed.cores, {"variant": name})
            )
            check_images(next(batches), feed.batch_size)
            warm_up, count = max(1, items // feed.batch_size // 4), max(1, items // feed.batch_size)
            for _ in range(warm_up):
                next(batches)
            start = time.monotonic()
            for _ in range(count):
                next(batches)
            rates[name] = max(rates[name], count * feed.batch_size / (time.monotonic() - start))
            del batches  # ends its threads before the next is timed
    return rates


def open_raw(feed: Feed) -> Iterator[Any]:
    """Return batches of records as stored, with `TFRecordDataset`, shard by shard."""
    variant: Variant = {"reads": 0}
    return finish(read_records(feed, variant), feed, variant, feed.batch_size)


def open_keras(feed: Feed) -> Iterator[Any]:
    """Return batches of `image_dataset_from_directory`, used as in its documentation.

    It decodes and resizes every whole JPEG to 256x256 and batches them; Keras layers then take a
    random 224x224 window and flip it. This is not a random-resized crop.
    """
    import keras

    dataset = keras.utils.image_dataset_from_directory(
        str(feed.data / "photos"),
        image_size=(256, 256),
        batch_size=feed.batch_size,
        shuffle=feed.shuffle,
        verbose=False,
    )
    augment = keras.Sequential(
        [keras.layers.RandomCrop(SIDE, SIDE), keras.layers.RandomFlip("horizontal")]
    )

    def crop(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(augment(images, training=True), tf.uint8), labels

    batches = (
        dataset.repeat().map(crop, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    )
    return (images for images, _ in batches)
