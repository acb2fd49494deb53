"""Rejects: every input that is not in a shard, with a typed reason.

A reject is a row, never a log line: `rejects/*.parquet` holds one row per reject, the manifest
counts them by reason, and each reason has a Beam counter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from shardwright.errors import (
    ChangedError,
    CredentialsError,
    DeniedError,
    MissingBucketError,
    MissingError,
    StorageError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
    UnreadableError,
    WrongRegionError,
)
from shardwright.sizes import counted


class RejectReason(StrEnum):
    """The reason why an input is not in any shard, as in counter names and reports."""

    EMPTY_FILE = "empty_file"
    TRUNCATED = "truncated"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    CORRUPT = "corrupt"
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_LARGE = "too_large"
    # The policies reject because of `--on FAULT=reject`, given or the default.
    POLICY_EXIF = "policy_exif"
    POLICY_CMYK = "policy_cmyk"
    POLICY_16BIT = "policy_16bit"
    POLICY_PALETTE = "policy_palette"
    POLICY_ALPHA = "policy_alpha"
    POLICY_GRAYSCALE = "policy_grayscale"
    POLICY_ANIMATION = "policy_animation"
    POLICY_ASPECT = "policy_aspect"
    POLICY_SMALL = "policy_small"
    POLICY_EXTENSION = "policy_extension"
    MISSING_FILE = "missing_file"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    MISSING_LABEL = "missing_label"
    UNKNOWN_LABEL = "unknown_label"
    UNKNOWN_SPLIT = "unknown_split"
    BAD_VALUE = "bad_value"
    TRANSFORM = "transform"  # a --transform function dropped it or failed
    OTHER_FILE = "other_file"  # not an image by name or content: listed, but no fault
    EMPTY_BOX = "empty_box"  # a box without area in its image, which is kept
    UNMATCHED_LABEL = "unmatched_label"  # a row of a --labels table matches no image of INPUT
    AMBIGUOUS_LABEL = "ambiguous_label"  # a row of a --labels table matches several images
    UNUSED_ID = "unused_id"  # an id of a split list is not in INPUT
    DUPLICATE_IMAGE = "duplicate_image"  # equal bytes to another image, with --duplicates reject
    DROPPED_DUPLICATE = "dropped_duplicate"  # equal bytes to another image, with --duplicates drop
    NEAR_DUPLICATE = "near_duplicate"  # nearly equal to another, with --near-duplicates reject
    DROPPED_NEAR_DUPLICATE = "dropped_near_duplicate"  # the same with --near-duplicates drop
    OUTSIDE_INPUT = "outside_input"  # a path or link out of INPUT, without --allow-outside
    INCOMPLETE = "incomplete"  # a file or folder of INPUT that cannot be read to its end
    CRASHED = "crashed"  # it ended or stopped its process twice, the second time alone
    GONE = "gone"  # a record that INPUT lacks: an append that would take away too many fails
    INTERNAL_ERROR = "internal_error"  # an unexpected exception: a bug here or in a decoder


# Errors of one object. Errors of a whole store are no reject: they end the build.
_STORAGE_REASONS: Mapping[type[StorageError], RejectReason] = {
    MissingError: RejectReason.MISSING_FILE,
    MissingBucketError: RejectReason.MISSING_FILE,
    ChangedError: RejectReason.CHANGED,
    DeniedError: RejectReason.UNREADABLE,
    UnreadableError: RejectReason.UNREADABLE,
    StorageError: RejectReason.UNREADABLE,
}


# Errors of a web server. A table may name many of them, so a dead one costs its images only.
_SERVER_ERRORS = (
    CredentialsError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
    WrongRegionError,
)


def reason_of(error: StorageError, image_uri: str = "") -> RejectReason | None:
    """Return why an object is rejected, or None if the whole store failed.

    Args:
        error: The error of a request.
        image_uri: The object if it is one image; "" for a file that holds many.
    """
    if image_uri.startswith(("http://", "https://")) and isinstance(error, _SERVER_ERRORS):
        return RejectReason.UNREADABLE
    return _STORAGE_REASONS.get(type(error))


# Reasons that may be gone at the next try, so an unfinished build rewrites such a shard. An
# internal error may be a lack of memory, or a bug that a newer version does not have.
RETRYABLE = frozenset(
    {
        RejectReason.MISSING_FILE,
        RejectReason.UNREADABLE,
        RejectReason.CHANGED,
        RejectReason.INTERNAL_ERROR,
    }
)


# Name of a statistic: label index -> number of images of that class rejected when they were read.
REJECTED_LABELS = "rejected_labels"


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected input.

    Attributes:
        id: The id that the record would have had, "" if it has none.
        uri: The image's location.
        reason: The typed reason.
        detail: One line with the finding and, if there is one, the fix.
    """

    id: str
    uri: str
    reason: RejectReason
    detail: str


def incomplete(name: str, uri: str, fault: object, num_readable: int) -> Reject:
    """Return the reject of a file or folder of INPUT that cannot be read to its end.

    Args:
        name: Its name below INPUT.
        uri: Its location.
        fault: Its fault, in words.
        num_readable: Number of records before the fault.
    """
    detail = f"{fault}; readable before that: {counted(num_readable, 'record')}"
    return Reject(name, uri, RejectReason.INCOMPLETE, detail)


REJECT_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "uri", "reason", "detail")]
)


def rejects_to_table(rejects: Sequence[Reject]) -> pa.Table:
    """Return one row per reject."""
    columns = {name: [getattr(reject, name) for reject in rejects] for name in REJECT_SCHEMA.names}
    return pa.table(columns, schema=REJECT_SCHEMA)


def rejects_in(rows: pa.RecordBatch | pa.Table) -> list[Reject]:
    """Return the reject of each row."""
    return [Reject(**{**row, "reason": RejectReason(row["reason"])}) for row in rows.to_pylist()]


def count_reasons(rejects: Iterable[Reject]) -> dict[str, int]:
    """Return the number of rejects by reason, in its order."""
    return dict(sorted(Counter(str(reject.reason) for reject in rejects).items()))
