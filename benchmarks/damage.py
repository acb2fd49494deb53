"""Make damaged images, and tell who finds the damage: each check of a build, and TensorFlow."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable, Sequence
from io import BytesIO

from PIL import Image

from shardwright.errors import ImageFault
from shardwright.transforms.child_process import Death, call_in_child
from shardwright.transforms.images.checks import check_image

FORMATS = ("jpeg", "png", "gif", "webp", "bmp")
_SIZE = (160, 120)
_SECTOR, _MOST_SECTORS, _MOST_FLIPS = 512, 8, 8
_SECONDS = 60.0  # of one image in TensorFlow


def photograph(image_format: str, seed: int) -> bytes:
    """Return an image file of soft shapes with some noise, another for each seed."""
    noise = random.Random(seed)
    soft = Image.frombytes("RGB", (10, 8), noise.randbytes(240)).resize(_SIZE)
    grain = Image.frombytes("RGB", _SIZE, noise.randbytes(_SIZE[0] * _SIZE[1] * 3))
    file = BytesIO()
    Image.blend(soft, grain, 0.1).save(file, image_format)
    return file.getvalue()


def _truncated(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(1, len(data)) :]


def _flipped(data: bytearray, draw: random.Random) -> None:
    for place in draw.sample(range(len(data)), draw.randint(1, _MOST_FLIPS)):
        data[place] ^= draw.randint(1, 255)


def _zeroed(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(0, len(data), _SECTOR)
    end = min(len(data), start + _SECTOR * draw.randint(1, _MOST_SECTORS))
    data[start:end] = bytes(end - start)


KINDS: dict[str, Callable[[bytearray, random.Random], None]] = {
    "cut off at a random byte": _truncated,
    "1 to 8 bytes changed": _flipped,
    "1 to 8 sectors of zeros": _zeroed,
}


def damaged(image_format: str, kind: str, count: int) -> list[bytes]:
    """Return images with this damage, the same ones in every run."""
    made = []
    for seed in range(count):
        data = bytearray(photograph(image_format, seed))
        KINDS[kind](data, random.Random(f"{image_format} {kind} {seed}"))
        made.append(bytes(data))
    return made


def finds(data: bytes, check: str) -> bool:
    """Return whether a build with this `--check` rejects an image."""
    try:
        check_image(data, check)
    except ImageFault:
        return True
    return False


def undecodable(images: Sequence[bytes]) -> list[bool]:
    """Return whether TensorFlow cannot decode each image, or dies of it."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    tried = call_in_child(functools.partial(_fails, images), len(images), _SECONDS)
    return [isinstance(each, Death) or each for each in tried]


def _fails(images: Sequence[bytes], number: int) -> bool:
    import tensorflow as tf  # in the child only, which a decoder may kill

    try:
        tf.io.decode_image(images[number], channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return True
    return False
