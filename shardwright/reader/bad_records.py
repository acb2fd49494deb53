"""Collect the damaged records of a reader or a tf.data pipeline, up to its `max_bad_records`."""

from __future__ import annotations

from shardwright.errors import BadRecordError
from shardwright.reader.record_reader import BadRecord


def add_bad_records(
    known: list[BadRecord], bad: list[BadRecord], most: int, num_records: int | None = None
) -> list[BadRecord]:
    """Return the known records and the new ones of `bad`.

    Raises:
        BadRecordError: They are more than `most`, or all of `num_records`.
    """
    if not bad:
        return known
    # A batch may draw a record more than once, and `known` may have it from an earlier epoch.
    found = list(dict.fromkeys([*known, *bad]))
    if len(found) > most or (num_records is not None and len(found) >= num_records):
        raise BadRecordError(str(bad[0]), len(found), most, bad[0].is_as_built)
    return found
