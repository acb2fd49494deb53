"""Schema of images with one text or several: captions, alt texts, prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.base import image_features, unless_same, usual_column

COLUMNS = ("text", "caption", "captions", "txt", "description", "sentence", "prompt")


def image_text(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    """Return the image, its id, and `text`, or `captions` if an image has several texts."""
    column = usual_column(columns, *COLUMNS)
    has_several = any(extra.is_list for extra in extras if extra.column_name == column)
    name = "captions" if has_several else "text"
    text = Feature(name, FeatureKind.TEXT, column=unless_same(column, name))
    return ExampleSchema(
        (*image_features(feature_names), replace(text, shape=(None,)) if has_several else text)
    )
