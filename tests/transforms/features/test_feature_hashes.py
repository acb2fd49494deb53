"""Hashes of features: the same for the same values, in every process and with every numbering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardwright.format.schema import ExampleSchema, Feature, Source
from shardwright.format.schema import FeatureKind as K
from shardwright.schemas.ready import image_classification
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.references import HASH, PICTURE_TYPE
from tests.support.helpers import references

BOXES = Feature("boxes", K.FLOAT32, Source.COLUMN, shape=(None, 4))
TEXT = Feature("text", K.TEXT, Source.COLUMN)
NUMBER = Feature("number", K.INT64, Source.COLUMN)
LABELS = Feature("labels", K.MULTI_LABEL, Source.COLUMN)
WORDS = Feature("words", K.TOKENS, Source.COLUMN)
NAME = Feature("name", K.CLASS_LABEL, Source.COLUMN)
MASK = Feature("mask", K.MASK, Source.COLUMN)
TEXTS = Feature("texts", K.TEXT, Source.COLUMN, shape=(None,))
TENSOR = Feature("tensor", K.TENSOR, Source.COLUMN, shape=(300,))
_PLACE = {"uri": "/m.png", "offset": None, "num_bytes": 5, "etag": "e"}


def hashes(values: list[Any], feature: Feature, kind: pa.DataType | None = None) -> list[Any]:
    """Return the hashes of rows with these values of a feature."""
    column = {f"x/{feature.name}": pa.array(values, kind)}
    rows = references([str(number) for number in range(len(values))], extras=column)
    return FeatureHashes(schema_of(feature)).of(rows).to_pylist()


def schema_of(*features: Feature) -> ExampleSchema:
    return ExampleSchema((*image_classification().features, *features))


def test_hashes_are_those_of_the_format() -> None:
    """Indexes hold them: others would make each record of every dataset look changed."""
    columns = {"x/boxes": [[[0.0, 0.5, 1.0, 1.0]]], "x/text": ["héllo"], "x/number": [-3],
               "x/labels": [["b", "a"]], "x/words": ["two words"], "x/texts": [["a", ""]],
               "x/mask": pa.array([_PLACE], PICTURE_TYPE)}  # fmt: skip
    whole = schema_of(BOXES, TEXT, NUMBER, LABELS, WORDS, TEXTS, MASK)
    rows = references(["a"], label="cat", extras=columns)
    found = [FeatureHashes(whole, labels).of(rows)[0].as_py() for labels in (False, True)]
    assert found == GOLDEN
    long = hashes([[float(n) for n in range(300)], [0.0] * 300], TENSOR)
    assert long == GOLDEN_LONG


GOLDEN = [13507878984167287276, 7454814787768499180]
GOLDEN_LONG = [581435672672764538, 6191190107900995303]


@pytest.mark.parametrize(("feature", "one", "other"), [
    (BOXES, [[0.0, 0.5, 1.0, 1.0]], [[0.0, 0.5, 1.0, 0.9]]),
    (BOXES, [[0.0, 0.5, 1.0, 1.0]], []),
    (BOXES, [[0.0] * 4], [[0.0] * 4] * 2),
    (TEXT, "a", "b"),
    (TEXT, "x" * 600, "x" * 599 + "y"),
    (NUMBER, 1, 2),
    (LABELS, ["a"], ["a", "b"]),
    (LABELS, ["a", "b"], ["ab"]),
    (WORDS, "a b", "a c"),
    (TEXTS, ["a", "bc"], ["ab", "c"]),
    (TENSOR, [0.0] * 300, [0.0] * 299 + [1.0]),
])  # fmt: skip
def test_another_value_has_another_hash(feature: Feature, one: Any, other: Any) -> None:
    first, second, third = hashes([one, other, one], feature)
    assert first == third != second
    assert hashes([one], feature) == [first]


@pytest.mark.parametrize(
    ("change", "is_changed"),
    [({}, False), ({"etag": "f"}, True), ({"uri": "/n.png"}, True), ({"num_bytes": 6}, False)],
)
def test_a_mask_counts_by_its_address_and_etag(change: dict[str, Any], *, is_changed: bool) -> None:
    found = hashes([_PLACE, _PLACE | change], MASK, PICTURE_TYPE)
    assert (found[0] != found[1]) == is_changed


def test_a_mask_in_the_spool_of_another_build_is_the_same() -> None:
    etag = {"etag": "spool:0123456789abcdef01234567"}
    places = [_PLACE | etag | {"uri": f"/{build}/spool/{build}.bin"} for build in "ab"]
    assert len(set(hashes(places, MASK, PICTURE_TYPE))) == 1


def test_values_count_as_they_are_stored() -> None:
    """Another type of a table's column changes nothing: whole numbers, names, dictionaries."""
    assert hashes([1, 2], NUMBER) == hashes(["1", "2"], NUMBER)
    assert hashes([7], NAME) == hashes(["7"], NAME)
    assert hashes(["a"], TEXT) == hashes(["a"], TEXT, pa.dictionary(pa.int32(), pa.string()))


def test_rows_that_do_not_fit_have_no_hash() -> None:
    found = hashes(["1", "no number", "3"], NUMBER)
    assert [each is None for each in found] == [False, True, False]
    assert found[2] == hashes(["3"], NUMBER)[0]


def test_without_columns_only_asked_for_labels_are_hashed() -> None:
    rows = references(["a", "b"], label=["cat", "dog"])
    plain, labeled = (FeatureHashes(schema_of(), labels) for labels in (False, True))
    assert plain.of(rows).null_count == 2
    assert [HASH in batch.schema.names for batch in plain.settle(rows)] == [False]
    assert len(np.unique(labeled.of(rows))) == 2
    assert (plain.names, labeled.names) == ([], ["label"])
