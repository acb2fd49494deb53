"""tf.Example without TensorFlow: what it parses and writes is what TensorFlow's own message parses and writes."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest
import tensorflow as tf
from google.protobuf.internal import encoder
from hypothesis import given
from hypothesis import strategies as st

from shardwright.example import ExampleFault, bytes_entry_header, parse_example, varint
from tests.damage import example

FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
    st.lists(st.binary(max_size=200), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(FLOATS, max_size=4),
)
FEATURES = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), VALUES, max_size=5)


def tensorflow_example(
    features: dict[str, list[bytes] | list[int] | list[float]],
) -> tf.train.Example:
    message = tf.train.Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        if values and isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        elif values:
            feature.int64_list.value.extend(values)
    return message


@given(FEATURES)
def test_parses_what_tensorflow_writes(
    features: dict[str, list[bytes] | list[int] | list[float]],
) -> None:
    assert parse_example(tensorflow_example(features).SerializeToString()) == features


@given(FEATURES)
def test_a_hand_written_example_is_tensorflows_message(
    features: dict[str, list[bytes] | list[int] | list[float]],
) -> None:
    """The encoder of these tests, which knows nothing of protobuf's, is right, so what it forges is what it says."""
    message = tf.train.Example.FromString(example(features))
    kept = {name: values for name, values in features.items() if values}
    assert {
        name: value for name, value in parse_example(message.SerializeToString()).items() if value
    } == kept


def test_packed_and_unpacked_numbers_are_the_same() -> None:
    """`feature.proto` packs numbers, and parsers must take them one by one as well."""
    unpacked = b"\x0a\x0f\x0a\x0d\x0a\x01n\x12\x08\x1a\x06\x08\x01\x08\x02\x08\x03"
    assert parse_example(unpacked) == {"n": [1, 2, 3]}
    floats = b"".join(b"\x0d" + struct.pack("<f", value) for value in (0.5, -1.0))
    entry = b"\x0a\x01f\x12" + varint(2 + len(floats)) + b"\x12" + varint(len(floats)) + floats
    features = b"\x0a" + varint(len(entry)) + entry
    assert parse_example(b"\x0a" + varint(len(features)) + features) == {"f": [0.5, -1.0]}


def test_no_features_and_no_kind() -> None:
    assert parse_example(b"") == {}
    assert parse_example(
        tf.train.Example(features={"feature": {"a": tf.train.Feature()}}).SerializeToString()
    ) == {"a": []}
    empty = tf.train.Feature(int64_list=tf.train.Int64List())
    assert parse_example(
        tf.train.Example(features={"feature": {"a": empty}}).SerializeToString()
    ) == {"a": []}


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\x05\x0a", b"not an example at all", b"\x0a\x02\xff\xff"]
)
def test_what_is_no_example_is_a_fault(data: bytes) -> None:
    with pytest.raises(ExampleFault, match=r"^not a tf\.Example: "):
        parse_example(data)


@given(st.integers(0, 2**64 - 1))
def test_varints_are_protobufs(value: int) -> None:
    assert varint(value) == encoder._VarintBytes(value)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**31, "8080808008")],
)
def test_varints_by_hand(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.binary(max_size=400))
def test_an_entry_header_makes_bytes_a_feature(key: str, value: bytes) -> None:
    entry = bytes_entry_header(key.encode(), len(value)) + value
    message = tf.train.Example.FromString(b"\x0a" + varint(len(entry)) + entry)
    assert dict(message.features.feature) == {
        key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    }
    assert entry == message.features.SerializeToString()


@pytest.mark.parametrize("num_bytes", [0, 1, 110, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_an_entry_header_where_lengths_grow_by_a_byte(num_bytes: int) -> None:
    for size in range(max(0, num_bytes - 12), num_bytes + 1, 3):
        entry = bytes_entry_header(b"image", size) + bytes(size)
        assert parse_example(b"\x0a" + varint(len(entry)) + entry) == {"image": [bytes(size)]}


def test_it_lives_beside_tensorflow_whichever_comes_first() -> None:
    code = (
        "import {0}, {1}\n"
        "from shardwright.example import parse_example\n"
        "import tensorflow as tf\n"
        "data = tf.train.Example(features=dict(feature=dict(a=tf.train.Feature(int64_list=dict(value=[3]))))).SerializeToString()\n"
        "assert parse_example(data) == dict(a=[3])\n"
    )
    subprocess.run(
        [sys.executable, "-c", code.format("shardwright.example", "tensorflow")], check=True
    )
