"""The images that engines build from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.build_helpers import CLASSES, make_images
from tests.support.image_makers import picture, saved


def make_engine_images(root: Path, number: int = 60, *, names: Sequence[str] = CLASSES) -> Path:
    """Make `number` images in class folders: two PNGs of noise, then a JPEG, and so on."""
    make_images(root, number, names=names)
    for index in range(2, number, 3):
        noise = root / names[index % len(names)] / f"{index:04d}.png"
        noise.unlink()
        jpeg = saved(picture(size=(40 + index, 30 + index % 7)), "JPEG", quality=80)
        noise.with_suffix(".jpg").write_bytes(jpeg)
    return root


def add_bad_images(root: Path, *, names: Sequence[str] = CLASSES) -> dict[str, str]:
    """Add an empty and a truncated file; return the reject reason of each by its id."""
    whole = saved(picture(), "PNG")
    (root / names[0] / "empty.png").write_bytes(b"")
    (root / names[1] / "torn.png").write_bytes(whole[: len(whole) // 2])
    return {f"{names[0]}/empty.png": "empty_file", f"{names[1]}/torn.png": "truncated"}
