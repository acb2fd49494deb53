"""Schema of images with any number of classes each, as for scikit-learn's `MultiLabelBinarizer`."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.base import image_features, unless_same, usual_column

COLUMNS = ("labels", "label", "tags", "classes", "categories", "category")


def multi_label(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """Return the image, its id, and `labels` from a column of lists, or of texts as "cat|dog"."""
    del extras
    column = unless_same(usual_column(columns, *COLUMNS), "labels")
    return ExampleSchema(
        (*image_features(feature_names), Feature("labels", FeatureKind.MULTI_LABEL, column=column))
    )
