"""Every kind of feature and every ready schema: declared, built, and read back by four readers."""

from __future__ import annotations

import functools
import json
import operator
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.feature_extraction.text import CountVectorizer

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.reader.values import SparseColumn
from shardwright.schemas.ready import READY_SCHEMAS
from tests.support.build_helpers import build, png_of
from tests.support.judge import judge
from tests.support.random_tests import examples

K = FeatureKind
SPECIES = ("ant", "bee", "cow", "dög")
_FLOAT32_MAX = float(np.finfo(np.float32).max)
WORDS = st.lists(st.sampled_from(["cat", "dog", "tree", "naïve", "42"]), max_size=5).map(" ".join)


def integers(dtype: str) -> st.SearchStrategy[int]:
    ends = np.iinfo(dtype)
    return st.integers(int(ends.min), min(int(ends.max), 2**63 - 1))


def lists(values: st.SearchStrategy[Any], size: int | None = None) -> st.SearchStrategy[Any]:
    """Make lists of this size, or of up to 4 values."""
    return st.lists(values, min_size=size or 0, max_size=size or 4)


def column(dtype: str, depth: int = 0) -> pa.DataType:
    """Return the Arrow type of a NumPy type, or of lists of it."""
    return pa.list_(column(dtype, depth - 1)) if depth else pa.from_numpy_dtype(dtype)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BAG = {"column": "text_b", "vocabulary": VocabularyRule(max_size=3), "keys": ("bag/ids", "bag/n")}
INT64, FLOAT32 = integers("int64"), st.floats(width=32, allow_nan=False)
# TensorFlow's threads flush subnormal numbers to zero when they cast them to float64.
DOUBLES = st.floats(-_FLOAT32_MAX, _FLOAT32_MAX).filter(
    lambda number: number == 0 or abs(number) >= np.finfo(np.float32).tiny
)
ENDS = lists(st.floats(0, 1, width=32), 2).map(sorted)
BOXES = st.tuples(ENDS, ENDS).map(lambda ends: [ends[0][0], ends[1][0], ends[0][1], ends[1][1]])
SOME_SPECIES = st.lists(st.sampled_from(SPECIES), unique=True)
LIST: dict[str, Any] = {"shape": (None,)}
# Feature, the Arrow type of its column, and the values that may stand in a row.
CASES: list[tuple[Feature, pa.DataType, st.SearchStrategy[Any]]] = [
    *((Feature(name, K.INT64, dtype=name), column(name), integers(name)) for name in INTEGERS),
    (Feature("flag", K.INT64, dtype="bool"), pa.bool_(), st.booleans()),
    (Feature("float32", K.FLOAT32), pa.float32(), FLOAT32),
    (Feature("double", K.FLOAT32, dtype="float64"), pa.float64(), DOUBLES),
    (Feature("ints", K.INT64, **LIST), column("int64", 1), lists(INT64)),
    (Feature("floats", K.FLOAT32, **LIST), column("float32", 1), lists(FLOAT32)),
    (Feature("vector", K.FLOAT32, shape=(3,)), column("float32", 1), lists(FLOAT32, 3)),
    (Feature("matrix", K.INT64, shape=(2, 2)), column("int64", 2), lists(lists(INT64, 2), 2)),
    (Feature("text", K.TEXT), pa.string(), st.text(max_size=9)),
    (Feature("texts", K.TEXT, **LIST), pa.list_(pa.string()), lists(st.text(max_size=4))),
    (Feature("bytes", K.BYTES), pa.binary(), st.binary(max_size=9)),
    (Feature("species", K.CLASS_LABEL, names=SPECIES), pa.string(), st.sampled_from(SPECIES)),
    (Feature("tags", K.MULTI_LABEL, names=SPECIES), pa.list_(pa.string()), SOME_SPECIES),
    (
        Feature("objects/bbox", K.BOX, shape=(None, 4), column="boxes"),
        column("float32", 2),
        lists(BOXES),
    ),
    (Feature("place", K.BOX, shape=(4,)), column("float32", 1), BOXES),
    (
        Feature("tensor", K.TENSOR, shape=(2,), dtype="float32"),
        column("float32", 1),
        lists(FLOAT32, 2),
    ),
    (Feature("ragged", K.TENSOR, dtype="int64", **LIST), column("int64", 1), lists(INT64)),
    (Feature("fallback", K.INT64, default=7), pa.int64(), st.none() | INT64),
    (Feature("words", K.TOKENS, column="text_b", vocabulary=VocabularyRule()), pa.string(), WORDS),
    (Feature("bag", K.BAG_OF_WORDS, **BAG), pa.string(), WORDS),
    (Feature("mask", K.MASK), pa.string(), st.just("mask.png")),
    (Feature("second", K.IMAGE, column="other"), pa.string(), st.just("1.png")),
]
IMAGE, ID = Feature("image", K.IMAGE, Source.IMAGE), Feature("id", K.TEXT, Source.ID)
SCHEMA = ExampleSchema((IMAGE, ID, *(feature for feature, _, _ in CASES)))
TYPES = {feature.column_name: kind for feature, kind, _ in CASES}
VALUES = {feature.column_name: values for feature, _, values in CASES}
MASK = np.arange(64, dtype=np.uint8).reshape(8, 8)


def build_table(root: Path, columns: dict[str, Any], schema: str | Path, *options: str) -> str:
    """Build images and their table, and verify the dataset; return its path."""
    num_rows = len(next(iter(columns.values())))
    for number in range(num_rows + 2):
        (root / f"{number}.png").write_bytes(png_of(5 * number))
    Image.fromarray(MASK).save(root / "mask.png")
    paths = [f"{number}.png" for number in range(num_rows)]
    pq.write_table(pa.table({"path": paths, **columns}), root / "t.parquet")
    assert build(root / "t.parquet", root / "out", "--schema", schema, *options) == 0
    assert not list(judge(str(root / "out")).faults)
    return str(root / "out")


def stored_form(dataset: sw.Dataset, feature: Feature, value: Any, image_root: Path) -> Any:
    """Return a row's value as it must be read, as plain lists."""
    if feature.kind in (K.CLASS_LABEL, K.MULTI_LABEL):
        return SPECIES.index(value) if isinstance(value, str) else sorted(map(SPECIES.index, value))
    if feature.kind in (K.MASK, K.IMAGE):
        return (image_root / value).read_bytes()
    if feature.kind == K.TOKENS:
        names = dataset.vocabulary(feature.name) if value else ()
        return [names.index(word) for word in value.split()]
    if feature.kind == K.FLOAT32 or feature.kind == K.BOX:
        return np.array(value, np.float32).tolist()
    if value is None:
        return feature.default
    if feature.kind == K.TEXT:
        return [text.encode() for text in value] if feature.shape else value.encode()
    return int(value) if isinstance(value, bool) else value


def plain(value: Any) -> Any:
    """Return arrays and tensors as lists, texts as bytes."""
    if isinstance(value, SparseColumn):
        value = tf.SparseTensor(value.indices, value.values, value.dense_shape)
    if isinstance(value, tf.SparseTensor):
        value = tf.sparse.to_dense(value)
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    value = value.numpy() if tf.is_tensor(value) else value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tolist()
    if isinstance(value, (list, np.ndarray)):
        return [plain(row) for row in value]
    return value.encode() if isinstance(value, str) else value


def read_by_all(output: str, num_rows: int) -> dict[str, Any]:
    """Return the one batch of a dataset, by reader."""
    dataset = sw.open(output)
    (shard,) = dataset.shard_names("train")
    serialized = list(tf.data.TFRecordDataset(f"{output}/{shard.shard}"))
    (loaded,) = sw.load(output, batch_size=num_rows, decode=False)
    parsed = tf.io.parse_example(serialized, dataset.parsing_spec())
    for name, dtype in (("tensor", tf.float32), ("ragged", tf.int64)):
        parsed[name] = [tf.io.parse_tensor(data, dtype) for data in parsed[name]]
    reader = sw.Reader(output, "train", global_batch_size=num_rows, epochs=1)
    (tensors,) = reader.tf_data()
    read = dataset.to_numpy("train")
    return {"load": loaded, "parse_example": parsed, "reader": read, "tf_data": tensors}


def bags_of(texts: list[str], names: tuple[str, ...]) -> Any:
    """Return scikit-learn's counts, its vocabulary learned from the same texts."""
    vectorizer = CountVectorizer(max_features=3).fit(texts)
    assert sorted(names) == list(names)
    assert len(names) == len(vectorizer.vocabulary_)
    counts = CountVectorizer(vocabulary=names).transform(texts)
    return counts.toarray().astype(float).tolist()


@pytest.mark.long
@examples(3)  # each is a build and four readings
@given(st.lists(st.fixed_dictionaries(VALUES), min_size=2, max_size=8))
def test_every_kind_of_feature(rows: list[dict[str, Any]]) -> None:
    rows[0]["text_b"] = "cat dog tree naïve 42"  # so that no vocabulary is empty
    columns = {name: [row[name] for row in rows] for name in VALUES}
    arrays = {name: pa.array(values, TYPES[name]) for name, values in columns.items()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
        output = build_table(root, arrays, root / "schema.json")
        dataset = sw.open(output)
        for reader, batch in read_by_all(output, len(rows)).items():
            numbers = [int(image_id.removesuffix(b".png")) for image_id in plain(batch["id"])]
            assert sorted(numbers) == list(range(len(rows)))
            for feature, _, _ in CASES:
                values = columns[feature.column_name]
                if feature.kind == K.BAG_OF_WORDS:
                    wanted = bags_of(values, dataset.vocabulary("bag"))
                else:
                    wanted = [stored_form(dataset, feature, value, root) for value in values]
                found = plain(batch[feature.name])
                assert found == [wanted[number] for number in numbers], (reader, feature.name)


BOX, MASKS = [[0.0, 0.0, 1.0, 1.0]], [MASK[..., None].tolist()] * 2
# Columns of a table, and how its features differ from them; None: there is no such feature.
READY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "image_classification": ({"label": ["a", "b"], "age": [3, 4]}, {"label": [0, 1]}),
    "multi_label": ({"labels": [["b", "a"], []]}, {"labels": [[0, 1], []]}),
    "image_text": ({"caption": ["a", "ä"]}, {"caption": None, "text": [b"a", "ä".encode()]}),
    "detection": (
        {"objects/bbox": [BOX, []], "objects/label": [["a"], []]},
        {"objects/label": [[0], []]},
    ),
    "segmentation": ({"mask": ["mask.png"] * 2}, {"mask": None, "segmentation_mask": MASKS}),
    "image_pairs": ({"second_image": ["1.png", "0.png"]}, {"second_image": None}),
    "unlabeled": ({"ignored": [1, 2]}, {"ignored": None}),
    "records": (
        {"id": ["0.png", "1.png"], "height": [0.5, 1.5]},
        {"id": None, "path": [b"0.png", b"1.png"]},
    ),
    "tabular": ({"color": ["red", "blue"], "height": [0.5, 1.5]}, {"color": [1, 0]}),
}


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", READY_SCHEMAS)
def test_every_ready_schema(name: str, tmp_path: Path) -> None:
    columns, changes = READY[name]
    wanted = {key: value for key, value in (columns | changes).items() if value is not None}
    output = build_table(tmp_path, columns, name)
    loaded = {example["id"].numpy(): example for example in sw.load(output)}
    first, second = loaded[b"0.png"], loaded[b"1.png"]
    assert {key: [plain(first[key]), plain(second[key])] for key in wanted} == wanted
    images = {"records": set(), "image_pairs": {"image", "second_image"}}.get(name, {"image"})
    assert first.keys() == {"id", *wanted, *images}
    if "second_image" in images:
        for example in loaded.values():  # images other than the main one come as bytes
            example["second_image"] = tf.io.decode_image(example["second_image"])
        assert plain(first["second_image"]) == plain(second["image"])
    by_tfds = list(tfds.as_numpy(tfds.builder_from_directory(output).as_dataset(split="train")))
    assert {example["id"] for example in by_tfds} == loaded.keys()
    for example in by_tfds:
        for key, value in loaded[example["id"]].items():
            found = functools.reduce(operator.getitem, key.split("/"), example)
            assert plain(found) == plain(value), key


def test_a_dataset_without_a_label_knows_its_only_classes(tmp_path: Path) -> None:
    columns = {"objects/bbox": [BOX], "objects/label": [["a"]]}
    output = build_table(tmp_path, columns, "detection")
    dataset = sw.open(output)
    found = (dataset.num_classes, dataset.class_names, dataset.class_counts("train"))
    assert found == (1, ("a",), {})
    assert sw.Reader(output, "train", global_batch_size=1).num_classes == 1


@pytest.mark.long
def test_datasets_of_other_words_are_not_mixed(tmp_path: Path) -> None:
    outputs = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        columns = {"labels": [[name]]}
        outputs[build_table(tmp_path / name, columns, "multi_label", "--name", "same")] = 1
    with pytest.raises(UsageError, match="has another vocabulary of 'labels' than"):
        sw.Reader(outputs, "train", global_batch_size=1)
