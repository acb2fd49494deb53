"""Parse tf.Example without TensorFlow, and make the field headers that precede image bytes.

The messages are those of `tensorflow/core/example/{example,feature}.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from shardwright.errors import ShardwrightError
from shardwright.format.features import Feature
from shardwright.format.messages import message_classes

Values: TypeAlias = list[bytes] | list[int] | list[float]


class ExampleFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """Bytes that are not a tf.Example, or not one with the expected features."""


_MESSAGES = message_classes(
    "example.proto",
    {
        "BytesList": ["repeated bytes value = 1"],
        "FloatList": ["repeated float value = 1"],
        "Int64List": ["repeated int64 value = 1"],
        "Feature": [
            "oneof BytesList bytes_list = 1",
            "oneof FloatList float_list = 2",
            "oneof Int64List int64_list = 3",
        ],
        "Features": ["map Feature feature = 1"],
        "Example": ["Features features = 1"],
    },
)
_Example, _Feature = _MESSAGES["Example"], _MESSAGES["Feature"]
_BYTES = [bytes((value,)) for value in range(256)]


def _parse(message: Any, data: bytes) -> Any:
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise ExampleFault(f"not a tf.Example: {error}") from error


def parse_example(data: bytes) -> dict[str, Values]:
    """Return the features of one serialized tf.Example, each as its list of values.

    Raises:
        ExampleFault: `data` is not a tf.Example.
    """
    return {
        name: _values(feature)[1]
        for name, feature in _parse(_Example, data).features.feature.items()
    }


def one_value(features: Mapping[str, Values], feature: Feature | None) -> Any:
    """Return the only value of a feature, None unless it has exactly one."""
    values = features.get(feature.name, []) if feature is not None else []
    return values[0] if len(values) == 1 else None


def parse_feature(data: bytes) -> tuple[str | None, list[Any]]:
    """Return the kind and the values of one serialized Feature of a tf.Example.

    The kind is "bytes_list", "float_list" or "int64_list"; None if the feature is empty.

    Raises:
        ExampleFault: `data` is not a Feature.
    """
    return _values(_parse(_Feature, data))


def split_example(data: bytes) -> dict[str, bytes]:
    """Return the features of one serialized tf.Example, each serialized separately.

    Raises:
        ExampleFault: `data` is not a tf.Example.
    """
    return {
        name: feature.SerializeToString()
        for name, feature in _parse(_Example, data).features.feature.items()
    }


def _values(feature: Any) -> tuple[str | None, list[Any]]:
    kind = feature.WhichOneof("kind")
    return kind, list(getattr(feature, kind).value) if kind else []


def varint(value: int) -> bytes:
    """Return a protobuf varint: 7 bits per byte, lowest first, high bit set on all but the last."""
    encoded = b""
    while value > 0x7F:
        encoded += _BYTES[value & 0x7F | 0x80]
        value >>= 7
    return encoded + _BYTES[value]


def bytes_entry_header(key: bytes, num_bytes: int) -> bytes:
    """Return the bytes that, put before `num_bytes` bytes, make a Features map entry of them.

    The entry maps `key` to a BytesList of that one value. Map entry, Feature, BytesList and value
    are nested length-delimited fields with number 1 or 2, whose tags are 0x0a and 0x12.
    """
    value = b"\x0a" + varint(num_bytes)
    bytes_list = b"\x0a" + varint(len(value) + num_bytes) + value
    feature = b"\x12" + varint(len(bytes_list) + num_bytes) + bytes_list
    entry = b"\x0a" + varint(len(key)) + key + feature
    return b"\x0a" + varint(len(entry) + num_bytes) + entry
