"""Compute the 64-bit perceptual hash of a picture, which recompressing and resizing hardly change.

The algorithm is "pHash" as `imagehash.phash` (4.3.2) computes it with its defaults, and the hash is
the same number: 32x32 gray pixels by Pillow's Lanczos filter, their discrete cosine transform, and
a bit for each of the 8x8 lowest frequencies that exceeds the median of them. The transform is in
integers, so that the same pixels have the same hash on every machine.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.images.libraries import load_library

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 32
"""Height and width of the gray pixels that are hashed."""

_KEPT = 8  # frequencies in each direction: 8 x 8 bits
_SCALE_BITS = 22  # of the cosines: 255 * 32 * 32 of them squared are below 2 ** 63
# In gray levels: an amplitude of 1/8 of a level. Rounding pixels to 8 bits causes a seventh of it.
_VISIBLE = 32 << 2 * _SCALE_BITS


class PerceptualHash(NamedTuple):
    """The hash of a picture.

    Attributes:
        value: 64 bits, the lowest frequencies first.
        detail: Number of its 64 frequencies that are in the picture at all, 0 to 63. Bits of the
            others follow from noise: a flat picture has 0 and a gradient about 7, so their hashes
            are equal, or differ, by chance.
    """

    value: int
    detail: int


def hash_image(image: Image) -> PerceptualHash:
    """Return the perceptual hash of a Pillow image; alpha is ignored."""
    lanczos = load_library("PIL.Image").Resampling.LANCZOS
    gray = image.convert("L").resize((SIDE, SIDE), lanczos)
    cosines = _cosines()
    # In int64, which is exact, and slow only for large matrices.
    found = (cosines @ np.asarray(gray, np.int64) @ cosines.T).ravel()
    # Above the median of an even number of values is above the lower of the two in the middle.
    middle = np.partition(found, len(found) // 2 - 1)[len(found) // 2 - 1]
    bits = np.packbits(found > middle).tobytes()
    detail = int(np.count_nonzero(np.abs(found[1:]) > _VISIBLE))
    return PerceptualHash(int.from_bytes(bits, "big"), detail)


@functools.cache
def _cosines() -> NDArray[Any]:
    """Return the transform of one direction, int64 [8, 32]: DCT-II without its factor 2."""
    angles = np.pi / (2 * SIDE) * np.outer(np.arange(_KEPT), 2 * np.arange(SIDE) + 1)
    return np.rint(np.cos(angles) * (1 << _SCALE_BITS)).astype(np.int64)
