"""Schema of images with one mask each, whose pixels are class or instance numbers."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.base import image_features, unless_same, usual_column

COLUMNS = ("mask", "segmentation_mask", "mask_path", "mask_file", "segmentation", "annotation")


def segmentation(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """Return the image, its id, and `segmentation_mask` (TFDS's name), a column of files."""
    del extras
    column = unless_same(usual_column(columns, *COLUMNS), "segmentation_mask")
    return ExampleSchema(
        (
            *image_features(feature_names),
            Feature("segmentation_mask", FeatureKind.MASK, column=column),
        )
    )
