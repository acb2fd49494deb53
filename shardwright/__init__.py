"""Open and read datasets of TFRecord shards.

import shardwright as sw

# Splits, classes and statistics, without TensorFlow.
dataset = sw.open("dataset/")
# NumPy batches, for torch, JAX and Keras too.
image = sw.TrainImage(224)
train = sw.Reader("dataset/", "train", global_batch_size=256, shuffle=True, image=image)
# A tf.data.Dataset.
train = sw.load("dataset/", "train", batch_size=64, image_size=(224, 224), shuffle=True)
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from shardwright.dataset import Dataset
from shardwright.dataset import open_dataset as open
from shardwright.extras import import_part
from shardwright.format.manifest import Manifest

if TYPE_CHECKING:
    from shardwright.images.normalize import normalize, normalizer
    from shardwright.images.specs import DecodedImage, EvalImage, TrainImage
    from shardwright.reader.class_encodings import MultiHot, OneHot
    from shardwright.reader.encodings import RawTensor, Text
    from shardwright.reader.list_encodings import Dense, Sparse
    from shardwright.reader.reader import Reader
    from shardwright.reader.record_reader import BadRecord
    from shardwright.reader.sampling import ClassBalanced, ClassWeights, RecordWeights
    from shardwright.reader.values import SparseColumn
    from shardwright.tfdata.pipeline import load

    __version__: str

# Imported on first use: `import shardwright` must not import image decoders or TensorFlow.
_PLACES = {
    "shardwright.images": ("DecodedImage", "EvalImage", "TrainImage", "normalize", "normalizer"),
    "shardwright.reader": (
        "BadRecord",
        "ClassBalanced",
        "ClassWeights",
        "Dense",
        "MultiHot",
        "OneHot",
        "RawTensor",
        "Reader",
        "RecordWeights",
        "Sparse",
        "SparseColumn",
        "Text",
    ),
    "shardwright.tfdata.pipeline": ("load",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "BadRecord",
    "ClassBalanced",
    "ClassWeights",
    "Dataset",
    "DecodedImage",
    "Dense",
    "EvalImage",
    "Manifest",
    "MultiHot",
    "OneHot",
    "RawTensor",
    "Reader",
    "RecordWeights",
    "Sparse",
    "SparseColumn",
    "Text",
    "TrainImage",
    "load",
    "normalize",
    "normalizer",
    "open",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version(__name__)
    if name in _MODULES:
        return getattr(import_part(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
