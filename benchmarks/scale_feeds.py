"""Loaders for `scale.py`, each in its own process: their codec is a call that sleeps.

  feed NAME   reader, tf.data or grain; --settings has the number of processes (0: this one alone)
              and of threads, each of which is a simulated core

The sleep holds no interpreter's lock, as a decoder does not, and no pixels are written.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from read_feeds import SIDE, Feed, Loader, check_images, feed_of, parser, run_feed, tell, unpack

SLEEP_SECONDS = 1e-3
_BLOCK = 16  # images of a call of tf.data's sleep, which is a dataset of its own
_SHAPE = (SIDE, SIDE, 3)


class SleepingImage:
    """A `TrainImage` that reads the header and draws the crop, but sleeps instead of decoding."""

    shape, dtype = _SHAPE, np.dtype(np.uint8)

    def apply(self, *arguments: Any) -> Any:
        return _train_image().apply(*arguments)


@functools.cache
def _train_image() -> Any:
    from shardwright.images import specs

    specs.fill_slots = lambda *_, **__: time.sleep(SLEEP_SECONDS)
    return specs.TrainImage(SIDE)


def open_reader(feed: Feed) -> Iterator[Any]:
    import scale_feeds  # other processes find the class there, and not in `__main__`

    import shardwright as sw

    reader = sw.Reader(
        str(feed.data / "dataset"),
        "train",
        batch_size=feed.batch_size,
        shuffle=feed.shuffle,
        image=scale_feeds.SleepingImage(),
        features=["image", "label"],
        threads=feed.settings["threads"],
        processes=feed.settings["processes"] or None,
    )
    return (batch["image"] for batch in reader)


def open_tf_data(feed: Feed) -> Iterator[Any]:
    import read_tf
    import tensorflow as tf

    threads = feed.settings["threads"]
    spec = {"image": tf.io.FixedLenFeature((), tf.string)}

    def make_images(records: tf.Tensor) -> tf.Tensor:
        jpegs = tf.io.parse_example(records, spec)["image"]
        shape = tf.concat([tf.shape(jpegs), _SHAPE], 0)
        return tf.ensure_shape(tf.raw_ops.Empty(shape=shape, dtype=tf.uint8), (None, *_SHAPE))

    def sleep(images: tf.Tensor) -> tf.data.Dataset:
        """Return the images as a dataset that sleeps first, in a thread of the interleave."""
        block = tf.data.Dataset.from_tensors(images)
        slept = tf.raw_ops.SleepDataset(
            input_dataset=block._variant_tensor,
            sleep_microseconds=tf.constant(int(_BLOCK * SLEEP_SECONDS * 1e6), tf.int64),
            output_types=[tf.uint8],
            output_shapes=[(None, *_SHAPE)],
        )
        return tf.data.experimental.from_variant(slept, block.element_spec)

    blocks = read_tf.read_records(feed, {"reads": 1}).batch(_BLOCK, drop_remainder=True)
    images = blocks.map(make_images, num_parallel_calls=tf.data.AUTOTUNE)
    slept = images.interleave(sleep, cycle_length=threads, num_parallel_calls=threads)
    return iter(slept.rebatch(feed.batch_size).prefetch(tf.data.AUTOTUNE))


def open_grain(feed: Feed) -> Iterator[Any]:
    import grain
    from grain.sources import ArrayRecordDataSource

    dataset = grain.MapDataset.source(
        ArrayRecordDataSource(feed.files("array_record/*.arrayrecord"))
    ).seed(0)
    dataset = (dataset.shuffle() if feed.shuffle else dataset).repeat().map(_sleep)
    ahead = 4 * feed.batch_size
    read = grain.ReadOptions(num_threads=feed.settings["threads"], prefetch_buffer_size=ahead)
    batches = dataset.to_iter_dataset(read).batch(feed.batch_size, drop_remainder=True)
    if feed.settings["processes"]:
        from absl import flags

        flags.FLAGS.mark_as_parsed()
        batches = batches.mp_prefetch(
            grain.MultiprocessingOptions(num_workers=feed.settings["processes"])
        )
    return iter(batches)


def _sleep(record: bytes) -> Any:
    unpack(record)
    time.sleep(SLEEP_SECONDS)
    return np.empty(_SHAPE, np.uint8)


FEEDS = {
    "reader": Loader(open_reader, ("shardwright:Reader", "shardwright:TrainImage", "simplejpeg")),
    "tf.data": Loader(open_tf_data, ("read_tf",)),
    "grain": Loader(open_grain, ("grain", "grain.sources")),
}


def main() -> int:
    args = parser(__doc__, ("feed",)).parse_args()
    loader, marks = FEEDS[args.name], list[tuple[float, int]]()

    def noted(feed: Feed) -> Iterator[Any]:
        for batch in loader.open(feed):
            marks.append((time.process_time(), int(batch.shape[0])))
            yield batch

    found = run_feed(Loader(noted, loader.imports), feed_of(args), args, check_images)
    (start, _), *rest = marks[len(marks) // 2 :]
    own_usec = (rest[-1][0] - start) / sum(count for _, count in rest) * 1e6
    tell({**found, "own_usec": own_usec})
    return 0


if __name__ == "__main__":
    sys.exit(main())
