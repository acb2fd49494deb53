"""features.json of every kind of feature: TFDS reads it, and would have written the same."""

from __future__ import annotations

import functools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.format.tfds_features import features_json
from tests.support.feature_cases import (
    CASES,
    CLASSES,
    Case,
    declared_features,
    write_dataset,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def read(directory: Path) -> list[dict[str, Any]]:
    builder = tfds.builder_from_directory(str(directory))
    return list(builder.as_dataset(split="train", shuffle_files=False).as_numpy_iterator())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_tfds_reads_what_is_stored(case: Case, read: list[dict[str, Any]]) -> None:
    for name, records in case.read.items():
        for example, wanted in zip(read, records, strict=True):
            found = functools.reduce(operator.getitem, name.split("/"), example)
            assert np.array_equal(found, np.asarray(wanted)), (name, found)
            assert np.shape(found) == np.shape(wanted)


def test_numbers_come_in_the_type_that_was_declared(read: list[dict[str, Any]]) -> None:
    for name in ("uint8", "int16", "uint32", "bool", "float16", "float64", "int64", "float32"):
        assert read[0][name].dtype == np.dtype(name)
    assert (read[0]["sizes"].dtype, read[0]["points"].dtype) == (np.int32, np.int16)
    assert read[0]["instances"].dtype == np.uint16


def test_tensors_are_read_by_tensorflow(read: list[dict[str, Any]]) -> None:
    assert np.array_equal(tf.io.parse_tensor(read[0]["embedding"], tf.float32), np.eye(3))


def test_tfds_would_have_written_the_same_files(directory: Path, tmp_path: Path) -> None:
    def metadata(folder: Path) -> dict[str, Any]:
        labels = {path.name: path.read_bytes() for path in folder.glob("*.labels.txt")}
        return {**labels, "features": json.loads((folder / "features.json").read_text())}

    declared_features().save_config(str(tmp_path))
    assert metadata(directory) == metadata(tmp_path)
    names = {"objects-label.labels.txt", "weather-sky.labels.txt", "scenes.labels.txt"}
    assert names < metadata(directory).keys()


def test_tfds_finds_the_names_of_nested_labels(directory: Path) -> None:
    features = tfds.builder_from_directory(str(directory)).info.features
    assert features["objects"]["label"].names == ["car", "bus"]
    assert features["weather"]["sky"].names == ["blue", "gray"]
    assert features["scenes"].feature.names == ["indoor", "outdoor"]
    assert features["label"].names == list(CLASSES)


def test_lists_of_lists_of_any_length_are_one_flat_list_to_tfds() -> None:
    def schema(shape: tuple[None, ...]) -> ExampleSchema:
        return ExampleSchema((Feature("grid", FeatureKind.INT64, shape=shape),))

    assert features_json(schema((None, None))) == features_json(schema((None,)))
