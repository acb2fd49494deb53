"""Make TFDS's `features.json`: `tfds.features` connectors that read and write the same examples.

Format: `tensorflow_datasets/core/proto/feature.proto` as JSON. Class names and words are in files
of their own, one per line, by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import pyarrow as pa
from msgspec import UNSET, Meta, Struct, UnsetType

from shardwright.format import naming
from shardwright.format.schema import (
    CLASSES,
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
    StoredFeature,
)

_TFDS = "tensorflow_datasets.core.features"
_DTYPES = {pa.int64(): "int64", pa.float32(): "float32", pa.binary(): "string"}
# TFDS stores arrays of these as one feature; for other kinds it has single values and sequences.
_NUMBERS = (FeatureKind.INT64, FeatureKind.FLOAT32, FeatureKind.KEYPOINTS, FeatureKind.BYTES)

Size = Annotated[str, Meta(pattern=r"\A(-1|[0-9]{1,7})\Z")]  # "-1" for any


class TfdsShape(Struct, frozen=True):
    """The shape of a tensor."""

    dimensions: list[Size] = []


class TfdsTensor(Struct):
    """A tensor."""

    shape: TfdsShape = TfdsShape()
    dtype: str = ""
    encoding: str = "none"


class TfdsClasses(Struct, rename="camel"):
    """The classes of a label."""

    num_classes: Size = "0"


class TfdsSequence(Struct):
    """A list of features."""

    feature: TfdsFeature
    length: Size = "-1"


class TfdsDict(Struct):
    """Features by name."""

    features: dict[str, TfdsFeature]


class TfdsFeature(Struct, rename="camel"):
    """A feature in `features.json`, as far as it decides how TFDS reads records."""

    python_class_name: str = ""
    features_dict: TfdsDict | UnsetType = UNSET
    sequence: TfdsSequence | UnsetType = UNSET
    class_label: TfdsClasses | UnsetType = UNSET
    text: dict[str, Any] | UnsetType = UNSET
    image: dict[str, Any] | UnsetType = UNSET
    bounding_box: dict[str, Any] | UnsetType = UNSET
    tensor: TfdsTensor | UnsetType = UNSET


def features_json(schema: ExampleSchema) -> dict[str, Any]:
    """Return a FeaturesDict of the schema, nested at each `/` in a name.

    A folder whose features share one `sequence` is a Sequence of a FeaturesDict. A serialized
    tensor is a string, since TFDS has no feature that parses it: use `tf.io.parse_tensor`. A bag
    of words is its two lists.
    """
    sequences = _sequences(schema)
    tree: dict[str, Any] = {}
    for feature in schema.features:
        for stored in feature.stored:
            *folders, last = stored.key.split("/")
            node = tree
            for folder in folders:
                node = node.setdefault(folder, {})
            shape = stored.shape[1:] if feature.sequence in sequences else stored.shape
            node[last] = _shaped(feature, stored, shape, schema)
    return _dict(tree, sequences, "")


def _sequences(schema: ExampleSchema) -> dict[str, int | None]:
    """Return the length of each folder whose features are all of one sequence; None for any."""
    lengths: dict[str, int | None] = {}
    for folder in {feature.sequence for feature in schema.features if feature.sequence}:
        inside = [feature for feature in schema.features if feature.name.startswith(f"{folder}/")]
        sizes = {
            feature.shape[:1]
            for feature in inside
            if feature.sequence == folder and len(feature.stored) == 1
        }
        if (
            len(sizes) == 1
            and () not in sizes
            and all(feature.sequence == folder for feature in inside)
        ):
            lengths[folder] = sizes.pop()[0]
    return lengths


def _dict(
    tree: Mapping[str, Any], sequences: Mapping[str, int | None], path: str
) -> dict[str, Any]:
    features = {}
    for name, node in sorted(tree.items()):
        below = f"{path}/{name}" if path else name
        features[name] = node if "pythonClassName" in node else _dict(node, sequences, below)
    node = {
        "pythonClassName": f"{_TFDS}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }
    return _sequence(node, sequences[path]) if path in sequences else node


def _sequence(node: Mapping[str, Any], length: int | None) -> dict[str, Any]:
    sequence = {"feature": node, "length": str(-1 if length is None else length)}
    return {"pythonClassName": f"{_TFDS}.sequence_feature.Sequence", "sequence": sequence}


def _shaped(
    feature: Feature, stored: StoredFeature, shape: tuple[int | None, ...], schema: ExampleSchema
) -> dict[str, Any]:
    if feature.kind in _NUMBERS and shape not in ((), (None,)) and shape.count(None) < 2:
        return _tensor("tensor_feature.Tensor", _dtype(feature, stored), _dimensions(shape), "none")
    node = _one(feature, stored, schema)
    outer = shape[:-1] if feature.kind == FeatureKind.BOX else shape
    # TFDS stores lists of variable-length lists with extra keys for the lengths, which the examples
    # lack: declare one flat list.
    for size in reversed(outer if outer.count(None) < 2 else (None,)):
        node = _sequence(node, size)
    return node


def _one(feature: Feature, stored: StoredFeature, schema: ExampleSchema) -> dict[str, Any]:
    if feature.kind in PICTURES:
        return _picture(feature)
    if feature.kind in CLASSES:
        classes = {"numClasses": str(len(schema.names_of(feature)))}
        return {"pythonClassName": f"{_TFDS}.class_label_feature.ClassLabel", "classLabel": classes}
    if feature.kind == FeatureKind.BOX:
        box = {"shape": _dimensions((4,)), "dtype": "float32", "bboxFormat": "REL_YXYX"}
        return {"pythonClassName": f"{_TFDS}.bounding_boxes.BBoxFeature", "boundingBox": box}
    if feature.kind == FeatureKind.TEXT:
        return {"pythonClassName": f"{_TFDS}.text_feature.Text", "text": {}}
    return _tensor("scalar.Scalar", _dtype(feature, stored), {}, "none")


def _picture(feature: Feature) -> dict[str, Any]:
    """Return an Image, a Tensor for raw pixels, or the bytes of an image that records may lack.

    TFDS decodes an Image from JPEG, PNG and BMP; of GIF and WebP it reads only the bytes.
    """
    if feature.is_optional:
        return _tensor("scalar.Scalar", "string", {}, "none")
    dtype = feature.dtype or "uint8"
    if feature.encoding == "raw":
        return _tensor("tensor_feature.Tensor", dtype, _dimensions(feature.shape), "bytes")
    shape = feature.shape or (None, None, 1 if feature.kind == FeatureKind.MASK else 3)
    image: dict[str, Any] = {"shape": _dimensions(shape), "dtype": dtype}
    if feature.encoding:
        image["encodingFormat"] = feature.encoding
    return {"pythonClassName": f"{_TFDS}.image_feature.Image", "image": image}


def _dtype(feature: Feature, stored: StoredFeature) -> str:
    """Return the dtype to which TFDS converts the stored values."""
    return feature.dtype if feature.dtype and feature.kind in _NUMBERS else _DTYPES[stored.type]


def _tensor(python_class: str, dtype: str, shape: dict[str, Any], encoding: str) -> dict[str, Any]:
    tensor = {"shape": shape, "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": f"{_TFDS}.{python_class}", "tensor": tensor}


def _dimensions(shape: tuple[int | None, ...]) -> dict[str, list[str]]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]}


_FILE_OF = {
    FeatureKind.CLASS_LABEL: naming.labels_file,
    FeatureKind.MULTI_LABEL: naming.labels_file,
    FeatureKind.TOKENS: naming.vocabulary_file,
    FeatureKind.BAG_OF_WORDS: naming.vocabulary_file,
}


def names_files(schema: ExampleSchema) -> dict[str, tuple[str, ...]]:
    """Return the class names or words of each feature that holds indices, by file name."""
    features = (feature for feature in schema.features if feature.kind in _FILE_OF)
    return {_FILE_OF[feature.kind](feature.name): schema.names_of(feature) for feature in features}


def names_text(names: Iterable[str]) -> str:
    """Return the text of such a file."""
    return "".join(f"{name}\n" for name in names)
