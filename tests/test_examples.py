"""Encoding: the same messages as tf.train.Example, framed as TensorFlow reads them, in bytes that repeat."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.image_classification import image_classification
from shardwright.schema import ARROW_TYPES, ExampleSchema, Feature, FeatureKind
from tests.helpers import references
from transforms.images import ImageInfo
from transforms.references import extra_name
from transforms.writing.examples import ExampleEncoder, FramedRecords

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = {
    FeatureKind.INT64: INT64,
    FeatureKind.FLOAT32: FLOAT32,
    FeatureKind.BYTES: st.binary(max_size=12),
    FeatureKind.TEXT: TEXT,
}
EXTRAS = tuple(
    Feature(f"{'many ' if shape else 'ein '}{kind} ä", kind, shape=shape)
    for kind in VALUES
    for shape in ((), (None,))
)


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of everything a record holds, by feature name."""
    one = st.fixed_dictionaries(
        {
            "id": TEXT,
            "label_index": st.integers(0, 2),
            "image": st.binary(max_size=300),
            "info": st.builds(
                ImageInfo, TEXT, st.integers(0, 70_000), st.integers(0, 70_000), st.just(3)
            ),
            **{
                f.name: st.lists(VALUES[f.kind], max_size=4) if f.is_list else VALUES[f.kind]
                for f in EXTRAS
            },
        }
    )
    return draw(st.lists(one, min_size=1, max_size=3))


def make_schema(feature_names: str = "tfds") -> ExampleSchema:
    return image_classification(feature_names=feature_names, extras=EXTRAS).with_class_names(
        ("a", "b", "c")
    )


def make_batch(given_rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "label": ["abc"[row["label_index"]] for row in given_rows],
        "label_index": [row["label_index"] for row in given_rows],
    }
    batch = references([row["id"] for row in given_rows], **columns)
    for feature in EXTRAS:
        kind = pa.string() if feature.kind == FeatureKind.TEXT else ARROW_TYPES[feature.kind]
        values = [row[feature.name] for row in given_rows]
        array = pa.array(values, pa.list_(kind) if feature.is_list else kind)
        batch = batch.append_column(pa.field(extra_name(feature.name), array.type), array)
    return batch


def frame(schema: ExampleSchema, given_rows: list[dict[str, Any]]) -> FramedRecords:
    encoder = ExampleEncoder(schema)
    known = encoder.encode_known(make_batch(given_rows))
    measured = encoder.encode_measured([row["info"] for row in given_rows])
    return encoder.frame(known, measured, [row["image"] for row in given_rows])


def records_of(framed: FramedRecords) -> list[bytes]:
    """The bare records; the lengths must cut the pieces exactly."""
    whole, records, start = b"".join(framed.pieces), [], 0
    for length in framed.lengths:
        records.append(whole[start + 12 : start + length - 4])
        start += length
    assert start == len(whole)
    return records


def expected_example(row: dict[str, Any], image_key: str) -> tf.train.Example:
    """What TensorFlow's own protobuf classes make of the row."""
    example = tf.train.Example()
    features = example.features.feature
    features[image_key].bytes_list.value.append(row["image"])
    if image_key == "image":
        features["id"].bytes_list.value.append(row["id"].encode())
        features["label"].int64_list.value.append(row["label_index"])
    else:
        features["image/filename"].bytes_list.value.append(row["id"].encode())
        features["image/format"].bytes_list.value.append(row["info"].format.encode())
        features["image/height"].int64_list.value.append(row["info"].height)
        features["image/width"].int64_list.value.append(row["info"].width)
        features["image/class/label"].int64_list.value.append(row["label_index"])
        features["image/class/text"].bytes_list.value.append(b"abc"[row["label_index"]].to_bytes())
    for feature in EXTRAS:
        values = row[feature.name] if feature.is_list else [row[feature.name]]
        entry = features[feature.name]
        kind = {FeatureKind.INT64: entry.int64_list, FeatureKind.FLOAT32: entry.float_list}.get(
            feature.kind, entry.bytes_list
        )
        kind.SetInParent()
        kind.value.extend(value.encode() if isinstance(value, str) else value for value in values)
    return example


@pytest.mark.parametrize(
    ("feature_names", "image_key"), [("tfds", "image"), ("model-garden", "image/encoded")]
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_rows=rows())
def test_a_record_is_the_message_tensorflow_would_make(
    feature_names: str, image_key: str, given_rows: list[dict[str, Any]]
) -> None:
    framed = frame(make_schema(feature_names), given_rows)
    for record, row in zip(records_of(framed), given_rows, strict=True):
        assert tf.train.Example.FromString(record) == expected_example(row, image_key)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_rows=rows())
def test_offsets_and_checksums_are_those_of_the_image(given_rows: list[dict[str, Any]]) -> None:
    framed = frame(make_schema(), given_rows)
    whole, start = b"".join(framed.pieces), 0
    for row, length, offset, crc in zip(
        given_rows, framed.lengths, framed.image_offsets, framed.image_crcs, strict=True
    ):
        image = row["image"]
        assert whole[start + offset : start + offset + len(image)] == image
        assert start + offset + len(image) == start + length - 4, (
            "the image is the record's last entry"
        )
        assert crc == google_crc32c.value(image)
        start += length


def sample_rows(number: int) -> list[dict[str, Any]]:
    one = {
        FeatureKind.INT64: -1,
        FeatureKind.FLOAT32: 0.5,
        FeatureKind.BYTES: b"\0\xff",
        FeatureKind.TEXT: "ü",
    }
    return [
        {
            "id": f"{index}/ä.png",
            "label_index": index % 3,
            "image": bytes([index]) * (index * 1000),
            "info": ImageInfo("png", 3, 4, 3),
            **{f.name: [one[f.kind]] * (index % 3) if f.is_list else one[f.kind] for f in EXTRAS},
        }
        for index in range(number)
    ]


def test_tensorflow_reads_the_file(tmp_path: Path) -> None:
    given_rows = sample_rows(70)
    path = tmp_path / "records"
    path.write_bytes(b"".join(frame(make_schema(), given_rows).pieces))
    read = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    assert [tf.train.Example.FromString(record) for record in read] == [
        expected_example(row, "image") for row in given_rows
    ]


def test_image_bytes_are_never_copied() -> None:
    given_rows = sample_rows(5)
    pieces = frame(make_schema(), given_rows).pieces
    for row in given_rows:
        assert any(piece is row["image"] for piece in pieces), (
            "the piece must be the very object that was read"
        )


def test_not_a_number_keeps_its_place() -> None:
    schema = image_classification(extras=(Feature("f", FeatureKind.FLOAT32),))
    batch = references(["a"], labelled=True).append_column(
        extra_name("f"), pa.array([float("nan")], pa.float32())
    )
    encoder = ExampleEncoder(schema)
    record = records_of(
        encoder.frame(
            encoder.encode_known(batch),
            encoder.encode_measured([ImageInfo("png", 1, 1, 3)]),
            [b"i"],
        )
    )[0]
    value = tf.train.Example.FromString(record).features.feature["f"].float_list.value
    assert len(value) == 1
    assert value[0] != value[0]


@pytest.mark.parametrize("feature_names", ["tfds", "model-garden"])
def test_a_chunk_without_any_good_image_has_no_bytes(feature_names: str) -> None:
    encoder = ExampleEncoder(make_schema(feature_names))
    framed = encoder.frame([], encoder.encode_measured([]), [])
    assert b"".join(framed.pieces) == b""
    assert framed.lengths == []


def test_a_slice_of_a_batch_encodes_as_its_own_rows() -> None:
    encoder = ExampleEncoder(make_schema())
    batch = make_batch(sample_rows(9))
    assert encoder.encode_known(batch.slice(4, 3)) == encoder.encode_known(batch)[4:7]


_PRINT_RECORDS = """
import sys
sys.modules["tensorflow"] = None  # any import of it fails
import pyarrow as pa
from schemas.image_classification import image_classification
from shardwright.schema import Feature, FeatureKind
from transforms.writing.examples import ExampleEncoder
from transforms.images import ImageInfo
extras = tuple(Feature(f"f{number}", FeatureKind.INT64) for number in range(20))
encoder = ExampleEncoder(image_classification(feature_names="model-garden", extras=extras))
columns = {"id": ["a", "b"], "label": ["c", "d"], "label_index": [0, 1], **{f"x/f{number}": [number, 2] for number in range(20)}}
known, measured = encoder.encode_known(pa.RecordBatch.from_pydict(columns)), encoder.encode_measured([ImageInfo("png", 1, 1, 3)] * 2)
print(b"".join(encoder.frame(known, measured, [b"i", b"j"]).pieces).hex())
assert "apache_beam" not in sys.modules
"""


def test_bytes_are_the_same_in_every_process_and_need_no_tensorflow() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _PRINT_RECORDS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    printed = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(printed) == 1
    assert len(printed.pop()) > 1000
