"""Schema of images with boxes: TFDS's `objects`, a sequence of a `bbox` and a `label`."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.base import image_features

OBJECTS = (
    Feature("objects/bbox", FeatureKind.BOX, shape=(None, 4), sequence="objects"),
    Feature("objects/label", FeatureKind.CLASS_LABEL, shape=(None,), sequence="objects"),
)


def detection(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """Return the image, its id, and its boxes and classes from COCO, Pascal VOC or YOLO files."""
    del columns, extras
    return ExampleSchema((*image_features(feature_names), *OBJECTS))
