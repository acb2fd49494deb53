"""Find near-duplicates: hash images, find pairs of hashes, join them into groups, choose keepers.

**Hashes** of a reference batch stay in the spool, so that no build decodes its images again:

    OUTPUT/spool/<hash>.hashes            a Parquet file: hash and number of pixels of each image
    OUTPUT/spool/<hash>.hashes.attempt    a note while a batch is hashed; left if the process dies

The name is a hash of the places and etags of the batch's images, so a changed batch gets another
file. Rows are in the order of the places, whatever the order of the batch.

**Pairs** of hashes that differ in at most a few bits are found exactly and in bounded memory.
Equal hashes must be collapsed first. The bits of a hash are cut into bands. Of `distance + k`
bands, two hashes within the distance have at least `k` in common. So there is a table for each
choice of `k` bands: sorted by these bands, the two are in the same bucket. Source: G. S. Manku,
A. Jain, A. Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007, section 3.

A bucket of a table is compared in full, one neighbor after the other for all buckets at once. A
large bucket is divided by the same method on the other bits of its hashes. So a million hashes in
one bucket take seconds; the time grows with the pairs that are found, and memory with the hashes
only.

**A group** is a connected component: its images are joined by pairs within the distance. In the
order of the rule (most pixels, most bytes, least id), each image becomes a keeper unless a keeper
before it is within the distance. So every image is within the distance of its keeper, also in a
long chain, such as frames of a video, whose ends are different pictures.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import ImageFault, StorageError
from shardwright.format import naming
from shardwright.format.parquet import ParquetRows, parquet_bytes
from shardwright.images.headers import read_header
from shardwright.images.kinds import check_bomb
from shardwright.images.perceptual_hash import SIDE, hash_image
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.child_process import Death, call_in_child
from shardwright.transforms.hashing import distinct as distinct_hashes
from shardwright.transforms.hashing import is_among
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.images.colors import opaque
from shardwright.transforms.images.pixels import decoder_faults, open_pixels, pixels_held
from shardwright.transforms.inputs.spool import UnwrittenFolder
from shardwright.transforms.options import IMAGES, check_values
from shardwright.transforms.references import concat, digest_of, keep_rows, set_column, with_columns
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.row_keys import reject_copies
from shardwright.transforms.write.image_reads import main_places, scan_images
from shardwright.transforms.write.shard_chunks import has_died, noted_attempt
from shardwright.transforms.write.write_job import IMAGE_SECONDS

MAX_DISTANCE = 8


@dataclass(frozen=True, slots=True)
class NearDuplicateOptions:
    """The near-duplicates that a build looks for.

    Raises:
        ValueError: A value breaks its rule.
    """

    policy: str = IMAGES.option(
        "keep",
        "images that look nearly the same: keep all without a search (default), report them, or "
        "keep the best of each group and drop or reject the others. Reads and decodes every image "
        "once more, also for a plan",
        name="near_duplicates",
        choices=("keep", "report", "drop", "reject"),
        usual=True,
    )
    distance: int = IMAGES.option(
        3,
        "bits of 64 in which the hashes of near-duplicates may differ, 0 to 8 (default: 3)",
        rule=("from 0 to 8", lambda bits: 0 <= bits <= MAX_DISTANCE),
        type=int,
        metavar="BITS",
    )

    def __post_init__(self) -> None:
        check_values(self)
        if not self.is_on and self.distance != 3:
            raise ValueError("distance needs --near-duplicates, such as --near-duplicates report")

    @property
    def is_on(self) -> bool:
        return self.policy != "keep"

    def __str__(self) -> str:
        """Return the options as settings of a dataset, "" for no search."""
        return f"{self.policy}, distance {self.distance}" if self.is_on else ""


PHASH, NUM_PIXELS = "phash", "num_pixels"
HASH_SCHEMA = pa.schema([(PHASH, pa.uint64()), (NUM_PIXELS, pa.int64())])

_ALGORITHM = b"phash 1"  # another number when the hash of an image changes
_PLACE = ["uri", "offset", "num_bytes", "etag"]
_COMPARED = ["id", "uri", "row", "label", "num_bytes"]
# Frequencies that a picture must have, of 63: photographs have over 50, flat ones under 10.
MIN_DETAIL = 24


def hash_batch(
    batch: pa.RecordBatch, folder: Folder, storage: StorageOptions, threads: int | None = None
) -> pa.RecordBatch:
    """Return the rows that have a hash, with the columns that choose a keeper.

    Args:
        batch: References.
        folder: The spool, where hashes are read, and written unless it is an `UnwrittenFolder`.
        storage: Storage options for reading images.
        threads: Images read at a time; None is automatic.

    Returns:
        Columns `id`, `uri`, `row`, `label`, `num_bytes`, `phash` and `num_pixels`.

    Raises:
        StorageError: A whole store fails, rather than one object.
    """
    batch = keep_rows(batch, batch.column("num_bytes").to_numpy() > 0)  # 0: without an image
    order = pc.sort_indices(batch, [(name, "ascending") for name in _PLACE])
    batch = batch.take(order)
    name = f"{digest_of(_ALGORITHM, batch.select(_PLACE))}{naming.HASHES_SUFFIX}"
    rows = _read(folder, name, batch.num_rows)
    if rows is None:
        hashed = _hash(batch, folder, name, storage, threads)
        found = [(each or NO_HASH)._asdict() for each in hashed]
        rows = pa.RecordBatch.from_pylist(found, HASH_SCHEMA)
        # Without an etag a changed image would have the old hash; one that could not be read may be
        # readable next time.
        lasts = batch.column("etag").null_count == 0 and None not in hashed
        if lasts and not isinstance(folder, UnwrittenFolder):
            packed = parquet_bytes(pa.table(rows), write_page_checksum=True)
            folder.write_bytes(name, packed, sync=False)
    columns = dict(zip(HASH_SCHEMA.names, rows.columns, strict=True))
    return keep_rows(
        with_columns(batch.select(_COMPARED), columns),
        rows.column(PHASH).is_valid().to_numpy(zero_copy_only=False),
    )


def _hash(
    batch: pa.RecordBatch, folder: Folder, name: str, storage: StorageOptions, threads: int | None
) -> list[PictureHash | None]:
    """Hash the images; one by one after an attempt that died, if there is a folder for its note."""
    if isinstance(folder, UnwrittenFolder):
        return hash_places(batch, storage, threads)
    attempt = (folder, f"{name}.attempt", name)
    died = has_died(*attempt)
    with noted_attempt(*attempt):
        if not died:
            return hash_places(batch, storage, threads)
        task = functools.partial(_hash_row, batch, storage)
        made = call_in_child(task, batch.num_rows, IMAGE_SECONDS)
        return [NO_HASH if isinstance(each, Death) else each for each in made]


def _hash_row(batch: pa.RecordBatch, storage: StorageOptions, row: int) -> PictureHash | None:
    return hash_places(batch.slice(row, 1), storage, 1)[0]


def _read(folder: Folder, name: str, num_rows: int) -> pa.RecordBatch | None:
    """Return the hashes in a file, or None if there is none, or a damaged one."""
    try:
        data = folder.read_bytes(name)
        with ParquetRows(pa.BufferReader(data), name, checksums=True, threads=False) as file:
            table = file.read()
    except (StorageError, OSError, ValueError):  # Arrow's errors are among these
        return None
    if table.schema != HASH_SCHEMA or table.num_rows != num_rows:
        return None
    return pa.record_batch([column.combine_chunks() for column in table.columns], HASH_SCHEMA)


# A large JPEG is decoded at an eighth, a quarter or half of its size, if that leaves so many pixels
# in each direction. Fewer would lose copies: a reduced size is rounded, which shifts the picture.
# So hashes of large JPEGs may differ from those of imagehash, by two bits in 4 of 62 photographs.
_DECODED_SIDE = 8 * SIDE


class PictureHash(NamedTuple):
    """The hash of a picture.

    Attributes:
        phash: The perceptual hash; None if the picture has no detail or does not decode.
        num_pixels: Its width times its height; 0 if it does not decode.
    """

    phash: int | None
    num_pixels: int


NO_HASH = PictureHash(None, 0)


def hash_places(
    batch: pa.RecordBatch, storage: StorageOptions, threads: int | None = None
) -> list[PictureHash | None]:
    """Read, decode and hash the main image of each row; None if it cannot be read.

    Raises:
        StorageError: A whole store fails, rather than one object.
    """
    return scan_images(hash_picture, main_places(batch), storage, threads)


def hash_picture(data: bytes) -> PictureHash:
    """Return the hash of an image file, as it is shown: alpha on white, without EXIF's rotation."""
    try:
        header = read_header(data)
        check_bomb(header.info.format, header.info.width, header.info.height)
        image = open_pixels(data, header)
        width, height = image.size
        with PIXELS.hold(pixels_held(image)), decoder_faults(header):
            # Of a JPEG: libjpeg decodes a reduced size for a fraction of the work. Other formats
            # ignore it.
            image.draft("L", (_DECODED_SIDE, _DECODED_SIDE))
            image.load()
            found = hash_image(opaque(image))
    except ImageFault:
        return NO_HASH
    return PictureHash(found.value if found.detail >= MIN_DETAIL else None, width * height)


LARGE_BUCKET = 1024
Pairs = tuple[np.ndarray, np.ndarray]  # the hashes of each pair, uint64 [pairs] each
HASH_BITS = 64

# Nanoseconds on one core: to begin a table, to make and sort one row, and to compare two hashes.
_TABLE_NS, _SORT_NS, _COMPARE_NS = 200_000, 100, 10
_MAX_EXTRA_BANDS = 5


def find_pairs(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    """Yield all pairs of hashes that differ in at most `distance` bits, each once.

    Args:
        hashes: Distinct hashes, uint64 [hashes], in any order.
        distance: At least 0.
    """
    if not distance or len(hashes) < 2:
        return
    # Bits that all have in common would make bands that divide nothing.
    varying = int(np.bitwise_or.reduce(hashes ^ hashes[0]))
    bits = [bit for bit in range(HASH_BITS) if varying >> bit & 1]
    num_bands = _choose_bands(len(hashes), distance, len(bits))
    if not num_bands:
        yield from _find_in_runs(hashes, np.ones(len(hashes) - 1, bool), distance)
        return
    earlier: list[np.uint64] = []
    for table in _tables(bits, num_bands, distance):
        for left, right in _find_in_table(hashes, table, distance):
            differences = left ^ right
            first = np.ones(len(differences), bool)
            for other in earlier:
                # A pair that agrees in more bands than needed is in several tables, and must be
                # counted once: an earlier table has it in one bucket if all of its bits are equal.
                first &= differences & other != 0
            if first.any():
                yield left[first], right[first]
        earlier.append(table)


def _tables(bits: Sequence[int], num_bands: int, distance: int) -> Iterator[np.uint64]:
    """Yield the bits that decide the bucket in each table: those of all bands but `distance`."""
    cuts = [len(bits) * number // num_bands for number in range(num_bands + 1)]
    bands = [sum(1 << bit for bit in bits[low:high]) for low, high in itertools.pairwise(cuts)]
    for chosen in itertools.combinations(bands, num_bands - distance):
        yield np.uint64(sum(chosen))


def _find_in_table(hashes: np.ndarray, table: np.uint64, distance: int) -> Iterator[Pairs]:
    """Yield the pairs that are in one bucket of a table."""
    order = np.argsort(hashes & table)
    ordered = hashes[order]
    joined = (ordered[1:] ^ ordered[:-1]) & table == 0
    starts = np.flatnonzero(np.append(True, ~joined))
    sizes = np.diff(starts, append=len(ordered))
    large = sizes > LARGE_BUCKET
    for start, size in zip(starts[large].tolist(), sizes[large].tolist(), strict=True):
        # Done by the recursion: comparing a large bucket in full would take the square of its size.
        joined[start : start + size - 1] = False
        yield from find_pairs(ordered[start : start + size], distance)
    yield from _find_in_runs(ordered, joined, distance)


def _find_in_runs(hashes: np.ndarray, joined: np.ndarray, distance: int) -> Iterator[Pairs]:
    """Yield the pairs that are in one run.

    Args:
        hashes: Hashes, the runs one after another.
        joined: Whether each hash but the last is in one run with the next, bool [hashes - 1].
        distance: The largest number of bits in which a pair differs.
    """
    rows = np.flatnonzero(joined)
    joined = np.append(joined, False)
    for neighbor in itertools.count(1):
        if not len(rows):
            return
        left, right = hashes[rows], hashes[rows + neighbor]
        near = np.bitwise_count(left ^ right) <= distance
        if near.any():
            yield left[near], right[near]
        # Rows whose next neighbor is in another run drop out, so each round has fewer.
        rows = rows[joined[rows + neighbor]]


def _choose_bands(num_hashes: int, distance: int, num_bits: int) -> int:
    """Return the number of bands that takes the least time, 0 to compare all hashes.

    More bands make more tables with smaller buckets.
    """
    costs = {0: num_hashes**2 / 2 * _COMPARE_NS}
    for num_bands in range(distance + 1, min(distance + _MAX_EXTRA_BANDS, num_bits) + 1):
        # If hashes were random: real ones crowd, which the division of large buckets makes up for.
        bucket_bits = num_bits * (num_bands - distance) / num_bands
        pairs = num_hashes**2 / 2 / 2**bucket_bits
        table = _TABLE_NS + num_hashes * _SORT_NS + pairs * _COMPARE_NS
        costs[num_bands] = math.comb(num_bands, distance) * table
    return min(costs, key=costs.__getitem__)


ROOT = "root"
_REASONS = {
    "drop": RejectReason.DROPPED_NEAR_DUPLICATE,
    "reject": RejectReason.NEAR_DUPLICATE,
}
_ROWS_PER_PART = 250_000
_MAX_WAITING = 1 << 22  # pairs in memory before they are reduced to one for each hash
_RULE = [
    (ROOT, "ascending"),
    (NUM_PIXELS, "descending"),
    ("num_bytes", "descending"),
    ("id", "ascending"),
    ("row", "ascending"),
    ("uri", "ascending"),
]


@dataclass(frozen=True, slots=True)
class HashGroups:
    """The groups of hashes.

    Attributes:
        hashes: All hashes that are in a group, ascending, uint64 [hashes].
        roots: The least hash of the group of each, uint64 [hashes].
        num_parts: The number of parts in which groups are processed.
    """

    hashes: np.ndarray
    roots: np.ndarray
    num_parts: int

    @classmethod
    def find(cls, hashes: Iterable[np.ndarray], distance: int) -> HashGroups:
        """Return the groups of images.

        Memory: 8 bytes for each image, and 24 for its tables (`find_pairs`).

        Args:
            hashes: The hashes of all images, uint64, in any order.
            distance: The largest distance of a pair, in bits.
        """
        every = np.concatenate([np.zeros(0, np.uint64), *hashes])
        distinct, counts = np.unique(every, return_counts=True)
        repeated = distinct[counts > 1]
        # A hash that several images have is a pair with itself, or they would be no group.
        joined = join_pairs(chain([(repeated, repeated)], find_pairs(distinct, distance)))
        return cls(*joined, num_parts=1 + len(joined[0]) // _ROWS_PER_PART)

    def rows_in_groups(self, hashed: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (part, rows) of the rows that are in a group, with its root.

        Parts are ranges of roots, so that each group is in one part, and they do not overlap.
        """
        values = hashed.column(PHASH).to_numpy()
        rows = keep_rows(hashed, is_among(values, self.hashes))
        if not rows.num_rows:
            return
        roots = self.roots[np.searchsorted(self.hashes, rows.column(PHASH).to_numpy())]
        rows = set_column(rows, ROOT, pa.array(roots))
        # The top half of the root times the number of parts: the product fits, and its order is
        # that of the roots.
        parts = (roots >> np.uint64(32)) * np.uint64(self.num_parts) >> np.uint64(32)
        for part in np.unique(parts):
            yield int(part), keep_rows(rows, parts == part)


def join_pairs(parts: Iterable[Pairs]) -> Pairs:
    """Return all hashes of the pairs, ascending, and the least hash of the group of each.

    The result is pairs, too, so that results of parts can be joined in turn. Memory holds one pair
    for each hash, however many pairs there are.

    Args:
        parts: uint64 [pairs] twice, in any order; a hash paired with itself is a group of its own.
    """
    hashes, roots = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    waiting: list[Pairs] = []
    num_waiting = 0
    for part in parts:
        waiting.append(part)
        num_waiting += len(part[0])
        if num_waiting > _MAX_WAITING:
            hashes, roots = _join([(hashes, roots), *waiting])
            waiting, num_waiting = [], 0
    return _join([(hashes, roots), *waiting])


def _join(parts: list[Pairs]) -> Pairs:
    left, right = (np.concatenate(side) for side in zip(*parts, strict=True))
    hashes = distinct_hashes(np.concatenate([left, right]))
    labels = _label(len(hashes), np.searchsorted(hashes, left), np.searchsorted(hashes, right))
    return hashes, hashes[labels]


def _label(num_nodes: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the least node of each node's component, int64 [num_nodes].

    Each round hooks every root to the least root that a pair joins it to, and then lets all nodes
    point to their root. Source: Y. Shiloach, U. Vishkin, "An O(log n) parallel connectivity
    algorithm", Journal of Algorithms 3, 1982.
    """
    labels = np.arange(num_nodes)
    while True:
        left, right = labels[left], labels[right]
        apart = left != right
        if not apart.any():
            return labels
        left, right = left[apart], right[apart]
        # A larger root is hooked to a smaller one only, so no cycle can arise.
        np.minimum.at(labels, np.maximum(left, right), np.minimum(left, right))
        # Doubles the distance that a label looks ahead: chains of any length take few rounds.
        while not np.array_equal(nearer := labels[labels], labels):
            labels = nearer


def choose_keepers(batches: Sequence[pa.RecordBatch], distance: int) -> pa.RecordBatch:
    """Return the rows of whole groups in the order of the rule, with their keepers.

    Args:
        batches: Rows with `ROOT`, in any order.
        distance: The largest distance to a keeper, in bits.

    Returns:
        The rows, with columns `keeper` (the row of their keeper, int64) and `distance` (uint8).
    """
    rows = concat(list(batches)).sort_by(_RULE)
    roots, hashes = rows.column(ROOT).to_numpy(), rows.column(PHASH).to_numpy()
    keepers = np.zeros(len(roots), np.int64)
    left = np.arange(len(roots))
    while len(left):
        # The first row that is left of each group is a keeper.
        starts = np.append(True, roots[left[1:]] != roots[left[:-1]])
        # For each row the first row of its group among those that are left.
        chosen = left[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
        near = np.bitwise_count(hashes[left] ^ hashes[chosen]) <= distance
        keepers[left[near]] = chosen[near]
        left = left[~near]
    distances = np.bitwise_count(hashes ^ hashes[keepers])
    rows = set_column(rows, "keeper", pa.array(keepers))
    return set_column(rows, "distance", pa.array(distances, pa.uint8()))


def listed_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return what `choose_keepers` returns in the columns of the list of near-duplicates."""
    keepers = rows.column("id").take(rows.column("keeper"))
    columns = [rows.column(name) for name in (ROOT, "id", "distance", PHASH)]
    return pa.record_batch([*columns, keepers], [ROOT, "id", "distance", PHASH, "keeper"])


def leave_out_copies(rows: pa.RecordBatch, policy: str) -> Iterator[np.ndarray | Reject]:
    """Yield a reject for each row that is no keeper, then the keys (`row_keys`) of these rows.

    Args:
        rows: What `choose_keepers` returns.
        policy: "drop" or "reject"; nothing is left out for "report".
    """
    if policy != "report":
        keepers = rows.column("keeper").to_numpy()
        yield from reject_copies(rows, keepers, _REASONS[policy], _relation)


def _relation(row: dict[str, Any]) -> str:
    bits = "bit" if row["distance"] == 1 else "bits"
    return f"differs in {row['distance']} {bits} of its hash from"
