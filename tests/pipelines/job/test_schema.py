from __future__ import annotations

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


FLOATS = EncodeOptions("tensor", tensor_dtype="float32", normalize="0..1")


@pytest.mark.parametrize(("declared", "options", "message"), [
    ({"dtype": "float32"}, EncodeOptions("jpeg"), "has the dtype 'float32', and images"),
    ({"dtype": "uint8"}, FLOATS, "stored as float32: give --encode raw or tensor"),
    ({"normalize": "-1..1"}, FLOATS, "has the normalization '-1..1': give --normalize -1..1"),
    ({"dtype": "float32"}, FLOATS, ""), ({"dtype": "uint8"}, EncodeOptions(), ""),
])  # fmt: skip
def test_a_dtype_of_images_that_is_not_kept_is_an_error(
    declared: dict[str, str], options: EncodeOptions, message: str
) -> None:
    image = Feature("image", K.IMAGE, Source.IMAGE, **declared)  # type: ignore[arg-type]
    if not message:
        assert as_encoded(ExampleSchema((image,)), options).image.dtype == options.image_dtype
        return
    with pytest.raises(UsageError) as caught:
        as_encoded(ExampleSchema((image,)), options)
    assert message in str(caught.value)
