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

# DataType -> NumPy's name, for all types that `tf.io.serialize_tensor` and NumPy share.
_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64",
    9: "int64", 10: "bool", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32",
    23: "uint64",
}  # fmt: skip
_NUMBERS = {name: number for number, name in _NAMES.items()}
TENSOR_DTYPES = (*_NAMES.values(),)  # the dtypes that a schema may declare

_Tensor = message_classes(
    "tensor.proto",
    {
        "Dim": ["int64 size = 1"],
        "TensorShape": ["repeated Dim dim = 2", "bool unknown_rank = 3"],
        "Tensor": ["int32 dtype = 1", "TensorShape tensor_shape = 2", "bytes tensor_content = 4"],
    },
)["Tensor"]


def to_tensor_proto(array: npt.ArrayLike) -> bytes:
    """Return a serialized TensorProto, byte for byte that of `tf.io.serialize_tensor`.

    Args:
        array: Numbers or booleans of any shape, byte order and memory order.

    Raises:
        ValueError: The type is another one.
    """
    array = np.asarray(array)
    if array.dtype.name not in _NUMBERS:
        raise ValueError(f"no tensor of {array.dtype}: convert the array to numbers or booleans")
    message = _Tensor(
        dtype=_NUMBERS[array.dtype.name],
        tensor_shape={"dim": [{"size": size} for size in array.shape]},
        tensor_content=array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(),
    )
    data: bytes = message.SerializeToString()
    return data


def parse_tensor_proto(data: bytes) -> npt.NDArray[Any]:
    """Return the array of a serialized TensorProto, as `tf.io.serialize_tensor` writes it.

    The array may be read-only.

    Raises:
        ExampleFault: `data` is not a TensorProto, is of strings or of a type that NumPy does not
            have, or lists numbers instead of stating their bytes, as `tf.make_tensor_proto` does.
    """
    try:
        message = _Tensor.FromString(data)
    except DecodeError as error:
        raise ExampleFault(f"not a serialized tensor: {error}") from error
    shape = tuple(dim.size for dim in message.tensor_shape.dim)
    if message.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise ExampleFault(f"a serialized tensor of unknown shape {list(shape)}")
    name, count = _NAMES.get(message.dtype), math.prod(shape)
    if name is None:
        raise ExampleFault(
            f"a serialized tensor of DataType {message.dtype}, which is not of numbers that NumPy "
            "has"
        )
    stored = np.dtype(name).newbyteorder("<")
    if len(message.tensor_content) != count * stored.itemsize:
        raise ExampleFault(
            f"a serialized tensor of {count} {name} values in "
            f"{counted(len(message.tensor_content), 'byte')}: write it with tf.io.serialize_tensor"
        )
    return np.frombuffer(message.tensor_content, stored).reshape(shape)


def read_tensor(feature: Feature, data: bytes) -> npt.NDArray[Any]:
    """Return the array of a TENSOR feature.

    Raises:
        ExampleFault: `data` is not a serialized tensor of the declared shape and dtype.
    """
    try:
        tensor = parse_tensor_proto(data)
    except ExampleFault as fault:
        raise ExampleFault(f"feature {feature.name!r}: {fault}") from fault
    wrong_type = feature.dtype and str(tensor.dtype) != feature.dtype
    if wrong_type or not _has_shape(feature, tensor.shape):
        raise ExampleFault(
            f"feature {feature.name!r} is a tensor {list(tensor.shape)} of {tensor.dtype}, "
            f"the schema says {list(feature.shape)} of {feature.dtype or 'any type'}"
        )
    return tensor


def _has_shape(feature: Feature, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(feature.shape) and all(
        wanted in (None, size) for size, wanted in zip(shape, feature.shape, strict=True)
    )
