"""The schema: one declaration, its parts found by what fills them, and names that clash are refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from schemas.image_classification import FEATURE_NAMES, image_classification
from shardwright.errors import UsageError
from shardwright.schema import ARROW_TYPES, ExampleSchema, Feature, FeatureKind, Source

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)
ID = Feature("id", FeatureKind.TEXT, Source.ID)
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)


@pytest.mark.parametrize("names", sorted(FEATURE_NAMES))
@pytest.mark.parametrize("encoding", [None, "jpeg", "raw"])
def test_a_schema_comes_back_from_json(names: str, encoding: str | None) -> None:
    extras = (Feature("n", FeatureKind.INT64), Feature("fs", FeatureKind.FLOAT32, shape=(None,)))
    shape = (4, 5, 3) if encoding else ()
    made = image_classification(
        feature_names=names, image_encoding=encoding, image_shape=shape, extras=extras
    )
    schema = made.with_class_names(("a", "ü"))
    assert ExampleSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert schema.image.encoding == encoding
    assert schema.image.shape == shape


def test_features_are_found_by_what_fills_them() -> None:
    schema = image_classification(feature_names="model-garden").with_class_names(("a",))
    found = {source: schema.find(source) for source in Source}
    assert {source: feature.name for source, feature in found.items() if feature is not None} == {
        Source.IMAGE: "image/encoded", Source.ID: "image/filename", Source.FORMAT: "image/format", Source.HEIGHT: "image/height",
        Source.WIDTH: "image/width", Source.LABEL: "image/class/label", Source.LABEL_TEXT: "image/class/text",
    }  # fmt: skip
    assert schema.label is found[Source.LABEL]
    assert schema.image not in schema.small_features
    assert len(schema.small_features) == len(schema.features) - 1


@pytest.mark.parametrize("names", sorted(FEATURE_NAMES))
def test_no_classes_means_no_label_features(names: str) -> None:
    schema = image_classification(feature_names=names).with_class_names(())
    assert schema.label is None
    assert schema.find(Source.LABEL_TEXT) is None
    assert schema.find(Source.ID) is not None
    assert schema.class_names == ()


def test_two_features_of_one_name() -> None:
    with pytest.raises(
        UsageError, match="two features are called 'id': rename the table's column of that name"
    ):
        ExampleSchema((IMAGE, ID, Feature("id", FeatureKind.INT64)))


@pytest.mark.parametrize("order", [1, -1])
def test_a_feature_that_is_also_a_folder(order: int) -> None:
    features = (IMAGE, Feature("image/size", FeatureKind.INT64))[::order]
    with pytest.raises(
        UsageError,
        match="feature 'image' is also the folder of 'image/size': rename one of the two columns",
    ):
        ExampleSchema(features)
    assert ExampleSchema((IMAGE, Feature("image_size", FeatureKind.INT64))).image is IMAGE


def test_a_schema_without_an_image() -> None:
    with pytest.raises(UsageError, match="this dataset has no image feature"):
        _ = ExampleSchema((ID,)).image


@pytest.mark.parametrize(
    ("feature", "is_list"),
    [
        (Feature("a", FeatureKind.INT64), False),
        (Feature("a", FeatureKind.INT64, shape=(None,)), True),
        (Feature("a", FeatureKind.IMAGE, Source.IMAGE, (4, 5, 3), "raw"), False),
        (LABEL, False),
    ],
)
def test_what_is_a_list(feature: Feature, is_list: bool) -> None:
    assert feature.is_list is is_list


def test_every_kind_has_a_type_that_an_example_can_hold() -> None:
    assert set(ARROW_TYPES) == set(FeatureKind)
    assert set(ARROW_TYPES.values()) == {pa.int64(), pa.float32(), pa.binary()}


def test_json_leaves_out_what_is_usual() -> None:
    assert ID.to_json() == {"name": "id", "kind": "text", "source": "id"}
    assert Feature("a", FeatureKind.INT64, shape=(None,)).to_json() == {
        "name": "a",
        "kind": "int64",
        "source": "column",
        "shape": [None],
    }


@pytest.mark.parametrize(
    "record",
    [{}, {"name": "a", "kind": "x", "source": "id"}, {"name": "a", "kind": "text", "source": "x"}],
)
def test_json_that_is_no_feature(record: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Feature.from_json(record)
