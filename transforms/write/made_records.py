"""An image as it is stored, and a record without its frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shardwright.images.kinds import ImageInfo


class ImageToStore(NamedTuple):
    """One image as a record holds it.

    Attributes:
        data: Its bytes; for an unchanged image, the same object that was given.
        info: Their properties.
        fixes: The names of the fixed faults, and `EXIF_KEPT` for an image that viewers turn by its
            EXIF and training does not.
    """

    data: bytes
    info: ImageInfo
    fixes: tuple[str, ...] = ()


NO_IMAGE = ImageToStore(b"", ImageInfo("", 0, 0, 0))  # of a record that lacks the image


class MadeRecord(NamedTuple):
    """A record without its frame.

    Attributes:
        row: The number of its row in the chunk.
        id: The id.
        label: The label's index; None without classes.
        entries: The encoded small features.
        image: The image, without bytes if the record has none.
        pictures: The additional images by feature name.
    """

    row: int
    id: str
    label: int | None
    entries: bytes
    image: ImageToStore
    pictures: Mapping[str, ImageToStore]
