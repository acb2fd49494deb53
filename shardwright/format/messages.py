"""Declare protobuf messages without generated code.

The messages of each declaration have their own descriptor pool, so their names do not clash with
TensorFlow's in the same process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "shardwright"


def message_classes(filename: str, messages: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the classes of messages, by name.

    Args:
        filename: Name of the .proto file that the messages would be in.
        messages: Name -> fields, nearly as in such a file: "bytes value = 1", "repeated bytes value
            = 1", "map Feature feature = 1" (keys are strings), "oneof BytesList bytes_list = 1".
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}/{filename}", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for text in fields:
            *rule, kind, field, _, number = text.split()
            _add_field(message, "".join(rule), kind, field, int(number))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in messages
    }


def _add_field(message: Any, rule: str, kind: str, name: str, number: int) -> None:
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if rule in ("repeated", "map"):
        field.label = _FIELD.LABEL_REPEATED
    if rule == "map":
        entry = message.nested_type.add(name=f"{name.title()}Entry")  # the name that is required
        entry.options.map_entry = True
        _add_field(entry, "", "string", "key", 1)
        _add_field(entry, "", kind, "value", 2)
        kind = f"{message.name}.{entry.name}"
    if rule == "oneof":
        field.oneof_index = 0
        if not message.oneof_decl:
            message.oneof_decl.add(name="kind")
    if kind.islower():
        field.type = _FIELD.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
