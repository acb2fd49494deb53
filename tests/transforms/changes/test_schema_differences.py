"""Features of a dataset and of a build that adds to it: what differs, and what does not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.ready import image_classification
from shardwright.transforms.changes.schema_differences import known_vocabularies, schema_differences

AGE = Feature("age", FeatureKind.INT64)
COLOR = Feature("color", FeatureKind.CLASS_LABEL)
HERE = image_classification(extras=[AGE, COLOR])
THERE = HERE.with_vocabularies({"label": ("cat",), "color": ("red",)})


@pytest.mark.parametrize(
    ("there", "here", "wanted"),
    [
        (THERE, HERE, ""),
        (HERE.with_vocabularies({"color": ()}), HERE, ""),  # no image had a label
        (THERE, image_classification(extras=[COLOR]), "feature 'age' is missing here"),
        (
            THERE,
            image_classification(extras=[AGE, COLOR, replace(AGE, name="size")]),
            "feature 'size' is missing there",
        ),
        (
            THERE,
            image_classification(extras=[replace(AGE, kind=FeatureKind.FLOAT32), COLOR]),
            "kind of 'age' is 'int64' there and 'float32' here",
        ),
    ],
)
def test_differences(there: ExampleSchema, here: ExampleSchema, wanted: str) -> None:
    assert schema_differences(there, here) == wanted


def test_vocabularies() -> None:
    assert known_vocabularies(THERE, HERE) == {"label": ("cat",), "color": ("red",)}
    unlabeled = HERE.with_vocabularies({"color": ()})
    assert known_vocabularies(unlabeled, HERE) == {"label": (), "color": ()}
