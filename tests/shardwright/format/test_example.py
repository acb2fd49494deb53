"""tf.Example without TensorFlow: parsing and writing agree with TensorFlow's own message."""

from __future__ import annotations

import struct

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pool
from google.protobuf.internal import encoder
from hypothesis import example, given
from hypothesis import strategies as st

import shardwright.format.example
from shardwright.format.example import ExampleFault, bytes_entry_header, parse_example, varint
from tests.support import damage

FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
    st.lists(st.binary(max_size=200), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(FLOATS, max_size=4),
)
KEYS = st.text(st.characters(codec="utf-8"), max_size=20)
FEATURES = st.dictionaries(KEYS, VALUES, max_size=5)
Features = dict[str, list[bytes] | list[int] | list[float]]


def tensorflow_example(features: Features) -> tf.train.Example:
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
def test_parses_what_tensorflow_writes(features: Features) -> None:
    assert parse_example(tensorflow_example(features).SerializeToString()) == features


@given(FEATURES)
def test_a_hand_written_example_is_tensorflows_message(features: Features) -> None:
    """The tests' own encoder, with which they forge records, is right."""
    message = tf.train.Example.FromString(damage.example(features))
    found = parse_example(message.SerializeToString())
    assert {name: values for name, values in found.items() if values} == {
        name: values for name, values in features.items() if values
    }


def test_packed_and_unpacked_numbers_are_the_same() -> None:
    """`feature.proto` packs numbers; parsers must read unpacked ones too."""
    unpacked = b"\x0a\x0f\x0a\x0d\x0a\x01n\x12\x08\x1a\x06\x08\x01\x08\x02\x08\x03"
    assert parse_example(unpacked) == {"n": [1, 2, 3]}
    floats = b"".join(b"\x0d" + struct.pack("<f", value) for value in (0.5, -1.0))
    entry = b"\x0a\x01f\x12" + varint(2 + len(floats)) + b"\x12" + varint(len(floats)) + floats
    features = b"\x0a" + varint(len(entry)) + entry
    assert parse_example(b"\x0a" + varint(len(features)) + features) == {"f": [0.5, -1.0]}


def test_no_features_and_no_kind() -> None:
    assert parse_example(b"") == {}
    for empty in (tf.train.Feature(), tf.train.Feature(int64_list=tf.train.Int64List())):
        message = tf.train.Example(features={"feature": {"a": empty}})
        assert parse_example(message.SerializeToString()) == {"a": []}


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\x05\x0a", b"not an example at all", b"\x0a\x02\xff\xff"]
)
def test_other_bytes_are_a_fault(data: bytes) -> None:
    with pytest.raises(ExampleFault, match=r"^not a tf\.Example: "):
        parse_example(data)


@given(st.integers(0, 2**64 - 1))
@example(127)
@example(128)
@example(2**14)
@example(2**31)
def test_varints_are_protobufs(value: int) -> None:
    assert varint(value) == encoder._VarintBytes(value)


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.binary(max_size=400))
def test_an_entry_header_makes_bytes_a_feature(key: str, value: bytes) -> None:
    entry = bytes_entry_header(key.encode(), len(value)) + value
    message = tf.train.Example.FromString(b"\x0a" + varint(len(entry)) + entry)
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    assert dict(message.features.feature) == {key: feature}
    assert entry == message.features.SerializeToString()


@pytest.mark.parametrize("num_bytes", [0, 110, 128, 16_384, 2_097_152])
def test_an_entry_header_where_lengths_grow_by_a_byte(num_bytes: int) -> None:
    for size in range(max(0, num_bytes - 13), num_bytes + 1):
        entry = bytes_entry_header(b"image", size) + bytes(size)
        assert parse_example(b"\x0a" + varint(len(entry)) + entry) == {"image": [bytes(size)]}


def test_its_messages_are_in_a_pool_of_their_own() -> None:
    """Names cannot clash with TensorFlow's, whichever is imported first."""
    assert shardwright.format.example._Example.DESCRIPTOR.file.pool is not descriptor_pool.Default()
