"""TFRecord files as INPUT: which features are what, and what becomes of records that do not hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.records import FRAME_BYTES, scan_records
from shardwright.schema import FeatureKind
from tests.build_helpers import png_of
from tests.helpers import rejects_of as rejects_among
from tests.helpers import rows_of
from tests.tfrecord_makers import (
    NONE,
    example,
    pictures,
    read_back,
    sequence_example,
    source_of,
    write_records,
)
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.tfrecords.tfrecord_source import TFRecordSource
from transforms.rejects import RejectReason


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_images_are_byte_ranges(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "in" / "x.tfrecord", pictures(5), compression)
    source = source_of(path, tmp_path / "spool")
    rows = rows_of(list_source(source))
    assert read_back(rows) == [png_of(index) for index in range(5)]
    assert [(row["id"], row["label"], row["row"]) for row in rows] == [
        (f"x.tfrecord#{n}", str(n % 3), n) for n in range(5)
    ]
    assert {row["uri"] == str(path) for row in rows} == {not compression}
    assert {row["etag"].startswith("spool:") for row in rows} == {bool(compression)}
    assert source.has_integer_labels
    assert not source.states_splits


def test_columns_are_learned_from_the_first_records(tmp_path: Path) -> None:
    records = [
        example(
            img=png_of(index), mask=png_of(index + 50), n=index, price=index / 2, words=[b"a"] * index, sizes=[index] * 2,
            note="BMW é".encode(), name=b"%d" % index, where=b"Val",
        )
        for index in range(4)
    ]  # fmt: skip
    source = source_of(
        write_records(tmp_path / "x.tfrecord", records), id="name", split="where", image="img"
    )
    assert isinstance(source, TFRecordSource)
    kinds = {feature.name: (feature.kind, feature.shape) for feature in source.features}
    assert kinds == {
        "mask": (FeatureKind.IMAGE, ()),
        "n": (FeatureKind.INT64, ()),
        "note": (FeatureKind.BYTES, ()),
        "price": (FeatureKind.FLOAT32, ()),
        "sizes": (FeatureKind.INT64, (None,)),
        "words": (FeatureKind.BYTES, (None,)),
    }
    assert source.states_splits
    assert source.describe() == (
        f"a TFRecord file at {tmp_path}/x.tfrecord, image='img', id='name', split='where'; features from mask, n, note, price, sizes, words"
    )
    (batch,) = source.list_part(f"{tmp_path}/x.tfrecord")
    assert batch.schema == source.schema
    row = rows_of([batch])[3]
    assert (row["id"], row["split"], row["x/n"], row["x/price"], row["x/words"]) == (
        "3",
        "Val",
        3,
        1.5,
        [b"a"] * 3,
    )
    assert read_back([row["x/mask"]]) == [png_of(53)]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            {"a": b"text", "n": 1},
            r"no feature of .* holds encoded images .*; its records have 'a' \(binary\), 'n' \(int64\)",
        ),
        (
            {"one": png_of(1), "two": png_of(2)},
            "hold several images, 'one', 'two': name the main one by --image-column",
        ),
        ({"image": [png_of(1), png_of(2)]}, "no feature of .* holds encoded images"),
    ],
)
def test_no_image_to_be_found(tmp_path: Path, features: Mapping[str, Any], message: str) -> None:
    path = write_records(tmp_path / "x.tfrecord", [example(**features)])
    with pytest.raises(UsageError, match=message):
        source_of(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"image": "picture"},
            "--image-column 'picture' is not in the records of .*, which have 'image'",
        ),
        ({"image": "label"}, "--image-column 'label' of .* does not hold one encoded image"),
        (
            {"label": "words"},
            "--label-column 'words' of .* must be one whole number or text in each record",
        ),
        ({"id": "no"}, "--id-column 'no' is not in the records"),
        ({"size": "label"}, "--size-column is for a table"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, columns: dict[str, str], message: str) -> None:
    path = write_records(
        tmp_path / "x.tfrecord", [example(image=png_of(1), label=1, words=[b"a", b"b"])]
    )
    with pytest.raises(UsageError, match=message):
        source_of(path, **columns)


def test_an_image_root_has_no_meaning(tmp_path: Path) -> None:
    path = write_records(tmp_path / "x.tfrecord", pictures(1))
    with pytest.raises(
        UsageError,
        match=r"--image-root is for paths of images, and INPUT .*x.tfrecord holds the images themselves",
    ):
        detect_source(str(path), NONE, image_root=str(tmp_path))


def test_a_flipped_byte_costs_one_record(tmp_path: Path) -> None:
    path = write_records(tmp_path / "x.tfrecord", pictures(5))
    with path.open("rb") as file:
        third = list(scan_records(file))[2]
    data = bytearray(path.read_bytes())
    data[third.offset + 30] ^= 1
    path.write_bytes(data)
    parts = list(list_source(source_of(path)))
    assert [row["row"] for row in rows_of(parts)] == [0, 1, 3, 4]
    (reject,) = rejects_among(parts)
    assert (reject.id, reject.uri, reject.reason) == (
        "x.tfrecord#2",
        str(path),
        RejectReason.CORRUPT,
    )
    assert (
        reject.detail
        == f"record 2, at byte {third.offset}: the checksum of the record's data is wrong"
    )


@pytest.mark.parametrize(
    ("compression", "reason"), [("", RejectReason.CORRUPT), ("GZIP", RejectReason.TRUNCATED)]
)
def test_a_broken_length_ends_a_file(
    tmp_path: Path, compression: str, reason: RejectReason
) -> None:
    """Nobody knows where the next record begins; what cannot be read is one reject."""
    path = write_records(tmp_path / "x.tfrecord", pictures(50), compression)
    data = bytearray(path.read_bytes())
    if compression:
        data = data[: len(data) // 2]
    else:
        data[(FRAME_BYTES + len(pictures(1)[0])) + 3] ^= 1
    path.write_bytes(data)
    parts = list(list_source(source_of(path, tmp_path / "spool")))
    (reject,) = rejects_among(parts)
    rows = rows_of(parts)
    assert 0 < len(rows) < 50
    assert read_back(rows) == [png_of(index) for index in range(len(rows))]
    assert (reject.id, reject.reason) == (f"x.tfrecord#{len(rows)}", reason)
    assert reject.detail.endswith("; it and whatever follows in the file is left out")


def test_a_cut_file(tmp_path: Path) -> None:
    path = write_records(tmp_path / "x.tfrecord", pictures(3))
    path.write_bytes(path.read_bytes()[:-3])
    parts = list(list_source(source_of(path)))
    assert len(rows_of(parts)) == 2
    assert [(reject.id, reject.reason) for reject in rejects_among(parts)] == [
        ("x.tfrecord#2", RejectReason.TRUNCATED)
    ]


def test_an_empty_file_is_listed_and_no_fault(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [])
    write_records(tmp_path / "b.tfrecord", pictures(2))
    parts = list(list_source(source_of(tmp_path)))
    assert [(reject.id, reject.reason) for reject in rejects_among(parts)] == [
        ("a.tfrecord", RejectReason.OTHER_FILE)
    ]
    assert [row["id"] for row in rows_of(parts)] == ["b.tfrecord#0", "b.tfrecord#1"]


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        (b"no example", RejectReason.BAD_VALUE, "not a tf.Example"),
        (b"", RejectReason.BAD_VALUE, "its image, 'image', is missing or not one value of bytes"),
        ({"label": 1}, RejectReason.BAD_VALUE, "its image, 'image', is missing"),
        (
            {"image": 3, "label": 1},
            RejectReason.BAD_VALUE,
            "its image, 'image', is missing or not one value of bytes",
        ),
        ({"image": b"", "label": 1}, RejectReason.EMPTY_FILE, "the file has no bytes"),
        (
            {"image": [b"a", b"b"], "label": 1},
            RejectReason.BAD_VALUE,
            "its image, 'image', is missing or not one value of bytes",
        ),
        (
            {"image": png_of(1), "label": b"cat"},
            RejectReason.BAD_VALUE,
            "'label' is a bytes_list, and a int64_list in the first records",
        ),
        (
            {"image": png_of(1), "label": [1, 2]},
            RejectReason.BAD_VALUE,
            "'label' has 2 values, and one in the first records",
        ),
        (
            {"image": png_of(1), "label": 1, "more": 2},
            RejectReason.BAD_VALUE,
            "it has the feature 'more', which none of the first records has",
        ),
    ],
)
def test_a_later_record_that_does_not_fit(
    tmp_path: Path,
    record: bytes | Mapping[str, Any],
    reason: RejectReason,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transforms.inputs.tfrecords.tfrecord_source.LOOK_RECORDS", 3)
    odd = record if isinstance(record, bytes) else example(**record)
    path = write_records(tmp_path / "x.tfrecord", [*pictures(3), odd, *pictures(1, 4)])
    parts = list(list_source(source_of(path)))
    assert [row["row"] for row in rows_of(parts)] == [0, 1, 2, 4]
    (reject,) = rejects_among(parts)
    assert (reject.id, reject.reason) == ("x.tfrecord#3", reason)
    assert detail in reject.detail


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: [sequence_example()],
            "holds tf.SequenceExample records; one tf.Example a picture can be read",
        ),
        (
            lambda: [b"text", b"more text"],
            "none of the first 2 records is a tf.Example with features",
        ),
        (list, "has no records, nor has any other of 1 TFRecord files"),
    ],
)
def test_what_is_refused(tmp_path: Path, make: Any, message: str) -> None:
    path = write_records(tmp_path / "x.tfrecord", make())
    with pytest.raises(UsageError, match=message):
        source_of(path)


def test_a_sequence_example_among_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.inputs.tfrecords.tfrecord_source.LOOK_RECORDS", 1)
    path = write_records(tmp_path / "x.tfrecord", [*pictures(1), sequence_example()])
    (reject,) = rejects_among(list_source(source_of(path)))
    assert (reject.id, reject.reason) == ("x.tfrecord#1", RejectReason.BAD_VALUE)
    assert "a tf.SequenceExample" in reject.detail


def test_no_tfrecord_file(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(png_of(1))
    with pytest.raises(
        UsageError,
        match=r"x.tfrecord is no sound TFRecord file: record at byte 0: the checksum of the record's length",
    ):
        source_of(tmp_path / "x.tfrecord")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"holds no files; give a TFRecord file"):
        detect_source(f"{tmp_path}/empty", NONE, input_format="tfrecord")


def test_features_that_protobuf_merges(tmp_path: Path) -> None:
    """A record whose Features come in two parts is as good as any; its image still is one run of bytes."""
    features = [example(image=png_of(1)), example(label=2)]
    record = b"".join(features)
    path = write_records(tmp_path / "x.tfrecord", [record])
    (row,) = rows_of(list_source(source_of(path)))
    assert read_back([row]) == [png_of(1)]
    assert row["label"] == "2"


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (
            ("birds-train.tfrecord-00000-of-00002", "birds-dev_2.tfrecord-00000-of-00001"),
            {"train", "dev_2"},
        ),
        (("train-00000-of-00001", "validation-00000-of-00001"), {"train", "validation"}),
        (("x_train_1.tfrec", "x_val_1.tfrec"), {"train", "validation"}),
        (("Train/a.tfrecord", "test/a.tfrecord"), {"train", "test"}),
        (("a.tfrecord", "train.tfrecord"), None),
    ],
)
def test_splits_from_names(tmp_path: Path, names: tuple[str, ...], splits: set[str] | None) -> None:
    for number, name in enumerate(names):
        write_records(tmp_path / name, pictures(2, 2 * number))
    source = source_of(tmp_path)
    assert source.states_splits == (splits is not None)
    rows = rows_of(list_source(source))
    assert len({row["id"] for row in rows}) == 4
    if splits:
        assert {row["split"] for row in rows} == splits


def test_a_wildcard(tmp_path: Path) -> None:
    for number, name in enumerate(
        (
            "x-train.tfrecord-00000-of-00002",
            "x-train.tfrecord-00001-of-00002",
            "x-test.tfrecord-00000-of-00001",
        )
    ):
        write_records(tmp_path / name, pictures(1, number))
    source = source_of(f"{tmp_path}/x-train.tfrecord-*")
    assert read_back(rows_of(list_source(source))) == [png_of(0), png_of(1)]
    assert len(list(source.parts())) == 2


@pytest.mark.parametrize("labels", ["label.labels.txt", "labels.txt"])
def test_class_names_beside_the_files(tmp_path: Path, labels: str) -> None:
    write_records(
        tmp_path / "x.tfrecord",
        [*pictures(3), example(image=png_of(3), label=-1), example(image=png_of(4), label=7)],
    )
    (tmp_path / labels).write_text("b\na\nc\n")
    source = source_of(tmp_path)
    assert source.class_names == ("b", "a", "c")
    assert not source.has_integer_labels
    assert [row["label"] for row in rows_of(list_source(source))] == ["b", "a", "c", None, "7"]


def test_damaged_files_beside_the_records(tmp_path: Path) -> None:
    write_records(tmp_path / "x.tfrecord", pictures(1))
    (tmp_path / "features.json").write_text("{")
    (tmp_path / "manifest.json").write_text(json.dumps({"of": "another program"}))
    assert len(rows_of(list_source(source_of(tmp_path)))) == 1
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(
        UsageError, match=r"labels.txt is no file of class names, one a line in UTF-8"
    ):
        source_of(tmp_path)
