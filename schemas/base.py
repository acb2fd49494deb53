"""What ready schemas have in common: the features of every image, and the usual names of a source's columns."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.image_classification import FEATURE_NAMES
from shardwright.schema import Feature, Source


def image_features(feature_names: str, *, labelled: bool = False) -> tuple[Feature, ...]:
    """The image, its id and what is read off it, and with `labelled` its class label.

    Args:
        feature_names: "tfds" or "model-garden".
        labelled: With a label.
    """
    labels = () if labelled else (Source.LABEL, Source.LABEL_TEXT)
    return tuple(
        feature for feature in FEATURE_NAMES[feature_names] if feature.source not in labels
    )


def usual_column(columns: Sequence[str], *names: str) -> str:
    """The first of the usual names that a column has, in any case; the first name where none has one."""
    by_lower = {column.lower(): column for column in reversed(columns)}
    return next((by_lower[name] for name in names if name in by_lower), names[0])


def unless_same(column: str, name: str) -> str:
    """The `column` of a feature called `name`."""
    return "" if column == name else column
