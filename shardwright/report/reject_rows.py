"""Read examples of a dataset's rejects, with thumbnails of images that still decode."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from shardwright.errors import ImageFault, MissingError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.parquet import ParquetRows
from shardwright.images.decode import StoredImage
from shardwright.images.previews import decode_preview
from shardwright.report.reject_texts import SHOWN
from shardwright.report.thumbnails import LARGE, Thumbnail, can_decode, encode_small
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder

EXAMPLES = 25  # of each reason
MAX_THUMBNAILS = 50
_MAX_FILES, _MAX_BATCHES, _BATCH_ROWS = 64, 32, 32_768  # read at most
# For thumbnails at most, because a build waits for them: images, bytes of one and of all, seconds.
_MAX_TRIED, _MAX_FILE_BYTES, _MAX_BYTES, _MAX_SECONDS = 100, 20_000_000, 100_000_000, 3.0


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
    found = _examples(root, manifest)
    shown = _thumbnails(found) if can_decode() else {}
    return [one._replace(thumbnail=shown.get(place)) for place, one in enumerate(found)]


def _thumbnails(found: Sequence[RejectedInput]) -> dict[int, Thumbnail]:
    """Return small copies of local images by their place, those of each reason in turn."""
    ends, left = time.monotonic() + _MAX_SECONDS, _MAX_BYTES
    shown: dict[int, Thumbnail] = {}
    for place in _in_turn(found)[:_MAX_TRIED]:
        if len(shown) == MAX_THUMBNAILS or left <= 0 or time.monotonic() > ends:
            break
        try:
            data = _read_local(found[place].uri, min(left, _MAX_FILE_BYTES))
            left -= len(data)
            preview = decode_preview(data, StoredImage(), partial=True)
            shown[place] = encode_small(preview.pixels, *LARGE)
        except (OSError, ValueError, ImageFault):
            continue
    return shown


def _in_turn(found: Sequence[RejectedInput]) -> list[int]:
    """Return the places of local images that may be opened: the first of each reason, and so on."""
    counts: Counter[str] = Counter()
    ranked = []
    for place, reject in enumerate(found):
        if reject.reason in SHOWN and reject.uri and not is_remote(reject.uri):
            ranked.append((counts[reject.reason], place))
            counts[reject.reason] += 1
    return [place for _, place in sorted(ranked)]


def _read_local(path: str, most: int) -> bytes:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise OSError(f"{path} is no file of at most {most:,} bytes")
    with open(path, "rb") as file:
        return file.read(most)


def _examples(root: Folder, manifest: Manifest) -> list[RejectedInput]:
    wanted = {reason: min(number, EXAMPLES) for reason, number in manifest.rejects.items()}
    counts: Counter[str] = Counter()
    found = []
    for number, batch in enumerate(_batches(root, manifest)):
        for row in _some_rows(batch, wanted, counts):
            found.append(RejectedInput(row["id"], row["uri"], row["reason"], row["detail"]))
            counts[row["reason"]] += 1
        is_done = all(counts[reason] >= most for reason, most in wanted.items())
        if is_done or number + 1 >= _MAX_BATCHES:
            break
    return sorted(found, key=lambda reject: (reject.reason, reject.id, reject.uri, reject.detail))


def _batches(root: Folder, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    prefix = f"{naming.REJECTS_DIR}/"
    names = [name for name in sorted(manifest.files) if name.startswith(prefix)]
    for name in names[:_MAX_FILES]:
        try:
            with root.open_small(name) as source, ParquetRows(source, root.path(name)) as file:
                yield from file.batches(_BATCH_ROWS)
        except MissingError:
            continue
        except pa.ArrowException as error:
            raise StorageError(f"{root.path(name)} cannot be read: {error}") from error


def _some_rows(
    batch: pa.RecordBatch, wanted: Mapping[str, int], counts: Mapping[str, int]
) -> Iterator[dict[str, str]]:
    """Yield the first rows of each reason that is still missing."""
    taken: Counter[str] = Counter()
    places = []
    for place, reason in enumerate(batch.column("reason").to_pylist()):
        if counts.get(reason, 0) + taken[reason] < wanted.get(reason, 0):
            taken[reason] += 1
            places.append(place)
    yield from batch.take(pa.array(places, pa.int64())).to_pylist()
