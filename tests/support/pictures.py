"""Small pictures that look different, and copies that look the same."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 96, 72


def picture(number: int) -> Image.Image:
    """Return a picture of soft color patches, another for each number."""
    patches = np.random.default_rng(number).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, image_format: str = "PNG") -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    image.save(file, image_format)
    return file.getvalue()


def copy_of(image: Image.Image, *, scale: float = 1, quality: int = 85) -> bytes:
    """Return a resized JPEG of an image."""
    size = round(image.width * scale), round(image.height * scale)
    file = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(file, "JPEG", quality=quality)
    return file.getvalue()
