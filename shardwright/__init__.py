"""shardwright: datasets of TFRecord shards, opened and read.

import shardwright as sw

dataset = sw.open("dataset/")                              # what it holds: splits, classes, statistics; no TensorFlow
train = sw.load("dataset/", "train", batch_size=64, image_size=(224, 224), shuffle=True)   # a tf.data.Dataset
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwright.manifest import Manifest
from shardwright.manifest import open_dataset as open

if TYPE_CHECKING:
    from shardwright.tfdata import load

__all__ = ["Manifest", "load", "open"]


def __getattr__(name: str) -> Any:
    """`load` imports TensorFlow, which takes seconds, so only when it is asked for."""
    if name == "load":
        from shardwright.tfdata import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
