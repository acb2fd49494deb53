"""The count of damaged records."""

from __future__ import annotations

import pytest

from shardwright.errors import BadRecordError
from shardwright.reader.record_reader import BadRecord, add_bad_records

FIRST, SECOND = (BadRecord("a-shard", row, 90 * row, "damaged") for row in range(2))


def test_a_record_counts_once() -> None:
    """A batch of a balanced sample may draw it twice; a later epoch meets it again."""
    assert add_bad_records([], [FIRST, FIRST], most=1) == [FIRST]
    assert add_bad_records([FIRST], [FIRST, SECOND, SECOND], most=2) == [FIRST, SECOND]
    with pytest.raises(BadRecordError, match=r"\(2 bad records so far\); max_bad_records=1"):
        add_bad_records([FIRST], [FIRST, SECOND], most=1)
