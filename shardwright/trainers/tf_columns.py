"""Convert batch columns to tensors through `tf.numpy_function`, which takes dense arrays only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.reader.list_encodings import Sparse
from shardwright.reader.own_encodings import Bags
from shardwright.reader.reader import Reader
from shardwright.reader.values import as_bytes, item_shape, value_dtype

Array = npt.NDArray[Any]


class TensorColumn(Protocol):
    """A conversion of one column: to arrays of `dtypes`, and in the graph to a tensor."""

    @property
    def dtypes(self) -> list[tf.DType]: ...

    def to_arrays(self, column: Any) -> list[Array]: ...

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> Any: ...


@dataclass(frozen=True)
class DenseColumn:
    """Numbers unchanged; text and bytes as tf.string."""

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    @property
    def dtypes(self) -> list[tf.DType]:
        return [_tensor_dtype(self.dtype)]

    def to_arrays(self, column: Array) -> list[Array]:
        return [_encode_texts(column)]

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.ensure_shape(parts[0], self.shape)


@dataclass(frozen=True)
class RaggedColumn:
    """Lists as tf.RaggedTensor [rows, None]; lists of arrays (boxes) as [rows, None, *item]."""

    rows: int | None
    dtype: np.dtype[Any]
    item: tuple[int, ...] = ()

    @property
    def dtypes(self) -> list[tf.DType]:
        return [_tensor_dtype(self.dtype), tf.int64]

    def to_arrays(self, column: Array) -> list[Array]:
        lengths = np.array([len(row) for row in column], np.int64)
        return [
            _encode_texts(np.concatenate([np.empty((0, *self.item), self.dtype), *column])),
            lengths,
        ]

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> tf.RaggedTensor:
        values, lengths = (
            tf.ensure_shape(parts[0], (None, *self.item)),
            tf.ensure_shape(parts[1], (self.rows,)),
        )
        # Not validated: the lengths were just counted, and the check is an operation per batch.
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


@dataclass(frozen=True)
class SparseTensorColumn:
    """A `SparseColumn` as tf.SparseTensor [rows, size], whose size is None for lists."""

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    @property
    def dtypes(self) -> list[tf.DType]:
        return [tf.int64, _tensor_dtype(self.dtype), tf.int64]

    def to_arrays(self, column: Any) -> list[Array]:
        return [
            column.indices,
            _encode_texts(column.values),
            np.array(column.dense_shape, np.int64),
        ]

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> tf.SparseTensor:
        shape = tf.ensure_shape(parts[2], (2,))
        known = [
            shape[axis] if size is None else tf.constant(size, tf.int64)
            for axis, size in enumerate(self.shape)
        ]
        shape = tf.stack(known)  # constants make static sizes
        return tf.SparseTensor(
            tf.ensure_shape(parts[0], (None, 2)), tf.ensure_shape(parts[1], (None,)), shape
        )


@dataclass(frozen=True)
class ImagesColumn:
    """Images of different sizes as tf.RaggedTensor [rows, None, None, channels]."""

    rows: int | None
    num_channels: int
    dtype: np.dtype[Any]

    @property
    def dtypes(self) -> list[tf.DType]:
        return [_tensor_dtype(self.dtype), tf.int64, tf.int64]

    def to_arrays(self, column: Array) -> list[Array]:
        empty = np.empty((0, self.num_channels), self.dtype)
        pixels = np.concatenate(
            [empty, *(image.reshape(-1, self.num_channels) for image in column)]
        )
        heights = np.array([image.shape[0] for image in column], np.int64)
        return [
            pixels,
            heights,
            np.repeat(np.array([image.shape[1] for image in column], np.int64), heights),
        ]

    def to_tensor(self, parts: Sequence[tf.Tensor]) -> tf.RaggedTensor:
        pixels = tf.ensure_shape(parts[0], (None, self.num_channels))
        lengths = [tf.ensure_shape(parts[1], (self.rows,)), tf.ensure_shape(parts[2], (None,))]
        return tf.RaggedTensor.from_nested_row_lengths(pixels, lengths, validate=False)


def tensor_columns(reader: Reader) -> dict[str, TensorColumn]:
    """Return the columns of a reader's batches, by name."""
    columns = reader.engine.columns
    specs = reader.element_spec
    found: dict[str, TensorColumn] = {name: DenseColumn(*spec) for name, spec in specs.items()}
    rows = reader.steps.host_batch_size if reader.has_static_rows else None
    for feature in columns.features:
        shape, dtype = specs[feature.name]
        if isinstance(columns.encodings[feature.name], Sparse | Bags):
            found[feature.name] = SparseTensorColumn((rows, *shape[1:]), dtype)
        elif feature.kind == FeatureKind.TENSOR and dtype.hasobject:
            found[feature.name] = _tensors_column(feature, rows)
        elif None in feature.stored_shape and len(shape) == 1 and dtype.hasobject:
            found[feature.name] = RaggedColumn(rows, value_dtype(feature), item_shape(feature))
    image = reader.options.image
    if columns.image is not None and image is not None and specs[columns.image.name][1].hasobject:
        found[columns.image.name] = ImagesColumn(rows, image.shape[2], image.dtype)
    return found


def _tensors_column(feature: Feature, rows: int | None) -> RaggedColumn:
    """Return the column of tensors that differ in length only, as lists of arrays.

    Raises:
        UsageError: The tensors have no fixed dtype, or differ in another axis.
    """
    if not feature.dtype or feature.shape[:1] != (None,) or None in feature.shape[1:]:
        raise UsageError(
            f"feature {feature.name!r} is a tensor {list(feature.shape)} of "
            f"{feature.dtype or 'any type'}, which cannot be batched as a tf.Tensor: "
            "leave it out of features=, or read single records"
        )
    return RaggedColumn(
        rows, np.dtype(feature.dtype), tuple(size or 0 for size in feature.shape[1:])
    )


def _tensor_dtype(dtype: np.dtype[Any]) -> tf.DType:
    return tf.string if dtype.hasobject else tf.as_dtype(dtype)


def _encode_texts(values: Array) -> Array:
    """Return text encoded as UTF-8, and bytes and numbers unchanged."""
    if values.dtype != object:
        return values
    encoded = np.empty(values.shape, object)
    flat, given = encoded.reshape(-1), values.reshape(-1)
    for place, value in enumerate(given):
        flat[place] = as_bytes(value) if isinstance(value, str) else value
    return encoded
