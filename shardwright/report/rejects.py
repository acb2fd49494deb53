"""Read examples of rejects, with thumbnails of images that still decode; explain each reason."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

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
_MAX_FILES, _MAX_BATCHES, _BATCH_ROWS = 64, 32, 32_768  # read at most
# For thumbnails at most, because a build waits for them: images, bytes of one and of all, seconds.
_MAX_TRIED, _MAX_FILE_BYTES, _MAX_BYTES, _MAX_SECONDS = 100, 20_000_000, 100_000_000, 3.0


_ON = "Choose another policy with --on, or convert the files."
# The meaning of each, and its fix; "" for what is no fault.
REASONS = {
    "empty_file": ("The file has no bytes.", "Copy it again, or delete it."),
    "truncated": ("The image ends too early.", "Copy or download it again."),
    "not_an_image": ("The content is not an image.", "Delete it, or fix its name."),
    "unsupported_format": (
        "TensorFlow cannot decode this format.",
        "Convert it, or build with --encode jpeg.",
    ),
    "corrupt": ("The pixels cannot be decoded.", "Copy it again, or re-save it."),
    "too_many_pixels": ("The image is too large to decode.", "Make it smaller."),
    "too_large": ("The record would be too large.", "Make the image smaller."),
    "policy_exif": ("EXIF turns or mirrors the image.", _ON),
    "policy_cmyk": ("The image is CMYK.", _ON),
    "policy_16bit": ("The image has 16 bits per channel.", _ON),
    "policy_palette": ("The image has a palette.", _ON),
    "policy_alpha": ("The image has an alpha channel.", _ON),
    "policy_grayscale": ("The image is gray.", _ON),
    "policy_animation": ("The image is animated.", _ON),
    "policy_aspect": ("The aspect ratio is out of range.", _ON),
    "policy_small": ("A side is too short.", _ON),
    "policy_extension": ("The name and the content state different formats.", _ON),
    "missing_file": ("The file does not exist.", "Fix its path, or restore the file."),
    "unreadable": ("The file cannot be read.", "Check its permissions and the store."),
    "changed": ("The file changed during the build.", "Run the same build again."),
    "bad_id": ("The id is not valid.", "Rename the file, or fix the table's id."),
    "duplicate_id": ("Another input has the same id.", "Give each input its own id."),
    "missing_label": ("The input has no label.", "Add it to the table of --labels."),
    "unknown_label": (
        "The label is not among the class names.",
        "Fix the label, or add it to --class-names.",
    ),
    "unknown_split": ("The split is not valid.", "Fix the table's split column."),
    "bad_value": ("A value does not fit its feature.", "Fix the value or the schema."),
    "transform": ("The --transform function dropped it or failed.", "See its message."),
    "other_file": ("Not an image, by name or content.", ""),
    "empty_box": (
        "A box has no area in its image. The image is kept without it.",
        "Fix or remove the box.",
    ),
    "unmatched_label": ("A row of --labels matches no image.", ""),
    "ambiguous_label": (
        "A row of --labels matches several images.",
        "Use longer paths in the table.",
    ),
    "unused_id": (
        "An id of a split list is not in INPUT.",
        "Write ids as in the index, such as cat/1.jpg.",
    ),
    "duplicate_image": (
        "Another image has the same bytes.",
        "Delete one, or build with --duplicates drop.",
    ),
    "dropped_duplicate": ("Another image has the same bytes, and is kept.", ""),
    "near_duplicate": (
        "Another image is almost the same.",
        "Delete one, or build with --near-duplicates drop.",
    ),
    "dropped_near_duplicate": ("Another image is almost the same, and is kept.", ""),
    "outside_input": (
        "The path leads out of INPUT.",
        "Move the file, or build with --allow-outside.",
    ),
    "incomplete": ("A file or folder of INPUT cannot be read to its end.", ""),
    "crashed": ("It stopped its process twice.", "Re-save the image, or delete it."),
    "gone": ("INPUT lacks a record of the dataset.", "Mount it, or see --max-gone."),
    "internal_error": ("An unexpected error.", "Run again; if it stays, report it."),
}
UNKNOWN = ("See the messages.", "")

# Only these are opened for thumbnails: never images that lie outside of INPUT, or that ended or
# stopped a process.
SHOWN = frozenset(
    {
        *(reason for reason in REASONS if reason.startswith("policy_")),
        *("truncated", "unsupported_format", "corrupt", "bad_id", "duplicate_id", "too_large"),
        "missing_label",
        *("unknown_label", "unknown_split", "bad_value", "transform", "duplicate_image"),
        *("dropped_duplicate", "near_duplicate", "dropped_near_duplicate"),
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
    wanted = {reason: min(number, EXAMPLES) for reason, number in manifest.rejects.items()}
    counts: Counter[str] = Counter()
    found = []
    for number, batch in enumerate(_batches(root, manifest)):
        places = []
        for place, reason in enumerate(batch.column("reason").to_pylist()):
            if counts[reason] < wanted.get(reason, 0):
                counts[reason] += 1
                places.append(place)
        for row in batch.take(pa.array(places, pa.int64())).to_pylist():
            found.append(RejectedInput(row["id"], row["uri"], row["reason"], row["detail"]))
        is_done = all(counts[reason] >= most for reason, most in wanted.items())
        if is_done or number + 1 >= _MAX_BATCHES:
            break
    found.sort(key=lambda reject: (reject.reason, reject.id, reject.uri, reject.detail))
    shown = _thumbnails(found) if can_decode() else {}
    return [one._replace(thumbnail=shown.get(place)) for place, one in enumerate(found)]


def _thumbnails(found: Sequence[RejectedInput]) -> dict[int, Thumbnail]:
    """Return small copies of local images by their place, those of each reason in turn."""
    ends, left = time.monotonic() + _MAX_SECONDS, _MAX_BYTES
    shown: dict[int, Thumbnail] = {}
    counts: Counter[str] = Counter()
    ranked = []
    for place, reject in enumerate(found):
        if reject.reason in SHOWN and reject.uri and not is_remote(reject.uri):
            ranked.append((counts[reject.reason], place))
            counts[reject.reason] += 1
    for _, place in sorted(ranked)[:_MAX_TRIED]:
        if len(shown) == MAX_THUMBNAILS or left <= 0 or time.monotonic() > ends:
            break
        path, most = found[place].uri, min(left, _MAX_FILE_BYTES)
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                continue
            with open(path, "rb") as file:
                data = file.read(most)
            left -= len(data)
            preview = decode_preview(data, StoredImage(), partial=True)
            shown[place] = encode_small(preview.pixels, *LARGE)
        except (OSError, ValueError, ImageFault):
            continue
    return shown


def _batches(root: Folder, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    prefix = f"{naming.REJECTS_DIR}/"
    names = [name for name in sorted(manifest.files) if name.startswith(prefix)]
    for name in names[:_MAX_FILES]:
        try:
            with root.open_input(name) as source, ParquetRows(source, root.path(name)) as file:
                yield from file.batches(_BATCH_ROWS)
        except MissingError:
            continue
        except pa.ArrowException as error:
            raise StorageError(f"{root.path(name)} cannot be read: {error}") from error
