"""`tf.errors.DataLossError` with a message of one's own, from inside a tf.data pipeline.

What Python raises in `tf.numpy_function` arrives as `UnknownError` with its traceback in the message, and no operation raises
DataLossError with a text that it is given. But `cache(filename)` raises it for a cache whose checksum is wrong, and names the
file; and it has no state, of which tf.data would warn each time. So a damaged cache of that name is put into TensorFlow's file
system in memory, and read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tensorflow as tf

_PLACE = "ram://shardwright/"
_END = " (what TensorFlow adds from here on says no more)"


def failure(message: str) -> bytes:
    """What `raise_if_failed` makes an error of that message from; b"" where it is empty."""
    if not message:
        return b""
    path = _PLACE + message + _END
    for suffix, content in _damaged_cache().items():
        _write(path + suffix, content)
    return path.encode()


def raise_if_failed(failed: Any) -> tf.data.Dataset:
    """A dataset of no element (int64 []); to iterate it is an error unless `failed` (string [], of `failure`) is empty."""
    return (
        tf.data.Dataset.from_tensors(failed)
        .filter(lambda path: tf.not_equal(path, ""))
        .flat_map(_cache_at)
    )


def prepare() -> None:
    """Make what errors take now, in the caller's thread: in a pipeline's own no other one can be run."""
    _damaged_cache()


def _cache_at(path: Any) -> tf.data.Dataset:
    numbers = tf.data.experimental.to_variant(
        tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
    )
    # `Dataset.cache` would use an operation that has state.
    variant = tf.raw_ops.CacheDataset(
        input_dataset=numbers,
        filename=path,
        output_types=[tf.int64],
        output_shapes=[tf.TensorShape(())],
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.int64))


@cache
def _damaged_cache() -> dict[str, bytes]:
    """The files of a cache of one number, by the ends of their names; the number is another one than was written."""
    path = _PLACE + "cache"
    for _ in tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).cache(path):
        pass
    index, data = ".index", ".data-00000-of-00001"
    return {index: _read(path + index), data: b"\xff" * len(_read(path + data))}


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        content: bytes = file.read()
    return content


def _write(path: str, content: bytes) -> None:
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)
