"""Choose and read a sample of a dataset's images: pictures to look at, and their signals.

The sample is a function of the dataset alone. A split has its part of it in proportion to its
records, at least a share of its own; in a split, each class has at least one record if there are
enough, and the rest in proportion. Inside a class, records are chosen by a hash of their id.

The sidecars of a few shards are read, spread evenly over the splits: shards hold records in the
order of a hash, so any shard is a sample by itself.
"""

from __future__ import annotations

import hashlib
import heapq
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import ImageFault, RecordFault, StorageError
from shardwright.format.example import ExampleFault, Values, parse_example
from shardwright.format.index import CHECKED, check_record, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.splits import ShardInfo
from shardwright.images.decode import StoredImage, stored_image
from shardwright.images.previews import Preview, decode_preview
from shardwright.images.signals import PictureMeasures, measure_picture
from shardwright.storage.folder import Folder

MAX_RECORDS = 2000
_MAX_SHARDS = 16
# A photograph takes 3 ms of CPU: at one in 1,000 about 3% of the time of a build.
_MIN_RECORDS, _ONE_IN = 64, 1000
# Records of a split are chosen among its first rows: enough that rare classes are there.
_LEAST_CANDIDATES, _CANDIDATES_A_RECORD = 2048, 4
TASK_RECORDS = 16
_COLUMNS = ["id", "label", *CHECKED, "image_length", "format", "width", "height"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """A record to read.

    Attributes:
        shard: Its shard.
        row: Its index row: the columns id, label, offset, length, image_length, format, width and
            height.
    """

    shard: ShardName
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record of the sample.

    Attributes:
        place: Where it is.
        features: The features of its example but for the image; {} if it cannot be read.
        preview: Its decoded image at a reduced size; None if it does not decode.
        measured: Measurements of the preview; None without one.
        fault: Why it cannot be read or decoded; "" if it can.
    """

    place: SamplePlace
    features: Mapping[str, Values]
    preview: Preview | None
    measured: PictureMeasures | None
    fault: str = ""


def sample_size(num_records: int) -> int:
    """Return the size of a build's sample: one record in 1,000, at least 64, at most 2,000."""
    return min(num_records, MAX_RECORDS, max(_MIN_RECORDS, num_records // _ONE_IN))


def sampled_shards(number: int, num_records: int, num_shards: int) -> int:
    """Return how many shards a sample is read from: few, but with twice its records.

    Args:
        number: The size of the sample.
        num_records: Records of the dataset.
        num_shards: Its shards.
    """
    twice = -(-2 * number * num_shards // max(num_records, 1))
    return min(_MAX_SHARDS, max(-(-number // TASK_RECORDS), twice))


def choose_sample(root: Folder, manifest: Manifest, number: int) -> list[SamplePlace]:
    """Return about `number` records with images, ordered by split, shard and row.

    Args:
        root: The dataset's folder.
        manifest: Its manifest, perhaps not yet written.
        number: Size of the sample.

    Raises:
        StorageError: A sidecar cannot be read.
    """
    places: list[SamplePlace] = []
    numbers = _numbers(manifest, number)
    num_shards = sampled_shards(number, manifest.num_records, len(manifest.named_shards()))
    for split, wanted in numbers.items():
        share = num_shards * wanted // sum(numbers.values())
        whole = manifest.named_shards(split)
        count = min(max(1, share), len(whole))
        shards = [whole[place * len(whole) // count] for place in range(count)]
        among = max(_LEAST_CANDIDATES, _CANDIDATES_A_RECORD * wanted)
        candidates = _candidates(root, shards, among)
        places += _chosen([name for name, _ in shards], candidates, wanted)
    return places


def read_sample(
    root: Folder,
    manifest: Manifest,
    places: Sequence[SamplePlace],
    look: Callable[[SampledRecord], T],
) -> list[T]:
    """Read and decode records in threads, and return what `look` makes of each, in order.

    Args:
        root: The dataset's folder.
        manifest: Its manifest.
        places: Places of `choose_sample`.
        look: Called in a thread with one record; what it returns is kept, the record is not.

    Raises:
        StorageError: A shard cannot be read at all.
    """
    image, stored = manifest.schema.image, stored_image(manifest.schema)
    key = "" if image is None else image.name

    def records_of(some: Sequence[SamplePlace]) -> list[T]:
        spans = [(place.row["offset"], place.row["offset"] + place.row["length"]) for place in some]
        read = root.read_ranges(some[0].shard.shard, spans)
        return [
            look(_record(place, data, key, stored)) for place, data in zip(some, read, strict=True)
        ]

    tasks = [
        some[start : start + TASK_RECORDS]
        for some in (list(group) for _, group in groupby(places, key=lambda place: place.shard))
        for start in range(0, len(some), TASK_RECORDS)
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [made for some in pool.map(records_of, tasks) for made in some]


def _numbers(manifest: Manifest, number: int) -> dict[str, int]:
    """Return the size of each split's sample; the largest split yields to small ones."""
    sizes = {name: split.num_records for name, split in manifest.splits.items()}
    total, share = sum(sizes.values()), number // (4 * max(len(sizes), 1))
    wanted = {
        name: min(size, max(share, round(number * size / total)))
        for name, size in sizes.items()
        if size
    }
    if wanted:
        largest = max(wanted, key=lambda name: wanted[name])
        wanted[largest] -= max(0, sum(wanted.values()) - number)
    return wanted


def _candidates(
    root: Folder, shards: Sequence[tuple[ShardName, ShardInfo]], number: int
) -> list[pa.Table]:
    """Return `number` index rows of all shards together, among which records are chosen."""
    most = -(-number // len(shards))

    def first_rows(shard: tuple[ShardName, ShardInfo]) -> pa.Table:
        rows = read_live_rows(root, *shard, _COLUMNS).slice(0, most)
        ends = pc.add(rows["offset"], rows["length"])
        inside = pc.less_equal(ends, shard[1].num_bytes)
        inside = pc.and_(pc.greater_equal(rows["offset"], 0), inside)
        filled = pc.and_(pc.greater(rows["image_length"], 0), pc.greater(rows["length"], 0))
        return rows.filter(pc.and_(inside, filled))

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(first_rows, shards))


def _chosen(
    names: Sequence[ShardName], candidates: Sequence[pa.Table], number: int
) -> Iterator[SamplePlace]:
    """Yield the first record of each class by hash, and then of each class in proportion."""
    rows = pa.concat_tables(candidates)
    classes: defaultdict[int | None, list[tuple[bytes, int]]] = defaultdict(list)
    for index, (name, label) in enumerate(
        zip(rows["id"].to_pylist(), rows["label"].to_pylist(), strict=True)
    ):
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        classes[label].append((digest, index))
    ranked = [
        (rank and (rank + 0.5) / len(found), digest, index)
        for found in classes.values()
        for rank, (digest, index) in enumerate(sorted(found))
    ]
    places = sorted(index for _, _, index in heapq.nsmallest(number, ranked))
    ends = list(accumulate(map(len, candidates)))
    for place, row in zip(places, rows.take(pa.array(places, pa.int64())).to_pylist(), strict=True):
        yield SamplePlace(names[bisect_right(ends, place)], row)


def _record(place: SamplePlace, data: bytes, key: str, stored: StoredImage) -> SampledRecord:
    features: dict[str, Values] = {}
    preview = measured = None
    fault = ""
    try:
        check_record(place.row, data)
        features = parse_example(data[HEADER_BYTES:-FOOTER_BYTES])
        [image] = features.pop(key, None) or [b""]
        if not isinstance(image, bytes):
            raise ImageFault(f"feature {key!r} holds no bytes")
        preview = decode_preview(image, stored)
        measured = measure_picture(preview.pixels, width=preview.width, height=preview.height)
    except (ImageFault, ExampleFault, RecordFault, StorageError, ValueError) as error:
        fault = str(error)
    return SampledRecord(place, features, preview, measured, fault)
