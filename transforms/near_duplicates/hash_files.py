"""Keep the hashes of a reference batch in the spool, so that no build decodes its images again.

    OUTPUT/spool/<hash>.hashes            a Parquet file: hash and number of pixels of each image
    OUTPUT/spool/<hash>.hashes.attempt    a note while a batch is hashed; left if the process dies

The name is a hash of the places and etags of the batch's images, so a changed batch gets another
file. Rows are in the order of the places, whatever the order of the batch.

"""

from __future__ import annotations

import functools
from typing import NamedTuple

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
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.images.colors import opaque
from shardwright.transforms.images.pixels import decoder_faults, open_pixels, pixels_held
from shardwright.transforms.inputs.spool import UnwrittenFolder
from shardwright.transforms.references import digest_of, keep_rows, with_columns
from shardwright.transforms.write.image_reads import main_places, scan_images
from shardwright.transforms.write.shard_chunks import has_died, noted_attempt
from shardwright.transforms.write.write_job import IMAGE_SECONDS

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
