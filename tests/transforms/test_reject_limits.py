"""Limits of rejects: as a fraction, as a number, and of every class."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.errors import TooManyRejectsError
from shardwright.transforms.reject_limits import RejectLimits, check_rejects

FOUND_NONE = "INPUT has no images: every file is a reject (3 corrupt, 2 other_file)"
FRACTION = "1 of 99 inputs (1.01%) are rejects, more than --max-reject-fraction 0.01 allows"
NUMBER = (
    "3 of 1003 inputs (0.30%) are rejects, more than --max-rejects 2 allows (3 corrupt): "
    "fix these inputs, or raise --max-rejects; no image was checked yet"
)
DEFAULT = (
    "are rejects, more than the default limit of 10 and 1% allows (11 corrupt): fix these inputs"
)
RULE = "max-reject-fraction must be from 0 to 1, got 1.5"


@pytest.mark.parametrize(
    ("rejects", "num_records", "limits", "said"),
    [
        ({}, 1, (0.0,), None), ({"corrupt": 1}, 99, (0.01,), None),
        ({"other_file": 50}, 1, (0.0, 0), None), ({"corrupt": 1}, 1, (0.5, 1), None),
        ({"corrupt": 99}, 1, (1.0,), None), ({}, 1, (0.0, 0), None),
        ({}, 0, (1.0,), "INPUT has no images; the folder or table is empty"),
        ({"other_file": 2, "corrupt": 3}, 0, (1.0,), FOUND_NONE),
        ({"corrupt": 1}, 98, (0.01,), f"{FRACTION} (1 corrupt): fix these inputs"),
        ({"corrupt": 1, "other_file": 900}, 98, (0.01,),
         f"{FRACTION} (1 corrupt; not counted: 900 other_file): fix"),
        ({"corrupt": 2, "truncated": 3, "empty_box": 1, "unused_id": 2}, 95, (0.01,),
         "8 of 103 inputs (7.77%) are rejects, more than --max-reject-fraction 0.01 allows "
         "(3 truncated, 2 corrupt, 2 unused_id, 1 empty_box): fix"),
        ({"empty_file": 1}, 10**6, (0.0, 1), "1 of 1000001 inputs"),
        ({"corrupt": 3, "other_file": 9}, 1000, (1.0, 3), None),
        ({"corrupt": 10}, 1, (), None), ({"corrupt": 11}, 1089, (), None),
        ({"corrupt": 11}, 1088, (), f"11 of 1099 inputs (1.00%) {DEFAULT}"),
        ({"corrupt": 11}, 1, (None, 11), None), ({"corrupt": 1}, 999, (None, 0), "1 of 1000"),
        ({"corrupt": 11}, 1, (), f"11 of 12 inputs (91.67%) {DEFAULT}"),
        ({"corrupt": 3}, 1000, (1.0, 2), NUMBER), ({"corrupt": 1}, 1000, (1.0, 0), "1 of 1001"),
    ],
)  # fmt: skip
def test_rejects_above_a_limit_stop_the_build(
    rejects: dict[str, int], num_records: int, limits: tuple[Any, ...], said: str | None
) -> None:
    if said is None:
        check_rejects(rejects, num_records, RejectLimits(*limits))
        return
    with pytest.raises(TooManyRejectsError) as caught:
        check_rejects(rejects, num_records, RejectLimits(*limits))
    assert str(caught.value).startswith(said)


def test_an_append_without_images_tells_what_to_check() -> None:
    message = r"^INPUT has no images; .* empty\. The dataset stays as it is, .* disk is mounted$"
    with pytest.raises(TooManyRejectsError, match=message):
        check_rejects({}, 0, RejectLimits(), grows=True)


@pytest.mark.parametrize(("limits", "message"), [
    ({"max_reject_fraction": 1.5}, RULE),
    ({"max_rejects": -1}, "max-rejects must be at least 0, got -1"),
])  # fmt: skip
def test_limits_follow_their_rules(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RejectLimits(**limits)
