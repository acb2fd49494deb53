#!/usr/bin/env python
"""Measure the search for near-duplicates: speed, recall of copies, and false merges.

1. Speed: 10,000,000 seeded random hashes with planted pairs, all pairs within a distance of 3, in
   this process. Every planted pair must be found.
2. Equality: 1,000 photographs (benchmarks/photos.py) have the hash of `imagehash.phash`.
3. Recall: copies of these photographs at JPEG quality 50 to 95, of 0.5 to 2 times their size, and
   as PNG, WebP, BMP and GIF. A copy is found if it is within a distance of 3 of the original.
4. False merges: 20,000 distinct photographs, each a blend of four crops of scikit-learn's sample
   photographs at random places, sizes and angles. No pair may be within a distance of 3. One or two
   crops would not do: of 20,000, some show the same flower at the same place.
"""

from __future__ import annotations

import argparse
import functools
import io
import multiprocessing
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

from benchmarks.photos import render_photo, sample_photographs
from shardwright.images.perceptual_hash import hash_image
from shardwright.transforms.near_duplicates.groups import (
    find_pairs,
    hash_picture,
    join_pairs,
)

DISTANCE = 3
WIDTH, HEIGHT = 256, 192
MAX_SECONDS, MAX_BYTES = 60, 2e9
QUALITIES = (50, 60, 75, 85, 95)
SCALES = (0.5, 0.75, 1.5, 2.0)
FORMATS = {"PNG": {"compress_level": 1}, "WEBP": {"quality": 80, "method": 0}, "BMP": {}, "GIF": {}}


def planted_hashes(number: int, pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random hashes, uint64 [number], the first of which are pairs within `DISTANCE`.

    Returns:
        The hashes, and the planted pairs as uint64 [pairs, 2].
    """
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 1 << 64, number, dtype=np.uint64)
    flips = np.zeros(pairs, np.uint64)
    for _ in range(DISTANCE):  # two flips of one bit undo each other: distances are 1 and 3, or 2
        flips ^= np.uint64(1) << rng.integers(0, 64, pairs, dtype=np.uint64)
    planted = np.stack([hashes[:pairs], hashes[:pairs] ^ flips], axis=1)
    hashes[pairs : 2 * pairs] = planted[:, 1]
    return hashes, planted


def measure_speed(number: int, pairs: int) -> list[str]:
    """Search the planted pairs, print the figures, and return what fails."""
    hashes, planted = planted_hashes(number, pairs)
    start, cpu = time.perf_counter(), time.process_time()
    found = [*find_pairs(np.unique(hashes), DISTANCE)]
    joined = join_pairs(found)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    keys = np.sort(np.concatenate([_pair_keys(left, right) for left, right in found]))
    wanted = _pair_keys(planted[:, 0], planted[:, 1])
    recall = np.isin(wanted[planted[:, 0] != planted[:, 1]], keys).mean()
    print(
        f"speed: {number:,} hashes, {len(keys):,} pairs within {DISTANCE} of {len(joined[0]):,} "
        f"hashes, recall of planted pairs {recall}, "
        f"{seconds:.1f} s ({cpu:.1f} s of CPU), {peak / 1e9:.2f} GB"
    )
    return [
        name
        for name, fails in {
            "recall of planted pairs": recall < 1,
            "seconds": min(seconds, cpu) > MAX_SECONDS,
            "memory": peak > MAX_BYTES,
        }.items()
        if fails
    ]


def _pair_keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return one number for each pair, whatever its order."""
    return np.minimum(left, right) * np.uint64(0x9E3779B97F4A7C15) ^ np.maximum(left, right)


def copies_of(photo: Image.Image) -> Iterator[tuple[str, bytes]]:
    """Yield (kind, file) of copies of an RGB image."""
    for quality in QUALITIES:
        yield "recompressed", _encoded(photo, "JPEG", quality=quality)
    for scale in SCALES:
        size = round(photo.width * scale), round(photo.height * scale)
        resized = photo.resize(size, Image.Resampling.BICUBIC)
        yield "resized", _encoded(resized, "JPEG", quality=85)
    for name, options in FORMATS.items():
        yield "other format", _encoded(photo, name, **options)


def _encoded(photo: Image.Image, image_format: str, **options: int) -> bytes:
    file = io.BytesIO()
    photo.save(file, image_format, **options)
    return file.getvalue()


def distances_of_copies(number: int) -> tuple[bool, list[tuple[str, int]]]:
    """Return whether a photograph's hash equals ImageHash's, and (kind, distance) of its copies."""
    import imagehash

    data = render_photo(number)
    photo = Image.open(io.BytesIO(data)).convert("RGB")
    equal = f"{hash_image(photo).value:016x}" == str(imagehash.phash(photo))
    original = hash_picture(data).phash
    found = [(kind, hash_picture(copy).phash) for kind, copy in copies_of(photo)]
    return equal, [(kind, _distance(original, copy)) for kind, copy in found]


def _distance(left: int | None, right: int | None) -> int:
    return 64 if left is None or right is None else (left ^ right).bit_count()


def measure_recall(photos: int) -> list[str]:
    """Compare copies with their photographs, print the figures, and return what fails."""
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        results = list(pool.imap(distances_of_copies, range(photos), chunksize=16))
    equal = sum(is_equal for is_equal, _ in results)
    print(f"equality: {equal:,} of {photos:,} hashes are those of imagehash.phash")
    by_kind: dict[str, list[int]] = defaultdict(list)
    for _, distances in results:
        for kind, distance in distances:
            by_kind[kind].append(distance)
    recalls = {kind: np.mean(np.array(each) <= DISTANCE) for kind, each in by_kind.items()}
    for kind, each in by_kind.items():
        print(f"recall of copies, {kind}: {recalls[kind]:.4f} of {len(each):,}")
    failed = [f"recall of {kind}" for kind, recall in recalls.items() if recall < 0.99]
    return failed + ([] if equal == photos else ["equality with imagehash.phash"])


def distinct_photograph(number: int, seed: int = 0) -> Image.Image:
    """Return a blend of four crops: a pure function of its arguments."""
    rng = np.random.default_rng((seed, number))
    crops = [_random_crop(source, rng) for source in sample_photographs() * 2]
    halves = (Image.blend(*pair, rng.uniform(0.35, 0.65)) for pair in (crops[:2], crops[2:]))
    return ImageOps.autocontrast(Image.blend(*halves, rng.uniform(0.35, 0.65)))


def _random_crop(source: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a crop at a random place, angle and size, maybe mirrored."""
    side = rng.uniform(0.25, 0.9) * min(source.size)
    angle, mirror = rng.uniform(0, 2 * np.pi), rng.choice((-1, 1))
    x, y = (rng.uniform(side / 2, length - side / 2) for length in source.size)
    step = side / np.hypot(WIDTH, HEIGHT)
    right, down = step * np.cos(angle), step * np.sin(angle)
    matrix = (
        *(right * mirror, -down, x - (right * mirror * WIDTH - down * HEIGHT) / 2),
        *(down * mirror, right, y - (down * mirror * WIDTH + right * HEIGHT) / 2),
    )
    size = (WIDTH, HEIGHT)
    return source.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def distinct_hash(number: int) -> int:
    """Return the hash of a distinct photograph."""
    return hash_image(distinct_photograph(number)).value


def measure_false_merges(photos: int) -> list[str]:
    """Compare distinct photographs, print the figures, and return what fails."""
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        hashes = np.array(list(pool.imap(distinct_hash, range(photos), chunksize=64)), np.uint64)
    distinct = np.unique(hashes)
    counts = {
        distance: len(hashes) - len(distinct) + _number_of_pairs(distinct, distance)
        for distance in (DISTANCE, 4, 6, 8)
    }
    told = ", ".join(f"{number:,} within {distance}" for distance, number in counts.items())
    print(f"false merges: of {photos:,} distinct photographs, pairs: {told}")
    return ["false merges"] if counts[DISTANCE] else []


def _number_of_pairs(hashes: np.ndarray, distance: int) -> int:
    return sum(len(left) for left, _ in find_pairs(hashes, distance))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    number = functools.partial(parser.add_argument, type=int, metavar="N")
    number("--hashes", default=10_000_000, help="random hashes (default %(default)s)")
    number("--copied", default=1000, help="photographs with copies (default %(default)s)")
    number("--photos", default=20_000, help="distinct photographs (default %(default)s)")
    args = parser.parse_args()
    failed = measure_speed(args.hashes, args.hashes // 100)
    failed += measure_recall(args.copied)
    failed += measure_false_merges(args.photos)
    for name in failed:
        print(f"misses its target: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
