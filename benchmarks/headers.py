"""Measure image checks: microseconds per image, by method and format, in one thread.

    .venv/bin/python benchmarks/headers.py

Everything except the full decode holds the GIL, so its time adds up over all threads. The images
are made here: 500 x 375 pixels with the noise of a photograph. `imagesize` is measured if
installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import statistics
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from shardwright.transforms.images.checks import check_image

SIZE = (500, 375)
ROUNDS = 7
SECONDS_PER_ROUND = 0.04

Method = Callable[[bytes], object]


def photograph() -> Image.Image:
    """Return soft shapes with noise; as JPEG of quality 90 they take about 80 KB."""
    noise = random.Random(0)
    soft = Image.frombytes("RGB", (25, 19), noise.randbytes(25 * 19 * 3)).resize(
        SIZE, Image.Resampling.BICUBIC
    )
    grain = Image.frombytes("RGB", SIZE, noise.randbytes(SIZE[0] * SIZE[1] * 3))
    return Image.blend(soft, grain, 0.14)


def files() -> dict[str, bytes]:
    """Return name -> file; 'jpeg, phone' has EXIF, and bytes after its end."""
    image = photograph()
    made = {}
    for name in ("jpeg", "png", "gif", "webp", "bmp"):
        buffer = BytesIO()
        image.save(buffer, name, quality=90) if name in ("jpeg", "webp") else image.save(
            buffer, name
        )
        made[name] = buffer.getvalue()
    exif = Image.Exif()
    exif[0x0112], exif[0x0110] = 6, "A phone"
    phone = BytesIO()
    image.save(phone, "jpeg", quality=90, exif=exif)
    made["jpeg, phone"] = phone.getvalue() + bytes(2_000)
    return made


def methods() -> dict[str, Method]:
    found: dict[str, Method] = {
        "check_image 'none'": lambda data: check_image(data, "none"),
        "check_image 'header'": lambda data: check_image(data, "header"),
        "Pillow Image.open": lambda data: Image.open(BytesIO(data)).size,
        "check_image 'decode'": lambda data: check_image(data, "decode"),
        "Pillow load": lambda data: Image.open(BytesIO(data)).load(),
    }
    if importlib.util.find_spec("imagesize"):
        get = importlib.import_module("imagesize").get
        found["imagesize.get"] = lambda data: get(BytesIO(data))
    return found


def microseconds(method: Method, data: bytes) -> float:
    """Return the median over rounds of the mean time per call, in microseconds."""
    method(data)  # imports and caches
    start = time.perf_counter()
    method(data)
    calls = max(1, int(SECONDS_PER_ROUND / (time.perf_counter() - start)))
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            method(data)
        rounds.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(rounds)


def main() -> None:
    images = files()
    print(f"{'microseconds per image':24}" + "".join(f"{name:>14}" for name in images))
    print(f"{'(KB)':24}" + "".join(f"{len(data) / 1e3:14.0f}" for data in images.values()))
    for name, method in methods().items():
        print(
            f"{name:24}"
            + "".join(f"{microseconds(method, data):14.1f}" for data in images.values()),
            flush=True,
        )


if __name__ == "__main__":
    main()
