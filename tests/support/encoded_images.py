"""Images as a build stores them, without the checks that come before, and why it does not."""

from __future__ import annotations

import re

import pytest

from shardwright.errors import ImageFault
from shardwright.images.kinds import ImageInfo
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import store_image


def encode_image(data: bytes, options: EncodeOptions) -> tuple[bytes, ImageInfo]:
    """Return an image's bytes in a shard, and their properties."""
    stored = store_image(data, options, check="none")
    return stored.data, stored.info


def rejected(pattern: str) -> pytest.RaisesExc[ImageFault]:
    """Expect the fault of an image whose reject, `REASON: TEXT`, has this pattern."""

    def has_pattern(fault: ImageFault) -> bool:
        return re.search(pattern, f"{fault.reason}: {fault.what}") is not None

    return pytest.RaisesExc(ImageFault, check=has_pattern)
