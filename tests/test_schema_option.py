"""--schema: ready schemas by name, and a user's Python or JSON file, held against what INPUT has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.job import describe_job
from pipelines.options import parse_options
from pipelines.schemas_option import as_encoded, load_schema
from schemas.ready import READY_SCHEMAS
from shardwright.errors import BuildError, UsageError
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage import NO_OPTIONS
from tests.schema_tables import IMAGE, LABEL, OWN, OWN_PYTHON, table
from transforms.images import EncodeOptions


def load(
    given: str | Path, columns: tuple[str, ...] = (), extras: tuple[Feature, ...] = ()
) -> ExampleSchema:
    return load_schema(
        str(given), feature_names="tfds", columns=columns, extras=extras, storage=NO_OPTIONS
    )


@pytest.mark.parametrize(
    ("name", "columns", "features"),
    [
        ("unlabeled", (), "image id"),
        ("image_classification", (), "image id label"),
        ("multi_label", ("Tags",), "image id labels=Tags"),
        ("multi_label", (), "image id labels"),
        ("image_text", ("n", "caption"), "image id text=caption"),
        ("detection", (), "image id objects/bbox objects/label"),
        ("segmentation", ("mask_path", "mask"), "image id segmentation_mask=mask"),
        ("image_pairs", ("image2",), "image id label second_image=image2"),
        ("tabular", (), "image id label"),
    ],
)
def test_ready_schemas(name: str, columns: tuple[str, ...], features: str) -> None:
    schema = load(name, columns)
    assert (
        " ".join(f"{f.name}={f.column}" if f.column else f.name for f in schema.features)
        == features
    )
    assert ExampleSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@pytest.mark.parametrize("name", READY_SCHEMAS)
def test_ready_schemas_under_the_names_of_model_garden(name: str) -> None:
    schema = load_schema(
        name, feature_names="model-garden", columns=(), extras=(), storage=NO_OPTIONS
    )
    assert [feature.name for feature in schema.features][:2] == ["image/encoded", "image/filename"]


def test_what_the_source_says_of_its_columns_counts() -> None:
    boxes = (
        Feature("objects/bbox", FeatureKind.BOX, shape=(None, 4), sequence="objects"),
        Feature(
            "objects/label",
            FeatureKind.CLASS_LABEL,
            shape=(None,),
            sequence="objects",
            names=("dog", "cat"),
        ),
        Feature("area", FeatureKind.FLOAT32, shape=(None,)),
    )
    assert load("detection", (), boxes).features[-1].names == ("dog", "cat")
    assert [feature.name for feature in load("image_classification", (), boxes).features][3:] == [
        "objects/bbox",
        "objects/label",
        "area",
    ]
    captions = Feature("captions", FeatureKind.TEXT, shape=(None,))
    assert load("image_text", ("captions",), (captions,)).features[-1] == captions
    texts = (
        Feature("kind", FeatureKind.BYTES),
        Feature("tags", FeatureKind.BYTES, shape=(None,)),
        Feature("n", FeatureKind.INT64),
    )
    kinds = [feature.kind for feature in load("tabular", (), texts).features[3:]]
    assert kinds == [FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL, FeatureKind.INT64]


def test_a_python_file_and_a_json_file_are_the_same_schema(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_PYTHON)
    (tmp_path / "own.json").write_text(json.dumps(OWN.to_json()))
    assert load(tmp_path / "own.py") == load(tmp_path / "own.json") == OWN


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "segmentatoin",
            None,
            r"--schema 'segmentatoin' is no ready schema \(image_classification, .*\) and no .py or .json file",
        ),
        ("no.py", None, "no.py is not there: give a Python file that defines SCHEMA"),
        ("no.json", None, "no.json cannot be read"),
        ("a.py", "1 / 0", "a.py cannot be run: ZeroDivisionError: division by zero"),
        ("a.py", "x = 1", "a.py defines no SCHEMA: it must be a shardwright.schema.ExampleSchema"),
        ("a.py", "SCHEMA = {}", "a.py defines a SCHEMA of type dict: it must be"),
        ("a.json", "{", "a.json is not the JSON of an ExampleSchema, as its to_json gives it"),
        ("a.json", "[]", "a.json is not the JSON of an ExampleSchema"),
        (
            "a.json",
            json.dumps(ExampleSchema((LABEL,)).to_json()),
            "a.json has no image: give one feature of kind image the source image",
        ),
        (
            "a.json",
            json.dumps({"features": [{"name": "x", "kind": "sound"}], "class_names": []}),
            "is not the JSON.*'sound'",
        ),
        (
            "a.json",
            json.dumps({"features": [IMAGE.to_json()] * 2, "class_names": []}),
            "a.json: two features are called 'image'",
        ),
        (
            "a.json",
            json.dumps(
                ExampleSchema((IMAGE, Feature("other", FeatureKind.IMAGE, Source.IMAGE))).to_json()
            ),
            "'image' and 'other' both have the source image; only one can",
        ),
        (
            "a.json",
            json.dumps(
                ExampleSchema(
                    (IMAGE, Feature("l", FeatureKind.MULTI_LABEL, Source.LABEL))
                ).to_json()
            ),
            "feature 'l' of the source label must be one class_label",
        ),
        (
            "a.json",
            json.dumps(
                ExampleSchema((IMAGE, Feature("n", FeatureKind.INT64, shape=(2, None)))).to_json()
            ),
            r"feature 'n' has the shape \(2, None\); only its first size may be None",
        ),
        (
            "a.json",
            json.dumps(
                ExampleSchema(
                    (IMAGE, Feature("c", FeatureKind.CLASS_LABEL, names=("a", "a")))
                ).to_json()
            ),
            "the names of feature 'c' have one twice",
        ),
    ],
)
def test_schemas_that_are_none(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        load(tmp_path / name if "." in name else name)


def test_what_input_lacks_is_told_before_any_work(tmp_path: Path) -> None:
    given = str(table(tmp_path, [{"image": "a.png", "note": "x", "when": {"a": 1}}]))
    (tmp_path / "own.json").write_text(json.dumps(OWN.to_json()))

    def describe(schema: str, *options: str) -> None:
        describe_job(parse_options([given, str(tmp_path / "out"), "--schema", schema, *options]))

    with pytest.raises(
        UsageError,
        match="feature 'age' is filled from the column 'age', which INPUT does not have; its columns are 'image'",
    ):
        describe(str(tmp_path / "own.json"))
    with pytest.raises(
        UsageError,
        match="feature 'segmentation_mask' is filled from the column 'mask', which INPUT does not have",
    ):
        describe("segmentation")
    (tmp_path / "own.json").write_text(json.dumps(ExampleSchema((IMAGE, LABEL)).to_json()))
    with pytest.raises(
        UsageError,
        match="--schema has a label, and INPUT has none: name its column by --label-column",
    ):
        describe(str(tmp_path / "own.json"))
    (tmp_path / "own.json").write_text(
        json.dumps(ExampleSchema((IMAGE, Feature("when", FeatureKind.INT64))).to_json())
    )
    with pytest.raises(
        BuildError,
        match=r"column 'when' is of type struct<a: int64>, which cannot be a feature of kind int64",
    ):
        describe(str(tmp_path / "own.json"))
    with pytest.raises(
        UsageError,
        match=r"--feature-names is for ready schemas, and --schema .* names its own features: leave",
    ):
        describe(str(tmp_path / "own.json"), "--feature-names", "model-garden")
    describe(
        "unlabeled", "--feature-names", "model-garden"
    )  # a column that no feature asks for may be of any type
    with pytest.raises(BuildError, match="column 'when' is of type struct"):
        describe("tabular")


def test_stored_pictures_in_the_schema() -> None:
    schema = ExampleSchema(
        (IMAGE, Feature("mask", FeatureKind.MASK), Feature("b", FeatureKind.IMAGE))
    )
    kept = as_encoded(schema, EncodeOptions())
    assert [(feature.encoding, feature.shape) for feature in kept.features] == [
        (None, ()),
        ("png", ()),
        (None, ()),
    ]
    raw = as_encoded(schema, EncodeOptions("raw", resize=(6, 4)))
    assert [(feature.encoding, feature.shape) for feature in raw.features] == [
        ("raw", (4, 6, 3)),
        ("png", (4, 6, 1)),
        ("raw", (4, 6, 3)),
    ]
    with pytest.raises(
        UsageError,
        match="feature 'image' has the encoding 'jpeg', and images are stored by --encode keep: give",
    ):
        as_encoded(
            ExampleSchema((Feature("image", FeatureKind.IMAGE, Source.IMAGE, encoding="jpeg"),)),
            EncodeOptions(),
        )
