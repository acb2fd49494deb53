"""Find images with equal bytes, first by length and then by a hash of the content.

Only images whose length occurs more than once are read. Their bytes stay in the hashing thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

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


def count_lengths(batch: pa.RecordBatch) -> np.ndarray:
    """Return the image lengths in a batch, as `merge_lengths` does."""
    return merge_lengths([batch.column("num_bytes").to_numpy()])


def merge_lengths(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return all lengths, ascending: once, or twice if more than one image has the length."""
    lengths, counts = np.unique(joined(parts, np.int64), return_counts=True)
    return np.repeat(lengths, np.minimum(counts, 2))


def take_candidates(batch: pa.RecordBatch, lengths: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the rows to read, if any: their length is repeated or, without an etag, unknown.

    Args:
        batch: References.
        lengths: The lengths of all images, as `merge_lengths` returns them.
    """
    num_bytes = batch.column("num_bytes").to_numpy()
    repeated = is_among(num_bytes, lengths[1:][lengths[1:] == lengths[:-1]])
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
    digests = scan_images(
        lambda data: hashlib.blake2b(data, digest_size=16).digest(),
        main_places(batch),
        storage,
        threads,
    )
    hashed = set_column(batch.select(list(_COMPARED)), CONTENT, pa.array(digests, pa.binary()))
    return keep_rows(hashed, hashed.column(CONTENT).is_valid().to_numpy(zero_copy_only=False))


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
