"""Loaders for `detection.py`, each in its own process: crops of photographs with their boxes.

  feed NAME   reader   shardwright.Reader(...).torch(), boxes padded to one size
              torch    torchvision's v2 transforms on tv_tensors, in a DataLoader with a worker per
                       core; --settings chooses whether Pillow or torchvision decodes
              tf.data  shardwright's shards, parsed, cropped and padded in the graph; --settings
                       chooses a variant of read_tf.py

All draw torchvision's random-resized crop of at least 0.3 of the image, flip half of them, and drop
boxes below 1 pixel. Images are uint8 [b, 512, 512, 3], channels first for torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from read_feeds import RATIO, Feed, Loader, feed_of, forever, parser, run_feed, tell

SIDE, SCALE, MAX_BOXES = 512, (0.3, 1.0), 8
_BOXES, _LABELS = "objects/bbox", "objects/label"


def open_reader(feed: Feed) -> Iterator[Any]:
    import shardwright as sw

    boxes = sw.Boxes(_BOXES, max_boxes=MAX_BOXES)
    reader = sw.Reader(
        str(feed.data / "dataset"),
        "train",
        batch_size=feed.batch_size,
        shuffle=feed.shuffle,
        image=sw.TrainImage(SIDE, scale=SCALE, ratio=RATIO, boxes=boxes),
        features=["image", _BOXES, _LABELS],
    )
    return ((batch["image"], batch[_BOXES], batch[_LABELS]) for batch in reader.torch())


def open_torch(feed: Feed) -> Iterator[Any]:
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import io, tv_tensors
    from torchvision.transforms import v2

    with_pillow = feed.settings["decoder"] == "Pillow"
    transform = v2.Compose([
        v2.RandomResizedCrop(SIDE, SCALE, RATIO),
        v2.RandomHorizontalFlip(),
        *([v2.PILToTensor()] if with_pillow else []),
        v2.SanitizeBoundingBoxes(),
    ])  # fmt: skip
    found = json.loads((feed.data / "annotations.json").read_text())
    objects: dict[int, list[Any]] = {image["id"]: [] for image in found["images"]}
    for each in found["annotations"]:
        left, top, width, height = each["bbox"]
        corners = (left, top, left + width, top + height)
        objects[each["image_id"]].append((corners, each["category_id"]))

    class Photos(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(found["images"])

        def __getitem__(self, number: int) -> Any:
            photo = found["images"][number]
            path = str(feed.data / "images" / photo["file_name"])
            image = (
                Image.open(path).convert("RGB")
                if with_pillow
                else tv_tensors.Image(io.decode_image(io.read_file(path), io.ImageReadMode.RGB))
            )
            boxes, labels = map(torch.tensor, zip(*objects[photo["id"]], strict=True))
            size = (photo["height"], photo["width"])
            boxes = tv_tensors.BoundingBoxes(boxes.float(), format="XYXY", canvas_size=size)
            target = {"boxes": boxes, "labels": labels}
            image, target = transform(image, target)
            return image, target["boxes"], target["labels"]

    def collate(rows: list[Any]) -> Any:
        images, boxes, labels = zip(*rows, strict=True)
        return torch.stack(images), boxes, labels

    return forever(
        DataLoader(
            Photos(),
            feed.batch_size,
            shuffle=feed.shuffle,
            collate_fn=collate,
            num_workers=feed.cores,
            persistent_workers=True,
            prefetch_factor=4,
        )
    )


def open_tf_data(feed: Feed) -> Iterator[Any]:
    import read_tf
    import tensorflow as tf

    variant = read_tf.variant_of(feed)
    spec = {
        "image": tf.io.FixedLenFeature((), tf.string),
        _BOXES: tf.io.RaggedFeature(tf.float32),
        _LABELS: tf.io.RaggedFeature(tf.int64),
    }
    fast = {"dct_method": "INTEGER_FAST", "fancy_upscaling": False}
    fast = fast if variant.get("fast_dct") else {}

    def make(record: Any) -> Any:
        example = tf.io.parse_single_example(record, spec)
        shape = tf.io.extract_jpeg_shape(example["image"])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.zeros((1, 0, 4), tf.float32),
            area_range=SCALE,
            aspect_ratio_range=RATIO,
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.io.decode_and_crop_jpeg(example["image"], window, channels=3, **fast)
        image = tf.saturate_cast(tf.round(tf.image.resize(image, (SIDE, SIDE))), tf.uint8)
        height_width = tf.cast(tf.tile(shape[:2], [2]), tf.float32)
        start = tf.cast(tf.tile(begin[:2], [2]), tf.float32)
        zoom = SIDE / tf.cast(tf.tile(size[:2], [2]), tf.float32)
        boxes = (tf.reshape(example[_BOXES], (-1, 4)) * height_width - start) * zoom
        top, left, bottom, right = tf.unstack(tf.clip_by_value(boxes, 0, SIDE), axis=1)
        kept = (bottom - top >= 1) & (right - left >= 1)
        if tf.random.uniform(()) < 0.5:
            image, left, right = tf.reverse(image, [1]), SIDE - right, SIDE - left
        boxes = tf.boolean_mask(tf.stack([left, top, right, bottom], 1), kept)[:MAX_BOXES]
        labels = tf.boolean_mask(example[_LABELS], kept)[:MAX_BOXES]
        padding = [[0, MAX_BOXES - tf.shape(labels)[0]]]
        boxes = tf.ensure_shape(tf.pad(boxes, [*padding, [0, 0]]), (MAX_BOXES, 4))
        return image, boxes, tf.ensure_shape(tf.pad(labels, padding), (MAX_BOXES,))

    calls = read_tf.parallel_calls(variant["decodes"], feed.cores)
    examples = read_tf.read_records(feed, variant).map(
        make, num_parallel_calls=calls, deterministic=not feed.shuffle
    )
    return read_tf.finish(examples, feed, variant, feed.batch_size)


FEEDS = {
    "reader": Loader(open_reader, ("shardwright:Reader", "torch", "simplejpeg")),
    "torch": Loader(open_torch, ("torch", "PIL.Image", "torchvision.transforms.v2")),
    "tf.data": Loader(open_tf_data, ("read_tf",)),
}


def _checked(batches: Iterable[Any], batch_size: int) -> Iterator[Any]:
    """Yield the images; exit if boxes and labels are not those of a batch of such images."""
    for images, boxes, labels in batches:
        shape = sorted(int(side) for side in images.shape[1:])
        if shape != [3, SIDE, SIDE] or "uint8" not in str(images.dtype):
            raise SystemExit(f"images are {images.dtype} {images.shape}, not uint8 of {SIDE}")
        # The photographs have 7 boxes, of which crops lose a part.
        if not len(images) == len(boxes) == len(labels) <= batch_size or len(boxes[0][0]) != 4:
            raise SystemExit(f"{len(boxes)} rows of boxes in a batch of {len(images)} images")
        yield images


def main() -> int:
    args = parser(__doc__, ("feed",)).parse_args()
    loader = FEEDS[args.name]

    def images(feed: Feed) -> Iterator[Any]:
        return _checked(loader.open(feed), feed.batch_size)

    tell(run_feed(Loader(images, loader.imports), feed_of(args), args, lambda *_: None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
