"""Parse tf.Example without TensorFlow, and make the field headers that precede image bytes.

The messages are those of `tensorflow/core/example/{example,feature}.proto`. They have their own
descriptor pool, so their names do not clash with TensorFlow's in the same process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from shardwright.errors import ShardwrightError

_FIELD = descriptor_pb2.FieldDescriptorProto


class ExampleFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """Bytes that are not a tf.Example, or not one with the expected features."""


def _list_message(name: str, field_type: int) -> descriptor_pb2.DescriptorProto:
    message = descriptor_pb2.DescriptorProto(name=name)
    message.field.add(name="value", number=1, type=field_type, label=_FIELD.LABEL_REPEATED)
    return message


def _message_classes() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="shardwright/example.proto", package="shardwright", syntax="proto3"
    )
    file.message_type.append(_list_message("BytesList", _FIELD.TYPE_BYTES))
    file.message_type.append(_list_message("FloatList", _FIELD.TYPE_FLOAT))
    file.message_type.append(_list_message("Int64List", _FIELD.TYPE_INT64))
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")),
        start=1,
    ):
        feature.field.add(
            name=name,
            number=number,
            type=_FIELD.TYPE_MESSAGE,
            type_name=f".shardwright.{kind}",
            label=_FIELD.LABEL_OPTIONAL,
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    entry.field.add(
        name="value",
        number=2,
        type=_FIELD.TYPE_MESSAGE,
        type_name=".shardwright.Feature",
        label=_FIELD.LABEL_OPTIONAL,
    )
    features.field.add(
        name="feature",
        number=1,
        type=_FIELD.TYPE_MESSAGE,
        type_name=".shardwright.Features.FeatureEntry",
        label=_FIELD.LABEL_REPEATED,
    )
    example = file.message_type.add(name="Example")
    example.field.add(
        name="features",
        number=1,
        type=_FIELD.TYPE_MESSAGE,
        type_name=".shardwright.Features",
        label=_FIELD.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    example, one = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shardwright.{name}"))
        for name in ("Example", "Feature")
    )
    return example, one


_Example, _Feature = _message_classes()


def _parse(message: Any, data: bytes) -> Any:
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise ExampleFault(f"not a tf.Example: {error}") from error


def parse_example(data: bytes) -> dict[str, list[bytes] | list[int] | list[float]]:
    """Return the features of one serialized tf.Example, each as its list of values.

    Raises:
        ExampleFault: `data` is not a tf.Example.
    """
    return {
        name: _values(feature)[1]
        for name, feature in _parse(_Example, data).features.feature.items()
    }


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
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


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
