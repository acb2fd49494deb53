"""Read many images at once, in bounded memory, and compute something from the bytes of each."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from shardwright.storage.addresses import is_remote
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import REQUESTS_IN_FLIGHT, map_reads
from shardwright.transforms.internal_errors import fault_of
from shardwright.transforms.write.image_reads import (
    AHEAD_BYTES,
    ImageLocation,
    read_local_image,
    read_remote_image,
)

T = TypeVar("T")

# Concurrent local reads: reading waits for the disk, and what is computed may release the GIL.
_READERS = 16


def scan_images(
    compute: Callable[[bytes], T],
    places: Sequence[ImageLocation],
    storage: StorageOptions,
    threads: int | None = None,
) -> list[T | None]:
    """Return `compute(bytes)` of each image, or None if it cannot be read or `compute` fails.

    Such images are no faults here: WriteShards meets them again and rejects them.

    Raises:
        StorageError: A whole store fails, rather than one object.
    """
    found: list[T | None] = []
    # By bytes, because `map_reads` bounds the number of images in memory, and they may be large.
    for start, stop in runs_of(places):
        in_flight = threads or (
            REQUESTS_IN_FLIGHT
            if is_remote(places[start].uri)
            else min(_READERS, 4 * (os.cpu_count() or 1))
        )
        scan = functools.partial(_scan_image, compute, storage)
        found += map_reads(scan, places[start:stop], in_flight)
    return found


def runs_of(places: Sequence[ImageLocation]) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of runs of at most `AHEAD_BYTES`; a larger image is a run of its own."""
    start = total = 0
    for row, place in enumerate(places):
        if row > start and total + place.num_bytes > AHEAD_BYTES:
            yield start, row
            start = row
            total = 0
        total += place.num_bytes
    if start < len(places):
        yield start, len(places)


def _scan_image(
    compute: Callable[[bytes], T], storage: StorageOptions, place: ImageLocation
) -> T | None:
    try:
        remote = is_remote(place.uri)
        return compute(read_remote_image(place, storage) if remote else read_local_image(place))
    except Exception as error:
        fault_of(error)  # raises again what is no fault of the image
        return None
