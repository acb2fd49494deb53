"""Find images with equal bytes, first by length and then by a hash of the content.

Only images whose length occurs more than once are read. Their bytes stay in the hashing thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage.options import StorageOptions
from shardwright.transforms.hashing import is_among, joined, spread_rows
from shardwright.transforms.references import concat, keep_rows, rows_left, set_column
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.row_keys import reject_copies
from shardwright.transforms.write.image_reads import main_places, place_columns, scan_images

CONTENT = "content"
NUM_BUCKETS = 1024  # by content; bounds the rows that one worker compares
_COMPARED = ("id", "uri", "row", "label")
_REASONS = {"drop": RejectReason.DROPPED_DUPLICATE, "reject": RejectReason.DUPLICATE_IMAGE}


@dataclass(frozen=True, slots=True)
class Lengths:
    """The distinct image lengths, 9 bytes per length.

    Attributes:
        lengths: Lengths in bytes, ascending int64 [lengths].
        repeated: Whether more than one image has the length, bool [lengths].
    """

    lengths: np.ndarray
    repeated: np.ndarray


def count_lengths(batch: pa.RecordBatch) -> Lengths:
    """Return the image lengths in a batch."""
    lengths, counts = np.unique(batch.column("num_bytes").to_numpy(), return_counts=True)
    return Lengths(lengths, counts > 1)


def merge_lengths(parts: Iterable[Lengths]) -> Lengths:
    """Return the image lengths in all parts."""
    given = list(parts)
    lengths = joined((part.lengths for part in given), np.int64)
    # A repeated length weighs 2, so it stays repeated even if it is in one part only.
    weights = joined((1 + part.repeated for part in given), np.int64)
    merged, where = np.unique(lengths, return_inverse=True)
    return Lengths(merged, np.bincount(where, weights, minlength=len(merged)) > 1)


def take_candidates(batch: pa.RecordBatch, lengths: Lengths) -> Iterator[pa.RecordBatch]:
    """Yield the rows to read, if any: their length is repeated or, without an etag, unknown."""
    num_bytes = batch.column("num_bytes").to_numpy()
    repeated = is_among(num_bytes, lengths.lengths[lengths.repeated])
    unknown = batch.column("etag").is_null().to_numpy(zero_copy_only=False)
    others = [name for name in place_columns(batch.schema) if name not in _COMPARED]
    # 0: without an image
    yield from rows_left(
        batch.select([*_COMPARED, *others]), (repeated | unknown) & (num_bytes > 0)
    )


def hash_images(
    batch: pa.RecordBatch, storage: StorageOptions, threads: int | None = None
) -> pa.RecordBatch:
    """Read and hash images concurrently.

    Unreadable images are omitted here: WriteShards meets them again and rejects them.

    Returns:
        The readable rows with the 16-byte hash of their image in the column `CONTENT`.

    Raises:
        StorageError: A whole store fails, rather than one object.
    """
    digests = scan_images(_hash_content, main_places(batch), storage, threads)
    hashed = set_column(batch.select(list(_COMPARED)), CONTENT, pa.array(digests, pa.binary()))
    return keep_rows(hashed, hashed.column(CONTENT).is_valid().to_numpy(zero_copy_only=False))


def _hash_content(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def spread_hashed(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (bucket, rows) so that all images with equal bytes are in one bucket."""
    starts = b"".join(digest[:8] for digest in batch.column(CONTENT).to_pylist())
    return spread_rows(batch, np.frombuffer(starts, ">u8").astype(np.uint64), NUM_BUCKETS)


def find_duplicates(
    batches: Sequence[pa.RecordBatch], policy: str
) -> Iterator[np.ndarray | Reject]:
    """Find the rows to drop from a bucket: all images of one content but the first by id.

    Args:
        batches: The bucket's rows, in any order.
        policy: "drop" or "reject".

    Yields:
        One reject per row to drop, then the keys of these rows, as `row_keys` returns them.
    """
    ordered = concat(list(batches)).sort_by(
        [(name, "ascending") for name in (CONTENT, "id", "row", "uri")]
    )
    contents = ordered.column(CONTENT)
    again = np.zeros(ordered.num_rows, bool)
    again[1:] = pc.equal(contents[1:], contents[:-1]).to_numpy(zero_copy_only=False)
    # For each row, the row of the first image with the same content.
    firsts = np.maximum.accumulate(np.where(again, 0, np.arange(len(again))))
    yield from reject_copies(ordered, firsts, _REASONS[policy], lambda _: "same bytes as")
