"""Schema of images with one class label each: class folders, and tables with a label column.

Feature names are TFDS's (`image`, `label`, `id`), or those of TensorFlow Model Garden's readers
(`official/vision/dataloaders/tf_example_decoder.py`: `image/encoded`, `image/class/label`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source

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
    labeled: bool = True,
    image_encoding: str | None = None,
    image_shape: tuple[int | None, ...] = (),
    oriented: bool = False,
    extras: tuple[Feature, ...] = (),
) -> ExampleSchema:
    """Return the schema of labeled images; `with_class_names` completes it, or removes the label.

    Args:
        feature_names: "tfds" or "model-garden".
        labeled: False for a schema without a class label.
        image_encoding: "jpeg", "png" or "raw" if all images are stored in it.
        image_shape: (height, width, channels) if all images have it.
        oriented: Add the EXIF orientation as a feature, for images stored without EXIF.
        extras: The user's own features.
    """
    image, *others = FEATURE_NAMES[feature_names]
    image = replace(image, shape=image_shape, encoding=image_encoding)
    name = "orientation" if feature_names == "tfds" else "image/orientation"
    orientation = (Feature(name, FeatureKind.INT64, Source.ORIENTATION),) if oriented else ()
    if not labeled:
        others = [one for one in others if one.source not in (Source.LABEL, Source.LABEL_TEXT)]
    return ExampleSchema((image, *others, *orientation, *extras))
