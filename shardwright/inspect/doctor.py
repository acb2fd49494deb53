"""Measure how fast a dataset is read for training, stage by stage and as a whole.

Each stage is timed alone, on one thread, over the same records. Then the whole `Reader` runs on all
its threads for some seconds, which shows its throughput and how busy the cores are. The report
names the limiting stage, and the one change to make.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shardwright.dataset import open_dataset
from shardwright.errors import UsageError
from shardwright.format.schema import CROPPED
from shardwright.images.decode import StoredImage, stored_image
from shardwright.images.regions import part_decoder, part_decoder_fix
from shardwright.images.specs import DecodedImage, TrainImage
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    command,
    make_parser,
    to_json,
)
from shardwright.reader.engine import Engine
from shardwright.reader.places import Places
from shardwright.reader.reader import Reader
from shardwright.reader.shard_index import ShardIndexes
from shardwright.sizes import counted, show_bytes
from shardwright.storage.options import StorageOptions
from shardwright.terminal import join_lines, print_safely

_SAMPLE_RECORDS, _AUGMENTED_IMAGES = 256, 64
_WARM_UP_BATCHES = 2
STAGES = ("read", "parse", "decode", "augment", "batch")
_BUSY = 0.8  # share of the cores; below it, threads wait or other programs run
_RESIZE_MARGIN = 1.5  # stored pixels / needed pixels above which smaller images pay off
_SHORTER_SIDE = 256 / 224  # by convention, crops of 224 pixels come from images stored at 256
_ADVICE = {
    "download": (
        "Downloads are the bottleneck: raise cache_bytes= until the cache holds the whole dataset, "
        "so that later epochs read from disk."
    ),
    "read": (
        "The disk is the bottleneck: copy the dataset to a faster disk, or use a machine with "
        "enough memory to cache it."
    ),
    "parse": (
        "Parsing is the bottleneck: read only the features that the model needs, such as "
        "features=['image', 'label']; labels then come from the index."
    ),
    "batch": (
        "Assembling batches is the bottleneck, limited by memory bandwidth: use smaller images, or "
        "uint8 instead of a wider dtype."
    ),
}
_EPILOG = """\
examples
  shardwright doctor dataset/
  shardwright doctor dataset/ --target 14288    # eight H100 of MLPerf Storage, ResNet-50
  shardwright doctor s3://bucket/dataset --image-size 160 --seconds 20

Times each stage on one thread, then runs sw.Reader on all cores, as a trainer would. The first run
measures reading from the disk or store; a second one finds the dataset cached in memory, as a
second epoch would.

Exit codes: 0 measured, 1 dataset unreadable, 2 wrong usage or not a dataset.
"""


@dataclass(frozen=True)
class Diagnosis:
    """The measurements of one dataset.

    Attributes:
        stage_msec: Milliseconds per image on one thread, by name of `STAGES`.
        images_per_sec: Throughput of the whole reader.
        cores: Number of cores that the reader may run on.
        cores_busy: Mean number of busy cores while the reader ran.
        threads: Number of decoding threads of the reader.
        image_side: Height and width of the training images, in pixels.
        part_decoder: What decodes parts of JPEGs, as `images.regions.part_decoder` says.
        part_decoder_fix: What to do if that is slower than it could be, or empty.
        stored_pixels: Mean width times mean height of the stored images, 0 if unknown.
        stored_bytes: Mean size of a stored record, in bytes.
        is_remote: True if the dataset is in a store.
        num_records: Number of records that the whole reader read.
    """

    stage_msec: Mapping[str, float]
    images_per_sec: float
    cores: int
    cores_busy: float
    threads: int
    image_side: int
    part_decoder: str
    part_decoder_fix: str
    stored_pixels: float
    stored_bytes: float
    is_remote: bool
    num_records: int

    @property
    def images_per_sec_per_core(self) -> float:
        """The throughput of one core that is busy all the time."""
        return self.images_per_sec / max(self.cores_busy, 1e-9)

    def cores_for(self, target: float) -> float:
        """Return the number of busy cores for `target` images/s if nothing else limits."""
        return target / self.images_per_sec_per_core

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"images_per_sec_per_core": self.images_per_sec_per_core}


def training_reader(
    dataset: str,
    split: str = "train",
    *,
    image_side: int,
    batch_size: int,
    threads: int | None = None,
    storage_options: StorageOptions | None = None,
) -> Reader:
    """Return a reader of shuffled training batches, to be measured. Raises as `Reader`.

    Boxes, keypoints and masks, which crops would have to move, are left out.

    Args:
        dataset: Its folder or address.
        split: As for `Reader`.
        image_side: Height and width of the training images, in pixels.
        batch_size: Images per batch.
        threads: Decoding threads; None means one per core, at most 8.
        storage_options: As for `Reader`.
    """
    features = open_dataset(dataset, storage_options).schema.features
    return Reader(
        dataset,
        split,
        features=[one.name for one in features if one.kind not in CROPPED],
        global_batch_size=batch_size,
        shuffle=True,
        image=TrainImage(image_side),
        threads=threads,
        remainder="carry",
        storage_options=storage_options,
    )


def diagnose(reader: Reader, seconds: float) -> Diagnosis:
    """Measure how fast a reader reads its dataset for training.

    Args:
        reader: As `training_reader` returns it.
        seconds: Run time of the whole reader; timing the stages takes about as long again.

    Raises:
        StorageError, UsageError, BadRecordError: As for `Reader`.
    """
    if seconds <= 0:
        raise UsageError(f"seconds must be above 0, got {seconds}")
    image, batch_size = reader.options.image, reader.options.global_batch_size
    assert isinstance(image, TrainImage), "training_reader sets it"
    stage_msec = _time_stages(reader.engine, image, batch_size)
    shards = reader.engine.corpus.shards
    # Of the first split.
    stats = shards[0].source.manifest.splits[shards[0].name.split].stats
    sides = [side for axis in ("width", "height") if (side := stats.get(axis, {})).get("count")]
    pixels = math.prod(side["sum"] / side["count"] for side in sides) if len(sides) == 2 else 0.0
    batches = iter(reader)
    for _ in range(_WARM_UP_BATCHES):
        next(batches)
    started, cpu_started, count = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - started) < seconds or not count:
        next(batches)
        count += batch_size
    cpu_seconds = time.process_time() - cpu_started
    return Diagnosis(
        stage_msec=stage_msec,
        images_per_sec=count / elapsed,
        cores=len(os.sched_getaffinity(0)),
        cores_busy=cpu_seconds / elapsed,
        threads=reader.engine.threads,
        image_side=image.shape[0],
        part_decoder=part_decoder(),
        part_decoder_fix=part_decoder_fix(),
        stored_pixels=pixels,
        stored_bytes=sum(shard.info.num_bytes for shard in shards)
        / max(sum(shard.info.num_records for shard in shards), 1),
        is_remote=reader.engine.corpus.is_remote,
        num_records=count,
    )


def _time_stages(engine: Engine, image: TrainImage, batch_size: int) -> dict[str, float]:
    places = engine.places.find(0, min(_SAMPLE_RECORDS, engine.epoch_size))
    read, parse, images = _time_reading(engine, places)
    stored = stored_image(engine.corpus.schema)
    slot = np.empty((*image.shape,), np.uint8)
    fused = _msec(
        lambda: [
            image.apply(data, stored, int(draw), slot)
            for data, draw in zip(images, places.draws, strict=True)
        ],
        len(images),
    )
    # Decoding and cropping are fused, so that pixels outside the crop are not decoded. The rest is
    # therefore timed on images that are decoded already.
    some = images[:_AUGMENTED_IMAGES]
    decoded = [DecodedImage().apply(data, stored, 0, None) for data in some]
    raw = [(pixels.tobytes(), StoredImage("raw", pixels.shape)) for pixels in decoded]
    augment = _msec(
        lambda: [image.apply(data, form, draw, slot) for draw, (data, form) in enumerate(raw)],
        len(raw),
    )
    batch = np.zeros((batch_size, *image.shape), np.uint8)
    gather = _msec(lambda: [batch.copy() for _ in range(3)], 3 * batch_size)
    times = (read, parse, max(fused - augment, 0.0), augment, gather)
    return dict(zip(STAGES, times, strict=True))


def _time_reading(engine: Engine, places: Places) -> tuple[float, float, list[Any]]:
    """Return the milliseconds per record of reading and of parsing, and the stored images."""
    frames: list[tuple[bytes, int, int]] = []
    images: list[Any] = []
    count = len(places.rows)
    store = engine.columns.allocate(count)
    indexes = ShardIndexes(engine.corpus.shards, of_images=False)
    for shard in np.unique(places.shards):
        indexes[int(shard)]  # opened here: an epoch opens an index once, not per record
    records = engine.record_reader(indexes)
    read = _msec(
        lambda: frames.extend(
            records.read_record(int(shard), int(row))
            for shard, row in zip(places.shards, places.rows, strict=True)
        ),
        count,
    )
    parse = _msec(
        lambda: images.extend(
            engine.columns.fill(store, row, *frame)[0] for row, frame in enumerate(frames)
        ),
        count,
    )
    return read, parse, images


def _msec(work: Callable[[], Any], count: int) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000 / count


def limiting_stage(found: Diagnosis) -> str:
    """Return the stage that takes most of a thread's time."""
    return max(found.stage_msec, key=lambda stage: found.stage_msec[stage])


def advice(found: Diagnosis, target: float | None) -> str:
    """Return the one change to make, as a sentence."""
    if target is not None and found.images_per_sec >= target:
        return f"None: {found.images_per_sec:,.0f} images/s meets the target of {target:,.0f}."
    stage = limiting_stage(found)
    if stage in ("decode", "augment"):
        return _advice_for_decoding(found, target)
    return _ADVICE["download" if stage == "read" and found.is_remote else stage]


def _advice_for_decoding(found: Diagnosis, target: float | None) -> str:
    side = round(found.image_side * _SHORTER_SIDE)
    if found.stored_pixels > _RESIZE_MARGIN * side * side:
        times = found.stored_pixels / (side * side)
        return (
            f"Decoding is the bottleneck, and images are stored with {times:.1f} times the pixels "
            f"of {side}x{side}: build with --encode jpeg --resize {side}x{side}."
        )
    raw = found.image_side * found.image_side * 3
    return (
        "Decoding is the bottleneck, and images are stored no larger than needed: "
        f"{_more_cores(found, target)}; or build with "
        f"--encode raw --resize {found.image_side}x{found.image_side}, which needs no decoding but "
        f"{show_bytes(raw)} per image instead of {show_bytes(found.stored_bytes)}."
    )


def _more_cores(found: Diagnosis, target: float | None) -> str:
    needed = 0 if target is None else math.ceil(found.cores_for(target))
    if found.threads < found.cores >= needed:
        return (
            f"open the reader with processes={found.cores // 2}, as one process uses "
            f"{found.threads} of these {found.cores} cores"
        )
    return "use more cores" + ("" if target is None else f", {needed} for {target:,.0f} images/s")


def format_diagnosis(found: Diagnosis, target: float | None) -> str:
    """Return the report as lines of text."""
    total, limit = sum(found.stage_msec.values()), limiting_stage(found)
    lines = [
        "milliseconds per image on one thread",
        *(
            f"  {stage:<12} {msec:8.3f}   {msec / total:4.0%}"
            f"{'   <- limits' if stage == limit else ''}"
            for stage, msec in found.stage_msec.items()
        ),
        "",
        f"whole reader: {counted(found.threads, 'thread')} on {found.cores} cores, "
        f"batches of {found.image_side}x{found.image_side} crops, "
        f"JPEG parts: {found.part_decoder}",
        f"  {found.images_per_sec:,.0f} images/s, {found.cores_busy:.1f} cores busy, "
        f"{found.images_per_sec_per_core:,.0f} images/s per core",
        f"  limited by: {limit}",
    ]
    if found.cores_busy < _BUSY * min(found.threads, found.cores) and limit != "read":
        lines.append("  other programs used the remaining cores: measure again on an idle machine")
    if found.part_decoder_fix:
        lines.append(f"  JPEGs can be decoded faster: {found.part_decoder_fix}")
    if target is not None:
        lines.append(
            f"  {target:,.0f} images/s need {math.ceil(found.cores_for(target))} such cores"
        )
    return join_lines([*lines, "", "the one change to make", f"  {advice(found, target)}"])


def parse_target(text: str) -> float:
    """Return a number of images a second above 0, else raise `argparse.ArgumentTypeError`."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be images/s above 0")
    return rate


@command
def doctor_command(argv: Sequence[str]) -> int:
    """Run `shardwright doctor` and return its exit code."""
    parser = make_parser(
        "doctor",
        "Measure how fast a dataset can be read for training, and find the bottleneck and its fix.",
        _EPILOG,
    )
    _add_doctor_options(parser)
    args = parser.parse_args(argv)
    with training_reader(
        args.dataset,
        args.split,
        image_side=args.image_size,
        batch_size=args.batch_size,
        threads=args.threads,
        storage_options=StorageOptions.parse(args.storage_option),
    ) as reader:
        found = diagnose(reader, args.seconds)
    extra = {"limited_by": limiting_stage(found), "advice": advice(found, args.target)}
    print_safely(
        to_json(found.to_json() | extra) if args.json else format_diagnosis(found, args.target)
    )
    return EXIT_DONE


def _add_doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split",
        default="train",
        metavar="S",
        help="a split or a part of one, such as train[:10%%] (default: %(default)s)",
    )
    parser.add_argument(
        "--target",
        type=parse_target,
        metavar="RATE",
        help="target in images/s; reports the number of cores needed",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        default=224,
        metavar="PIXELS",
        help="height and width of the training images (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=64,
        metavar="N",
        help="images per batch (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="decoding threads (default: one per core, up to 8)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds to run the reader (default: %(default)s)",
    )
