"""Images with the same bytes among the references: found by their length, then by a hash of their content.

Only images that share their length with another one are read, and their bytes go no further than the thread that hashes them.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage import StorageOptions, is_remote
from shardwright.storage.reads import REQUESTS_IN_FLIGHT, map_reads
from transforms.hashing import hash64
from transforms.internal_errors import fault_of
from transforms.references import concat, keep_rows, set_column
from transforms.rejects import Reject, RejectReason
from transforms.writing.image_reads import AHEAD_BYTES, Place, read_local_image, read_remote_image

CONTENT = "content"
NUM_BUCKETS = 1024  # by content: bounds the rows that one worker compares
_READERS = (
    16  # of files at a time: reading waits for the disk, and hashing runs without Python's lock
)
_SALT = "shardwright/row"
_COMPARED = ("id", "uri", "row", "label")
_REASONS = {"drop": RejectReason.DROPPED_DUPLICATE, "reject": RejectReason.DUPLICATE_IMAGE}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Which lengths images have: 9 bytes for each length that occurs.

    Attributes:
        lengths: Sorted, int64, in bytes.
        repeated: bool, whether more than one image has it.
    """

    lengths: np.ndarray
    repeated: np.ndarray


def count_lengths(batch: pa.RecordBatch) -> Lengths:
    """The lengths in a batch."""
    lengths, counts = np.unique(batch.column("num_bytes").to_numpy(), return_counts=True)
    return Lengths(lengths, counts > 1)


def merge_lengths(parts: Iterable[Lengths]) -> Lengths:
    """The lengths in all parts."""
    given = list(parts)
    lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in given)])
    weights = np.concatenate([np.zeros(0, np.int64), *(1 + part.repeated for part in given)])
    merged, where = np.unique(lengths, return_inverse=True)
    return Lengths(merged, np.bincount(where, weights, minlength=len(merged)) > 1)


def take_candidates(batch: pa.RecordBatch, lengths: Lengths) -> pa.RecordBatch:
    """What has to be read of a batch: images of a length that occurs again, or that nobody has looked at."""
    repeated = is_among(batch.column("num_bytes").to_numpy(), lengths.lengths[lengths.repeated])
    return keep_rows(
        batch, repeated | batch.column("etag").is_null().to_numpy(zero_copy_only=False)
    ).select([*_COMPARED, *_read_columns()])


def _read_columns() -> list[str]:
    return [name for name in Place._fields if name not in _COMPARED]


def hash_images(
    batch: pa.RecordBatch, storage: StorageOptions, threads: int | None = None
) -> pa.RecordBatch:
    """The batch with the hash of each image (`CONTENT`, 16 bytes), many being read at a time; those that cannot be read are left out,
    since the writer will tell of them.

    Raises:
        StorageError: A store fails altogether.
    """
    places = [
        Place(*row)
        for row in zip(*(batch.column(name).to_pylist() for name in Place._fields), strict=True)
    ]
    digests: list[bytes | None] = []
    for start, stop in _runs(places):
        in_flight = threads or (
            REQUESTS_IN_FLIGHT
            if is_remote(places[start].uri)
            else min(_READERS, 4 * (os.cpu_count() or 1))
        )
        digests += map_reads(
            functools.partial(_hash_image, storage=storage), places[start:stop], in_flight
        )
    hashed = set_column(batch.select(list(_COMPARED)), CONTENT, pa.array(digests, pa.binary()))
    return keep_rows(hashed, hashed.column(CONTENT).is_valid().to_numpy(zero_copy_only=False))


def _runs(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """[start, stop) of images that may be in memory at once: up to `AHEAD_BYTES` of them, but for single larger ones."""
    start = total = 0
    for row, place in enumerate(places):
        if row > start and total + place.num_bytes > AHEAD_BYTES:
            yield start, row
            start = row
            total = 0
        total += place.num_bytes
    if start < len(places):
        yield start, len(places)


def _hash_image(place: Place, *, storage: StorageOptions) -> bytes | None:
    try:
        data = (
            read_remote_image(place, storage) if is_remote(place.uri) else read_local_image(place)
        )
    except Exception as error:  # the writer meets it again, and rejects the image
        fault_of(error)
        return None
    return hashlib.blake2b(data, digest_size=16).digest()


def spread_hashed(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(bucket, rows): all images with the same content are in one bucket."""
    firsts = (
        np.array(
            [int.from_bytes(digest[:2], "big") for digest in batch.column(CONTENT).to_pylist()],
            np.int64,
        )
        % NUM_BUCKETS
    )
    order = np.argsort(firsts, kind="stable")
    buckets, starts = np.unique(firsts[order], return_index=True)
    batch = batch.take(pa.array(order))
    for bucket, start, stop in zip(buckets, starts, np.append(starts, len(order))[1:], strict=True):
        yield int(bucket), batch.slice(start, stop - start)


def find_duplicates(
    batches: Sequence[pa.RecordBatch], policy: str
) -> tuple[np.ndarray, list[Reject]]:
    """The rows of a bucket that are left out: all images of one content but the first by id.

    Args:
        batches: The bucket's rows, in any order.
        policy: "drop" or "reject".

    Returns:
        Keys of the rows, as `row_keys` gives them, and a reject for each.
    """
    ordered = concat(list(batches)).sort_by(
        [(name, "ascending") for name in (CONTENT, "id", "row", "uri")]
    )
    contents = ordered.column(CONTENT)
    again = np.zeros(ordered.num_rows, bool)
    again[1:] = pc.equal(contents[1:], contents[:-1]).to_numpy(zero_copy_only=False)
    firsts = np.maximum.accumulate(np.where(again, 0, np.arange(len(again))))[again]
    left_out = ordered.filter(pa.array(again))
    kept = ordered.take(pa.array(firsts))
    rejects = [
        Reject(row["id"], row["uri"], _REASONS[policy], _told(row, first))
        for row, first in zip(left_out.to_pylist(), kept.to_pylist(), strict=True)
    ]
    return row_keys(left_out), rejects


def _told(row: dict[str, str | None], first: dict[str, str | None]) -> str:
    same = f"the same bytes as {first['id']!r}, which stays"
    return (
        same
        if row["label"] == first["label"]
        else f"{same}, and another label: {row['label']!r} here, {first['label']!r} there"
    )


def row_keys(batch: pa.RecordBatch) -> np.ndarray:
    """A number for each row, uint64, by its id, row and place: ids may stand twice."""
    return hash64(
        pc.binary_join_element_wise(
            batch.column("id"), batch.column("row").cast(pa.string()), batch.column("uri"), "\0"
        ),
        _SALT,
    )


def leave_out(batch: pa.RecordBatch, keys: np.ndarray) -> pa.RecordBatch:
    """The batch without rows of these keys, which are sorted."""
    return keep_rows(batch, ~is_among(row_keys(batch), keys))


def is_among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Whether each value is in a sorted array: bool, of the shape of `values`."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
