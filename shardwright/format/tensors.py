"""Serialize and parse TensorProtos without TensorFlow, and check them against the schema.

The functions match `tf.io.serialize_tensor` and `tf.io.parse_tensor`. Formats:
`tensorflow/core/framework/{tensor,tensor_shape,types}.proto`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from shardwright.format.example import ExampleFault
from shardwright.format.messages import message_classes
from shardwright.format.schema import Feature
from shardwright.sizes import counted

_STRING, _BFLOAT16 = 7, 14
# DataType -> NumPy's name, for all types that `tf.io.serialize_tensor` and NumPy share.
_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64",
    9: "int64", 10: "bool", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32",
    23: "uint64",
}  # fmt: skip
_NUMBERS = {name: number for number, name in _NAMES.items()} | {"bfloat16": _BFLOAT16}
TENSOR_DTYPES = (*_NAMES.values(), "string")  # the dtypes that a schema may declare

_Tensor = message_classes(
    "tensor.proto",
    {
        "Dim": ["int64 size = 1"],
        "TensorShape": ["repeated Dim dim = 2", "bool unknown_rank = 3"],
        "Tensor": [
            "int32 dtype = 1",
            "TensorShape tensor_shape = 2",
            "bytes tensor_content = 4",
            "repeated bytes string_val = 8",
        ],
    },
)["Tensor"]


def to_tensor_proto(array: npt.ArrayLike) -> bytes:
    """Return a serialized TensorProto, byte for byte that of `tf.io.serialize_tensor`.

    Args:
        array: Numbers, booleans or strings (`bytes`, or `str` as UTF-8) of any shape, byte order
            and memory order. Of types beyond NumPy's own, only ml_dtypes' bfloat16.

    Raises:
        ValueError: TensorFlow does not support the type.
    """
    array = np.asarray(array)
    message = _Tensor(tensor_shape={"dim": [{"size": size} for size in array.shape]})
    if array.dtype.kind in "OSU":
        message.dtype = _STRING
        message.string_val.extend(_to_bytes(value) for value in array.ravel().tolist())
    elif (number := _NUMBERS.get(array.dtype.name)) is not None:
        message.dtype = number
        message.tensor_content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    else:
        raise ValueError(
            f"TensorFlow has no tensors of {array.dtype}: "
            "convert the array to numbers, booleans or strings"
        )
    data: bytes = message.SerializeToString()
    return data


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise ValueError(f"{value!r} is not a string: an object array must hold only bytes or str")


def parse_tensor_proto(data: bytes) -> npt.NDArray[Any]:
    """Return the array of a serialized TensorProto, as `tf.io.serialize_tensor` writes it.

    Strings become an object array of `bytes`. bfloat16, which NumPy lacks, becomes float32, which
    holds it exactly. The array may be read-only.

    Raises:
        ExampleFault: `data` is not a TensorProto, is of a type that NumPy does not have, or lists
            numbers instead of stating their bytes, as `tf.make_tensor_proto` does.
    """
    try:
        message = _Tensor.FromString(data)
    except DecodeError as error:
        raise ExampleFault(f"not a serialized tensor: {error}") from error
    shape = tuple(dim.size for dim in message.tensor_shape.dim)
    if message.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise ExampleFault(f"a serialized tensor of unknown shape {list(shape)}")
    values = _values(message, math.prod(shape))
    return values.reshape(shape)


def _values(message: Any, count: int) -> npt.NDArray[Any]:
    if message.dtype == _STRING:
        strings = np.empty(len(message.string_val), object)
        strings[:] = list(message.string_val)
        if len(strings) != count:
            raise ExampleFault(
                f"a serialized tensor of {count} elements with {len(strings)} values"
            )
        return strings
    name = "bfloat16" if message.dtype == _BFLOAT16 else _NAMES.get(message.dtype)
    if name is None:
        raise ExampleFault(
            f"a serialized tensor of DataType {message.dtype}, which NumPy does not support"
        )
    stored = np.dtype("uint16" if name == "bfloat16" else name).newbyteorder("<")
    if len(message.tensor_content) != count * stored.itemsize:
        raise ExampleFault(
            f"a serialized tensor of {count} {name} values in "
            f"{counted(len(message.tensor_content), 'byte')}: write it with tf.io.serialize_tensor"
        )
    values = np.frombuffer(message.tensor_content, stored)
    if name == "bfloat16":  # the upper half of a float32
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def read_tensor(feature: Feature, data: bytes) -> npt.NDArray[Any]:
    """Return the array of a TENSOR feature.

    Raises:
        ExampleFault: `data` is not a serialized tensor of the declared shape and dtype.
    """
    try:
        tensor = parse_tensor_proto(data)
    except ExampleFault as fault:
        raise ExampleFault(f"feature {feature.name!r}: {fault}") from fault
    dtype = "string" if tensor.dtype == object else str(tensor.dtype)
    if not _has_shape(feature, tensor.shape) or (feature.dtype and dtype != feature.dtype):
        raise ExampleFault(
            f"feature {feature.name!r} is a tensor {list(tensor.shape)} of {dtype}, "
            f"the schema says {list(feature.shape)} of {feature.dtype or 'any type'}"
        )
    return tensor


def _has_shape(feature: Feature, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(feature.shape) and all(
        wanted in (None, size) for size, wanted in zip(shape, feature.shape, strict=True)
    )
