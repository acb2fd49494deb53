"""`--fail-on`: limits as text, and which of them measured values exceed."""

from __future__ import annotations

import pytest

from shardwright.errors import UsageError
from shardwright.fail_on import Measured, exceeded, parse_limits

NAMES, PERCENTAGES = ("drift", "gone"), ("gone",)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("drift>0.1", ["drift>0.1: 0.25"]),
        ("drift>0.25", []),
        (" drift > 0 , gone>0,", ["drift>0: 0.25", "gone>0: 3"]),
        ("gone>2", ["gone>2: 3"]),
        ("gone>3", []),
        ("gone>1%", ["gone>1%: 1.5%"]),
        ("gone>1.5%", []),
    ],
)
def test_limits(text: str, lines: list[str]) -> None:
    values = {"drift": Measured(0.25), "gone": Measured(3, 200)}
    assert exceeded(parse_limits(text, NAMES, PERCENTAGES), values) == lines


def test_a_percentage_of_nothing_is_of_one() -> None:
    assert exceeded(parse_limits("gone>1%", NAMES, PERCENTAGES), {"gone": Measured(0, 0)}) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("gone", "'gone' is not a limit: write NAME>NUMBER"),
        ("lost>1", "the names are drift, gone"),
        ("gone<1", "'gone<1' is not a limit"),
        ("gone>-1", "'gone>-1' is not a limit"),
        ("gone>1,drift>1%", "'drift>1%': drift has no percentage"),
    ],
)
def test_wrong_limits(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="--fail-on") as error:
        parse_limits(text, NAMES, PERCENTAGES)
    assert hint in str(error.value)
