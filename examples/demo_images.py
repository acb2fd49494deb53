"""Make class folders of PNG and JPEG files from scikit-learn's own images, without downloads."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

DIGIT_SIDE = 32
CROP_SIDE = 224
CROPS_PER_PHOTO = 250


def make_digits(root: Path) -> int:
    """Write 1,797 digits, 32 x 32 gray, to `root`/<digit>/<number>.png; return their number."""
    return _write_all(root, _digits())


def make_photo_crops(root: Path) -> int:
    """Write 500 crops, 224 x 224, to `root`/<china or flower>/<number>.jpg; return their number."""
    return _write_all(root, _photo_crops())


def _digits() -> Iterator[tuple[str, Image.Image]]:
    digits = load_digits()  # uint8 [1797, 8, 8], values 0 to 16
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        small = Image.fromarray((pixels * 255 / 16).astype(np.uint8))
        yield (
            f"{label}/{number:04d}.png",
            small.resize((DIGIT_SIDE, DIGIT_SIDE), Image.Resampling.BICUBIC),
        )


def _photo_crops() -> Iterator[tuple[str, Image.Image]]:
    rng = np.random.default_rng(0)
    for name in ("china", "flower"):
        photo = load_sample_image(f"{name}.jpg")  # uint8 [427, 640, 3]
        for number in range(CROPS_PER_PHOTO):
            top, left = (int(rng.integers(0, side - CROP_SIDE + 1)) for side in photo.shape[:2])
            yield (
                f"{name}/{number:04d}.jpg",
                Image.fromarray(photo[top : top + CROP_SIDE, left : left + CROP_SIDE]),
            )


def _write_all(root: Path, images: Iterator[tuple[str, Image.Image]]) -> int:
    """Write missing files only: a new modification time would make a dataset out of date."""
    count = 0
    for name, image in images:
        path = root / name
        count += 1
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = BytesIO()
        image.save(buffer, "PNG" if path.suffix == ".png" else "JPEG", quality=90)
        partial = path.with_suffix(".part")
        partial.write_bytes(buffer.getvalue())
        partial.replace(path)  # atomic: a stopped demo leaves no partial image
    return count
