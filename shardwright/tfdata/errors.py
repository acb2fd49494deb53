"""Raise `tf.errors.DataLossError` with a message of our own from inside a tf.data pipeline.

An exception raised in `tf.numpy_function` arrives as `UnknownError` with a traceback in its
message, and no operation raises DataLossError with a given text. But `cache(filename)` raises it
for a cache with a wrong checksum, and its message contains the file name. It is also stateless, so
tf.data does not warn about it. So this module writes a damaged cache, named by the message, to
TensorFlow's in-memory file system, and reads it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tensorflow as tf

_PLACE = "ram://shardwright/"
_END = " (the rest of this text is TensorFlow's)"


def failure(message: str) -> bytes:
    """Return the argument that makes `unless_failed` raise this message; b"" for no message."""
    if not message:
        return b""
    # The path is the message: TensorFlow's error for a damaged cache names its file.
    path = _PLACE + message + _END
    for suffix, content in _damaged_cache().items():
        _write(path + suffix, content)
    return path.encode()


def unless_failed(failed: Any, given: tf.data.Dataset) -> tf.data.Dataset:
    """Return `given`, or a dataset that raises if `failed`, string [], is not empty.

    Args:
        failed: The result of `failure`.
        given: The dataset to return.
    """

    def fail() -> Any:
        # Repeated, so that iteration that goes on raises again instead of skipping records.
        failing = tf.data.Dataset.from_tensors(failed).repeat().flat_map(_cache_at)
        return tf.data.experimental.to_variant(failing.flat_map(lambda _: given))

    # A condition rather than a dataset that is empty or raises: four iterators less per call.
    variant = tf.cond(tf.equal(failed, ""), lambda: tf.data.experimental.to_variant(given), fail)
    return tf.data.experimental.from_variant(variant, given.element_spec)


def prepare() -> None:
    """Create the damaged cache in the caller's thread: a pipeline cannot run another pipeline."""
    _damaged_cache()


def _cache_at(path: Any) -> tf.data.Dataset:
    numbers = tf.data.experimental.to_variant(
        tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
    )
    # `Dataset.cache` would use a stateful operation.
    variant = tf.raw_ops.CacheDataset(
        input_dataset=numbers,
        filename=path,
        output_types=[tf.int64],
        output_shapes=[tf.TensorShape(())],
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.int64))


@cache
def _damaged_cache() -> dict[str, bytes]:
    """Return the files of a cache of one number, by file name suffix, with the number changed."""
    path = _PLACE + "cache"
    for _ in tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).cache(path):
        pass
    index, data = ".index", ".data-00000-of-00001"
    # The index holds a checksum of the number, which other bytes do not match.
    return {index: _read(path + index), data: b"\xff" * len(_read(path + data))}


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        content: bytes = file.read()
    return content


def _write(path: str, content: bytes) -> None:
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)
