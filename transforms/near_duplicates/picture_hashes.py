"""Hash the pictures of a reference batch; those that do not decode or show too little have none."""

from __future__ import annotations

import functools
from typing import NamedTuple

import pyarrow as pa

from shardwright.images.perceptual_hash import SIDE, hash_image
from shardwright.storage.options import StorageOptions
from shardwright.transforms.child_process import Death, call_in_child
from shardwright.transforms.images.headers import read_header
from shardwright.transforms.images.kinds import RejectedImage, too_many_pixels
from shardwright.transforms.images.modes import opaque
from shardwright.transforms.images.pixels import PIXELS, decoder_faults, open_pixels, pixels_held
from shardwright.transforms.write.image_reads import main_places
from shardwright.transforms.write.image_scans import scan_images
from shardwright.transforms.write.write_job import IMAGE_SECONDS

MIN_DETAIL = 24
"""Frequencies that a picture must have, of 63: photographs have over 50, flat ones under 10."""

# A large JPEG is decoded at an eighth, a quarter or half of its size, if that leaves so many pixels
# in each direction. Fewer would lose copies: a reduced size is rounded, which shifts the picture.
# So hashes of large JPEGs may differ from those of imagehash, by two bits in 4 of 62 photographs.
_DECODED_SIDE = 8 * SIDE


class PictureHash(NamedTuple):
    """The hash of a picture.

    Attributes:
        phash: The perceptual hash; None if the picture has no detail or does not decode.
        num_pixels: Its width times its height; 0 if it does not decode.
    """

    phash: int | None
    num_pixels: int


NO_HASH = PictureHash(None, 0)


def hash_places(
    batch: pa.RecordBatch, storage: StorageOptions, threads: int | None = None
) -> list[PictureHash | None]:
    """Read, decode and hash the main image of each row; None if it cannot be read.

    Raises:
        StorageError: A whole store fails, rather than one object.
    """
    return scan_images(_hash_or_none, main_places(batch), storage, threads)


def hash_alone(batch: pa.RecordBatch, storage: StorageOptions) -> list[PictureHash | None]:
    """Do as `hash_places`, one by one in a child process; an image that ends it has no hash."""
    task = functools.partial(_hash_row, batch, storage)
    made = call_in_child(task, batch.num_rows, IMAGE_SECONDS)
    return [NO_HASH if isinstance(each, Death) else each for each in made]


def _hash_row(batch: pa.RecordBatch, storage: StorageOptions, row: int) -> PictureHash | None:
    return hash_places(batch.slice(row, 1), storage, 1)[0]


def _hash_or_none(data: bytes) -> PictureHash:
    try:
        return hash_picture(data)
    except RejectedImage:
        return NO_HASH


def hash_picture(data: bytes) -> PictureHash:
    """Return the hash of an image file, as it is shown: alpha on white, without EXIF's rotation.

    Raises:
        RejectedImage: It does not decode.
    """
    header = read_header(data)
    if fault := too_many_pixels(header.info.format, header.info.width, header.info.height):
        raise fault
    image = open_pixels(data, header)
    width, height = image.size
    with PIXELS.hold(pixels_held(image)), decoder_faults(header):
        image.draft("L", (_DECODED_SIDE, _DECODED_SIDE))
        image.load()
        found = hash_image(opaque(image))
    return PictureHash(found.value if found.detail >= MIN_DETAIL else None, width * height)
