"""TFRecord files as INPUT: compression, damage, features and their roles, boxes and label maps."""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, RecordFault, StorageError, UsageError
from shardwright.format.records import (
    FRAME_BYTES,
    HEADER_BYTES,
    RecordSpan,
    frame_footer,
    frame_header,
    scan_records,
)
from shardwright.format.schema import FeatureKind
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.formats import tfrecords
from shardwright.transforms.inputs.formats.stated_features import read_label_map
from shardwright.transforms.inputs.formats.tfrecords import (
    is_tfrecord_name,
    open_tfrecord,
    read_frames,
)
from tests.support.build_helpers import png_of
from tests.support.detection_makers import (
    CLASSES,
    HEIGHT,
    LABELS,
    OBJECTS,
    WIDTH,
    expected_boxes,
    picture,
)
from tests.support.listing_cases import Case, by_case, listing, write_files
from tests.support.random_tests import examples
from tests.support.tfrecord_makers import (
    example,
    pictures,
    read_back,
    sequence_example,
    write_records,
)

RECORDS = [bytes([number]) * (7 * number) for number in range(6)]
FRAMES = [frame_header(len(data)) + data + frame_footer(value(data)) for data in RECORDS]
STARTS = [sum(map(len, FRAMES[:number])) for number in range(len(FRAMES) + 1)]
PACKED = {
    "": b"".join(FRAMES), "gzip": gzip.compress(b"".join(FRAMES)),
    "zlib": zlib.compress(b"".join(FRAMES)),
    # The result of `cat a.gz b.gz`, padded with zeros as gzip allows.
    "gzips": b"".join(gzip.compress(b"".join(part)) for part in (FRAMES[:3], FRAMES[3:])),
}  # fmt: skip


def test_names() -> None:
    known = [
        "x.tfrecord", "x.TFRecords", "x.tfrec", "x.tfrecord.gz", "x.tfrecords-1",
        "flowers-train.tfrecord-00003-of-00012", "train-00000-of-01024",
        "train.record", "coco_train.record-00003-of-00100", "data_tfrecord-00000-of-00001.gz",
    ]  # fmt: skip
    others = ["train-00000-of-00002.parquet", "record", "x.tar", "tfrecord", "x.png"]
    assert [name for name in known + others if is_tfrecord_name(name)] == known


def data_of(frames: Iterable[RecordSpan | RecordFault]) -> list[bytes]:
    """Return the data of the sound records."""
    return [frame.data for frame in frames if isinstance(frame, RecordSpan)]


@pytest.mark.parametrize("end", [b"", bytes(600)])
@pytest.mark.parametrize("compression", PACKED)
def test_compression_is_found_by_looking(tmp_path: Path, compression: str, end: bytes) -> None:
    padding = end if compression.startswith("gzip") else b""
    (tmp_path / "x").write_bytes(PACKED[compression] + padding)
    with open_tfrecord(f"{tmp_path}/x", NO_OPTIONS) as (file, found):
        assert found == bool(compression)
        assert data_of(read_frames(file)) == RECORDS


def test_no_such_file(tmp_path: Path) -> None:
    gone = open_tfrecord(f"{tmp_path}/x", NO_OPTIONS)
    with pytest.raises(StorageError, match=r"x cannot be read: No such file or directory"), gone:
        pass


@given(st.integers(0, STARTS[-1] - 1), st.integers(1, 255))
def test_a_changed_byte(position: int, change: int) -> None:
    """Lose the record that it is in; in a length or its checksum, all that follow as well."""
    data = bytearray(b"".join(FRAMES))
    data[position] ^= change
    number = max(index for index, start in enumerate(STARTS) if start <= position)
    in_length = position - STARTS[number] < HEADER_BYTES
    frames = list(read_frames(io.BytesIO(bytes(data)), len(data)))
    assert data_of(frames[:number]) == RECORDS[:number]
    fault = frames[number]
    assert isinstance(fault, RecordFault)
    assert fault.offset == STARTS[number]
    assert (fault.next_offset is None) == in_length
    assert data_of(frames[number + 1 :]) == ([] if in_length else RECORDS[number + 1 :])


@examples(25)
@given(st.sampled_from(list(PACKED)), st.data())
def test_a_cut(compression: str, data: st.DataObject) -> None:
    """Read the records before it; at a record's end nobody can tell that a plain file was cut."""
    whole = PACKED["gzip" if compression == "gzips" else compression]
    length = data.draw(st.integers(HEADER_BYTES, len(whole) - 1))
    with tempfile.NamedTemporaryFile() as cut:
        cut.write(whole[:length])
        cut.flush()
        with open_tfrecord(cut.name, NO_OPTIONS) as (file, _):
            frames = list(read_frames(file))
    spans = data_of(frames)
    assert spans == RECORDS[: len(spans)]
    if not compression and length in STARTS:
        assert len(spans) == STARTS.index(length)
    else:
        assert isinstance(frames[-1], RecordFault)
        assert frames[-1].next_offset is None
        assert len(frames) == len(spans) + 1


def test_a_length_that_memory_cannot_hold() -> None:
    """Reject it before memory is taken, though its checksum is right."""
    file = io.BytesIO(FRAMES[0] + frame_header(1 << 40) + b"data" + frame_footer(0))
    first, second = read_frames(file)
    assert isinstance(first, RecordSpan)
    assert isinstance(second, RecordFault)
    assert "claims 1,099,511,627,776 bytes" in str(second)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_images_are_byte_ranges(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "in" / "x.tfrecord", pictures(5), compression)
    found = listing(path, spool=Folder(f"{tmp_path}/spool"))
    assert read_back(found.rows) == [png_of(n) for n in range(5)]
    expected = [(f"x.tfrecord#{n}", str(n % 3), n) for n in range(5)]
    assert found.of("id", "label", "row") == expected
    assert {row["uri"] == str(path) for row in found.rows} == {not compression}
    assert {row["etag"].startswith("spool:") for row in found.rows} == {bool(compression)}
    assert (found.source.states_splits, found.source.labels_are_indices) == (False, True)


def test_columns_are_learned_from_the_first_records(tmp_path: Path) -> None:
    records = [
        example(
            img=png_of(n), mask=png_of(n + 50), n=n, price=n / 2, words=[b"a"] * n, sizes=[n] * 2,
            note="BMW é".encode(), name=b"%d" % n, where=b"Val",
        )
        for n in range(4)
    ]  # fmt: skip
    found = Case(
        {"x.tfrecord": records}, "x.tfrecord", {"id": "name", "split": "where", "image": "img"},
        rows={"id": [*"0123"], "split": ["validation"] * 4, "x/n": [0, 1, 2, 3],
              "x/price": [0, 0.5, 1, 1.5], "x/words": [[b"a"] * n for n in range(4)]},
        source={"states_splits": True, "description": "a TFRecord file at FOLDER/x.tfrecord, "
                "image='img', id='name', split='where'; features from mask, n, note, price, sizes, "
                "words"},
    ).listed(tmp_path)  # fmt: skip
    assert {one.name: (one.kind, one.shape) for one in found.source.features} == {
        "mask": (FeatureKind.IMAGE, ()), "n": (FeatureKind.INT64, ()),
        "note": (FeatureKind.BYTES, ()), "price": (FeatureKind.FLOAT32, ()),
        "sizes": (FeatureKind.INT64, (None,)), "words": (FeatureKind.BYTES, (None,)),
    }  # fmt: skip
    assert read_back([found.rows[3]["x/mask"]]) == [png_of(53)]


FITTING = {"image": png_of(1), "label": 1, "words": [b"a", b"b"]}


@pytest.mark.parametrize(("features", "columns", "error"), [
    ({"a": b"text", "n": 1}, {}, UsageError(
        "no column of the records of .* holds encoded images .*; it has the columns 'a', 'n'")),
    ({"one": png_of(1), "two": png_of(2)}, {}, UsageError(
        "several columns of images, 'one', 'two': choose the main one with --image-column")),
    ({"image": [png_of(1), png_of(2)]}, {}, UsageError("no column of .* holds encoded images")),
    ({"image": png_of(1)}, {"image": "picture"}, UsageError(
        "--image-column 'picture' is not in the records of .*, which has the columns 'image'")),
    (FITTING, {"image": "label"}, UsageError(
        "--image-column 'label' of .* does not hold encoded images")),
    (FITTING, {"label": "words"}, BuildError(
        "column 'words' is of type list.*labels and splits must be text")),
    (FITTING, {"id": "no"}, UsageError("--id-column 'no' is not in the records")),
    (FITTING, {"size": "label"}, UsageError("--size-column needs a table")),
])  # fmt: skip
def test_invalid_columns(
    tmp_path: Path, features: Any, columns: dict[str, str], error: Exception
) -> None:
    files = {"x.tfrecord": [example(**features)]}
    Case(files, "x.tfrecord", columns, error=error).check(tmp_path)


def test_a_flipped_byte_costs_one_record(tmp_path: Path) -> None:
    path = write_records(tmp_path / "x.tfrecord", pictures(5))
    with path.open("rb") as file:
        third = list(scan_records(file))[2]
    data = bytearray(path.read_bytes())
    data[third.offset + 30] ^= 1
    path.write_bytes(data)
    found = listing(path)
    assert [row["row"] for row in found.rows] == [0, 1, 3, 4]
    told = f"record 2, at byte {third.offset}: the checksum of the record's data is wrong"
    assert found.details == {"x.tfrecord#2": f"corrupt: {told}"}
    assert found.rejects[0].uri == str(path)


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
    found = listing(path, spool=Folder(f"{tmp_path}/spool"))
    number = len(found.rows)
    assert 0 < number < 50
    assert read_back(found.rows) == [png_of(n) for n in range(number)]
    [(reject, text)] = found.details.items()
    assert (reject, text.startswith(f"incomplete: record {number}, at byte ")) == (path.name, True)
    assert text.endswith(f"; readable before that: {number} record{'s' * (number > 1)}")


Record = bytes | Mapping[str, Any]
NO_IMAGE = "bad_value: the image column is empty"


@pytest.mark.parametrize(("record", "told"), [
    (b"no example", "bad_value: not a tf.Example"),
    (b"", NO_IMAGE),
    ({"label": 1}, NO_IMAGE),
    ({"image": 3, "label": 1}, "bad_value: 'image' is a int64_list, but a bytes_list in"),
    ({"image": b"", "label": 1}, "empty_file: the file has no bytes"),
    ({"image": [b"a", b"b"], "label": 1}, "bad_value: 'image' has 2 values, but one in"),
    ({"image": png_of(1), "label": b"cat"},
     "bad_value: 'label' is a bytes_list, but a int64_list in the first records"),
    ({"image": png_of(1), "label": [1, 2]},
     "bad_value: 'label' has 2 values, but one in the first records"),
    ({"image": png_of(1), "label": 1, "more": 2},
     "bad_value: it has the feature 'more', which the first records lack"),
    (None, "bad_value: a tf.SequenceExample"),
])  # fmt: skip
def test_a_later_record_that_does_not_fit(
    tmp_path: Path, record: Record | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfrecords, "LOOK_RECORDS", 3)
    made = sequence_example() if record is None else record
    made = made if isinstance(made, bytes) else example(**made)
    Case(
        {"x.tfrecord": [*pictures(3), made, *pictures(1, 4)]}, "x.tfrecord",
        rows={"row": [0, 1, 2, 4]}, rejects={"x.tfrecord#3": told},
    ).check(tmp_path)  # fmt: skip


def with_names(names: bytes, labels: list[float]) -> dict[str, Any]:
    """Return records, and TFDS's files with these class names, one per line."""
    label = {"classLabel": {"numClasses": "3"}, "pythonClassName": "ClassLabel"}
    return {
        "x.tfrecord": [example(image=png_of(n), label=one) for n, one in enumerate(labels)],
        "features.json": {
            "featuresDict": {"features": {"label": label}}, "pythonClassName": "FeaturesDict",
        },
        "label.labels.txt": names,
    }  # fmt: skip


def of_records(*records: bytes, **expected: Any) -> Case:
    return Case({"x.tfrecord": list(records)}, "x.tfrecord", **expected)


CRANES = ["crane (0)", "cat", "crane (2)"]
CASES = {
    "an image root": of_records(*pictures(1), options={"image_root": "FOLDER"}, error=UsageError(
        r"--image-root needs image paths, but INPUT .*x.tfrecord holds the images themselves"
    )),
    "an empty file": Case(
        {"a.tfrecord": [], "b.tfrecord": pictures(2)},
        rows={"id": ["b.tfrecord#0", "b.tfrecord#1"]}, rejects={"a.tfrecord": "other_file"},
    ),
    "sequences": of_records(sequence_example(), error=UsageError(
        "holds tf.SequenceExample records, which are not supported: write one"
    )),
    "no examples": of_records(b"text", b"more text", error=UsageError(
        "no tf.Example with features in the first 2 records"
    )),
    "no records": of_records(error=UsageError(
        "has no records, and neither has any other of 1 file"
    )),
    "no records at all": Case({"x.tfrecord": png_of(1)}, "x.tfrecord", error=UsageError(
        r"x.tfrecord is not a valid TFRecord file: record at byte 0: the checksum of the"
    )),
    "no files": Case([], options={"input_format": "tfrecord"}, error=UsageError(
        r"holds no files; give a TFRecord file"
    )),
    # Its features come in two parts, which protobuf merges.
    "a merged record": of_records(
        example(image=png_of(1)) + example(label=2),
        rows={"label": ["2"], "num_bytes": [len(png_of(1))]},
    ),
    "folders of TFX and one that is not read": Case(
        {f"{folder}/data_tfrecord-00000-of-00001.gz": pictures(1, number)
         for number, folder in enumerate(("Split-train", "Split-eval", "extra"))},
        rows={"split": ["eval", "train"]}, warns="in extra, too, which are not read",
    ),
    **{
        f"class names {kind}": Case(
            with_names(b"b\na\nc\n", [kind(n) for n in (0, 1, 2, -1, 7)]),
            rows={"label": ["b", "a", "c", None, "7"]},
            source={"class_names": ("b", "a", "c"), "labels_are_indices": False},
        )
        for kind in (int, float)
    },
    # As the two cranes of ImageNet.
    "two classes of one name": Case(
        with_names(b"crane\ncat\ncrane\n", [0, 1, 2]), rows={"label": CRANES},
        source={"class_names": tuple(CRANES)},
    ),
    "another encoding": Case(with_names(b"\xff\xfe\xff", [0]), error=UsageError(
        r"label.labels.txt must hold class names, one per line: not UTF-8: save it as UTF-8"
    )),
    "damaged files beside the records": Case(
        {"x.tfrecord": pictures(1), "features.json": "{", "manifest.json": {"of": "another"}},
        rows={"row": [0]}, warns="class names follow from the records alone",
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case.check(tmp_path, caplog)


# In the form of object_detection/data/mscoco_label_map.pbtxt, with what such files have besides.
LABEL_MAP = """\
# classes
item { name: "/m/01yrx" id: 1 display_name: "cat" }
item {
  id: 3
  name: 'zebra'
  keypoints { id: 7 label: "nose" }
}
item: { id: 2, name: "dog" }
"""
TEXT, BOX = "image__object__class__text", "image__object__bbox__"


def objects(**changes: Any) -> list[bytes]:
    """Return the records of `OBJECTS` as `create_coco_tf_record.py` writes them."""
    made = []
    for name, labels in LABELS.items():
        boxes = expected_boxes(name)
        y_min, x_min, y_max, x_max = map(list, zip(*boxes, strict=True)) if boxes else ([],) * 4
        features = {
            "image__height": HEIGHT, "image__width": WIDTH,
            "image__filename": f"{name}.png".encode(), "image__source_id": f"{name}.png".encode(),
            "image__encoded": picture(), "image__format": b"png", f"{BOX}xmin": x_min,
            f"{BOX}xmax": x_max, f"{BOX}ymin": y_min, f"{BOX}ymax": y_max,
            TEXT: [label.encode() for label in labels],
            "image__object__class__label": [CLASSES.index(label) + 1 for label in labels],
            "image__object__is_crowd": [0 for _ in labels],
        }  # fmt: skip
        made.append(
            example(**{key: one for key, one in {**features, **changes}.items() if one != b""})
        )
    return made


NO_TEXT = {TEXT: b""}
NAMES = ("cat", "dog", "zebra")


@pytest.mark.parametrize(("label_map", "changes", "names", "told"), [
    ("", {}, (), "feature 'image/object/class/text'"),
    (LABEL_MAP, {}, NAMES, "the label map"), (LABEL_MAP, NO_TEXT, NAMES, "the label map"),
    ("", NO_TEXT, (), None),
])  # fmt: skip
@pytest.mark.parametrize("file", ["train.record", "train.record.gz"])
def test_the_same_objects(
    tmp_path: Path, file: str, label_map: str, changes: Any, names: tuple[str, ...], told: str
) -> None:
    """Compressed, their images go to the spool, and their boxes with them."""
    numbers = [[CLASSES.index(label) + 1 for label in labels] for labels in LABELS.values()]
    case = Case({file: objects(**changes), "label_map.pbtxt": label_map}, rows={
        "id": [f"{name}.png" for name in OBJECTS],
        "x/objects/label": numbers if told is None else list(LABELS.values()),
        "x/objects/is_crowd": [[0] * len(labels) for labels in LABELS.values()],
        "x/objects/bbox": [
            [pytest.approx(box, abs=1e-6) for box in expected_boxes(name)] for name in OBJECTS
        ],
    })  # fmt: skip
    found = case.listed(tmp_path)
    spool = Folder(f"{tmp_path}/spool")
    assert listing(tmp_path / "in", spool=spool).rows == found.rows  # from the spool's listing
    features = {one.name: one for one in found.source.features}
    assert features["objects/label"].names == names
    assert told is None or found.source.labels_from == told
    assert not [name for name in features if name.startswith("image/object")]


@pytest.mark.parametrize(("number", "changes", "told"), [
    (0, {f"{BOX}xmin": [0.5]},
     "'image/object/bbox/ymin' has 2 values, and 'image/object/bbox/xmin' has 1"),
    *((0, {TEXT: [text, b"dog"]}, "image/object/class/text has no class in UTF-8 for its box")
      for text in (b" ", "\u72d7".encode("gbk"))),
    (2, {f"{BOX}xmax": [20.0]}, "must be fractions of the image"),
    (2, {f"{BOX}xmax": [-0.5]}, "ymin <= ymax and xmin <= xmax"),
])  # fmt: skip
def test_bad_boxes(tmp_path: Path, number: int, changes: Any, told: str) -> None:
    made = objects()
    made[number] = objects(**changes)[number]
    # The first records, which decide the features, are good.
    found = listing(write_records(tmp_path / "a.record", [*objects() * 40, *made]))
    [text] = found.details.values()
    assert (text.startswith("bad_value"), told in text, len(found.rows)) == (True, True, 122), text


def test_names_of_classes_stay_if_the_first_record_lacks_one(tmp_path: Path) -> None:
    """One bad record does not decide that the classes of all others are numbers."""
    bad = objects(**{TEXT: [b"cat"]})[0]
    found = listing(write_records(tmp_path / "a.record", [bad, *objects()]))
    assert [
        "'image/object/class/text' has 1 values" in text for text in found.details.values()
    ] == [True]
    assert [row["x/objects/label"] for row in found.rows] == list(LABELS.values())


def test_label_maps(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    two = "item { id: 1 name: 'a' } item { id: 2 name: 'a' }"
    dog = "item { id: 1 name: '\u72d7' }"
    for text, names in (
        (LABEL_MAP, {1: "cat", 2: "dog", 3: "zebra"}), (two, {1: "a (1)", 2: "a (2)"}),
        (r"item { id: 1 name: 'it\'s' }", {1: "it's"}), (dog.encode("utf-16"), {1: "\u72d7"}),
    ):  # fmt: skip
        write_files(tmp_path, {"a.pbtxt": text, "schema.pbtxt": "feature { name: 'a' }"})
        assert read_label_map(folder) == names
    for more, told in (
        (dog.encode("gbk"), r"b\.pbtxt is not UTF-8: save it as UTF-8"),
        (two, "holds several label maps"),
    ):
        write_files(tmp_path, {"b.pbtxt": more})
        with pytest.raises(UsageError, match=told):
            read_label_map(folder)
