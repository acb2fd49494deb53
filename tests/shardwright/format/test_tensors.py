"""Serialized tensors, against TensorFlow's own."""

from __future__ import annotations

import datetime
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tensorflow.core.framework import tensor_pb2

from shardwright.errors import BuildError, UsageError
from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature, FeatureKind
from shardwright.format.tensors import parse_tensor_proto, to_tensor_proto
from shardwright.transforms.features.columns import check_column
from shardwright.transforms.features.lists import encode_tensors

Array = npt.NDArray[Any]
INTEGERS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (0,), (0, 3), (2, 0, 4), (2, 3), (2, 3, 4)]


def check_equal(found: Array, wanted: Array) -> None:
    """Compare shape, type and values; NaN equals NaN."""
    np.testing.assert_array_equal(found, wanted, strict=True)


def by_tensorflow(array: object) -> bytes:
    return tf.io.serialize_tensor(array).numpy()


def check_round_trip(array: Array) -> None:
    data = to_tensor_proto(array)
    assert data == by_tensorflow(array)
    check_equal(parse_tensor_proto(data), array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensorflow_writes_the_same_bytes_and_reads_them(dtype: str) -> None:
    for shape in SHAPES:
        values = np.random.default_rng(7).integers(0, 100, shape)
        array = np.array(values * (1 - 2j) if "complex" in dtype else values).astype(dtype)
        check_round_trip(array)
        check_equal(np.asarray(tf.io.parse_tensor(to_tensor_proto(array), dtype)), array)


SMALL = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@given(arrays.arrays(dtype=st.sampled_from(DTYPES).map(np.dtype), shape=SMALL))
def test_any_array_comes_back(array: Array) -> None:
    check_round_trip(array)


CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
FORTRAN = np.asfortranarray(CUBE)
BIG_ENDIAN = [np.array([1, 2, 258], dtype) for dtype in (">i2", ">u4", ">f4", ">f8", ">c8")]
VIEWS = [view for a in (CUBE, FORTRAN) for view in (a, a[:, ::-1], a.T, a[1:, :, ::2])]


@pytest.mark.parametrize("array", [*BIG_ENDIAN, *VIEWS])
def test_any_byte_and_memory_order_is_written_little_endian_and_row_by_row(array: Array) -> None:
    native = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="))
    assert to_tensor_proto(array) == by_tensorflow(native)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xff", "not a serialized tensor"),
        (b"", "DataType 0"),
        (tensor_pb2.TensorProto(dtype=20).SerializeToString(), "DataType 20"),
        (tf.io.serialize_tensor(["text"]).numpy(), "DataType 7, which is not of numbers"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x03\x22\x04aaaa", "3 float32 values in 4 bytes"),
        (b"\x08\x01\x12\x02\x18\x01", "unknown shape"),
        (b"\x08\x04\x12\x0d\x12\x0b\x08" + b"\xff" * 9 + b"\x01", "unknown shape"),
        (b"\x08\x01\x12\x08\x12\x06\x08\x80\x80\x80\x80\x10", "float32 values in 0 bytes"),
        (tf.make_tensor_proto(1.5).SerializeToString(), "write it with tf.io.serialize_tensor"),
    ],
)
def test_invalid_bytes_are_a_fault(data: bytes, message: str) -> None:
    with pytest.raises(ExampleFault, match=message):
        parse_tensor_proto(data)


DATES, STRUCTS = np.array(["2020"], "datetime64[D]"), np.zeros(2, [("a", "i4")])


@pytest.mark.parametrize("array", [DATES, STRUCTS, np.array(["a"]), np.array([1, "a"], "O")])
def test_other_types_are_refused(array: Array) -> None:
    with pytest.raises(ValueError, match="convert the array to numbers or booleans"):
        to_tensor_proto(array)


def tensor(shape: tuple[int | None, ...], dtype: str = "", default: Any = None) -> Feature:
    return Feature("t", FeatureKind.TENSOR, shape=shape, dtype=dtype, default=default)


def encode(column: pa.Array, feature: Feature) -> list[Any]:
    """Return each row's tensor as TensorFlow reads it, None for a bad row."""
    encoded, bad = encode_tensors(column, feature)
    assert (encoded.type, bad.dtype) == (pa.binary(), bool)
    assert encoded.is_null().to_pylist() == bad.tolist()
    dtype = feature.dtype or "float32"
    return [
        None if data is None else np.asarray(tf.io.parse_tensor(data, dtype)).tolist()
        for data in encoded.to_pylist()
    ]


def npy(array: Array, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


LISTS = [[[1, 2], [3, 4]], [[5, 6]], None, [[7, 8], [9]], [[1, None]], [None], []]
LISTS_OF_LISTS = pa.list_(pa.list_(pa.int64()))
LARGE = [pa.large_list(pa.list_(pa.float32())), pa.list_(pa.large_list(pa.uint8()))]
NESTED = [LISTS_OF_LISTS, *LARGE, pa.list_(pa.list_(pa.decimal128(9, 2)))]


@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_nested_lists_become_arrays_and_misfits_are_bad(kind: pa.DataType) -> None:
    column = pa.array([[[9, 9]], *LISTS], kind)[1:]
    assert encode(column, tensor((None, 2), "int16")) == [*LISTS[:2], None, None, None, None, []]
    assert encode(column, tensor((1, 2))) == [None, [[5, 6]], None, None, None, None, None]
    assert encode(column, tensor((2,))) == [None] * 7


def test_empty_lists_keep_the_inner_shape() -> None:
    encoded, _ = encode_tensors(pa.array([[]], LISTS_OF_LISTS), tensor((None, 4), "int64"))
    assert parse_tensor_proto(encoded[0].as_py()).shape == (0, 4)


def fixed_shape(rows: list[Any], **options: Any) -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3), **options)
    return pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))


ONE, TWO = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
FIXED_LISTS = pa.list_(pa.list_(pa.int32(), 2), 2)
FIXED = fixed_shape([[0] * 6, [1, 2, 3, 4, 5, 6], None, [6, 5, 4, 3, 2, 1]])
TURNED = fixed_shape([[1, 2, 3, 4, 5, 6]], permutation=[1, 0])
SOME = pa.array([None, [[1, 2]], [[1]]], LISTS_OF_LISTS)
COMPLEX = pa.array([npy(np.array([1 + 2j]))])
ZEROS = npy(np.zeros((2, 3), np.uint8))
HUGE = ZEROS.replace(b"(2, 3), }        ", b"(2, 9999999999),}")  # takes no memory


@pytest.mark.parametrize(
    ("column", "feature", "rows"),
    [
        (pa.array([[[0, 0], [0, 0]], ONE, None, [[5, 6], None], TWO], FIXED_LISTS)[1:],
         tensor((2, 2), "int32"), [ONE, None, None, TWO]),
        (FIXED[1:], tensor((2, 3)), [[[1, 2, 3], [4, 5, 6]], None, [[6, 5, 4], [3, 2, 1]]]),
        (FIXED[2:3], tensor((2, 3)), [None]),
        (TURNED, tensor((3, 2)), [[[1, 4], [2, 5], [3, 6]]]),
        (COMPLEX, tensor((1,), "complex64"), [[1 + 2j]]),
        (COMPLEX, tensor((1,), "float64"), [None]),
        (pa.array([HUGE]), tensor((None, None), "uint8"), [None]),
        (pa.array([1, None, 300]), tensor((), "uint8"), [1, None, None]),
        (pa.array([True, None]), tensor((), "bool"), [True, None]),
        (SOME, tensor((1, 2), "int16", default=7), [[[7, 7]], [[1, 2]], None]),
        (SOME, tensor((None, 2), "int16", default=7), [None, [[1, 2]], None]),
        (pa.array([], pa.list_(pa.int64())), tensor((None,)), []),
        (pa.array([[], [None]], pa.list_(pa.null())), tensor((None,)), [[], None]),
        (pa.nulls(2), tensor((1,)), [None, None]),
    ],
)  # fmt: skip
def test_columns_of_each_type(column: pa.Array, feature: Feature, rows: list[Any]) -> None:
    assert encode(column, feature) == rows


def test_npy_files_and_serialized_tensors() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    good = [npy(array), npy(np.asfortranarray(array)), by_tensorflow(array.astype(np.int32))]
    pickled = npy(np.array([["a", {}, 3]], object), allow_pickle=True)
    rows = [*good, npy(array)[:-1], b"", b"junk", None, npy(array.T), pickled, npy(array + 0.5)]
    wanted = [array.tolist()] * 3 + [None] * 7
    assert encode(pa.array(rows, pa.binary()), tensor((2, 3), "int32")) == wanted
    any_shape = encode(pa.array(rows, pa.large_binary()), tensor((None, None), "int32"))
    assert any_shape[7] == array.T.tolist()


@pytest.mark.parametrize(
    ("values", "dtype", "good"),
    [
        ([0, 255], "uint8", True), ([0, 256], "uint8", False), ([-1], "uint8", False),
        ([1.0, 2.0], "int32", True), ([1.5], "int32", False), ([np.nan], "int64", False),
        ([np.inf], "int64", False), ([2.0**63], "int64", False), ([-(2.0**63)], "int64", True),
        ([2.0**64], "uint64", False), ([0.1, np.nan, np.inf], "float32", True),
        ([1e39], "float32", False), ([70000], "float16", False), ([1, 0], "bool", True),
        ([2], "bool", False), ([True], "float32", True), ([True, False], "int8", True),
        (["a"], "int32", False), ([1, 2], "complex64", True), ([], "uint8", True),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_converted_if_they_fit_and_never_wrapped(
    values: list[Any], dtype: str, good: bool
) -> None:
    encoded, bad = encode_tensors(pa.array([values]), tensor((None,), dtype))
    assert bad.tolist() == [not good]
    if good:
        check_equal(parse_tensor_proto(encoded[0].as_py()), np.array(values, dtype))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), st.sampled_from(INTEGERS))
def test_integers_fit_or_are_bad(values: list[int], dtype: str) -> None:
    fits = all(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values)
    column = pa.array([values], pa.list_(pa.int64()))
    assert encode(column, tensor((None,), dtype)) == [values if fits else None]


FLOATY = "feature 't' of kind tensor has the dtype 'floaty'; give one of float32, .*, uint64"
CANNOT = "which cannot be a feature of kind tensor"


@pytest.mark.parametrize(
    ("values", "feature", "message"),
    [
        ([datetime.date(2020, 1, 1)], tensor(()), rf"type date32\[day\], {CANNOT}"),
        ([[1]], tensor((None,), "floaty"), FLOATY),
        ([[{"a": 1}]], tensor((None,)), f"struct<a: int64>>, {CANNOT}"),
    ],
)
def test_columns_of_other_types_are_refused(values: Any, feature: Feature, message: str) -> None:
    with pytest.raises((BuildError, UsageError), match=message):
        check_column(pa.array(values).type, feature)
