"""--schema: ready schemas by name, and a user's Python or JSON file, checked against INPUT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.format.schema import ExampleSchema, Feature, Source
from shardwright.format.schema import FeatureKind as K
from shardwright.pipelines.job.build import describe_job
from shardwright.pipelines.job.schema import schema_for
from shardwright.pipelines.options.build import parse_options, read_schema
from shardwright.schemas.ready import READY_SCHEMAS, WITHOUT_IMAGE
from shardwright.storage.options import NO_OPTIONS
from tests.support.helpers import write_schema
from tests.support.schema_tables import IMAGE, LABEL, OWN, OWN_PYTHON, table

Names = tuple[str, ...]
Features = tuple[Feature, ...]


def load(
    given: str | Path, columns: Names = (), extras: Features = (), names: str = "tfds"
) -> ExampleSchema:
    read = read_schema(str(given), NO_OPTIONS)
    return schema_for(str(given), read, feature_names=names, columns=columns, extras=extras)


@pytest.mark.parametrize(("name", "columns", "features"), [
    ("unlabeled", (), "image id"),
    ("image_classification", (), "image id label"),
    ("multi_label", ("Tags",), "image id labels=Tags"),
    ("multi_label", (), "image id labels"),
    ("image_text", ("n", "caption"), "image id text=caption"),
    ("detection", (), "image id objects/bbox objects/label"),
    ("segmentation", ("mask_path", "mask"), "image id segmentation_mask=mask"),
    ("image_pairs", ("image2",), "image id label second_image=image2"),
    ("tabular", (), "image id label"),
    ("records", (), "id label"),
])  # fmt: skip
def test_ready_schemas(name: str, columns: Names, features: str) -> None:
    schema = load(name, columns)
    assert features.split() == [
        f"{feature.name}={feature.column}" if feature.column else feature.name
        for feature in schema.features
    ]
    assert ExampleSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@pytest.mark.parametrize("name", [name for name in READY_SCHEMAS if name not in WITHOUT_IMAGE])
def test_ready_schemas_under_the_names_of_model_garden(name: str) -> None:
    features = load(name, names="model-garden").features
    assert [feature.name for feature in features[:2]] == ["image/encoded", "image/filename"]


def test_features_of_the_source_are_kept() -> None:
    bbox = Feature("objects/bbox", K.BOX, shape=(None, 4), sequence="objects")
    names = ("dog", "cat")
    label = Feature("objects/label", K.CLASS_LABEL, shape=(None,), sequence="objects", names=names)
    area = Feature("area", K.FLOAT32, shape=(None,))
    assert load("detection", (), (bbox, label, area)).features[-1].names == names
    found = load("image_classification", (), (bbox, label, area)).features[3:]
    assert [feature.name for feature in found] == ["objects/bbox", "objects/label", "area"]
    captions = Feature("captions", K.TEXT, shape=(None,))
    assert load("image_text", ("captions",), (captions,)).features[-1] == captions
    tags = Feature("tags", K.BYTES, shape=(None,))
    columns = (Feature("kind", K.BYTES), tags, Feature("n", K.INT64))
    kinds = [feature.kind for feature in load("tabular", (), columns).features[3:]]
    assert kinds == [K.CLASS_LABEL, K.MULTI_LABEL, K.INT64]
    target = Feature("label", K.FLOAT32)
    for name in ("image_classification", "tabular", "records"):
        assert load(name, (), (target,)).features[-1] == target


def test_a_python_file_and_a_json_file_are_the_same_schema(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_PYTHON)
    own = write_schema(tmp_path / "own.json", OWN)
    assert load(tmp_path / "own.py") == load(own) == OWN


def test_an_unknown_name_fails_with_the_ready_schemas() -> None:
    names = r"\(image_classification, .*\)"
    files = r"nor a .py or .json file; did you mean segmentation\?"
    message = f"--schema 'segmentatoin' is neither a ready schema {names} {files}"
    with pytest.raises(UsageError, match=message):
        load("segmentatoin")


SOUND = '{"features": [{"name": "x", "kind": "sound"}], "class_names": []}'
NOT_JSON = "a.json is not the JSON of ExampleSchema.to_json"


@pytest.mark.parametrize(("name", "content", "message"), [
    ("no.py", "", "no.py does not exist: give a Python file that defines SCHEMA"),
    ("no.json", "", "no.json cannot be read"),
    ("a.py", "1 / 0", "a.py cannot be run: ZeroDivisionError: division by zero"),
    ("a.py", "x = 1", "a.py defines no SCHEMA: it must be a shardwright.format.schema.Ex"),
    ("a.py", "SCHEMA = {}", "a.py defines a SCHEMA of type dict: it must be"),
    ("a.json", "{", rf"{NOT_JSON} \("),
    ("a.json", "[]", NOT_JSON),
    ("a.json", SOUND, f"{NOT_JSON}.*'sound'"),
])  # fmt: skip
def test_files_without_a_schema(tmp_path: Path, name: str, content: str, message: str) -> None:
    if not name.startswith("no"):
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((LABEL, Feature("w", K.INT64, Source.WIDTH)),
         "feature 'w' has the source width, but no feature has the source image: add one"),
        ((IMAGE, IMAGE), "two features have the name 'image'"),
        ((IMAGE, Feature("other", K.IMAGE, Source.IMAGE)),
         "'image' and 'other' both have the source image; only one may"),
        ((IMAGE, Feature("l", K.MULTI_LABEL, Source.LABEL)),
         "feature 'l' with the source label must be one class_label"),
        ((IMAGE, Feature("n", K.INT64, shape=(2, None))),
         r"feature 'n' has the shape \(2, None\); only the first dimension may be None"),
        ((IMAGE, Feature("c", K.CLASS_LABEL, names=("a", "a"))),
         "the names of feature 'c' must be unique"),
    ],
)  # fmt: skip
def test_wrong_features(tmp_path: Path, features: Features, message: str) -> None:
    content = {"features": [feature.to_json() for feature in features], "class_names": []}
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=message):
        load(tmp_path / "a.json")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"image": "a.png", "note": "x", "when": {"a": 1}}]
    return table(tmp_path_factory.mktemp("table"), rows)


NO_LABEL = "--schema has a label, and INPUT has none: give its column with --label-column"
NO_NAMES = "--feature-names is for ready schemas, and --schema .* has its own names: leave"
STRUCT = "column 'when' is of type struct"
NO_COLUMN = "needs the column '{}', which INPUT does not have; its columns are 'image'"
WHEN = ExampleSchema((IMAGE, Feature("when", K.INT64)))
MODEL_GARDEN = ("--feature-names", "model-garden")


@pytest.mark.parametrize(("schema", "options", "error"), [
    (OWN, (), UsageError(f"feature 'age' {NO_COLUMN.format('age')}")),
    ("segmentation", (), UsageError(f"'segmentation_mask' {NO_COLUMN.format('mask')}")),
    (ExampleSchema((IMAGE, LABEL)), (), UsageError(NO_LABEL)),
    (WHEN, (), BuildError(f"{STRUCT}<a: int64>, which cannot be a feature of kind int64")),
    (WHEN, MODEL_GARDEN, UsageError(NO_NAMES)),
    ("tabular", (), BuildError(STRUCT)),
])  # fmt: skip
def test_schemas_that_input_cannot_fill_fail_before_any_work(
    given: Path, tmp_path: Path, schema: Any, options: Names, error: ShardwrightError
) -> None:
    if isinstance(schema, ExampleSchema):
        schema = str(write_schema(tmp_path / "own.json", schema))
    with pytest.raises(type(error), match=str(error)):
        describe_job(parse_options([str(given), f"{tmp_path}/out", "--schema", schema, *options]))


def test_unused_columns_may_be_of_any_type(given: Path, tmp_path: Path) -> None:
    argv = [str(given), f"{tmp_path}/out", "--schema", "unlabeled", *MODEL_GARDEN]
    describe_job(parse_options(argv))
