"""Images as a build stores them, without the checks that come before."""

from __future__ import annotations

from shardwright.transforms.images.kinds import ImageInfo
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import store_image


def encode_image(data: bytes, options: EncodeOptions) -> tuple[bytes, ImageInfo]:
    """Return an image's bytes in a shard, and their properties."""
    stored = store_image(data, options, check="none")
    return stored.data, stored.info
