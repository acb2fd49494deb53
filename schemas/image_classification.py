"""Images with one class label each: the schema of class folders, and of tables with a label column.

Two vocabularies of feature names are known: TFDS's (`image`, `label`, `id`) and that of TensorFlow Model Garden's readers
(`official/vision/dataloaders/tf_example_decoder.py`: `image/encoded`, `image/class/label`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source

_TFDS = (
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
)
_MODEL_GARDEN = (
    Feature("image/encoded", FeatureKind.IMAGE, Source.IMAGE),
    Feature("image/filename", FeatureKind.TEXT, Source.ID),
    Feature("image/format", FeatureKind.TEXT, Source.FORMAT),
    Feature("image/height", FeatureKind.INT64, Source.HEIGHT),
    Feature("image/width", FeatureKind.INT64, Source.WIDTH),
    Feature("image/class/label", FeatureKind.CLASS_LABEL, Source.LABEL),
    Feature("image/class/text", FeatureKind.TEXT, Source.LABEL_TEXT),
)
FEATURE_NAMES: Mapping[str, tuple[Feature, ...]] = {"tfds": _TFDS, "model-garden": _MODEL_GARDEN}


def image_classification(
    *,
    feature_names: str = "tfds",
    image_encoding: str | None = None,
    image_shape: tuple[int | None, ...] = (),
    image_dtype: str = "",
    oriented: bool = False,
    extras: tuple[Feature, ...] = (),
) -> ExampleSchema:
    """The schema of labeled images; `with_class_names` completes it, or makes it that of unlabeled ones.

    Args:
        feature_names: "tfds" or "model-garden".
        image_encoding: "jpeg", "png", "raw" or "tensor" where every image is stored so.
        image_shape: (height, width, channels) where every image has that shape; None for what differs.
        image_dtype: Of an image stored as a tensor of something else than uint8.
        oriented: The EXIF orientation is a feature, because images are stored without their EXIF.
        extras: Features of the user's own.
    """
    image, *others = FEATURE_NAMES[feature_names]
    image = replace(image, shape=image_shape, encoding=image_encoding, dtype=image_dtype)
    name = "orientation" if feature_names == "tfds" else "image/orientation"
    orientation = (Feature(name, FeatureKind.INT64, Source.ORIENTATION),) if oriented else ()
    return ExampleSchema((image, *others, *orientation, *extras))
