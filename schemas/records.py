"""Schema of records without an image: an id, a label, and every other column."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source


def records(feature_names: str, columns: Sequence[str], extras: Sequence[Feature]) -> ExampleSchema:
    """Return the id, the label, and every other column as a number, bytes, or a list of them."""
    del feature_names, columns
    label = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
    # A column of numbers to predict is a feature, and often has this name.
    labels = () if any(extra.name == label.name for extra in extras) else (label,)
    return ExampleSchema((Feature("id", FeatureKind.TEXT, Source.ID), *labels, *extras))
