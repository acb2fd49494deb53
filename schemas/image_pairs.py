"""Schema of pairs of images: before and after, low and high resolution, anchor and match."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.base import image_features, unless_same, usual_column

COLUMNS = ("second_image", "image2", "image_2", "image_b", "second", "target_image", "pair")


def image_pairs(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """Return the image, its id, the pair's label if any, and `second_image`, a column of files."""
    del extras
    column = unless_same(usual_column(columns, *COLUMNS), "second_image")
    return ExampleSchema(
        (
            *image_features(feature_names, labelled=True),
            Feature("second_image", FeatureKind.IMAGE, column=column),
        )
    )
