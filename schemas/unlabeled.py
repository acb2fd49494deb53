"""Schema of images alone, for pretraining without labels."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import ExampleSchema, Feature
from shardwright.schemas.base import image_features


def unlabeled(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """Return the image and its id; class folders and label columns are ignored."""
    del columns, extras
    return ExampleSchema(image_features(feature_names))
