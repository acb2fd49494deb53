"""Measure how fast libraries decode JPEGs to training images, and compare pixels with TensorFlow's.

    python benchmarks/decoders.py [--photos 2000] [--rounds 3] [--write]

Each method makes the same 224 x 224 images from the same photographs, with the same random crops,
bilinear resizing and flips, into one array. It runs in threads of one process, in blocks of 16
images; TensorFlow runs in tf.data with a pool of the same number of threads. The methods alternate
within each round, so that other load on the machine affects all of them. The median of the rounds
counts.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import decoders_report
import numpy as np
import page
import raw_results
from numpy.typing import NDArray
from photos import make_photos
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import cv2
import simplejpeg
import tensorflow as tf

from shardwright.images.crops import Crop, draw_crop, draw_flip
from shardwright.images.decode import StoredImage
from shardwright.images.specs import DecodedImage, TrainImage

SIZE, BLOCK, THREADS = 224, 16, (1, 2)
FILES, SPEC, EXACT_SPEC = StoredImage(), TrainImage(SIZE), TrainImage(SIZE, fast=False)
MOST_COMPARED = 300

Slot = NDArray[np.uint8]


class Job(NamedTuple):
    """One image: the bytes of its file, and the crop and flip drawn for it."""

    data: bytes
    draw: int
    crop: Crop
    flip: bool


class Method(NamedTuple):
    """A way to make one image, and to decode a whole file for the comparison of pixels."""

    fill: Callable[[Job, Slot], object] | None  # None: TensorFlow makes all of them in one graph
    decode: Callable[[bytes], Any]
    graph: Callable[[Any, Any, Any], Any] | None = None


def _resize(pixels: Slot, job: Job, slot: Slot) -> None:
    top, left, height, width = job.crop
    part = pixels[top : top + height, left : left + width]
    if job.flip:
        cv2.flip(cv2.resize(part, (SIZE, SIZE)), 1, dst=slot)
    else:
        cv2.resize(part, (SIZE, SIZE), dst=slot)


def _by_pillow(job: Job, slot: Slot) -> None:
    top, left, height, width = job.crop
    image = Image.open(io.BytesIO(job.data)).convert("RGB")
    # Without antialiasing, which only Pillow would add and which would take three times as long.
    part = image.transform(
        (SIZE, SIZE),
        Image.Transform.EXTENT,
        (left, top, left + width, top + height),
        Image.Resampling.BILINEAR,
    )
    slot[...] = np.asarray(part)[:, ::-1] if job.flip else np.asarray(part)


def _opencv(data: bytes) -> Slot:
    return cv2.imdecode(
        np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    )


def _simplejpeg(**options: bool) -> Method:
    def decode(data: bytes) -> Slot:
        return simplejpeg.decode_jpeg(data, **options)

    return Method(lambda job, slot: _resize(decode(job.data), job, slot), decode)


def _tensorflow(*, fused: bool) -> Method:
    def graph(data: Any, crop: Any, flip: Any) -> Any:
        if fused:
            part = tf.io.decode_and_crop_jpeg(data, crop, channels=3)
        else:
            part = tf.io.decode_jpeg(data, channels=3)[
                crop[0] : crop[0] + crop[2], crop[1] : crop[1] + crop[3]
            ]
        image = tf.cast(tf.round(tf.image.resize(part, (SIZE, SIZE))), tf.uint8)
        return tf.cond(flip, lambda: image[:, ::-1], lambda: image)

    return Method(None, lambda data: tf.io.decode_jpeg(data, channels=3).numpy(), graph)


def _ours(spec: TrainImage) -> Method:
    whole = (
        DecodedImage()
        if not spec.fast
        else TrainImage((375, 500), scale=(1, 1), ratio=(4 / 3, 4 / 3), flip=False)
    )
    return Method(
        lambda job, slot: spec.apply(job.data, FILES, job.draw, slot),
        lambda data: whole.apply(data, FILES, 0, None),
    )


METHODS = {
    "tf.io, decoding the rectangle alone": _tensorflow(fused=True),
    "tf.io, decoding all": _tensorflow(fused=False),
    "Pillow": Method(
        _by_pillow, lambda data: np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    ),
    "OpenCV": Method(lambda job, slot: _resize(_opencv(job.data), job, slot), _opencv),
    "simplejpeg + OpenCV": _simplejpeg(),
    "simplejpeg, fast DCT and upsampling + OpenCV": _simplejpeg(fastdct=True, fastupsample=True),
    "TrainImage(fast=False)": _ours(EXACT_SPEC),
    "TrainImage": _ours(SPEC),
}


def make_jobs(folder: Path, num_jobs: int) -> list[Job]:
    paths = sorted(folder.glob("*/*.jpg"))[:num_jobs]
    draws = np.random.default_rng(0).integers(0, 2**64, len(paths), dtype=np.uint64).tolist()
    jobs = []
    for path, draw in zip(paths, draws, strict=True):
        data = path.read_bytes()
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        crop = draw_crop(draw, int(height), int(width), scale=SPEC.scale, ratio=SPEC.ratio)
        jobs.append(Job(data, draw, crop, draw_flip(draw)))
    return jobs


def run(method: Method, jobs: list[Job], slots: Slot, threads: int) -> None:
    """Make all images, into the slots, uint8 [images, 224, 224, 3]."""
    if method.fill is None:
        for start, images in _batches(method, jobs, threads):
            slots[start : start + len(images)] = images
        return
    fill = method.fill

    def block(start: int) -> None:
        for job, slot in zip(
            jobs[start : start + BLOCK], slots[start : start + BLOCK], strict=True
        ):
            fill(job, slot)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(block, range(0, len(jobs), BLOCK)))


def _batches(method: Method, jobs: list[Job], threads: int) -> Iterator[tuple[int, Slot]]:
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    crops, flips = (
        np.array([job.crop for job in jobs], np.int32),
        np.array([job.flip for job in jobs]),
    )
    files = tf.data.Dataset.from_tensor_slices(
        ([job.data for job in jobs], crops, flips)
    ).with_options(options)
    for number, images in enumerate(
        files.map(method.graph, num_parallel_calls=threads).batch(4 * BLOCK)
    ):
        yield number * 4 * BLOCK, images.numpy()


def measure(jobs: list[Job], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Return the images/s of each (method, threads), one value per round."""
    slots = np.empty((len(jobs), SIZE, SIZE, 3), np.uint8)
    for method in METHODS.values():
        run(method, jobs[: 8 * BLOCK], slots[: 8 * BLOCK], 1)
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for threads in THREADS:
            for name, method in METHODS.items():
                start = time.perf_counter()
                run(method, jobs, slots, threads)
                found.setdefault((name, threads), []).append(
                    len(jobs) / (time.perf_counter() - start)
                )
    return found


class Difference(NamedTuple):
    """The absolute differences from TensorFlow's pixels, 0 to 255: mean and maximum."""

    mean: float
    greatest: int


def _difference(pairs: Iterator[tuple[Slot, Slot]]) -> Difference:
    gaps = [np.abs(one.astype(np.int16) - other) for one, other in pairs]
    return Difference(
        float(np.mean([gap.mean() for gap in gaps])), max(int(gap.max()) for gap in gaps)
    )


def compare(jobs: list[Job]) -> dict[str, tuple[Difference, Difference]]:
    """Compare each method's decoded files and its 224 x 224 images with those of TensorFlow."""
    reference = METHODS["tf.io, decoding all"]
    made = {}
    for name, method in METHODS.items():
        made[name] = np.empty((len(jobs), SIZE, SIZE, 3), np.uint8)
        run(method, jobs, made[name], 1)
    return {
        name: (
            _difference((method.decode(job.data), reference.decode(job.data)) for job in jobs),
            _difference(zip(made[name], made["tf.io, decoding all"], strict=True)),
        )
        for name, method in METHODS.items()
    }


def main() -> int:
    parser = page.parser(__doc__)
    parser.add_argument("--photos", type=int, default=2000, help="number of photos")
    args = parser.parse_args()
    folder = page.work_folder(args.dir, 10**9)
    jobs = make_jobs(make_photos(folder / "photos", photos=args.photos).folder, args.photos)
    rates, gaps = measure(jobs, args.rounds), compare(jobs[:MOST_COMPARED])
    packages = ("opencv-python-headless", "simplejpeg", "Pillow")
    about = raw_results.circumstances(folder, args.rounds, packages=packages)
    raw = {
        "threads": THREADS,
        "rates": {name: [rates[name, n] for n in THREADS] for name in METHODS},
        "gaps": gaps,
    }
    result = raw_results.Result("decoders", about, raw)
    return raw_results.finish(result, decoders_report, args)


if __name__ == "__main__":
    sys.exit(main())
