#!/usr/bin/env python
"""Measure re-encoding against a plain Pillow loop, and the memory of a build with large images.

    python benchmarks/encode.py [--photos 1000] [--rounds 3] [--write]

There are three kinds of work on the same JPEGs, which are read before timing starts. "One core" is
one thread. "All cores" is, for Pillow, one process per core, the usual way to speed up such a
script, and for shardwright the threads of one build. Processes start before timing. The routes
alternate within each round, so that other load on the machine affects all of them.

Memory is that of a whole build, summed over its processes: photographs, and one JPEG of 50
megapixels per hundred.
"""

from __future__ import annotations

import functools
import io
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import page
import raw_results
from measure import measure
from page import Target, spread
from photos import make_photos
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import store_image
from shardwright.transforms.write.shard_chunks import ReadAhead

CORES = os.cpu_count() or 1
BLOCK = 16
LARGE_SIZE, LARGE_SHARE = (8000, 6250), 100  # pixels; one large image per 100 photos
MOST_BYTES = 10**9

Size = tuple[int, int]


class Work(NamedTuple):
    """One kind of work: re-encode as JPEG of quality 90, resized to `size` or in the same size."""

    name: str
    size: Size | None
    scale: int = 1  # the photographs are first enlarged by this factor


WORKS = (
    Work("500 x 375 to 256 x 256", (256, 256)),
    Work("500 x 375, as large as it is", None),
    Work("4000 x 3000 to 256 x 256", (256, 256), 8),
)
ROUTES = (
    "Pillow, one core",
    "shardwright, one core",
    "Pillow, all cores",
    "shardwright, all cores",
)


def by_pillow(size: Size | None, data: bytes) -> bytes:
    """Return the image re-encoded as a careful script would do it."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=90)
    return encoded.getvalue()


def by_us(options: EncodeOptions, data: bytes) -> bytes:
    return store_image(data, options).data


def in_order(encode: Callable[[bytes], bytes], images: Sequence[bytes]) -> list[bytes]:
    return [encode(data) for data in images]


def in_threads(encode: Callable[[bytes], bytes], images: Sequence[bytes]) -> list[bytes]:
    """Encode in chunks in the thread pool of a build, in order, as for a shard."""
    blocks = (
        functools.partial(in_order, encode, images[start : start + BLOCK])
        for start in range(0, len(images), BLOCK)
    )
    return [data for block in ReadAhead[list[bytes]](CORES).run(blocks) for data in block]


def enlarged(data: bytes, scale: int) -> bytes:
    if scale == 1:
        return data
    image = Image.open(io.BytesIO(data))
    encoded = io.BytesIO()
    image.resize((image.width * scale, image.height * scale), Image.Resampling.BILINEAR).save(
        encoded, "JPEG", quality=90
    )
    return encoded.getvalue()


def images_of(work: Work, files: Sequence[Path]) -> list[bytes]:
    """Return the images of one kind of work: fewer if larger, so that all take equally long."""
    return [
        enlarged(path.read_bytes(), work.scale)
        for path in files[: max(2 * BLOCK * CORES, len(files) // work.scale**2)]
    ]


def speeds(work: Work, images: list[bytes], rounds: int) -> dict[str, list[float]]:
    """Return the images/s of each route, one value per round."""
    pillow = functools.partial(by_pillow, work.size)
    ours = functools.partial(by_us, EncodeOptions("jpeg", work.size))
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        pool.map(pillow, images[: BLOCK * CORES], BLOCK)
        routes: dict[str, Callable[[], list[bytes]]] = {
            "Pillow, one core": lambda: in_order(pillow, images),
            "shardwright, one core": lambda: in_order(ours, images),
            "Pillow, all cores": lambda: pool.map(pillow, images, BLOCK),
            "shardwright, all cores": lambda: in_threads(ours, images),
        }
        in_threads(ours, images[: BLOCK * CORES])
        found: dict[str, list[float]] = {name: [] for name in ROUTES}
        for number in range(rounds):
            for name in ROUTES[number % 4 :] + ROUTES[: number % 4]:
                start = time.perf_counter()
                made = routes[name]()
                found[name].append(len(images) / (time.perf_counter() - start))
                assert len(made) == len(images)
    return found


def peak_memory(folder: Path, photos: Sequence[Path]) -> tuple[int, int]:
    """Return the peak RSS in bytes of a build with large images, and their number."""
    mixed = folder / "mixed" / "class"
    mixed.mkdir(parents=True, exist_ok=True)
    soft = Image.open(photos[0]).resize(LARGE_SIZE, Image.Resampling.BILINEAR)
    large = math.ceil(len(photos) / LARGE_SHARE) + 2 * CORES
    for number in range(large):
        soft.save(mixed / f"large-{number}.jpg", quality=80)
    for number, path in enumerate(photos):
        (mixed / f"{number}.jpg").write_bytes(path.read_bytes())
    words = [
        str(Path(sys.executable).with_name("shardwright")),
        "build",
        str(mixed.parent),
        str(folder / "out"),
    ]
    usage = measure([*words, "--encode", "jpeg", "--if-exists", "overwrite"], log=folder / "build")
    return usage.peak_rss_bytes, large


def ratios(of: list[float], to: list[float]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(of, to, strict=True)]


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return raw


def targets(found: dict[str, Any]) -> list[Target]:
    checks = []
    for work, rates in found["rates"].items():
        for cores, need, other in (
            ("one core", 0.95, "a plain Pillow loop"),
            ("all cores", 0.98, "a Pillow process a core"),
        ):
            ratio = ratios(rates[f"shardwright, {cores}"], rates[f"Pillow, {cores}"])
            text = f"{work}: {cores}, at least {need}x {other}"
            checks.append(Target(text, f"{spread(ratio, '.2f')}x", median(ratio) >= need))
    peak, pixels = found["peak_bytes"], LARGE_SIZE[0] * LARGE_SIZE[1] / 1e6
    text = f"peak memory with {pixels:.0f}-megapixel images, under 1 GB"
    return [*checks, Target(text, f"{peak / 1e9:.2f} GB", peak < 1e9)]


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    rates = found["rates"]
    rows = [[name, *(f"{median(each[name]):,.0f}" for each in rates.values())] for name in ROUTES]
    return "\n".join([
        "## Re-encoding", "", *lines, "", *page.table(["images/s", *rates], rows), "",
        "JPEG to JPEG of quality 90; the median of the rounds. The largest ones are decoded by "
        "libjpeg at a fraction of their size,",
        f"twice that of the result. Memory: a build of {found['photos']:,} photographs and "
        f"{found['large']} JPEGs of 50 megapixels, `--encode jpeg`.",
    ])  # fmt: skip


def main() -> int:
    parser = page.parser(__doc__)
    parser.add_argument("--photos", type=int, default=1000, help="number of photos")
    args = parser.parse_args()
    folder = page.work_folder(args.dir, MOST_BYTES)
    files = sorted(make_photos(folder / "photos", photos=args.photos).folder.glob("*/*.jpg"))
    found = {work.name: speeds(work, images_of(work, files), args.rounds) for work in WORKS}
    peak_bytes, large = peak_memory(folder / "encode", files)
    about = raw_results.circumstances(folder, args.rounds, packages=["Pillow"])
    raw = {"rates": found, "peak_bytes": peak_bytes, "large": large, "photos": len(files)}
    return raw_results.finish(raw_results.Result("encode", about, raw), sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
