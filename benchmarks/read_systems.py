#!/usr/bin/env python
"""The loaders that `read.py` compares: shardwright's own, tf.data, Keras and Grain.

torch's are in read_torch.py.

feed NAME   224x224 random-resized crops with flips, batches of uint8
  reader            shardwright.Reader, NumPy batches
  reader.whole      the same, without the extension that decodes parts of JPEGs
  reader.tf_data    shardwright.Reader(...).tf_data()
  load              shardwright.load with the same TrainImage
  tf.data           a hand-tuned pipeline on the same shards (read_tf.py)
  keras             keras.utils.image_dataset_from_directory on the JPEG files (see read_tf.py)
  grain             Grain's threads on ArrayRecord files, decoded and resized by OpenCV
  grain-simplejpeg  the same, decoded by simplejpeg with fast DCT and upsampling, as in shardwright
raw NAME    batches of records or images as stored: tfrecord, reader, load
random NAME the same in random order: reader, array_record (its batched reads), lance (take)
start NAME  the first batch of a dataset of many shards: reader, load
tune        the variants of the tf.data pipeline
make NAME   the files of array_record or lance

shardwright's run in its own environment, the others in theirs (environments.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from read_feeds import (
    RATIO,
    SCALE,
    SIDE,
    Feed,
    Loader,
    check_images,
    check_records,
    feed_of,
    labelled,
    pack,
    parser,
    run_feed,
    tell,
    unpack,
)


def _reader(feed: Feed, **options: Any) -> Any:
    import shardwright as sw

    path = str(feed.data / "dataset")
    return sw.Reader(
        path, "train", global_batch_size=feed.batch_size, shuffle=feed.shuffle, seed=0, **options
    )


def _cropping_reader(feed: Feed, *, fast: bool = True) -> Any:
    import shardwright as sw

    return _reader(feed, image=sw.TrainImage(SIDE, fast=fast), features=["image", "label"])


def open_reader(feed: Feed) -> Iterator[Any]:
    return (batch["image"] for batch in _cropping_reader(feed))


def open_exact_reader(feed: Feed) -> Iterator[Any]:
    return (batch["image"] for batch in _cropping_reader(feed, fast=False))


def open_reader_of_whole_images(feed: Feed) -> Iterator[Any]:
    sys.modules["shardwright.images._region"] = None  # type: ignore[assignment]  # not installed
    return open_reader(feed)


def open_reader_tf_data(feed: Feed) -> Iterator[Any]:
    return (batch["image"] for batch in _cropping_reader(feed).tf_data())


def _load(feed: Feed, **options: Any) -> Any:
    import shardwright as sw

    return sw.load(
        str(feed.data / "dataset"), "train", shuffle=feed.shuffle, seed=0, repeat=True, **options
    )


def open_load(feed: Feed) -> Iterator[Any]:
    import shardwright as sw

    options = {"image": sw.TrainImage(SIDE), "batch_size": feed.batch_size}
    return (images for images, _ in _load(feed, as_supervised=True, **options))


def open_tf_data(feed: Feed) -> Iterator[Any]:
    import read_tf

    return read_tf.open_pipeline(feed)


def open_keras(feed: Feed) -> Iterator[Any]:
    import read_tf

    return read_tf.open_keras(feed)


def _draw_crop(height: int, width: int, rng: Any) -> tuple[int, int, int, int]:
    """Return (top, left, height, width) of a random-resized crop, drawn as in torchvision."""
    for _ in range(10):
        area = height * width * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return rng.integers(0, height - high + 1), rng.integers(0, width - wide + 1), high, wide
    return 0, 0, height, width


def _open_grain(feed: Feed, decoder: str) -> Iterator[Any]:
    """Read and decode in Grain's threads.

    OpenCV releases the GIL, and worker processes were slower because of their copies.
    """
    import cv2
    import grain
    import numpy as np
    import simplejpeg
    from grain.sources import ArrayRecordDataSource

    cv2.setNumThreads(0)

    def decode(data: bytes) -> Any:
        if decoder == "simplejpeg":
            return simplejpeg.decode_jpeg(data, "RGB", fastdct=True, fastupsample=True)
        return cv2.imdecode(
            np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        )

    class Crop(grain.transforms.RandomMap):  # type: ignore[misc]
        def random_map(self, element: bytes, rng: Any) -> dict[str, Any]:
            data, label = unpack(element)
            image = decode(data)
            top, left, high, wide = _draw_crop(image.shape[0], image.shape[1], rng)
            image = cv2.resize(
                image[top : top + high, left : left + wide],
                (SIDE, SIDE),
                interpolation=cv2.INTER_LINEAR,
            )
            return {"image": cv2.flip(image, 1) if rng.random() < 0.5 else image, "label": label}

    dataset = grain.MapDataset.source(
        ArrayRecordDataSource(feed.files("array_record/*.arrayrecord"))
    ).seed(0)
    dataset = dataset.shuffle() if feed.shuffle else dataset
    threads = grain.ReadOptions(
        num_threads=2 * feed.cores, prefetch_buffer_size=4 * feed.batch_size
    )
    batches = (
        dataset.repeat()
        .random_map(Crop())
        .to_iter_dataset(threads)
        .batch(feed.batch_size, drop_remainder=True)
    )
    return (batch["image"] for batch in batches)


def open_raw_reader(feed: Feed) -> Iterator[Any]:
    return (batch["image"] for batch in _reader(feed, image=None, features=["image"]))


def _random_rows(feed: Feed, count: int) -> Iterator[Any]:
    """Yield the numbers of each batch's records, in another order in each epoch."""
    import numpy as np

    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(count)
        for start in range(0, count - feed.batch_size + 1, feed.batch_size):
            yield order[start : start + feed.batch_size]


def open_array_records(feed: Feed) -> Iterator[Any]:
    import numpy as np
    from grain.sources import ArrayRecordDataSource

    source = ArrayRecordDataSource(feed.files("array_record/*.arrayrecord"))
    for rows in _random_rows(feed, len(source)):
        yield np.array(source.__getitems__(rows.tolist()), object)


class _Column(NamedTuple):
    """A column of Arrow, which makes a record's bytes when it is asked for."""

    values: Any
    shape: tuple[int]

    def __getitem__(self, row: int) -> bytes:  # type: ignore[override]
        return bytes(self.values[row].as_py())


def open_lance(feed: Feed) -> Iterator[Any]:
    import lance

    dataset = lance.dataset(str(feed.data / "lance" / "photos.lance"))
    for rows in _random_rows(feed, dataset.count_rows()):
        values = dataset.take(rows, columns=["image"]).column("image")
        yield _Column(values, (len(values),))


def open_raw_load(feed: Feed) -> Iterator[Any]:
    return (
        batch["image"]
        for batch in _load(feed, features=["image"], decode=False, batch_size=feed.batch_size)
    )


def open_raw_tf(feed: Feed) -> Iterator[Any]:
    import read_tf

    return read_tf.open_raw(feed)


def open_many_load(feed: Feed) -> Iterator[Any]:
    return (
        batch["image"]
        for batch in _load(
            feed, features=["image", "label"], image_size=(SIDE, SIDE), batch_size=feed.batch_size
        )
    )


_READER = ("shardwright:Reader", "shardwright:TrainImage", "simplejpeg", "cv2")
_READER_TF = ("tensorflow", *_READER, "shardwright.trainers.tf_data")
_LOAD, _TF = ("shardwright:load", *_READER), ("read_tf",)
_GRAIN = ("grain", "grain.sources", "cv2", "simplejpeg")
TASKS: dict[str, dict[str, Loader]] = {
    "feed": {
        "reader": Loader(open_reader, _READER),
        "reader.exact": Loader(open_exact_reader, _READER),
        "reader.whole": Loader(open_reader_of_whole_images, _READER),
        "reader.tf_data": Loader(open_reader_tf_data, _READER_TF),
        "load": Loader(open_load, _LOAD),
        "tf.data": Loader(open_tf_data, _TF),
        "keras": Loader(open_keras, ("keras", *_TF)),
        "grain": Loader(lambda feed: _open_grain(feed, "opencv"), _GRAIN),
        "grain-simplejpeg": Loader(lambda feed: _open_grain(feed, "simplejpeg"), _GRAIN),
    },
    "raw": {
        "tfrecord": Loader(open_raw_tf, _TF),
        "reader": Loader(open_raw_reader, _READER),
        "load": Loader(open_raw_load, _LOAD),
    },
    "random": {
        "reader": Loader(open_raw_reader, _READER),
        "array_record": Loader(open_array_records, _GRAIN),
        "lance": Loader(open_lance, ("lance",)),
    },
    "start": {"reader": Loader(open_reader, _READER), "load": Loader(open_many_load, _LOAD)},
}


def make_array_records(data: Path, shard_bytes: int) -> None:
    """Write ArrayRecord files from DATA/photos, with the unchanged bytes of the files."""
    from array_record.python.array_record_module import ArrayRecordWriter

    (data / "array_record").mkdir()
    writer, used, shard = None, 0, 0
    for path, label in labelled(data / "photos"):
        if writer is None or used > shard_bytes:
            if writer is not None:
                writer.close()
            # One record per group, as the format's documentation advises for random access.
            writer = ArrayRecordWriter(
                f"{data}/array_record/photos-{shard:05d}.arrayrecord", "group_size:1"
            )
            used, shard = 0, shard + 1
        record = pack(path.read_bytes(), label)
        writer.write(record)
        used += len(record)
    if writer is not None:
        writer.close()


def make_lance(data: Path, shard_bytes: int) -> None:
    """Write a dataset of Lance from DATA/photos, with the unchanged bytes of the files."""
    import lance
    import pyarrow as pa

    schema = pa.schema([("image", pa.large_binary()), ("label", pa.int64())])
    batches = (
        pa.RecordBatch.from_pylist([{"image": path.read_bytes(), "label": label}], schema)
        for path, label in labelled(data / "photos")
    )
    lance.write_dataset(
        batches, data / "lance" / "photos.lance", schema, max_bytes_per_file=shard_bytes
    )


def _tuned(feed: Feed, items: int) -> dict[str, float]:
    import read_tf

    return read_tf.tune(feed, items)


def main(argv: Iterable[str] | None = None) -> int:
    args = parser(__doc__, (*TASKS, "tune", "make")).parse_args(
        None if argv is None else list(argv)
    )
    if args.task == "make":
        make = make_lance if args.name == "lance" else make_array_records
        make(args.data, args.shard_bytes)
        return 0
    if args.task == "tune":
        tell({"rates": _tuned(feed_of(args), args.items)})
        return 0
    check = check_records if args.task in ("raw", "random") else check_images
    tell(run_feed(TASKS[args.task][args.name], feed_of(args), args, check))
    return 0


if __name__ == "__main__":
    sys.exit(main())
