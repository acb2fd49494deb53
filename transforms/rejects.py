"""Rejects: every input that does not end up in a shard, with a typed reason.

A reject is a row, never a log line: `rejects/*.parquet` beside the shards holds one row per reject, the manifest
holds the counts by reason, and each reason is also the name of a Beam counter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from shardwright.errors import (
    ChangedError,
    DeniedError,
    MissingBucketError,
    MissingError,
    StorageError,
    UnreadableError,
)


class RejectReason(StrEnum):
    """Why an input is not in any shard. The value is the counter name and the text in reports."""

    EMPTY_FILE = "empty_file"
    TRUNCATED = "truncated"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    CORRUPT = "corrupt"
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_LARGE = "too_large"
    POLICY_EXIF = (
        "policy_exif"  # these are rejects because `--on FAULT=reject` says so, or by its default
    )
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
    TRANSFORM = "transform"  # a user's function left it out, or failed
    OTHER_FILE = (
        "other_file"  # neither named nor made as an image: listed, but not counted as a fault
    )
    EMPTY_BOX = "empty_box"  # a box with no area inside its image: the image is kept without it, so this is no fault either
    UNMATCHED_LABEL = "unmatched_label"  # a row of a --labels table that INPUT has no image for
    AMBIGUOUS_LABEL = "ambiguous_label"  # a row of a --labels table that several images would take
    UNUSED_ID = "unused_id"  # a list of ids names what INPUT does not have
    DUPLICATE_IMAGE = (
        "duplicate_image"  # another image has the same bytes, and the user calls that a fault
    )
    DROPPED_DUPLICATE = "dropped_duplicate"  # the same, where the user asked for one of them only
    INTERNAL_ERROR = "internal_error"  # an exception that nobody expected: a bug here or in a decoder, to be reported


# What a store's trouble with one object means. Troubles with a whole store are nobody's reject.
_STORAGE_REASONS: Mapping[type[StorageError], RejectReason] = {
    MissingError: RejectReason.MISSING_FILE,
    MissingBucketError: RejectReason.MISSING_FILE,
    ChangedError: RejectReason.CHANGED,
    DeniedError: RejectReason.UNREADABLE,
    UnreadableError: RejectReason.UNREADABLE,
    StorageError: RejectReason.UNREADABLE,
}


def reason_of(error: StorageError) -> RejectReason | None:
    """Why an object that could not be read is left out, or None where the store failed and not the object."""
    return _STORAGE_REASONS.get(type(error))


# Reasons that may be gone at the next try: an unfinished build writes such a shard again. An internal error may be a lack of
# memory, or a bug that a newer version does not have.
RETRYABLE = frozenset(
    {
        RejectReason.MISSING_FILE,
        RejectReason.UNREADABLE,
        RejectReason.CHANGED,
        RejectReason.INTERNAL_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class Reject:
    """One input that is left out.

    Attributes:
        id: The id the record would have had ("" where none could be made).
        uri: Where the image was looked for.
        reason: The typed reason.
        detail: One line for a person: what was found and, where there is one, the fix.
    """

    id: str
    uri: str
    reason: RejectReason
    detail: str


REJECT_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "uri", "reason", "detail")]
)


def rejects_to_table(rejects: Sequence[Reject]) -> pa.Table:
    """One row per reject, sorted, so that the file does not depend on the order of arrival. There may be millions of them."""
    columns = {name: [getattr(reject, name) for reject in rejects] for name in REJECT_SCHEMA.names}
    return pa.table(columns, schema=REJECT_SCHEMA).sort_by(
        [(name, "ascending") for name in REJECT_SCHEMA.names]
    )


# Listed for whoever looks, though no image that is wanted is missing for them.
NO_FAULTS = frozenset(
    {
        RejectReason.OTHER_FILE,
        RejectReason.EMPTY_BOX,
        RejectReason.UNMATCHED_LABEL,
        RejectReason.UNUSED_ID,
        RejectReason.DROPPED_DUPLICATE,
    }
)


def count_faults(counts: Mapping[str, int]) -> int:
    """How many rejects count against `--max-reject-fraction`: all but those that leave out no image, or one that the user
    does not want."""
    return sum(number for reason, number in counts.items() if reason not in NO_FAULTS)
