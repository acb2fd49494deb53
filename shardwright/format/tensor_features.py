"""Parse serialized tensors and check them against the schema."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from shardwright.format.example import ExampleFault
from shardwright.format.schema import PICTURES, Feature
from shardwright.format.tensors import parse_tensor_proto


def read_tensor(feature: Feature, data: bytes) -> npt.NDArray[Any]:
    """Return the array of a TENSOR feature, or of an image that is stored as a tensor.

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
    if feature.kind in PICTURES and not feature.shape:  # images of any size
        return len(shape) == 3
    return len(shape) == len(feature.shape) and all(
        wanted in (None, size) for size, wanted in zip(shape, feature.shape, strict=True)
    )
