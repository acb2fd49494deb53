"""Images with a mask each, whose pixels are class or instance numbers."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.base import image_features, unless_same, usual_column
from shardwright.schema import ExampleSchema, Feature, FeatureKind

COLUMNS = ("mask", "segmentation_mask", "mask_path", "mask_file", "segmentation", "annotation")


def segmentation(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """The image, its id, and `segmentation_mask`, as TFDS's datasets call it: of a column that names its file."""
    del extras
    column = unless_same(usual_column(columns, *COLUMNS), "segmentation_mask")
    return ExampleSchema(
        (
            *image_features(feature_names),
            Feature("segmentation_mask", FeatureKind.MASK, column=column),
        )
    )
