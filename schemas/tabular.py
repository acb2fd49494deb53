"""Schema of images with table columns for a tabular model: numbers, and categories for texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.base import image_features

_CATEGORIES = {False: FeatureKind.CLASS_LABEL, True: FeatureKind.MULTI_LABEL}
_TEXTS = (FeatureKind.BYTES, FeatureKind.TEXT)


def tabular(feature_names: str, columns: Sequence[str], extras: Sequence[Feature]) -> ExampleSchema:
    """Return the image, its id, its label, and every other column.

    Texts become categories, which are learned from the column; a missing text is the category "".
    """
    del columns
    return ExampleSchema(
        (*image_features(feature_names, labelled=True), *map(_as_category, extras))
    )


def _as_category(extra: Feature) -> Feature:
    if extra.kind not in _TEXTS:
        return extra
    return replace(extra, kind=_CATEGORIES[extra.is_list], default=None if extra.is_list else "")
