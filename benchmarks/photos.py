#!/usr/bin/env python
"""Make a folder of realistic JPEG photos for benchmarks.

The photos are crops of scikit-learn's two sample photographs (china.jpg and flower.jpg): shifted,
flipped, enlarged, brightened or darkened, with sensor noise, saved at JPEG quality 90 to 95. They
have 500x375 pixels and about 80 KB, compress as badly as a camera's, are all different, and are the
same for the same seed. Nothing is downloaded.

Each photo gets NAMES names (hard links, or copies if the file system has none), so that a folder of
80,000 files takes the space of 8,000. In name order, all photos of a class (64 MB) come before the
first one repeats, so a repeated read does not hit the CPU's cache.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import multiprocessing
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

WIDTH, HEIGHT = 500, 375
CLASSES = 10
VERSION = 1  # increase it when the pictures change: folders of another version are made again


@dataclass(frozen=True)
class PhotoSet:
    """A finished folder of CLASS/NAME.jpg; `num_bytes` counts a file once per link."""

    folder: Path
    files: int
    num_bytes: int


@functools.cache
def sample_photographs() -> list[Image.Image]:
    """Return the two photographs as RGB images."""
    from sklearn.datasets import load_sample_images  # takes 2 s, so only if photos are made

    return [Image.fromarray(picture) for picture in load_sample_images().images]


@functools.cache
def _noise() -> NDArray[np.float32]:
    """Return a noise field larger than a photo; a new window of it is cheaper than new noise."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((HEIGHT + 256, WIDTH + 256, 1), dtype=np.float32)


def render_photo(number: int, seed: int = 0) -> bytes:
    """Return the JPEG bytes of photo `number`: a pure function of its arguments."""
    rng = np.random.default_rng((seed, number))
    source = sample_photographs()[number % 2]
    scale = rng.uniform(1.0, 1.4)
    width, height = WIDTH / scale, HEIGHT / scale
    left, top = rng.uniform(0, source.width - width), rng.uniform(0, source.height - height)
    box = (left, top, left + width, top + height)
    crop = source.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, box=box)
    if rng.random() < 0.5:
        crop = ImageOps.mirror(crop)
    y, x = rng.integers(0, 256, size=2)
    noise = _noise()[y : y + HEIGHT, x : x + WIDTH] * np.float32(rng.uniform(2, 6))
    pixels = np.asarray(crop, dtype=np.float32) * np.float32(rng.uniform(0.9, 1.1)) + noise
    photo = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", quality=int(rng.integers(90, 96)))
    return buffer.getvalue()


def _name(number: int, repeat: int) -> str:
    return f"class_{number // 2 % CLASSES:02d}/k{repeat:02d}_img_{number:07d}.jpg"


def _write_one(job: tuple[Path, int, int]) -> int:
    folder, number, seed = job
    return (folder / _name(number, 0)).write_bytes(render_photo(number, seed))


def _render_all(folder: Path, photos: int, seed: int) -> int:
    """Write the photos with all cores and return their total bytes."""
    jobs = [(folder, number, seed) for number in range(photos)]
    if photos < 64:  # a pool would cost more than it saves
        return sum(map(_write_one, jobs))
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        return sum(pool.imap_unordered(_write_one, jobs, chunksize=32))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another device, or a file system without hard links
        shutil.copyfile(source, target)


def _read_marker(marker: Path, wanted: dict[str, int]) -> int | None:
    """Return the total bytes of a finished set, or None if the marker is missing or differs."""
    if not marker.exists():
        return None
    found = json.loads(marker.read_text())
    return int(found["num_bytes"]) if found.items() >= wanted.items() else None


def make_photos(root: Path, *, photos: int, names: int = 1, seed: int = 0) -> PhotoSet:
    """Make ROOT/photos-PHOTOSxNAMES unless it exists, and return it."""
    folder = root / f"photos-{photos}x{names}"
    # Beside the folder: inside, it would be one more input file.
    marker = folder.with_suffix(".json")
    wanted = {"version": VERSION, "photos": photos, "names": names, "seed": seed}
    num_bytes = _read_marker(marker, wanted)
    if num_bytes is None:
        shutil.rmtree(folder, ignore_errors=True)
        base = make_photos(root, photos=photos, seed=seed) if names > 1 else None
        for label in range(CLASSES):
            (folder / f"class_{label:02d}").mkdir(parents=True)
        if base is None:
            num_bytes = _render_all(folder, photos, seed)
        else:
            num_bytes = base.num_bytes * names
            for repeat in range(names):
                for number in range(photos):
                    _link(base.folder / _name(number, 0), folder / _name(number, repeat))
        marker.write_text(json.dumps({**wanted, "num_bytes": num_bytes}))
    return PhotoSet(folder, photos * names, num_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/photos.py /dev/shm/bench --photos 8000 --names 5",
    )
    parser.add_argument(
        "root", type=Path, help="the folder is made under this one, as photos-PHOTOSxNAMES"
    )
    parser.add_argument(
        "--photos", type=int, default=8000, help="different pictures (default %(default)s)"
    )
    parser.add_argument(
        "--names", type=int, default=1, help="names for each picture (default %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed, other crops (default %(default)s)"
    )
    args = parser.parse_args()
    made = make_photos(args.root, photos=args.photos, names=args.names, seed=args.seed)
    print(json.dumps({**asdict(made), "folder": str(made.folder)}))


if __name__ == "__main__":
    main()
