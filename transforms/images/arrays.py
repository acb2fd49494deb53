"""Convert images to arrays and back, for user code."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.transforms.images.encode import upright
from shardwright.transforms.images.exif import orientation_of
from shardwright.transforms.images.headers import read_header
from shardwright.transforms.images.kinds import RejectedImage
from shardwright.transforms.images.modes import in_mode, opaque
from shardwright.transforms.images.pixels import PIXELS, decoder_faults, open_pixels, pixels_held
from shardwright.transforms.rejects import RejectReason

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def decode_rgb(data: bytes) -> npt.NDArray[np.uint8]:
    """Return an image as uint8 [height, width, 3], upright, with transparent areas white.

    Of an animation, this is the first frame.

    Raises:
        RejectedImage: It does not decode.
    """
    header = read_header(data)
    image = open_pixels(data, header)
    with PIXELS.hold(pixels_held(image)), decoder_faults(header):
        image.load()
        return np.array(in_mode(opaque(upright(image, orientation_of(data, header))), "RGB"))


def encode_png(pixels: npt.NDArray[Any]) -> bytes:
    """Return a PNG of uint8 [height, width] or [height, width, 1, 3 or 4].

    It is compressed lightly, because it may be decoded again at once.

    Raises:
        RejectedImage: BAD_VALUE for an array of another shape or dtype.
    """
    from PIL import Image

    shown = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = shown.shape[2] if shown.ndim == 3 else 1
    if (
        pixels.dtype != np.uint8
        or shown.ndim not in (2, 3)
        or channels not in _MODES
        or 0 in shown.shape
    ):
        found = f"{list(pixels.shape)} of {pixels.dtype}"
        raise RejectedImage(
            RejectReason.BAD_VALUE,
            f"pixels must be uint8 [height, width] or [height, width, 1, 3 or 4], got {found}",
        )
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(shown), _MODES[channels]).save(
        file, "PNG", compress_level=1
    )
    return file.getvalue()
