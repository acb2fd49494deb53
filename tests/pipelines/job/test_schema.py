from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.pipelines.job.schema import as_encoded
from shardwright.transforms.images.options import EncodeOptions

K = FeatureKind
IMAGE = Feature("image", K.IMAGE, Source.IMAGE)


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        (EncodeOptions(), [(None, ()), ("png", ()), (None, ())]),
        (
            EncodeOptions("raw", resize=(6, 4)),
            [("raw", (4, 6, 3)), ("png", (4, 6, 1)), ("raw", (4, 6, 3))],
        ),
    ],
)
def test_stored_pictures_in_the_schema(options: EncodeOptions, stored: list[Any]) -> None:
    schema = ExampleSchema((IMAGE, Feature("mask", K.MASK), Feature("b", K.IMAGE)))
    found = as_encoded(schema, options).features
    assert [(feature.encoding, feature.shape) for feature in found] == stored


def test_an_encoding_that_the_build_does_not_store_fails() -> None:
    schema = ExampleSchema((Feature("image", K.IMAGE, Source.IMAGE, encoding="jpeg"),))
    message = (
        "feature 'image' has the encoding 'jpeg', and images are stored with --encode keep: give"
    )
    with pytest.raises(UsageError, match=message):
        as_encoded(schema, EncodeOptions())


def test_a_dtype_of_images_that_is_not_kept_is_an_error() -> None:
    image = Feature("image", K.IMAGE, Source.IMAGE, dtype="uint8")
    assert as_encoded(ExampleSchema((image,)), EncodeOptions()).image.dtype == ""
    floats = ExampleSchema((replace(image, dtype="float32"),))
    with pytest.raises(UsageError, match="has the dtype 'float32', and images are stored as uint8"):
        as_encoded(floats, EncodeOptions("jpeg"))
