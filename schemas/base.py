"""Helpers of the ready-made schemas: features of every image, and usual names of input columns."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import Feature, Source
from shardwright.schemas.image_classification import FEATURE_NAMES


def image_features(feature_names: str, *, labelled: bool = False) -> tuple[Feature, ...]:
    """Return the image, its id, its other image features and, with `labelled`, its class label.

    Args:
        feature_names: "tfds" or "model-garden".
        labelled: Include the label features.
    """
    labels = () if labelled else (Source.LABEL, Source.LABEL_TEXT)
    return tuple(
        feature for feature in FEATURE_NAMES[feature_names] if feature.source not in labels
    )


def usual_column(columns: Sequence[str], *names: str) -> str:
    """Return the column with the first of `names` that exists, ignoring case; else `names[0]`."""
    by_lower = {column.lower(): column for column in reversed(columns)}
    return next((by_lower[name] for name in names if name in by_lower), names[0])


def unless_same(column: str, name: str) -> str:
    """Return `Feature.column` of a feature called `name`: "" if the column has the same name."""
    return "" if column == name else column
