"""The schema: features are found by their source, JSON round trips, name clashes are errors."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import UsageError
from shardwright.format.schema import ARROW_TYPES, ExampleSchema, Feature, Source
from shardwright.format.schema import FeatureKind as K
from shardwright.schemas.ready import FEATURE_NAMES, image_classification

IMAGE = Feature("image", K.IMAGE, Source.IMAGE)
ID = Feature("id", K.TEXT, Source.ID)
LABEL = Feature("label", K.CLASS_LABEL, Source.LABEL)


@pytest.mark.parametrize("names", sorted(FEATURE_NAMES))
@pytest.mark.parametrize(
    ("encoding", "shape"), [(None, ()), ("jpeg", (4, 5, 3)), ("raw", (4, 5, 3))]
)
def test_json_round_trip(names: str, encoding: str | None, shape: tuple[int, ...]) -> None:
    extras = (Feature("n", K.INT64), Feature("fs", K.FLOAT32, shape=(None,)))
    image, *others = image_classification(feature_names=names, extras=extras).features
    features = (replace(image, encoding=encoding, shape=shape), *others)
    schema = ExampleSchema(features).with_class_names(("a", "ü"))
    assert ExampleSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert (schema.image.encoding, schema.image.shape) == (encoding, shape)


def test_features_are_found_by_their_source() -> None:
    schema = image_classification(feature_names="model-garden").with_class_names(("a",))
    found = {source: schema.find(source) for source in Source}
    assert {source: feature.name for source, feature in found.items() if feature is not None} == {
        Source.IMAGE: "image/encoded",
        Source.ID: "image/filename",
        Source.FORMAT: "image/format",
        Source.HEIGHT: "image/height",
        Source.WIDTH: "image/width",
        Source.LABEL: "image/class/label",
        Source.LABEL_TEXT: "image/class/text",
    }
    assert schema.label is found[Source.LABEL]
    assert schema.image not in schema.small_features
    assert len(schema.small_features) == len(schema.features) - 1


@pytest.mark.parametrize("names", sorted(FEATURE_NAMES))
def test_without_classes_there_are_no_label_features(names: str) -> None:
    schema = image_classification(feature_names=names).with_class_names(())
    found = [schema.find(source) is None for source in (Source.LABEL, Source.LABEL_TEXT, Source.ID)]
    assert (found, schema.label, schema.class_names) == ([True, True, False], None, ())


SIZE, ID_COLUMN = Feature("image/size", K.INT64), Feature("id", K.INT64)
FOLDER = "feature 'image' is also the folder of 'image/size': rename one of the two columns"
TWICE = "two features have the name 'id': rename one in the input"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((IMAGE, ID, Feature("id", K.INT64)), TWICE),
        ((IMAGE, SIZE), FOLDER),
        ((SIZE, IMAGE), FOLDER),
    ],
)
def test_names_that_clash(features: tuple[Feature, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ExampleSchema(features)


def test_a_name_may_begin_with_another() -> None:
    assert ExampleSchema((IMAGE, Feature("image_size", K.INT64))).image is IMAGE


def test_a_schema_without_an_image() -> None:
    schema = ExampleSchema((ID,))
    assert (schema.image, schema.may_lack_image) == (None, True)
    assert not ExampleSchema((IMAGE,)).may_lack_image
    assert ExampleSchema((replace(IMAGE, default=""),)).may_lack_image


def test_lists() -> None:
    assert Feature("a", K.INT64, shape=(None,)).is_list
    raw = Feature("a", K.IMAGE, Source.IMAGE, (4, 5, 3), "raw")
    assert not any(feature.is_list for feature in (Feature("a", K.INT64), raw, LABEL))


def test_every_kind_has_a_type_that_an_example_can_hold() -> None:
    assert set(ARROW_TYPES) == set(K)
    assert set(ARROW_TYPES.values()) == {pa.int64(), pa.float32(), pa.binary()}


def test_json_leaves_defaults_out() -> None:
    assert ID.to_json() == {"name": "id", "kind": "text", "source": "id"}
    listed = {"name": "a", "kind": "int64", "source": "column", "shape": [None]}
    assert Feature("a", K.INT64, shape=(None,)).to_json() == listed


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({}, "missing required field name"),
        ({"name": "a", "kind": "x", "source": "id"}, r"features\[1\].kind is 'x': invalid enum"),
        ({"name": "a", "kind": "text", "source": "x"}, r"source is 'x'"),
        ({"name": "a", "kind": "text", "later": 1}, "'later' is a field of a later release"),
    ],
)
def test_json_of_no_feature(record: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ExampleSchema.from_json({"features": [ID.to_json(), record]})


def test_a_schema_is_pickled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = image_classification()
    packed = pickle.dumps(schema)
    monkeypatch.setattr(Feature, "__reduce__", None)  # every step of a graph has the schema
    assert pickle.loads(packed) == schema
    assert pickle.dumps(schema) == packed
