"""Encoding: the messages of tf.train.Example, framed as TensorFlow reads them, in stable bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import google_crc32c
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.schema import ARROW_TYPES, ExampleSchema, Feature, FeatureKind
from shardwright.images.kinds import ImageInfo
from shardwright.schemas.ready import image_classification
from shardwright.transforms.references import extra_name
from shardwright.transforms.write import examples as encoding
from shardwright.transforms.write.examples import (
    ExampleEncoder,
    FramedRecords,
    _encode_lists_by_tfx_bsl,
    _encode_lists_in_python,
)
from tests.support.helpers import references
from tests.support.random_tests import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SIDE = st.integers(0, 70_000)
VALUES = {
    FeatureKind.INT64: INT64, FeatureKind.FLOAT32: FLOAT32, FeatureKind.TEXT: TEXT,
    FeatureKind.BYTES: st.binary(max_size=12),
}  # fmt: skip
EXTRAS = tuple(
    Feature(f"{'many ' if shape else 'ein '}{kind} ä", kind, shape=shape)
    for kind in VALUES
    for shape in ((), (None,))
)
Rows = list[dict[str, Any]]
MANY = {kind: st.lists(value, max_size=4) for kind, value in VALUES.items()}
# Rows of everything a record holds, by feature name.
ROWS = st.lists(st.fixed_dictionaries({
    "id": TEXT, "label_index": st.integers(0, 2), "image": st.binary(max_size=300),
    "info": st.builds(ImageInfo, TEXT, SIDE, SIDE, st.just(3)),
    **{f.name: MANY[f.kind] if f.is_list else VALUES[f.kind] for f in EXTRAS},
}), min_size=1, max_size=3)  # fmt: skip


def make_schema(feature_names: str = "tfds") -> ExampleSchema:
    schema = image_classification(feature_names=feature_names, extras=EXTRAS)
    return schema.with_class_names(("a", "b", "c"))


def make_batch(given_rows: Rows) -> pa.RecordBatch:
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


def frame(schema: ExampleSchema, given_rows: Rows) -> FramedRecords:
    encoder = ExampleEncoder(schema)
    known = encoder.encode_known(make_batch(given_rows))
    measured = encoder.encode_measured([row["info"] for row in given_rows])
    images = [row["image"] for row in given_rows]
    return encoder.frame(known, measured, images, list(map(google_crc32c.value, images)))


def records_of(framed: FramedRecords) -> list[bytes]:
    """Return the bare records; the lengths must cut the pieces exactly."""
    whole, records, start = b"".join(framed.pieces), [], 0
    for length in framed.lengths:
        records.append(whole[start + 12 : start + length - 4])
        start += length
    assert start == len(whole)
    return records


def expected_example(row: dict[str, Any], image_key: str) -> tf.train.Example:
    """Return the message of TensorFlow's own protobuf classes for the row."""
    info, label = row["info"], row["label_index"]
    values: dict[str, Any] = {image_key: row["image"], "id": row["id"], "label": label}
    if image_key != "image":
        values = {
            image_key: row["image"], "image/filename": row["id"], "image/format": info.format,
            "image/height": info.height, "image/width": info.width, "image/class/label": label,
            "image/class/text": "abc"[label],
        }  # fmt: skip
    example = tf.train.Example()
    for name, value in (values | {feature.name: row[feature.name] for feature in EXTRAS}).items():
        kinds = {f.name: f.kind for f in EXTRAS}
        default = FeatureKind.INT64 if isinstance(value, int) else FeatureKind.BYTES
        entry = example.features.feature[name]
        lists = {FeatureKind.INT64: entry.int64_list, FeatureKind.FLOAT32: entry.float_list}
        stored = lists.get(kinds.get(name, default), entry.bytes_list)
        stored.SetInParent()
        several = value if isinstance(value, list) else [value]
        stored.value.extend(one.encode() if isinstance(one, str) else one for one in several)
    return example


@pytest.mark.parametrize(
    ("feature_names", "image_key"), [("tfds", "image"), ("model-garden", "image/encoded")]
)
@examples(30)
@given(given_rows=ROWS)
def test_records_are_tensorflows(feature_names: str, image_key: str, given_rows: Rows) -> None:
    framed = frame(make_schema(feature_names), given_rows)
    for record, row in zip(records_of(framed), given_rows, strict=True):
        assert tf.train.Example.FromString(record) == expected_example(row, image_key)


@examples(30)
@given(given_rows=ROWS)
def test_offsets_and_checksums_are_those_of_the_image(given_rows: Rows) -> None:
    framed = frame(make_schema(), given_rows)
    whole, start = b"".join(framed.pieces), 0
    columns = (framed.lengths, framed.image_offsets, framed.image_crcs)
    for row, length, offset, crc in zip(given_rows, *columns, strict=True):
        image = row["image"]
        assert whole[start + offset : start + offset + len(image)] == image
        assert offset + len(image) == length - 4, "the image is the record's last entry"
        assert crc == google_crc32c.value(image)
        start += length
    assert framed.crc32c == google_crc32c.value(whole)


def sample_rows(number: int) -> Rows:
    one = dict(zip(VALUES, (-1, 0.5, "ü", b"\0\xff"), strict=True))
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
    read = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    found = [tf.train.Example.FromString(record) for record in read]
    assert found == [expected_example(row, "image") for row in given_rows]


def test_image_bytes_are_never_copied() -> None:
    given_rows = sample_rows(5)
    pieces = frame(make_schema(), given_rows).pieces
    for row in given_rows:
        assert any(piece is row["image"] for piece in pieces)


def test_not_a_number_keeps_its_place() -> None:
    schema = image_classification(extras=(Feature("f", FeatureKind.FLOAT32),))
    batch = references(["a"], labelled=True, extras={extra_name("f"): [float("nan")]})
    encoder = ExampleEncoder(schema)
    measured = encoder.encode_measured([ImageInfo("png", 1, 1, 3)])
    known = encoder.encode_known(batch)
    [record] = records_of(encoder.frame(known, measured, [b"i"], [google_crc32c.value(b"i")]))
    value = tf.train.Example.FromString(record).features.feature["f"].float_list.value
    assert len(value) == 1
    assert value[0] != value[0]


@pytest.mark.parametrize("feature_names", ["tfds", "model-garden"])
def test_a_chunk_without_any_good_image_has_no_bytes(feature_names: str) -> None:
    encoder = ExampleEncoder(make_schema(feature_names))
    framed = encoder.frame([], encoder.encode_measured([]), [], [])
    assert b"".join(framed.pieces) == b""
    assert framed.lengths == []


def test_a_slice_of_a_batch_encodes_as_its_own_rows() -> None:
    encoder = ExampleEncoder(make_schema())
    batch = make_batch(sample_rows(9))
    assert encoder.encode_known(batch.slice(4, 3)) == encoder.encode_known(batch)[4:7]


LISTS = [
    pa.array([values, None, [], values * 2, [values[0]]], pa.large_list(kind))
    for kind, values in (
        (pa.int64(), [0, 1, -1, 127, 128, 2**63 - 1, -(2**63)]),
        (pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf"), 1e-45]),
        (pa.binary(), [b"", b"a", b"\0\xff", b"x" * 128, b"y" * 20_000]),
        (pa.large_binary(), [b"", b"a", b"x" * 16_384]),
    )
]


@pytest.mark.parametrize("key", ["", "k", "ä" * 70, "x" * 20_000])
@pytest.mark.parametrize("lists", LISTS, ids=lambda lists: str(lists.type.value_type))
def test_both_encoders_make_the_same_bytes(lists: pa.LargeListArray, key: str) -> None:
    for part in (lists, lists[1:], lists[3:5], lists[:0]):
        assert _encode_lists_in_python(part, key) == _encode_lists_by_tfx_bsl(part, key)


@examples(30)
@given(given_rows=ROWS)
def test_both_encoders_make_the_same_records(given_rows: Rows) -> None:
    """Lists, scalars and text of every kind, short columns stacked."""
    encoder, batch = ExampleEncoder(make_schema("model-garden")), make_batch(given_rows)
    with mock.patch.object(encoding, "_encode_lists", _encode_lists_by_tfx_bsl):
        expected = encoder.encode_known(batch)
    with mock.patch.object(encoding, "_encode_lists", _encode_lists_in_python):
        assert encoder.encode_known(batch) == expected


_PRINT_RECORDS = """
import sys
sys.modules["tensorflow"] = None  # any import of it fails
import pyarrow as pa
from shardwright.schemas.ready import image_classification
from shardwright.format.schema import Feature, FeatureKind
from shardwright.transforms.write.examples import ExampleEncoder
from shardwright.images.kinds import ImageInfo
extras = tuple(Feature(f"f{number}", FeatureKind.INT64) for number in range(20))
encoder = ExampleEncoder(image_classification(feature_names="model-garden", extras=extras))
columns = {f"x/f{number}": [number, 2] for number in range(20)}
columns |= {"id": ["a", "b"], "label": ["c", "d"], "label_index": [0, 1]}
known = encoder.encode_known(pa.RecordBatch.from_pydict(columns))
measured = encoder.encode_measured([ImageInfo("png", 1, 1, 3)] * 2)
print(b"".join(encoder.frame(known, measured, [b"i", b"j"], [0, 0]).pieces).hex())
assert "apache_beam" not in sys.modules
"""
_WITHOUT_TFX_BSL = "import sys; sys.modules['tfx_bsl'] = None\n"  # find_spec returns None for it


@pytest.mark.long
def test_bytes_are_the_same_in_every_process_and_need_no_tensorflow() -> None:
    printed = set()
    for seed, code in (("1", _PRINT_RECORDS), ("2", _WITHOUT_TFX_BSL + _PRINT_RECORDS)):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        printed.add(
            subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        )
    assert len(printed) == 1
    assert len(printed.pop()) > 1000
