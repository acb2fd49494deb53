"""Open and read datasets of TFRecord shards.

import shardwright as sw

# Splits, classes and statistics, without TensorFlow.
dataset = sw.open("dataset/")
# NumPy batches, for torch, JAX and Keras too.
image = sw.TrainImage(224)
train = sw.Reader("dataset/", "train", global_batch_size=256, shuffle=True, image=image)
# A tf.data.Dataset.
train = sw.load("dataset/", "train", batch_size=64, image=image, shuffle=True)
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardwright.dataset import open_dataset as open
    from shardwright.images.boxes import Boxes
    from shardwright.images.normalize import normalizer
    from shardwright.images.specs import DecodedImage, EvalImage, MultiCrop, TrainImage
    from shardwright.pins import pin, unpin
    from shardwright.reader.encodings import Dense, MultiHot, OneHot, Text
    from shardwright.reader.reader import Reader
    from shardwright.reader.record_reader import BadRecord
    from shardwright.reader.sampling import ClassBalanced, ClassWeights
    from shardwright.reader.values import SparseColumn
    from shardwright.trainers.tf_data import load

    __version__: str

# Imported on first use: `import shardwright` must import neither image decoders nor TensorFlow. And
# a package that imports its own modules when it is imported can fail in a process whose threads
# import it and one of them first at the same time, as the threads of a Beam worker do:
# https://github.com/python/cpython/issues/83065.
_MODULES = {
    "BadRecord": "reader.record_reader",
    "Boxes": "images.boxes",
    "ClassBalanced": "reader.sampling",
    "ClassWeights": "reader.sampling",
    "Dataset": "dataset",
    "DecodedImage": "images.specs",
    "Dense": "reader.encodings",
    "EvalImage": "images.specs",
    "Manifest": "format.manifest",
    "MultiCrop": "images.specs",
    "MultiHot": "reader.encodings",
    "OneHot": "reader.encodings",
    "Reader": "reader.reader",
    "SparseColumn": "reader.values",
    "Text": "reader.encodings",
    "TrainImage": "images.specs",
    "load": "trainers.tf_data",
    "normalizer": "images.normalize",
    "pin": "pins",
    "unpin": "pins",
}
# Of the application: the one exception to its packages not being imported from here.
_WRITERS = {
    "WriteRecords": "shardwright.pipelines.commands.write_transform",
    "Writer": "shardwright.pipelines.commands.write",
    "write": "shardwright.pipelines.commands.write",
}

__all__ = [
    "BadRecord",
    "Boxes",
    "ClassBalanced",
    "ClassWeights",
    "Dataset",
    "DecodedImage",
    "Dense",
    "EvalImage",
    "Manifest",
    "MultiCrop",
    "MultiHot",
    "OneHot",
    "Reader",
    "SparseColumn",
    "Text",
    "TrainImage",
    "WriteRecords",
    "Writer",
    "load",
    "normalizer",
    "open",
    "pin",
    "unpin",
    "write",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version(__name__)
    if name == "open":
        return importlib.import_module("shardwright.dataset").open_dataset
    extras = importlib.import_module("shardwright.extras")
    if name in _MODULES:
        return getattr(extras.import_part(f"{__name__}.{_MODULES[name]}"), name)
    if name in _WRITERS:
        return getattr(extras.import_application(_WRITERS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
