"""TFRecord files as INPUT: roles and types of features, and rejects of records that do not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.format.records import FRAME_BYTES, scan_records
from shardwright.format.schema import FeatureKind
from shardwright.sizes import counted
from shardwright.transforms.inputs.formats import tfrecords
from tests.support.build_helpers import png_of
from tests.support.helpers import rejects_of, rows_of
from tests.support.listings import columns_of, details_of, detect, list_source, listed
from tests.support.tfrecord_makers import (
    NONE,
    example,
    pictures,
    read_back,
    sequence_example,
    source_of,
    write_records,
)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_images_are_byte_ranges(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "in" / "x.tfrecord", pictures(5), compression)
    source = source_of(path, tmp_path / "spool")
    rows = rows_of(list_source(source))
    assert read_back(rows) == [png_of(n) for n in range(5)]
    expected = [(f"x.tfrecord#{n}", str(n % 3), n) for n in range(5)]
    assert columns_of(rows, "id", "label", "row") == expected
    assert {row["uri"] == str(path) for row in rows} == {not compression}
    assert {row["etag"].startswith("spool:") for row in rows} == {bool(compression)}
    assert not source.states_splits


def test_columns_are_learned_from_the_first_records(tmp_path: Path) -> None:
    records = [
        example(
            img=png_of(n), mask=png_of(n + 50), n=n, price=n / 2, words=[b"a"] * n, sizes=[n] * 2,
            note="BMW é".encode(), name=b"%d" % n, where=b"Val",
        )
        for n in range(4)
    ]  # fmt: skip
    path = write_records(tmp_path / "x.tfrecord", records)
    source = source_of(path, id="name", split="where", image="img")
    assert source.name == "tfrecord"
    assert {feature.name: (feature.kind, feature.shape) for feature in source.features} == {
        "mask": (FeatureKind.IMAGE, ()), "n": (FeatureKind.INT64, ()),
        "note": (FeatureKind.BYTES, ()), "price": (FeatureKind.FLOAT32, ()),
        "sizes": (FeatureKind.INT64, (None,)), "words": (FeatureKind.BYTES, (None,)),
    }  # fmt: skip
    assert source.states_splits
    assert source.description == (
        f"a TFRecord file at {path}, image='img', id='name', split='where'; "
        "features from mask, n, note, price, sizes, words"
    )
    (batch,) = source.list_part(str(path))
    schema = source.schema
    assert (batch.schema.names, batch.schema.types) == (schema.names, schema.types)
    row = rows_of([batch])[3]
    assert columns_of([row], "id", "split", "x/n", "x/price", "x/words") == [
        ("3", "validation", 3, 1.5, [b"a"] * 3)
    ]
    assert read_back([row["x/mask"]]) == [png_of(53)]


FITTING = {"image": png_of(1), "label": 1, "words": [b"a", b"b"]}


@pytest.mark.parametrize(("features", "columns", "message"), [
    ({"a": b"text", "n": 1}, {}, "no column of the records of .* holds encoded images .*; "
     "it has the columns 'a', 'n'"),
    ({"one": png_of(1), "two": png_of(2)}, {},
     "several columns of images, 'one', 'two': choose the main one with --image-column"),
    ({"image": [png_of(1), png_of(2)]}, {}, "no column of .* holds encoded images"),
    ({"image": png_of(1)}, {"image": "picture"},
     "--image-column 'picture' is not in the records of .*, which has the columns 'image'"),
    (FITTING, {"image": "label"}, "--image-column 'label' of .* does not hold encoded images"),
    (FITTING, {"label": "words"}, "column 'words' is of type list.*labels and splits must be text"),
    (FITTING, {"id": "no"}, "--id-column 'no' is not in the records"),
    (FITTING, {"size": "label"}, "--size-column needs a table"),
])  # fmt: skip
def test_invalid_columns(
    tmp_path: Path, features: Mapping[str, Any], columns: dict[str, str], message: str
) -> None:
    path = write_records(tmp_path / "x.tfrecord", [example(**features)])
    with pytest.raises((BuildError, UsageError), match=message):
        source_of(path, **columns)


def test_an_image_root_has_no_meaning(tmp_path: Path) -> None:
    path = write_records(tmp_path / "x.tfrecord", pictures(1))
    told = r"--image-root needs image paths, but INPUT .*x.tfrecord holds the images themselves"
    with pytest.raises(UsageError, match=told):
        detect(str(path), NONE, image_root=str(tmp_path))


def test_a_flipped_byte_costs_one_record(tmp_path: Path) -> None:
    path = write_records(tmp_path / "x.tfrecord", pictures(5))
    with path.open("rb") as file:
        third = list(scan_records(file))[2]
    data = bytearray(path.read_bytes())
    data[third.offset + 30] ^= 1
    path.write_bytes(data)
    parts = list(list_source(source_of(path)))
    assert [row["row"] for row in rows_of(parts)] == [0, 1, 3, 4]
    (reject,) = rejects_of(parts)
    told = f"record 2, at byte {third.offset}: the checksum of the record's data is wrong"
    assert (reject.id, reject.uri, str(reject.reason), reject.detail) == (
        "x.tfrecord#2", str(path), "corrupt", told
    )  # fmt: skip


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_broken_length_ends_a_file(tmp_path: Path, compression: str) -> None:
    """The next record's start is unknown: one reject stands for all that cannot be read."""
    path = write_records(tmp_path / "x.tfrecord", pictures(50), compression)
    data = bytearray(path.read_bytes())
    if compression:
        data = data[: len(data) // 2]
    else:
        data[(FRAME_BYTES + len(pictures(1)[0])) + 3] ^= 1
    path.write_bytes(data)
    parts = list(list_source(source_of(path, tmp_path / "spool")))
    rows, (reject,) = rows_of(parts), rejects_of(parts)
    assert 0 < len(rows) < 50
    assert read_back(rows) == [png_of(n) for n in range(len(rows))]
    assert (reject.id, str(reject.reason)) == ("x.tfrecord", "incomplete")
    assert reject.detail.startswith(f"record {len(rows)}, at byte ")
    assert reject.detail.endswith(f"; readable before that: {counted(len(rows), 'record')}")


def test_an_empty_file_is_listed_and_no_fault(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [])
    write_records(tmp_path / "b.tfrecord", pictures(2))
    rows, rejects = listed(source_of(tmp_path))
    assert rejects == {"a.tfrecord": "other_file"}
    assert [row["id"] for row in rows] == ["b.tfrecord#0", "b.tfrecord#1"]
    assert list(source_of(f"{tmp_path}/b*").parts()) == [f"{tmp_path}/b.tfrecord"]


Record = bytes | Mapping[str, Any] | str
NO_IMAGE = "the image column is empty"


def made_of(record: Record) -> bytes:
    """Return a record: its bytes, an example of these features, or a SequenceExample."""
    if isinstance(record, str):
        return sequence_example()
    return record if isinstance(record, bytes) else example(**record)


@pytest.mark.parametrize(("record", "reason", "detail"), [
    (b"no example", "bad_value", "not a tf.Example"),
    (b"", "bad_value", NO_IMAGE),
    ({"label": 1}, "bad_value", NO_IMAGE),
    ({"image": 3, "label": 1}, "bad_value", "'image' is a int64_list, but a bytes_list in"),
    ({"image": b"", "label": 1}, "empty_file", "the file has no bytes"),
    ({"image": [b"a", b"b"], "label": 1}, "bad_value", "'image' has 2 values, but one in"),
    ({"image": png_of(1), "label": b"cat"}, "bad_value",
     "'label' is a bytes_list, but a int64_list in the first records"),
    ({"image": png_of(1), "label": [1, 2]}, "bad_value",
     "'label' has 2 values, but one in the first records"),
    ({"image": png_of(1), "label": 1, "more": 2}, "bad_value",
     "it has the feature 'more', which the first records lack"),
    ("sequence", "bad_value", "a tf.SequenceExample"),
])  # fmt: skip
def test_a_later_record_that_does_not_fit(
    tmp_path: Path, record: Record, reason: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfrecords, "LOOK_RECORDS", 3)
    records = [*pictures(3), made_of(record), *pictures(1, 4)]
    path = write_records(tmp_path / "x.tfrecord", records)
    source = source_of(path)
    assert [row["row"] for row in rows_of(list_source(source))] == [0, 1, 2, 4]
    ((found, told),) = details_of(source).values()
    assert (list(details_of(source)), found) == (["x.tfrecord#3"], reason)
    assert detail in told


@pytest.mark.parametrize(("records", "message"), [
    (["sequence"], "holds tf.SequenceExample records, which are not supported: write one"),
    ([b"text", b"more text"], "no tf.Example with features in the first 2 records"),
    ([], "has no records, and neither has any other of 1 file"),
    (png_of(1), r"x.tfrecord is not a valid TFRecord file: record at byte 0: the checksum of the"),
])  # fmt: skip
def test_files_without_examples(
    tmp_path: Path, records: list[Record] | bytes, message: str
) -> None:
    path = tmp_path / "x.tfrecord"
    if isinstance(records, bytes):
        path.write_bytes(records)
    else:
        write_records(path, [made_of(record) for record in records])
    with pytest.raises(UsageError, match=message):
        source_of(path)
    path.unlink()
    with pytest.raises(UsageError, match=r"holds no files; give a TFRecord file"):
        detect(str(tmp_path), NONE, input_format="tfrecord")


def test_features_that_protobuf_merges(tmp_path: Path) -> None:
    """Read a record whose features come in two parts; its image still is one run of bytes."""
    record = example(image=png_of(1)) + example(label=2)
    path = write_records(tmp_path / "x.tfrecord", [record])
    (row,) = rows_of(list_source(source_of(path)))
    assert (read_back([row]), row["label"]) == ([png_of(1)], "2")


def test_folders_of_tfx_and_one_that_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, folder in enumerate(("Split-train", "Split-eval", "extra")):
        name = f"{folder}/data_tfrecord-00000-of-00001.gz"
        write_records(tmp_path / "in" / name, pictures(1, number), "GZIP")
    rows = rows_of(list_source(source_of(tmp_path / "in", tmp_path / "spool")))
    assert {row["id"].partition("/")[0]: row["split"] for row in rows} == {
        "Split-train": "train", "Split-eval": "eval",
    }  # fmt: skip
    assert "in extra, too, which are not read" in caplog.text


def with_names(root: Path, names: bytes, labels: list[float]) -> Path:
    """Write records, and TFDS's files with these class names, one per line."""
    records = [example(image=png_of(row), label=one) for row, one in enumerate(labels)]
    write_records(root / "x.tfrecord", records)
    label = {"classLabel": {"numClasses": "3"}, "pythonClassName": "ClassLabel"}
    content = {"featuresDict": {"features": {"label": label}}, "pythonClassName": "FeaturesDict"}
    (root / "features.json").write_text(json.dumps(content))
    (root / "label.labels.txt").write_bytes(names)
    return root


@pytest.mark.parametrize("kind", [int, float])
def test_class_names_beside_the_files(tmp_path: Path, kind: type[float]) -> None:
    source = source_of(with_names(tmp_path, b"b\na\nc\n", list(map(kind, [0, 1, 2, -1, 7]))))
    assert source.class_names == ("b", "a", "c")
    assert [row["label"] for row in rows_of(list_source(source))] == ["b", "a", "c", None, "7"]


def test_two_classes_of_one_name_stay_two(tmp_path: Path) -> None:
    """As the two cranes of ImageNet."""
    source = source_of(with_names(tmp_path, b"crane\ncat\ncrane\n", [0, 1, 2]))
    names = ("crane (0)", "cat", "crane (2)")
    assert source.class_names == names
    assert tuple(row["label"] for row in rows_of(list_source(source))) == names


def test_class_names_in_another_encoding(tmp_path: Path) -> None:
    told = r"label.labels.txt must hold class names, one per line: not UTF-8: save it as UTF-8"
    with pytest.raises(UsageError, match=told):
        source_of(with_names(tmp_path, b"\xff\xfe\xff", [0]))


def test_damaged_files_beside_the_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_records(tmp_path / "x.tfrecord", pictures(1))
    (tmp_path / "features.json").write_text("{")
    (tmp_path / "manifest.json").write_text(json.dumps({"of": "another program"}))
    assert len(rows_of(list_source(source_of(tmp_path)))) == 1
    [message] = {record.getMessage() for record in caplog.records}
    assert "class names follow from the records alone" in message
    assert f"{tmp_path}/features.json" in message
