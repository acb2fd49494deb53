"""Make the pictures of a report from the sample of its records.

As JPEG, a thumbnail takes 0.1 ms; as WebP it would be a third smaller and take 1.5 ms.
"""

from __future__ import annotations

import functools
import logging
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from shardwright.errors import ImageFault, RecordFault
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.index import check_record
from shardwright.format.manifest import Manifest
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.images.decode import stored_image
from shardwright.images.libraries import load_library
from shardwright.images.previews import decode_preview
from shardwright.images.signals import PictureMeasures, Signals, measure_picture
from shardwright.inspect.sample import TASK_RECORDS, SamplePlace
from shardwright.storage.folder import Folder

MAX_BYTES = 2_550_000  # of all thumbnails; 3.4 MB in the page
_LOG = logging.getLogger("shardwright.report")
LARGEST, LARGE, SMALL = (256, 75), (128, 75), (96, 50)  # longest side in pixels, and quality
_BYTES = ((31_000, LARGEST), (5_100, LARGE))  # that one takes at most, noise excepted
_TINY = 48  # a side in pixels, up to which PNG is small enough


class DrawnBox(NamedTuple):
    """A box on a picture: fractions of its sides, and the number of its class."""

    top: float
    left: float
    bottom: float
    right: float
    label: int | None


class Picture(NamedTuple):
    """A record that the report shows.

    Attributes:
        label: The index of its class, or None.
        place: Its place and its index row.
        thumbnail: A small copy; None if it does not decode, or if there are too many bytes.
        boxes: Its boxes, of all box features.
        masks: Its masks, drawn over the thumbnail.
        measured: Its quality and its channels; None if it does not decode.
    """

    id: str
    split: str
    label: int | None
    place: SamplePlace
    thumbnail: Thumbnail | None
    boxes: tuple[DrawnBox, ...] = ()
    masks: tuple[Thumbnail, ...] = ()
    measured: PictureMeasures | None = None

    @property
    def signals(self) -> Signals | None:
        """Its quality; None if it does not decode."""
        return None if self.measured is None else self.measured.signals

    @property
    def num_bytes(self) -> int:
        """The bytes of its thumbnail and its masks."""
        files = [self.thumbnail, *self.masks]
        return sum(len(file.data) for file in files if file is not None)


def box_features(schema: ExampleSchema) -> Iterator[tuple[Feature, Feature | None]]:
    """Yield the features of boxes, each with the first feature of their classes if there is one."""
    labels = {
        feature.sequence: feature
        for feature in reversed(schema.features)
        if feature.sequence and feature.kind is FeatureKind.CLASS_LABEL
    }
    for feature in schema.features:
        if feature.kind is FeatureKind.BOX:
            yield feature, labels.get(feature.sequence)


def read_pictures(
    root: Folder, manifest: Manifest, places: Sequence[SamplePlace], num_bytes: int | None = None
) -> list[Picture]:
    """Return the pictures at these places, in order, with thumbnails of `num_bytes` together.

    Thumbnails are as large as that allows; it is `MAX_BYTES` by default. A record that does not
    decode gives a picture without a thumbnail.

    Raises:
        StorageError: A shard cannot be read at all.
    """
    most = MAX_BYTES if num_bytes is None else num_bytes
    look = functools.partial(_look, manifest.schema, detail_for(len(places), most))

    def read(some: Sequence[SamplePlace]) -> list[Picture]:
        spans = [(place.row["offset"], place.row["offset"] + place.row["length"]) for place in some]
        return list(map(look, some, root.read_ranges(some[0].shard.shard, spans)))

    tasks = [
        some[start : start + TASK_RECORDS]
        for some in (list(group) for _, group in groupby(places, key=lambda place: place.shard))
        for start in range(0, len(some), TASK_RECORDS)
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = [one for some in pool.map(read, tasks) for one in some]
    total = sum(one.num_bytes for one in found)
    if total > most:  # without some thumbnails, evenly spread over the splits
        kept = int(len(found) * most / total)
        shown = {number * len(found) // kept for number in range(kept)}
        for place in {*range(len(found))} - shown:
            found[place] = found[place]._replace(thumbnail=None, masks=())
    return found


def _look(
    schema: ExampleSchema, detail: tuple[int, int], place: SamplePlace, data: bytes
) -> Picture:
    made = Picture(place.row["id"], place.shard.split, place.row["label"], place, None)
    key = "" if schema.image is None else schema.image.name
    try:
        check_record(place.row, data)
        features = parse_example(data[HEADER_BYTES:-FOOTER_BYTES])
        [image] = features.get(key) or [b""]
        if not isinstance(image, bytes):
            raise ImageFault(f"feature {key!r} holds no bytes")
        preview = decode_preview(image, stored_image(schema))
        measured = measure_picture(preview.pixels, width=preview.width, height=preview.height)
        made = made._replace(measured=measured)
        thumbnail = encode_small(preview.pixels, *detail)
        return made._replace(
            thumbnail=thumbnail,
            boxes=_boxes(schema, features),
            masks=_masks(schema, features, (thumbnail.width, thumbnail.height)),
        )
    except (ImageFault, ExampleFault, RecordFault, ValueError):
        pass  # the page counts it
    except Exception as error:  # a build must not fail for its report
        _LOG.warning("no picture of %r, because of %s: %s", made.id, type(error).__name__, error)
    return made


def _boxes(schema: ExampleSchema, features: Mapping[str, Sequence[Any]]) -> tuple[DrawnBox, ...]:
    found = []
    for boxes, labels in box_features(schema):
        values = features.get(boxes.name, [])
        numbers = features.get(labels.name, []) if labels else []
        for place in range(len(values) // 4):
            label = numbers[place] if place < len(numbers) else None
            top, left, bottom, right = values[4 * place : 4 * place + 4]
            found.append(DrawnBox(top, left, bottom, right, label))
    return tuple(found)


def _masks(
    schema: ExampleSchema, features: Mapping[str, Sequence[Any]], size: tuple[int, int]
) -> tuple[Thumbnail, ...]:
    """Return the masks of a record that decode."""
    found = []
    for feature in schema.features:
        values = features.get(feature.name, [])
        if feature.kind is not FeatureKind.MASK or len(values) != 1 or not values[0]:
            continue
        with suppress(ExampleFault, ValueError, OSError, IndexError):
            numbers = np.asarray(load_library("PIL.Image").open(BytesIO(values[0])))
            numbers = numbers.reshape(*numbers.shape[:2], -1)[:, :, 0].astype(np.int64)
            found.append(encode_mask(numbers, size))
    return tuple(found)


class Thumbnail(NamedTuple):
    """A small picture as a file of its own."""

    data: bytes
    kind: str  # "jpeg" or "png"
    width: int
    height: int

    @property
    def url(self) -> str:
        return f"data:image/{self.kind};base64,{b64encode(self.data).decode()}"


def can_decode() -> bool:
    """Return whether Pillow is installed: the base install has no decoder."""
    try:
        load_library("PIL.Image")
    except Exception:
        return False
    return True


def detail_for(number: int, num_bytes: int) -> tuple[int, int]:
    """Return side and quality at which so many thumbnails usually have at most `num_bytes`."""
    return next((detail for each, detail in _BYTES if number * each <= num_bytes), SMALL)


def encode_small(pixels: np.ndarray, side: int, quality: int) -> Thumbnail:
    """Return pixels as a small file: PNG if it is tiny, else JPEG.

    Args:
        pixels: uint8 [height, width, 1 or 3].
        side: The longest side at most, in pixels.
        quality: Of a JPEG, 1 to 95.
    """
    library = load_library("PIL.Image")
    image = library.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    factor = -(-max(image.size) // side)
    if factor > 1:  # a mean of pixels, three times as fast as a resize
        image = image.reduce(factor)
    kind = "png" if max(image.size) <= _TINY else "jpeg"
    buffer = BytesIO()
    image.save(buffer, kind.upper(), **({"quality": quality} if kind == "jpeg" else {}))
    return Thumbnail(buffer.getvalue(), kind, *image.size)


def encode_mask(numbers: np.ndarray, size: tuple[int, int]) -> Thumbnail:
    """Return a mask as a PNG that is laid over its thumbnail: 0 is clear, other numbers colored.

    Args:
        numbers: Class or instance numbers, [height, width].
        size: (width, height) of the thumbnail.
    """
    library = load_library("PIL.Image")
    colors = np.where(numbers > 0, (numbers - 1) % len(MASK_COLORS) + 1, 0).astype(np.uint8)
    image = library.fromarray(colors).resize(size, library.Resampling.NEAREST)
    image.putpalette([0, 0, 0, *(part for color in MASK_COLORS for part in color)])
    buffer = BytesIO()
    image.save(buffer, "PNG", transparency=0)
    return Thumbnail(buffer.getvalue(), "png", *size)


# Okabe and Ito's colors, which color-blind people can tell apart (jfly.uni-koeln.de/color).
MASK_COLORS = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
    (204, 121, 167),
)  # fmt: skip
