"""Python records as input: sources, values, columns, and PNG from arrays."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from shardwright.errors import UsageError
from shardwright.format.schema import FeatureKind
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.formats.record_columns import (
    RecordColumns,
    encode_png,
    infer_columns,
    is_picture,
    picture_bytes,
    simple_value,
)
from shardwright.transforms.inputs.formats.records import open_records, records_of, spool_records
from shardwright.transforms.inputs.source import SourceRequest
from tests.support.build_helpers import png_of
from tests.support.helpers import rejects_of

PIXELS = np.arange(5 * 4 * 6 * 3, dtype=np.uint8).reshape(5, 4, 6, 3)
LABELS = ["cat", "dog", "cat", "eel", "dog"]
RECORDS = [{"image": png_of(row), "label": label} for row, label in enumerate(LABELS)]


class Items:
    """A data set as torch defines it."""

    def __len__(self) -> int:
        return len(RECORDS)

    def __getitem__(self, index: int) -> tuple[bytes, str]:
        return RECORDS[index]["image"], RECORDS[index]["label"]  # type: ignore[return-value]


def test_every_source_gives_the_same_records() -> None:
    import tensorflow as tf

    columns = {name: [record[name] for record in RECORDS] for name in ("image", "label")}
    table = pa.Table.from_pylist(RECORDS)
    batches = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    data = tf.data.Dataset.from_tensor_slices(columns)
    for source in (
        RECORDS, iter(RECORDS), pd.DataFrame(RECORDS), table, batches, Items(), columns, data,
    ):  # fmt: skip
        assert list(records_of(source)) == RECORDS


def test_one_array_has_a_record_in_each_row() -> None:
    named = np.array([(1, 0.5), (2, 1.5)], [("size", np.int64), ("weight", np.float32)])
    assert [[*record] for record in records_of(PIXELS)] == [["image"]] * len(PIXELS)
    assert [*records_of(np.arange(2.0))] == [{"features": 0.0}, {"features": 1.0}]
    assert [*records_of(named)] == [{"size": 1, "weight": 0.5}, {"size": 2, "weight": 1.5}]


@pytest.mark.parametrize(("key", "values"), [
    ("features", (np.zeros(3, np.float32), np.zeros(3, np.uint8), [1.5, 2], 1.5)),
    ("image", (PIXELS[0], PIXELS[0, 0], np.zeros((4, 4), np.float32), png_of(1), "a.png", ["a.png"],
               Path("a.png"), None)),
])  # fmt: skip
def test_the_first_of_a_pair_is_an_image_or_features(key: str, values: tuple[Any, ...]) -> None:
    for value in values:
        (record,) = records_of([(value, 1)])
        assert [*record] == [key, "label"]
        if isinstance(value, np.ndarray):
            (row,) = records_of((value[np.newaxis], np.ones(1)))
            assert [*row] == [key, "label"]


@pytest.mark.parametrize("value", [np.zeros((4, 4, 3), np.float32), [[1, 2], [3, 4]], 7])
def test_a_key_of_images_without_any_is_named_with_the_fix(value: Any) -> None:
    with pytest.raises(UsageError, match=r"key 'image': an image must be .* rename the key"):
        infer_columns([{"image": value}], {})
    infer_columns([{"image": value, "photo": PIXELS[0]}], {})  # another key is the image
    infer_columns([{"image": value}, {"image": PIXELS[0]}], {})  # the first is a reject


def test_what_pandas_lacks_is_missing() -> None:
    table = pd.DataFrame({"image": ["a.png", "b.png"], "label": ["x", None], "size": [1.5, np.nan]})
    assert [record["label"] for record in records_of(table)] == ["x", None]
    assert [record["size"] for record in records_of(table)] == [1.5, None]


@pytest.mark.parametrize(("source", "message"), [
    ("photos/", "got 'photos/'; `shardwright build` reads files and folders"),
    (Path("photos"), "`shardwright build` reads files"),
    (42, "got int; for a function that makes them, pass shards="),
    ([b"bytes"], "a record must be a dict, or a pair of input and label, got bytes"),
    ((PIXELS, np.arange(4)), "of one length, got 2 arrays of lengths"),
    ((PIXELS, np.arange(5), np.arange(5)), "got 3 arrays"),
    (np.array(3), "got int"),
    (pd.Series([1, 2]), "got one column .Series.: name it"),
    (pa.table([pa.array([1])] * 2, names=["a", "a"]), "two columns called 'a'"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns called 'a'"),
])  # fmt: skip
def test_what_is_no_source_of_records_is_refused(source: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(records_of(source))


@given(
    pixels=arrays.arrays(
        st.sampled_from([np.uint8, np.uint16]),
        st.one_of(
            st.tuples(st.integers(1, 7), st.integers(1, 7)),
            st.tuples(st.integers(1, 7), st.integers(1, 7), st.sampled_from([1, 3, 4])),
        ),
    )
)
def test_arrays_become_png_without_loss(pixels: np.ndarray[Any, Any]) -> None:
    import cv2

    decoded = cv2.imdecode(np.frombuffer(encode_png(pixels), np.uint8), cv2.IMREAD_UNCHANGED)
    wanted = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
    if wanted.ndim == 3:
        decoded = decoded[..., [2, 1, 0, 3][: wanted.shape[2]]]
    assert decoded.dtype == pixels.dtype
    np.testing.assert_array_equal(decoded, wanted)


NUMBERS = (np.arange(64) * 1000).reshape(8, 8)
GRAY = Image.fromarray(PIXELS[0]).convert("L")


def stored(value: Any, **options: Any) -> np.ndarray[Any, Any]:
    """Return the pixels of the PNG that an image becomes."""
    encoded = picture_bytes(simple_value(value), **options)
    assert encoded is not None
    return np.array(Image.open(io.BytesIO(encoded)))


def test_pillow_images_keep_their_values() -> None:
    expected = [
        (Image.fromarray(NUMBERS.astype(np.int32)), NUMBERS),
        (Image.frombytes("I;16B", (8, 8), NUMBERS.astype(">u2").tobytes()), NUMBERS),
        (Image.fromarray(NUMBERS > 9000), np.where(NUMBERS > 9000, 255, 0)),
        (Image.new("La", (1, 1), (100, 50)), [[[255, 255, 255, 50]]]),
        *((GRAY.convert(mode), GRAY.convert(mode)) for mode in ("L", "RGB", "RGBA", "I;16")),
        (GRAY.convert("P"), GRAY.convert("RGB")),
        (GRAY.convert("RGB").convert("LA"), GRAY.convert("RGBA")),
        (GRAY.convert("CMYK"), GRAY.convert("CMYK").convert("RGB")),
    ]
    for image, values in expected:
        np.testing.assert_array_equal(stored(image), np.array(values))


@pytest.mark.parametrize("numbers", [
    (NUMBERS - 1).astype(np.int32), (NUMBERS + 5000).astype(np.int32), NUMBERS.astype(np.float32),
])  # fmt: skip
def test_pillow_images_whose_values_no_png_has(numbers: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ValueError, match="must be a uint8 or uint16 array"):
        stored(Image.fromarray(numbers))


def test_a_mask_has_the_numbers_of_a_palette_and_an_image_its_colors() -> None:
    numbers = (np.arange(64) % 21).astype(np.uint8).reshape(8, 8)
    palette = Image.fromarray(numbers)
    palette.putpalette([value for number in range(21) for value in (number * 12, 0, 9)])
    np.testing.assert_array_equal(stored(palette, is_mask=True), numbers)
    np.testing.assert_array_equal(stored(palette), np.array(palette.convert("RGB")))
    two = Image.fromarray(numbers > 9)
    np.testing.assert_array_equal(stored(two, is_mask=True), numbers > 9)


def test_a_value_is_taken_at_once() -> None:
    """A loop may fill the same buffer for each record; what is no number becomes None."""
    buffer, words = PIXELS[0].copy(), ["a"]
    pixels, texts = simple_value(buffer), simple_value(words)
    buffer[:], words[0] = 0, "b"
    assert np.array_equal(pixels, PIXELS[0])
    assert texts == ["a"]
    masked = np.ma.masked_array([1, 2], mask=[0, 1])
    for value, simple in (
        (np.float32(1.5), 1.5), (bytearray(b"x"), b"x"), (masked, [1, None]), (masked[1], None),
        (np.datetime64("2020-01-01T00:00:00.000000001"), datetime(2020, 1, 1)),
    ):  # fmt: skip
        assert simple_value(value) == simple


def test_images_are_known_by_their_values() -> None:
    assert all(map(is_picture, (png_of(1), Path("a.png"), PIXELS[0])))
    shapes = (np.zeros((3, 4, 2), np.uint8), np.zeros((3, 4, 3), np.float32),
              np.zeros((0, 4, 3), np.uint8))  # fmt: skip
    assert not any(map(is_picture, (*shapes, b"bytes", "a.png", None)))


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def columns_of(**values: Any) -> RecordColumns:
    return infer_columns([{"image": PIXELS[0], **values}], {})


def test_the_text_of_columns_is_the_same_in_every_process() -> None:
    """It decides the name of a spool, which a resumed build must find again; a set has no order."""
    assert columns_of(x=1, label="a", words=["b"]).flat == ("x", "label", "words")


@pytest.mark.parametrize(("first", "value", "detail"), [
    (1, "one", "key 'x' must be int64, got 'one'"),
    (1, 1.5, "key 'x' must be int64, got 1.5"),
    (1, 1 << 70, "key 'x' must be int64"),
    ([1], [1.5], "key 'x' must be list<item: int64>, got [1.5]"),
    ([1], np.array([1.5]), "key 'x' must be list<item: int64>"),
    (True, 2, "key 'x' must be bool, got 2"),
    ("one", 1, "key 'x' must be string, got 1"),
    (PIXELS[0], 5, "an image must be a uint8 or uint16 array"),
    (PIXELS[0], np.zeros((4, 4)), "or a path, got float64"),
])  # fmt: skip
def test_values_that_do_not_fit_are_rejects(
    pool: ThreadPoolExecutor, first: Any, value: Any, detail: str
) -> None:
    columns = columns_of(x=first)
    records = [{"image": PIXELS[0], "x": each} for each in (first, value, None)]
    faults = columns.rows(records, ["0", "1", "2"], pool).faults
    assert list(faults) == [1]
    assert detail in faults[1]


@pytest.mark.parametrize(("kind", "shape", "value", "fault"), [
    (FeatureKind.BOX, (None, 4), np.zeros((4, 2)), "must have the shape (any, 4), got float64 (4"),
    (FeatureKind.FLOAT32, (2, 3), np.zeros((3, 2)), "must have the shape (2, 3), got float64 (3"),
    (None, None, [1.0, 2.0], "key 'x' must be large_binary, got [1.0, 2.0]"),
])  # fmt: skip
def test_arrays_of_another_shape_or_dtype_are_rejects(
    kind: FeatureKind | None, shape: Any, value: Any, fault: str, pool: ThreadPoolExecutor
) -> None:
    first = np.zeros((1, 2), np.int16)
    said = {} if kind is None else {"x": kind}
    columns = infer_columns([{"x": first}], said, shapes={} if shape is None else {"x": shape})
    assert fault in columns.rows([{"x": value}], ["0"], pool).faults[0]


def test_a_reject_has_the_id_of_its_record(tmp_path: Path) -> None:
    request = SourceRequest("x", spool=Folder(str(tmp_path)), columns={"id": "id"})
    source = open_records([{"image": PIXELS[0], "id": "a", "x": 1}], request)
    bad = [{"image": PIXELS[0], "id": name, "x": "bad"} for name in ("own", 7, None)]
    spool_records(source, bad)
    rejects = rejects_of(source.references("0"))
    assert [reject.id for reject in rejects] == ["own", "python#1", "python#2"]
    assert rejects[0].detail.startswith("row 0 of python: key 'x'")


def test_a_first_value_of_another_type() -> None:
    """With a schema it is a reject, as it is later; without one, the message names it."""
    records = [{"x": "a"}, {"x": 5}]
    declared = infer_columns(records, {"x": FeatureKind.TEXT})
    assert declared.schema.field("x").type == pa.string()
    with pytest.raises(UsageError, match=r"key 'x' of record 1 is 5, which cannot be stored as"):
        infer_columns(records, {})


def test_a_new_key_is_a_reject_and_a_missing_one_is_null(pool: ThreadPoolExecutor) -> None:
    rows = columns_of(x=1).rows(
        [{"image": PIXELS[0]}, {"image": PIXELS[0], "y": 1}], ["0", "1"], pool
    )
    assert rows.columns.column("x").to_pylist() == [None, None]
    assert rows.faults == {1: "unknown key 'y'; the known ones are image, x"}


def test_arrays_of_several_dimensions_are_tensors() -> None:
    rows = [{"image": PIXELS[0], "x": np.zeros((size, 2), np.int16)} for size in (1, 2)]
    (feature,) = infer_columns(rows, {}).tensors.values()
    assert (feature.kind, feature.shape, feature.dtype) == ("tensor", (None, 2), "int16")
    declared = infer_columns(rows, {"x": FeatureKind.INT64})
    assert declared.schema.field("x").type == pa.list_(pa.int64())
    rows[0]["x"] = np.zeros((1, 3), np.int16)
    with pytest.raises(UsageError, match="only its first dimension may vary"):
        infer_columns(rows, {})


def test_integers_of_a_float_feature_are_no_limit_for_later_records() -> None:
    rows = [{"image": PIXELS[0], "x": 1, "y": [1], "z": None}]
    said = dict.fromkeys("xyz", FeatureKind.FLOAT32)
    schema = infer_columns(rows, said).schema
    assert [schema.field(name).type for name in "xyz"] == [
        pa.float64(), pa.list_(pa.float64()), pa.float64(),
    ]  # fmt: skip


@pytest.mark.parametrize(("records", "columns", "message"), [
    ([], {}, "there are no records"),
    ([{1: PIXELS[0]}], {}, "must be texts, got 1"),
    ([{"image": PIXELS[0], "x": 1}, {"image": PIXELS[0], "x": "a"}], {},
     "cannot be stored as one feature"),
    ([{"label": "cat"}], {}, "no column of the records holds encoded images"),
    ([{"a": PIXELS[0], "b": PIXELS[0]}], {}, "choose the main one with --image-column"),
    ([{"image": PIXELS[0]}], {"label": "x"}, "--label-column 'x' is not in the records"),
    ([{"image": PIXELS[0], "id": 1.5}], {}, "key 'id' holds double"),
])  # fmt: skip
def test_records_that_are_no_dataset_are_refused(
    records: Any, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_records(records, SourceRequest("x", columns=columns))
