"""Measure how fast a dataset is read for training, and what limits it.

The whole `Reader` runs twice on all its threads: with decoded crops, as a trainer has it, and for a
shorter time with the stored bytes of images. The second rate is that of reading. If it is less than
twice the first one, threads spend most of their time on reading, else on decoding.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from shardwright.dataset import open_dataset
from shardwright.errors import UsageError
from shardwright.format.schema import CROPPED
from shardwright.images.regions import part_decoder, part_decoder_fix
from shardwright.images.specs import TrainImage
from shardwright.inspect.command_parts import EXIT_DONE, command, make_parser, to_json
from shardwright.reader.reader import Reader
from shardwright.sizes import counted, show_bytes
from shardwright.storage.options import StorageOptions
from shardwright.terminal import join_lines, print_safely

_BATCH_SIZE, _WARM_UP_BATCHES = 64, 2
_SHORT = 0.3  # share of the time, in which stored bytes are read
_BUSY = 0.8  # share of the cores; below it, threads wait or other programs run
_RESIZE_MARGIN = 1.5  # stored pixels / needed pixels above which smaller images pay off
_SHORTER_SIDE = 256 / 224  # by convention, crops of 224 pixels come from images stored at 256
_READING = {
    "download": (
        "Downloads are the bottleneck: raise cache_bytes= until the cache holds the whole dataset, "
        "so that later epochs read from disk."
    ),
    "reading": (
        "Reading is the bottleneck: read only the features that the model needs, such as "
        "features=['image', 'label'], and copy the dataset to a faster disk, or use a machine with "
        "enough memory to cache it."
    ),
}
_EPILOG = """\
examples
  shardwright doctor dataset/
  shardwright doctor s3://bucket/dataset --image-size 160 --seconds 20

Runs sw.Reader on all cores, as a trainer would, and again without decoding. The first run measures
reading from the disk or store; a second one finds the dataset cached in memory, as a second epoch
would.

Exit codes: 0 measured, 1 dataset unreadable, 2 wrong usage or not a dataset.
"""


class Diagnosis(NamedTuple):
    """The measurements of one dataset.

    Attributes:
        images_per_sec: Throughput of the reader, with decoded crops.
        undecoded_per_sec: Its throughput with the stored bytes of images.
        cores: Number of cores that the reader may run on.
        cores_busy: Mean number of busy cores while it decoded.
        threads: Number of its threads.
        image_side: Height and width of the training images, in pixels.
        stored_pixels: Mean width times mean height of the stored images, 0 if unknown.
        stored_bytes: Mean size of a stored record, in bytes.
        is_remote: True if the dataset is in a store.
    """

    images_per_sec: float
    undecoded_per_sec: float
    cores: int
    cores_busy: float
    threads: int
    image_side: int
    stored_pixels: float
    stored_bytes: float
    is_remote: bool

    @property
    def limited_by(self) -> str:
        """The step that takes most of a thread's time: "download", "reading" or "decoding"."""
        if self.undecoded_per_sec >= 2 * self.images_per_sec:
            return "decoding"
        return "download" if self.is_remote else "reading"

    @property
    def images_per_sec_per_core(self) -> float:
        """The throughput of one core that is busy all the time."""
        return self.images_per_sec / max(self.cores_busy, 1e-9)


def diagnose(
    address: str,
    split: str,
    *,
    image_side: int,
    seconds: float,
    storage_options: StorageOptions | None = None,
) -> Diagnosis:
    """Measure how fast shuffled training batches of a dataset are made.

    Boxes, keypoints and masks, which crops would have to move, are left out.

    Args:
        address: The dataset's folder.
        split: As for `Reader`.
        image_side: Height and width of the training images, in pixels.
        seconds: Run time with decoding.
        storage_options: As for `Reader`.

    Raises:
        NotADatasetError, StorageError, UsageError, BadRecordError: As for `Reader`.
    """
    if seconds <= 0:
        raise UsageError(f"--seconds must be above 0, got {seconds:g}")
    dataset = open_dataset(address, storage_options)
    names = [feature.name for feature in dataset.schema.features if feature.kind not in CROPPED]

    open_reader = partial(
        Reader,
        address,
        split,
        features=names,
        global_batch_size=_BATCH_SIZE,
        shuffle=True,
        remainder="carry",
        storage_options=storage_options,
    )
    with open_reader(image=TrainImage(image_side)) as reader:
        threads = reader.engine.threads
        images_per_sec, cores_busy = _measure(iter(reader), seconds)
    # In another order: what has just been read is in memory.
    with open_reader(image=None, seed=1, threads=threads) as reader:
        undecoded_per_sec, _ = _measure(iter(reader), _SHORT * seconds)
    stats = max(dataset.splits.values(), key=lambda found: found.num_records).stats
    sides = [stats[axis] for axis in ("width", "height") if axis in stats]
    return Diagnosis(
        images_per_sec=images_per_sec,
        undecoded_per_sec=undecoded_per_sec,
        cores=len(os.sched_getaffinity(0)),
        cores_busy=cores_busy,
        threads=threads,
        image_side=image_side,
        stored_pixels=math.prod(side["sum"] / side["count"] for side in sides) if sides else 0.0,
        stored_bytes=dataset.num_bytes / max(dataset.num_records, 1),
        is_remote=dataset.root.is_remote,
    )


def _measure(batches: Iterator[Any], seconds: float) -> tuple[float, float]:
    """Return images a second and the mean number of busy cores."""
    for _ in range(_WARM_UP_BATCHES):
        next(batches)
    started, cpu_started, count = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - started) < seconds or not count:
        next(batches)
        count += _BATCH_SIZE
    return count / elapsed, (time.process_time() - cpu_started) / elapsed


def advice(found: Diagnosis) -> str:
    """Return the one change to make, as a sentence."""
    if found.limited_by != "decoding":
        return _READING[found.limited_by]
    side = round(found.image_side * _SHORTER_SIDE)
    times = found.stored_pixels / (side * side)
    if times > _RESIZE_MARGIN:
        return (
            f"Decoding is the bottleneck, and images are stored with {times:.1f} times the pixels "
            f"of {side}x{side}: build with --encode jpeg --resize {side}x{side}."
        )
    more = "use more cores"
    if found.threads < found.cores:
        more = (
            f"open the reader with processes={found.cores // 2}, as one process uses "
            f"{found.threads} of these {found.cores} cores"
        )
    return (
        "Decoding is the bottleneck, and images are stored no larger than needed: "
        f"{more}; or build with --encode raw --resize {found.image_side}x{found.image_side}, "
        f"which needs no decoding but {show_bytes(3 * found.image_side**2)} per image instead of "
        f"{show_bytes(found.stored_bytes)}."
    )


def format_diagnosis(found: Diagnosis) -> str:
    """Return the report as lines of text."""
    lines = [
        f"{counted(found.threads, 'thread')} on {found.cores} cores, batches of "
        f"{found.image_side}x{found.image_side} crops, JPEG parts: {part_decoder()}",
        f"  {found.images_per_sec:,.0f} images/s, {found.cores_busy:.1f} cores busy, "
        f"{found.images_per_sec_per_core:,.0f} images/s per core",
        f"  {found.undecoded_per_sec:,.0f} images/s without decoding",
        f"  limited by: {found.limited_by}",
    ]
    is_idle = found.cores_busy < _BUSY * min(found.threads, found.cores)
    if is_idle and found.limited_by == "decoding":
        lines.append("  other programs used the remaining cores: measure again on an idle machine")
    if fix := part_decoder_fix():
        lines.append(f"  JPEGs can be decoded faster: {fix}")
    return join_lines([*lines, "", "the one change to make", f"  {advice(found)}"])


@command
def doctor_command(argv: Sequence[str]) -> int:
    """Run `shardwright doctor` and return its exit code."""
    parser = make_parser(
        "doctor",
        "Measure how fast a dataset can be read for training, and find the bottleneck and its fix.",
        _EPILOG,
    )
    parser.add_argument(
        "--split",
        default="train",
        metavar="S",
        help="a split or a part of one, such as train[:10%%] (default: %(default)s)",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        default=224,
        metavar="PIXELS",
        help="height and width of the training images (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds to read and decode (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    found = diagnose(
        args.dataset,
        args.split,
        image_side=args.image_size,
        seconds=args.seconds,
        storage_options=StorageOptions.parse(args.storage_option),
    )
    extra = {
        "images_per_sec_per_core": found.images_per_sec_per_core,
        "part_decoder": part_decoder(),
        "limited_by": found.limited_by,
        "advice": advice(found),
    }
    print_safely(to_json(found._asdict() | extra) if args.json else format_diagnosis(found))
    return EXIT_DONE
