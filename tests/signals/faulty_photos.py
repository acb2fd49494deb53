"""Make photographs with known faults: crops of two real ones, darkened, blurred, cut and so on."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.photos import render_photo

Fault = Callable[[Image.Image, np.random.Generator], Image.Image]


class Photo(NamedTuple):
    """A photograph; `fault` is the made fault, "" if there is none."""

    fault: str
    data: bytes


def make_photo(number: int, seed: int = 0) -> Photo:
    """Return photograph `number`: a pure function of its arguments. Every second one is good."""
    rng = np.random.default_rng((seed, number, 18))
    image: Image.Image = Image.open(io.BytesIO(render_photo(number, seed)))
    # Good photographs have several sizes, or all others would be odd.
    image = image.resize((int(image.width * (scale := rng.uniform(0.5, 1.5))), int(375 * scale)))
    fault = "" if number % 2 else list(_FAULTS)[number // 2 % len(_FAULTS)]
    if fault:
        image = _FAULTS[fault](image, rng)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=int(rng.integers(80, 96)))
    return Photo(fault, buffer.getvalue())


def _dark(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return _scaled(image, rng.uniform(0.02, 0.28), 0)


def _bright(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    kept = rng.uniform(0.005, 0.04)
    return _scaled(image, kept, 255 * (1 - kept))


def _low_contrast(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    kept = rng.uniform(0.02, 0.1)
    return _scaled(image, kept, 255 * rng.uniform(0.4, 0.8))


def _blurry(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(image.width * rng.uniform(0.08, 0.15)))


def _slightly_blurry(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(image.width * rng.uniform(0.02, 0.05)))


def _low_information(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return one color with a few spots of another, like a scan of an empty page."""
    colors = rng.integers(60, 200, size=(2, 3))
    mask = np.zeros((image.height, image.width), bool)
    for y, x in rng.integers(0, 160, size=(int(rng.integers(1, 5)), 2)):
        mask[y : y + 12, x : x + 12] = True
    return Image.fromarray(colors[mask.astype(int)].astype(np.uint8))


def _odd_size(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    scale = rng.uniform(3.5, 4)
    return image.resize((int(image.width * scale), int(image.height * scale)))


def _odd_aspect(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    height = int(image.height * rng.uniform(0.15, 0.4))
    strip = image.crop((0, 40, image.width, 40 + height))
    return strip.rotate(90, expand=True) if rng.random() < 0.5 else strip


def _gray(image: Image.Image, _: np.random.Generator) -> Image.Image:
    return image.convert("L")


def _scaled(image: Image.Image, factor: float, plus: float) -> Image.Image:
    return Image.fromarray((np.asarray(image) * factor + plus).clip(0, 255).astype(np.uint8))


_FAULTS: dict[str, Fault] = {
    "dark": _dark,
    "bright": _bright,
    "low_contrast": _low_contrast,
    "blurry": _blurry,
    "slightly_blurry": _slightly_blurry,
    "low_information": _low_information,
    "odd_size": _odd_size,
    "odd_aspect": _odd_aspect,
    "gray": _gray,
}
