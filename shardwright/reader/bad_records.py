"""Collect the damaged records of a reader, up to its `max_bad_records`."""

from __future__ import annotations

from shardwright.errors import BadRecordError
from shardwright.reader.record_reader import BadRecord


def add_bad_records(known: list[BadRecord], bad: list[BadRecord], most: int) -> list[BadRecord]:
    """Return the known records and the new ones of `bad`.

    Raises:
        BadRecordError: They are more than `most`.
    """
    if not bad:
        return known
    seen = set(known)
    found = [*known, *(record for record in bad if record not in seen)]
    if len(found) > most:
        raise BadRecordError(str(bad[0]), len(found), most)
    return found
