"""Every kind of feature and every ready schema: declared, built, and read back by four readers, each equal to what was declared."""

from __future__ import annotations

import functools
import json
import operator
import tempfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.feature_extraction.text import CountVectorizer

import shardwright as sw
from schemas.ready import READY_SCHEMAS
from shardwright.errors import UsageError
from shardwright.reader.values import SparseColumn
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.verify import verify
from tests.build_helpers import build, png_of

K = FeatureKind
# A build takes a second, and what could fail depends on values, of which each has up to six rows.
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SPECIES = ("ant", "bee", "cow", "dög")
_FLOAT32_MAX = float(np.finfo(np.float32).max)
WORDS = st.lists(st.sampled_from(["cat", "dog", "tree", "naïve", "42"]), max_size=5).map(" ".join)
FRACTIONS = st.floats(0, 1, width=32)


@st.composite
def boxes(draw: st.DrawFn) -> list[float]:
    low, high = sorted((draw(FRACTIONS), draw(FRACTIONS)))
    left, right = sorted((draw(FRACTIONS), draw(FRACTIONS)))
    return [low, left, high, right]


def integers(dtype: str) -> st.SearchStrategy[int]:
    ends = np.iinfo(dtype)
    return st.integers(int(ends.min), min(int(ends.max), 2**63 - 1))


PAIRS = st.lists(st.lists(integers("int64"), min_size=2, max_size=2), min_size=2, max_size=2)


def floats32(size: int | None = None) -> st.SearchStrategy[Any]:
    one = st.floats(width=32, allow_nan=False)
    return one if size is None else st.lists(one, min_size=size, max_size=size)


# Feature, the Arrow type of its column, and what may stand in a row.
CASES: list[tuple[Feature, pa.DataType, st.SearchStrategy[Any]]] = [
    *((Feature(name, K.INT64, dtype=name), pa.from_numpy_dtype(name), integers(name))
      for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
    (Feature("flag", K.INT64, dtype="bool"), pa.bool_(), st.booleans()),
    (Feature("float32", K.FLOAT32), pa.float32(), floats32()),
    (Feature("double", K.FLOAT32, dtype="float64"), pa.float64(), st.floats(-_FLOAT32_MAX, _FLOAT32_MAX)),
    (Feature("ints", K.INT64, shape=(None,)), pa.list_(pa.int64()), st.lists(integers("int64"), max_size=4)),
    (Feature("floats", K.FLOAT32, shape=(None,)), pa.list_(pa.float32()), st.lists(floats32(), max_size=4)),
    (Feature("vector", K.FLOAT32, shape=(3,)), pa.list_(pa.float32()), floats32(3)),
    (Feature("matrix", K.INT64, shape=(2, 2)), pa.list_(pa.list_(pa.int64())), PAIRS),
    (Feature("text", K.TEXT), pa.string(), st.text(max_size=9)),
    (Feature("texts", K.TEXT, shape=(None,)), pa.list_(pa.string()), st.lists(st.text(max_size=4), max_size=3)),
    (Feature("bytes", K.BYTES), pa.binary(), st.binary(max_size=9)),
    (Feature("species", K.CLASS_LABEL, names=SPECIES), pa.string(), st.sampled_from(SPECIES)),
    (Feature("tags", K.MULTI_LABEL, names=SPECIES), pa.list_(pa.string()), st.lists(st.sampled_from(SPECIES), unique=True)),
    (Feature("objects/bbox", K.BOX, shape=(None, 4), column="boxes"), pa.list_(pa.list_(pa.float32())), st.lists(boxes(), max_size=3)),
    (Feature("place", K.BOX, shape=(4,)), pa.list_(pa.float32()), boxes()),
    (Feature("tensor", K.TENSOR, shape=(2,), dtype="float32"), pa.list_(pa.float32()), floats32(2)),
    (Feature("ragged", K.TENSOR, shape=(None,), dtype="int64"), pa.list_(pa.int64()), st.lists(integers("int64"), max_size=4)),
    (Feature("fallback", K.INT64, default=7), pa.int64(), st.none() | integers("int64")),
    (Feature("words", K.TOKENS, column="text_b", vocabulary=VocabularyRule()), pa.string(), WORDS),
    (Feature("bag", K.BAG_OF_WORDS, column="text_b", vocabulary=VocabularyRule(max_size=3), keys=("bag/ids", "bag/n")), pa.string(), WORDS),
    (Feature("mask", K.MASK), pa.string(), st.just("mask.png")),
    (Feature("second", K.IMAGE, column="other"), pa.string(), st.just("1.png")),
]  # fmt: skip
SCHEMA = ExampleSchema(
    (
        Feature("image", K.IMAGE, Source.IMAGE),
        Feature("id", K.TEXT, Source.ID),
        *(feature for feature, _, _ in CASES),
    )
)
COLUMNS = {feature.column_name: (kind, values) for feature, kind, values in CASES}
MASK = np.arange(64, dtype=np.uint8).reshape(8, 8)


def make_input(root: Path, rows: list[dict[str, Any]]) -> None:
    for number in range(len(rows) + 2):
        (root / f"{number}.png").write_bytes(png_of(5 * number))
    file = BytesIO()
    Image.fromarray(MASK).save(file, "PNG")
    (root / "mask.png").write_bytes(file.getvalue())
    columns = {
        name: pa.array([row[name] for row in rows], kind) for name, (kind, _) in COLUMNS.items()
    }
    pq.write_table(
        pa.table({"path": [f"{number}.png" for number in range(len(rows))], **columns}),
        root / "t.parquet",
    )
    (root / "schema.json").write_text(json.dumps(SCHEMA.to_json()))


def stored_form(dataset: sw.Dataset, feature: Feature, value: Any, image_root: Path) -> Any:
    """What a row's value must be when it is read, as plain lists."""
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
    """Arrays and tensors as lists, texts as bytes."""
    if isinstance(value, (tf.SparseTensor, SparseColumn)):
        dense = (
            tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value.to_dense()
        )
        return plain(dense)
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    value = value.numpy() if tf.is_tensor(value) else value
    if isinstance(value, np.ndarray):
        return [plain(row) for row in value] if value.dtype == object else value.tolist()
    return value.encode() if isinstance(value, str) else value


def parsed_form(feature: Feature, value: Any) -> Any:
    """What `tf.io.parse_example` leaves serialized."""
    if feature.kind != K.TENSOR:
        return value
    return [tf.io.parse_tensor(data, feature.dtype).numpy().tolist() for data in value]


@FEW
@given(
    st.lists(
        st.fixed_dictionaries({name: values for name, (_, values) in COLUMNS.items()}),
        min_size=1,
        max_size=6,
    )
)
def test_every_kind_of_feature(rows: list[dict[str, Any]]) -> None:
    rows[0]["text_b"] = "cat dog tree naïve 42"  # so that no vocabulary is empty
    with tempfile.TemporaryDirectory() as folder:
        root, output = Path(folder, "in"), Path(folder, "out")
        root.mkdir()
        make_input(root, rows)
        assert build(root / "t.parquet", output, "--schema", root / "schema.json") == 0
        assert not list(verify(str(output)).faults)
        dataset = sw.open(str(output))
        by_id = {f"{number}.png".encode(): row for number, row in enumerate(rows)}
        (loaded,) = sw.load(str(output), batch_size=len(rows), decode=False)
        (shard,) = dataset.shard_names("train")
        serialized = list(tf.data.TFRecordDataset(str(output / shard.shard)))
        parsed = tf.io.parse_example(serialized, dataset.parsing_spec())
        read = dataset.to_numpy("train")
        (tensors,) = sw.Reader(
            str(output), "train", global_batch_size=len(rows), epochs=1
        ).tf_data()
        for reader, batch in (
            ("load", loaded),
            ("parse_example", parsed),
            ("reader", read),
            ("reader as tf.data", tensors),
        ):
            ids = plain(batch["id"])
            assert sorted(ids) == sorted(by_id)
            for feature in SCHEMA.features[2:]:
                found = plain(batch[feature.name])
                if not reader.startswith("reader"):
                    found = parsed_form(feature, found)
                if feature.kind == K.BAG_OF_WORDS:
                    wanted = bags_of(
                        [by_id[name]["text_b"] for name in ids], rows, dataset.vocabulary("bag")
                    )
                else:
                    wanted = [
                        stored_form(dataset, feature, by_id[name][feature.column_name], root)
                        for name in ids
                    ]
                assert found == wanted, (reader, feature.name)


def bags_of(texts: list[str], rows: list[dict[str, Any]], names: tuple[str, ...]) -> Any:
    """scikit-learn's counts, its vocabulary learned from the same texts."""
    vectorizer = CountVectorizer(max_features=3, vocabulary=None).fit(
        [row["text_b"] for row in rows]
    )
    assert sorted(names) == list(names)
    assert len(names) == len(vectorizer.vocabulary_)
    counts = CountVectorizer(vocabulary=names).transform(texts)
    return counts.toarray().astype(float).tolist()


def tfds_reads_the_same(
    output: Path, examples: dict[bytes, dict[str, Any]], names: Iterable[str]
) -> None:
    """TensorFlow Datasets, which knows nothing but the directory, gives every feature that `sw.load` gives."""
    read = list(tfds.as_numpy(tfds.builder_from_directory(str(output)).as_dataset(split="train")))
    assert {example["id"] for example in read} == examples.keys()
    for example in read:
        for name in ("image", *names):
            found = functools.reduce(operator.getitem, name.split("/"), example)
            assert plain(found) == plain(examples[example["id"]][name]), name


READY: dict[str, dict[str, list[Any]]] = {
    "image_classification": {"label": ["a", "b"], "age": [3, 4]},
    "multi_label": {"labels": [["b", "a"], []]},
    "image_text": {"caption": ["a cat", "ein Hund"]},
    "detection": {"objects/bbox": [[[0.0, 0.0, 1.0, 1.0]], []], "objects/label": [["a"], []]},
    "segmentation": {"mask": ["mask.png", "mask.png"]},
    "image_pairs": {"second_image": ["1.png", "0.png"]},
    "unlabeled": {"ignored": [1, 2]},
    "tabular": {"color": ["red", "blue"], "height": [0.5, 1.5]},
}
FEATURES = {
    "image_classification": {"label": [0, 1], "age": [3, 4]},
    "multi_label": {"labels": [[0, 1], []]},
    "image_text": {"text": [b"a cat", b"ein Hund"]},
    "detection": {"objects/bbox": [[[0.0, 0.0, 1.0, 1.0]], []], "objects/label": [[0], []]},
    "segmentation": {"segmentation_mask": [MASK[..., None].tolist()] * 2},
    "image_pairs": {},
    "unlabeled": {},
    "tabular": {"color": [1, 0], "height": [0.5, 1.5]},
}


@pytest.mark.parametrize("name", READY_SCHEMAS)
def test_every_ready_schema(name: str, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(png_of(5 * number))
    Image.fromarray(MASK).save(tmp_path / "mask.png")
    pq.write_table(pa.table({"path": ["0.png", "1.png"], **READY[name]}), tmp_path / "t.parquet")
    assert build(tmp_path / "t.parquet", tmp_path / "out", "--schema", name) == 0
    assert not list(verify(str(tmp_path / "out")).faults)
    examples = {example["id"].numpy(): example for example in sw.load(str(tmp_path / "out"))}
    wanted = FEATURES[name]
    assert examples[b"0.png"].keys() == {"image", "id", *wanted} | (
        {"second_image"} if name == "image_pairs" else set()
    )
    for feature, values in wanted.items():
        assert [plain(examples[image_id][feature]) for image_id in (b"0.png", b"1.png")] == values
    tfds_reads_the_same(tmp_path / "out", examples, wanted)
    if name == "image_pairs":
        assert plain(examples[b"0.png"]["second_image"]) == plain(examples[b"1.png"]["image"])


def test_a_dataset_without_a_label_knows_its_only_classes(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(png_of(0))
    rows = {"path": ["0.png"], "objects/bbox": [[[0.0, 0.0, 1.0, 1.0]]], "objects/label": [["a"]]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    assert build(tmp_path / "t.parquet", tmp_path / "out", "--schema", "detection") == 0
    dataset = sw.open(str(tmp_path / "out"))
    assert (dataset.num_classes, dataset.class_names, dataset.class_counts("train")) == (
        1,
        ("a",),
        {},
    )
    assert sw.Reader(str(tmp_path / "out"), "train", global_batch_size=1).num_classes == 1


def test_datasets_of_other_words_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(png_of(0))
    for name in ("a", "b"):
        pq.write_table(pa.table({"path": ["0.png"], "labels": [[name]]}), tmp_path / "t.parquet")
        assert (
            build(
                tmp_path / "t.parquet", tmp_path / name, "--schema", "multi_label", "--name", "same"
            )
            == 0
        )
    with pytest.raises(UsageError, match="has another vocabulary of 'labels' than"):
        sw.Reader({str(tmp_path / "a"): 1, str(tmp_path / "b"): 1}, "train", global_batch_size=1)
