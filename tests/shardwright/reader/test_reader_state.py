"""The state of a reader: small, JSON, the same on every host, and checked when it is used."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.reader.state import STATE_VERSION, ReaderState

STATE = ReaderState(
    dataset="0123456789abcdef" * 2, shuffle=True, seed=-3, window=16, position=12_345, epoch=2
)
COUNTS = st.integers(0, 2**62 - 1)
STATES = st.builds(ReaderState, window=COUNTS, position=COUNTS, epoch=COUNTS)


@given(STATES)
def test_through_json_and_back(state: ReaderState) -> None:
    read = ReaderState.from_json(json.loads(json.dumps(state.to_json())))
    assert read == state
    read.check_same(replace(state, position=0))


def test_the_written_form() -> None:
    """Runs have it on their disks: a change needs another version."""
    assert STATE.to_json() == {
        "version": 1, "dataset": "0123456789abcdef0123456789abcdef", "shuffle": True,
        "seed": -3, "window": 16, "position": 12_345, "epoch": 2,
    }  # fmt: skip
    assert STATE_VERSION == 1


@pytest.mark.parametrize("kind", [MappingProxyType, lambda record: {**record, "added": 1}])
def test_any_mapping_is_read(kind: Any) -> None:
    assert ReaderState.from_json(kind(STATE.to_json())) == STATE


@pytest.mark.parametrize("record", [None, 5, "state", [STATE.to_json()], STATE])
def test_other_values_than_a_state(record: object) -> None:
    with pytest.raises(UsageError) as caught:
        ReaderState.from_json(record)
    assert str(caught.value) == f"state={record!r} must be a dict from Reader.state()"


VERSION = "state has version {!r}; this shardwright reads version 1"
DAMAGE: dict[str, list[object]] = {
    "version": [None, 0, 2, "1", 1.0, True],
    "dataset": [None, 5, b"abc", ["a"]],
    "shuffle": [None, 0, 1, "true"],
    "seed": [None, 1.0, "1", True, math.nan, [1]],
    "window": [None, -1, 2.0, "2", True],
    "position": [None, -1, 5.0, "5", True, math.inf, 2**62, 2**64],
    "epoch": [None, -1, 1.5, "0", False, 2**64],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in DAMAGE.items() for value in values]
)
def test_damaged_values(name: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        ReaderState.from_json({**STATE.to_json(), name: value})
    if name == "version":
        assert str(caught.value) == VERSION.format(value)
    else:
        assert f"state was edited or truncated, Reader.state() never returns it: $.{name}" in str(
            caught.value
        )


def test_a_state_of_another_dataset() -> None:
    with pytest.raises(UsageError) as caught:
        STATE.check_same(replace(STATE, dataset="ffff" * 8))
    assert str(caught.value) == (
        "this state is of other records: resume with the same build of the dataset and the same "
        "split, `where` and `sampling`; if the dataset has grown since, with version= of that "
        "time, such as version=1 (fingerprint 0123456789ab, not ffffffffffff)"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("shuffle", False), ("seed", 3), ("seed", -3 + 2**64), ("window", 0), ("window", 17)],
)
def test_a_state_of_another_order(name: str, value: object) -> None:
    mine = getattr(STATE, name)
    message = (
        f"this state was saved with {name}={mine}, but the reader has {name}={value}: "
        f"pass {name}={mine}"
    )
    with pytest.raises(UsageError, match=re.escape(message)):
        STATE.check_same(replace(STATE, **{name: value}))  # type: ignore[arg-type]


def test_a_position_that_is_in_another_epoch() -> None:
    with pytest.raises(UsageError) as caught:
        replace(STATE, position=10**6).check_same(replace(STATE, position=10**6, epoch=166))
    assert str(caught.value) == (
        "state has position=1,000,000 and epoch=2, but this reader is in epoch 166 at that "
        "position: the state was edited"
    )
