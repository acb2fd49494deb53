"""Parse and decode each kind of feature in TensorFlow.

Parsing returns what is stored. Decoding then turns images and tensors into tensors, one example at
a time. Bags of words are parsed as two lists, and become one sparse tensor in the last step,
because lists can be batched together with any other feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import tensorflow as tf

from shardwright.format.schema import (
    NUMBERS,
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
    Source,
    StoredFeature,
)

_DTYPES = {pa.int64(): tf.int64, pa.float32(): tf.float32}
Tensor = Any


def parsing_spec(schema: ExampleSchema) -> dict[str, Any]:
    """Return the `features` argument of `tf.io.parse_example` for records of this schema.

    Single values are FixedLenFeature([]), arrays of fixed shape FixedLenFeature(shape), lists
    RaggedFeature, boxes RaggedFeature with rows of 4, bags of words SparseFeature over their
    vocabulary. Images and serialized tensors are bytes.
    """
    spec: dict[str, Any] = {}
    for feature in schema.features:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            indices, counts = feature.stored
            size = len(schema.names_of(feature))
            dtype = _DTYPES[counts.type]
            spec[feature.name] = tf.io.SparseFeature(
                indices.key, counts.key, dtype, size, already_sorted=True
            )
        else:
            spec[feature.name] = _rule(feature.stored[0])
    return spec


def stored_spec(features: Sequence[Feature]) -> dict[str, Any]:
    """Return the parsing spec by stored key, with bags of words as two lists."""
    return {stored.key: _rule(stored) for feature in features for stored in feature.stored}


def as_declared(features: Sequence[Feature], example: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a parsed example or batch with numbers in the dtype of their feature."""
    declared = {
        feature.name: tf.cast(example[feature.name], tf.as_dtype(feature.dtype))
        for feature in features
        if feature.dtype and feature.kind in NUMBERS
    }
    return {**example, **declared}


def _rule(stored: StoredFeature) -> Any:
    dtype = _DTYPES.get(stored.type, tf.string)
    if None not in stored.shape:
        return tf.io.FixedLenFeature(stored.shape, dtype)
    partitions = [tf.io.RaggedFeature.UniformRowLength(size) for size in stored.shape[1:]]
    return tf.io.RaggedFeature(dtype, partitions=partitions)


def is_ragged(features: Sequence[Feature]) -> bool:
    """Return whether a feature differs in shape between examples, so that batches are ragged."""
    return any(
        None in feature.stored_shape
        or (feature.kind == FeatureKind.TENSOR and None in feature.shape)
        for feature in features
    )


def is_decoded(feature: Feature) -> bool:
    """Return whether the feature is decoded and not the main image: other images, and tensors."""
    return feature.source != Source.IMAGE and (
        feature.kind in PICTURES or feature.kind == FeatureKind.TENSOR
    )


def decode_feature(feature: Feature, data: Tensor, image_size: tuple[int, int] | None) -> Tensor:
    """Decode an image, mask or tensor, and resize it if `image_size` is given.

    Returns:
        An image [height, width, 3] in uint8, or a mask [height, width, 1] or a tensor in its own
        dtype.
    """
    if feature.kind == FeatureKind.TENSOR:
        return tf.ensure_shape(
            tf.io.parse_tensor(data, tf.as_dtype(feature.dtype or "float32")), feature.shape
        )
    return resize_picture(feature, decode_picture(feature, data), image_size)


def decode_picture(
    feature: Feature, data: Tensor, shape: tuple[int | None, ...] | None = None
) -> Tensor:
    """Decode a stored image to [height, width, channels]; another shape is an error.

    An image that the record lacks becomes zeros, or no pixels if the shape is not fixed.
    """
    channels = None if feature.encoding == "tensor" else _channels(feature)
    shape = shape or feature.shape or (None, None, channels)
    if not feature.is_optional:
        return _decode_bytes(feature, data, shape)
    blank = tf.zeros([size or 0 for size in shape], _dtype_of(feature))
    picture = tf.cond(
        tf.equal(data, b""), lambda: blank, lambda: _decode_bytes(feature, data, shape)
    )
    return tf.ensure_shape(picture, shape)


def _channels(feature: Feature) -> int:
    return 1 if feature.kind == FeatureKind.MASK else 3


def _dtype_of(feature: Feature) -> Any:
    has_own = feature.encoding == "tensor" or feature.kind == FeatureKind.MASK
    return tf.as_dtype(feature.dtype if has_own and feature.dtype else "uint8")


def _decode_bytes(feature: Feature, data: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    if feature.encoding == "raw":
        return tf.reshape(tf.io.decode_raw(data, tf.as_dtype(feature.dtype or "uint8")), shape)
    if feature.encoding == "tensor":
        return tf.ensure_shape(tf.io.parse_tensor(data, _dtype_of(feature)), shape)
    if feature.kind == FeatureKind.MASK:
        return tf.ensure_shape(_decode_numbers(feature, data), shape)
    # `decode_image` leaves the shape unknown; without animations it is always three-dimensional.
    channels = shape[2] or _channels(feature)
    return tf.ensure_shape(
        tf.io.decode_image(data, channels=channels, expand_animations=False), shape
    )


def _decode_numbers(feature: Feature, data: Tensor) -> Tensor:
    """Decode a mask's PNG to [height, width, 1]; its numbers must fit the feature's dtype."""
    numbers = tf.io.decode_png(data, channels=1, dtype=tf.uint16)
    has_16_bits = tf.equal(tf.strings.substr(data, 24, 1), b"\x10")  # the bit depth in IHDR
    numbers = tf.where(has_16_bits, numbers, numbers // 257)  # TensorFlow spreads 8 bits over 16
    dtype = _dtype_of(feature)
    told = (
        f"mask {feature.name!r} holds numbers that do not fit {dtype.name}: the schema must give "
        "it the dtype 'uint16'"
    )
    # A cast would wrap around, and a class would silently become another one.
    fit = tf.debugging.assert_less_equal(tf.cast(numbers, tf.int32), dtype.max, message=told)
    # Of a palette or RGB, TensorFlow makes gray: other numbers than the palette's.
    is_gray = tf.equal(tf.strings.substr(data, 25, 1), b"\0")  # the color type in IHDR
    is_png = tf.equal(tf.strings.substr(data, 1, 3), b"PNG")
    told = f"mask {feature.name!r} is a PNG that is not gray, so its pixels are no numbers"
    gray = tf.debugging.assert_equal(is_gray | ~is_png, True, message=told)
    with tf.control_dependencies([fit, gray]):
        return tf.cast(numbers, dtype)


def resize_picture(feature: Feature, picture: Tensor, size: tuple[int, int] | None) -> Tensor:
    """Resize a picture to (height, width), keeping its dtype; one without pixels becomes zeros.

    Masks keep their values: nearest neighbor, not interpolation.
    """
    if size is None or picture.shape[:2] == size:
        return picture
    if not feature.is_optional:
        return _resize(feature, picture, size)
    blank = tf.zeros((*size, picture.shape[2] or _channels(feature)), picture.dtype)
    return tf.cond(tf.size(picture) > 0, lambda: _resize(feature, picture, size), lambda: blank)


def _resize(feature: Feature, picture: Tensor, size: tuple[int, int]) -> Tensor:
    if feature.kind == FeatureKind.MASK:
        return tf.image.resize(picture, size, method="nearest")
    resized = tf.image.resize(picture, size, method="bilinear", antialias=True)
    return (
        resized if picture.dtype.is_floating else tf.saturate_cast(tf.round(resized), picture.dtype)
    )


def gather_bags(
    schema: ExampleSchema, features: Sequence[Feature], example: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return an example or ragged batch with bags of words as tf.SparseTensor of counts."""
    gathered = {}
    for feature in features:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            indices, counts = (example[stored.key] for stored in feature.stored)
            gathered[feature.name] = _sparse(indices, counts, len(schema.names_of(feature)))
        else:
            gathered[feature.name] = example[feature.name]
    return gathered


def _sparse(indices: Tensor, counts: Tensor, size: int) -> tf.SparseTensor:
    """Return [size] from one example's lists, or [batch, size] from ragged ones."""
    if not isinstance(indices, tf.RaggedTensor):
        return tf.SparseTensor(indices[:, tf.newaxis], counts, tf.constant([size], tf.int64))
    rows = tf.cast(indices.value_rowids(), tf.int64)
    shape = tf.stack([tf.cast(indices.nrows(), tf.int64), tf.constant(size, tf.int64)])
    return tf.SparseTensor(tf.stack([rows, indices.flat_values], axis=1), counts.flat_values, shape)
