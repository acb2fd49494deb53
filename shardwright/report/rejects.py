"""Read examples of rejects, with thumbnails of images that still decode."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, zip_longest
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import ImageFault, MissingError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.parquet import ParquetRows
from shardwright.images.decode import StoredImage
from shardwright.images.previews import decode_preview
from shardwright.report.pictures import LARGE, Thumbnail, can_decode, encode_small
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder

EXAMPLES = 25  # of each reason
MAX_THUMBNAILS = 50
_COLUMNS = ("id", "uri", "reason", "detail")
_MAX_FILES, _MAX_BATCHES, _BATCH_ROWS = 64, 32, 32_768  # read at most
# For thumbnails at most, because a build waits for them: images, bytes of one, seconds.
_MAX_TRIED, _MAX_FILE_BYTES, _MAX_SECONDS = 100, 20_000_000, 3.0

# Only these are opened for thumbnails: never images that lie outside of INPUT, or that ended or
# stopped a process.
SHOWN = frozenset(
    {
        *("policy_exif", "policy_cmyk", "policy_16bit", "policy_palette", "policy_alpha"),
        *("policy_grayscale", "policy_animation", "policy_aspect", "policy_small"),
        *("policy_extension", "truncated", "unsupported_format", "corrupt", "too_large"),
        *("bad_id", "duplicate_id", "missing_label", "unknown_label", "unknown_split"),
        *("bad_value", "transform", "duplicate_image", "dropped_duplicate", "near_duplicate"),
        "dropped_near_duplicate",
    }
)


class RejectedInput(NamedTuple):
    """A row of `rejects/*.parquet`, and the image if some of it decodes."""

    id: str
    uri: str
    reason: str
    detail: str
    thumbnail: Thumbnail | None = None


def read_rejects(root: Folder, manifest: Manifest) -> list[RejectedInput]:
    """Return up to `EXAMPLES` rejects of each reason, with up to `MAX_THUMBNAILS` thumbnails.

    Raises:
        StorageError: A file of rejects cannot be read.
    """
    found: dict[str, list[RejectedInput]] = {reason: [] for reason in sorted(manifest.rejects)}
    prefix = f"{naming.REJECTS_DIR}/"
    files = [name for name in sorted(manifest.files) if name.startswith(prefix)][:_MAX_FILES]
    for batch in islice(read_batches(root, files, _BATCH_ROWS, _COLUMNS), _MAX_BATCHES):
        for reason, some in found.items():
            rows = batch.filter(pc.equal(batch["reason"], reason))[: EXAMPLES - len(some)]
            some += [RejectedInput(**row) for row in rows.to_pylist()]
        if all(len(found[name]) >= min(manifest.rejects[name], EXAMPLES) for name in found):
            break
    for some in found.values():
        some.sort(key=lambda reject: reject[:4])
    shown = _thumbnails(found.values()) if can_decode() else {}
    return [one._replace(thumbnail=shown.get(one)) for some in found.values() for one in some]


def _thumbnails(groups: Iterable[Sequence[RejectedInput]]) -> dict[RejectedInput, Thumbnail]:
    """Return small copies of local images, those of each group in turn."""
    shown: dict[RejectedInput, Thumbnail] = {}
    ends = time.monotonic() + _MAX_SECONDS
    in_turn = (one for row in zip_longest(*groups) for one in row if one is not None)
    local = (one for one in in_turn if one.reason in SHOWN and one.uri and not is_remote(one.uri))
    for one in islice(local, _MAX_TRIED):
        if len(shown) == MAX_THUMBNAILS or time.monotonic() > ends:
            break
        with suppress(OSError, ValueError, ImageFault):
            status = os.stat(one.uri)
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_FILE_BYTES:
                with open(one.uri, "rb") as file:
                    data = file.read(_MAX_FILE_BYTES)
                preview = decode_preview(data, StoredImage(), partial=True)
                shown[one] = encode_small(preview.pixels, *LARGE)
    return shown


def read_batches(
    root: Folder, names: Iterable[str], num_rows: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of up to `num_rows` rows of Parquet files, of those that are not missing.

    Raises:
        StorageError: A file cannot be read.
    """
    for name in names:
        path = root.path(name)
        try:
            with root.open_input(name) as source, ParquetRows(source, path) as file:
                yield from file.batches(num_rows, columns)
        except MissingError:
            continue
        except pa.ArrowException as error:
            raise StorageError(f"{path} cannot be read: {error}") from error
