"""Serialized tensors, against TensorFlow's own."""

from __future__ import annotations

import datetime
import io
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tensorflow.core.framework import tensor_pb2

from shardwright.errors import UsageError
from shardwright.example import ExampleFault
from shardwright.schema import Feature, FeatureKind
from shardwright.tensors import parse_tensor_proto, to_tensor_proto
from transforms.features.tensors import encode_tensors

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (0,), (0, 3), (2, 0, 4), (2, 3), (2, 3, 4)]
STRINGS = [b"", b"a", "é日".encode(), b"\x00\xff", b"word"]


def equal(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """The same shape, type and values, a NaN being one."""
    if left.shape != right.shape or left.dtype.newbyteorder("=") != right.dtype.newbyteorder("="):
        return False
    return (
        left.tolist() == right.tolist()
        if left.dtype == object
        else np.array_equal(left, right, equal_nan=left.dtype.kind in "fc")
    )


def sample(dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    values = np.random.default_rng(7).integers(0, 100, shape)
    return np.array(values * (1 - 2j) if "complex" in dtype else values).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensorflow_writes_the_same_bytes_and_reads_them(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = sample(dtype, shape)
    data = to_tensor_proto(array)
    assert data == tf.io.serialize_tensor(array).numpy()
    assert (
        equal(tf.io.parse_tensor(data, dtype).numpy(), array)
        if shape
        else tf.io.parse_tensor(data, dtype).numpy() == array
    )
    assert equal(parse_tensor_proto(data), array)


@given(
    array=arrays.arrays(
        dtype=st.sampled_from(DTYPES).map(np.dtype),
        shape=arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
)
def test_any_array_comes_back(array: npt.NDArray[Any]) -> None:
    data = to_tensor_proto(array)
    assert data == tf.io.serialize_tensor(array).numpy()
    assert equal(parse_tensor_proto(data), array)


@pytest.mark.parametrize("dtype", [">i2", ">u4", ">f4", ">f8", ">c8"])
def test_big_endian_arrays_are_turned_round(dtype: str) -> None:
    array = np.array([1, 2, 258], dtype)
    assert (
        to_tensor_proto(array)
        == tf.io.serialize_tensor(array.astype(dtype.replace(">", "<"))).numpy()
    )


@pytest.mark.parametrize("order", ["F", "C"])
def test_arrays_of_any_memory_order_are_written_row_by_row(order: Any) -> None:
    array = np.asarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4), order=order)
    for view in (array, array[:, ::-1], array.T, array[1:, :, ::2]):
        assert to_tensor_proto(view) == tf.io.serialize_tensor(np.ascontiguousarray(view)).numpy()


@pytest.mark.parametrize("shape", [(), (5,), (0,), (5, 1), (1, 0)], ids=str)
def test_strings_are_written_one_by_one(shape: tuple[int, ...]) -> None:
    array = (
        np.array(b"word", object)
        if shape == ()
        else np.array(STRINGS if 0 not in shape else [], object).reshape(shape)
    )
    data = to_tensor_proto(array)
    assert data == tf.io.serialize_tensor(tf.constant(array, tf.string)).numpy()
    assert equal(parse_tensor_proto(data), array)


def test_texts_are_utf_8() -> None:
    data = to_tensor_proto(np.array(["é", "b"]))
    assert (
        data
        == to_tensor_proto(np.array(["é", "b"], object))
        == tf.io.serialize_tensor(["é", "b"]).numpy()
    )
    assert to_tensor_proto(np.array([b"x", b"yz"])) == tf.io.serialize_tensor([b"x", b"yz"]).numpy()


def test_bfloat16_comes_as_float32() -> None:
    array = np.array([[1.5, -2.25], [0, np.inf]], ml_dtypes.bfloat16)
    data = to_tensor_proto(array)
    assert data == tf.io.serialize_tensor(array).numpy()
    assert equal(parse_tensor_proto(data), array.astype(np.float32))
    listed = tensor_pb2.TensorProto(dtype=tf.bfloat16.as_datatype_enum, half_val=[0x3FC0])
    listed.tensor_shape.dim.add(size=2)
    assert parse_tensor_proto(listed.SerializeToString()).tolist() == [1.5, 1.5]


VALUES: dict[str, tuple[str, list[Any]]] = {
    "float32": ("float_val", [1.5, -2]), "float64": ("double_val", [0.1, 2]), "int32": ("int_val", [-7, 8]),
    "uint8": ("int_val", [7, 255]), "int16": ("int_val", [-7, 300]), "int8": ("int_val", [-7, 100]), "uint16": ("int_val", [7, 65535]),
    "int64": ("int64_val", [-(2**60), 5]), "uint32": ("uint32_val", [2**32 - 1, 5]), "uint64": ("uint64_val", [2**64 - 1, 5]),
    "bool": ("bool_val", [True, False]), "string": ("string_val", [b"ab", b""]), "float16": ("half_val", [0x3C00, 0xC000]),
    "complex64": ("scomplex_val", [1, -2, 0.5, 4]),
    "complex128": ("dcomplex_val", [1, -2, 0.1, 4]),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(), (2,), (5,), (2, 2), (0,)], ids=str)
@pytest.mark.parametrize("num_values", [0, 1, 2])
@pytest.mark.parametrize("dtype", VALUES)
def test_lists_of_values_are_read_as_tensorflow_reads_them(
    dtype: str, num_values: int, shape: tuple[int, ...]
) -> None:
    """Fewer values than elements: the last stands for the rest."""
    field, values = VALUES[dtype]
    message = tensor_pb2.TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    getattr(message, field).extend(values[: num_values * len(values) // 2])
    if num_values > int(np.prod(shape)):
        with pytest.raises(ExampleFault, match=f"with {num_values} values"):
            parse_tensor_proto(message.SerializeToString())
        return
    assert equal(
        parse_tensor_proto(message.SerializeToString()),
        np.asarray(tf.io.parse_tensor(message.SerializeToString(), dtype)),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xff", "not a serialized tensor"),
        (b"", "DataType 0"),
        (tensor_pb2.TensorProto(dtype=20).SerializeToString(), "DataType 20"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x03\x22\x04aaaa", "3 float32 values in 4 bytes"),
        (b"\x08\x01\x12\x02\x18\x01", "unknown shape"),
        (b"\x08\x04\x12\x0d\x12\x0b\x08" + b"\xff" * 9 + b"\x01", "unknown shape"),
        (b"\x08\x01\x12\x08\x12\x06\x08\x80\x80\x80\x80\x10", "elements with 0 values"),
    ],
)  # fmt: skip
def test_what_is_no_tensor_is_a_fault(data: bytes, message: str) -> None:
    with pytest.raises(ExampleFault, match=message):
        parse_tensor_proto(data)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["2020"], "datetime64[D]"),
        np.array([None, b"a"]),
        np.zeros(2, [("a", "i4")]),
        np.array([1, "a"], object),
    ],
)
def test_what_tensorflow_has_no_type_for_is_refused(array: npt.NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"TensorFlow has no tensors of|is no string"):
        to_tensor_proto(array)


def tensor(shape: tuple[int | None, ...], dtype: str = "", default: Any = None) -> Feature:
    return Feature("t", FeatureKind.TENSOR, shape=shape, dtype=dtype, default=default)


def encode(column: pa.Array, feature: Feature) -> list[Any]:
    """Each row's tensor as TensorFlow reads it, None for a bad one."""
    encoded, bad = encode_tensors(column, feature)
    assert encoded.type == pa.binary()
    assert bad.dtype == bool
    assert encoded.is_null().to_pylist() == bad.tolist()
    dtype = feature.dtype or "float32"
    return [
        None if data is None else np.asarray(tf.io.parse_tensor(data, dtype)).tolist()
        for data in encoded.to_pylist()
    ]


def npy(array: npt.NDArray[Any], *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


LISTS = [[[1, 2], [3, 4]], [[5, 6]], None, [[7, 8], [9]], [[1, None]], [None], []]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.list_(pa.int64())), pa.large_list(pa.list_(pa.float32())), pa.list_(pa.large_list(pa.uint8())),
     pa.list_(pa.list_(pa.decimal128(9, 2)))],
    ids=str,
)  # fmt: skip
def test_nested_lists_become_arrays_and_misfits_are_bad(kind: pa.DataType) -> None:
    column = pa.array([[[9, 9]], *LISTS], kind)[1:]
    assert encode(column, tensor((None, 2), "int16")) == [
        [[1, 2], [3, 4]],
        [[5, 6]],
        None,
        None,
        None,
        None,
        [],
    ]
    assert encode(column, tensor((1, 2))) == [None, [[5, 6]], None, None, None, None, None]
    assert encode(column, tensor((2,))) == [None] * 7


def test_no_lists_still_have_the_shape_within() -> None:
    encoded, bad = encode_tensors(
        pa.array([[]], pa.list_(pa.list_(pa.int64()))), tensor((None, 4), "int64")
    )
    assert not bad.any()
    assert parse_tensor_proto(encoded[0].as_py()).shape == (0, 4)


def test_fixed_size_lists_and_their_slices() -> None:
    column = pa.array(
        [[[0, 0], [0, 0]], [[1, 2], [3, 4]], None, [[5, 6], None], [[5, 6], [7, 8]]],
        pa.list_(pa.list_(pa.int32(), 2), 2),
    )
    assert encode(column[1:], tensor((2, 2), "int32")) == [
        [[1, 2], [3, 4]],
        None,
        None,
        [[5, 6], [7, 8]],
    ]


def test_fixed_shape_tensors_with_nulls_slices_and_permutations() -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3))
    column = pa.ExtensionArray.from_storage(
        kind, pa.array([[0] * 6, [1, 2, 3, 4, 5, 6], None, [6, 5, 4, 3, 2, 1]], kind.storage_type)
    )
    assert encode(column[1:], tensor((2, 3))) == [
        [[1, 2, 3], [4, 5, 6]],
        None,
        [[6, 5, 4], [3, 2, 1]],
    ]
    assert encode(column[2:3], tensor((2, 3))) == [None]
    turned = pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=[1, 0])
    column = pa.ExtensionArray.from_storage(
        turned, pa.array([[1, 2, 3, 4, 5, 6]], turned.storage_type)
    )
    assert encode(column, tensor((3, 2))) == [[[1, 4], [2, 5], [3, 6]]]


def test_npy_files_and_serialized_tensors() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    rows = [npy(array), npy(np.asfortranarray(array)),
            tf.io.serialize_tensor(array.astype(np.int32)).numpy(), npy(array)[:-1], b"", b"junk",
            None, npy(array.T), npy(np.array([["a", {}, 3]], object), allow_pickle=True), npy(array + 0.5)]  # fmt: skip
    assert (
        encode(pa.array(rows, pa.binary()), tensor((2, 3), "int32"))
        == [array.tolist()] * 3 + [None] * 7
    )
    assert (
        encode(pa.array(rows, pa.large_binary()), tensor((None, None), "int32"))[7]
        == array.T.tolist()
    )


def test_a_header_of_a_huge_array_is_bad_and_takes_no_memory() -> None:
    header = npy(np.zeros((2, 3), np.uint8)).replace(b"(2, 3), }        ", b"(2, 9999999999),}")
    assert encode(pa.array([header]), tensor((None, None), "uint8")) == [None]


@pytest.mark.parametrize(
    ("values", "dtype", "good"),
    [
        ([0, 255], "uint8", True), ([0, 256], "uint8", False), ([-1], "uint8", False), ([1.0, 2.0], "int32", True), ([1.5], "int32", False),
        ([float("nan")], "int64", False), ([float("inf")], "int64", False), ([2.0**63], "int64", False), ([-(2.0**63)], "int64", True),
        ([2.0**64], "uint64", False), ([0.1, float("nan"), float("inf")], "float32", True), ([1e39], "float32", False),
        ([70000], "float16", False), ([1, 0], "bool", True), ([2], "bool", False),
        ([True], "float32", True), ([True, False], "int8", True), (["a"], "int32", False), ([1], "string", False),
        (["a", "é"], "string", True), ([b"\xff"], "string", True), ([1, 2], "complex64", True), ([], "uint8", True),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_converted_where_they_fit_and_never_wrapped(
    values: list[Any], dtype: str, good: bool
) -> None:
    encoded, bad = encode_tensors(pa.array([values]), tensor((None,), dtype))
    assert bad.tolist() == [not good]
    if good:
        wanted = object if dtype == "string" else dtype
        strings = [value.encode() if isinstance(value, str) else value for value in values]
        assert equal(parse_tensor_proto(encoded[0].as_py()), np.array(strings, wanted))


@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    dtype=st.sampled_from([name for name in DTYPES if "int" in name]),
)
def test_integers_fit_or_are_bad(values: list[int], dtype: str) -> None:
    fits = all(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values)
    assert encode(pa.array([values], pa.list_(pa.int64())), tensor((None,), dtype)) == [
        values if fits else None
    ]


def test_complex_numbers_become_no_others() -> None:
    data = pa.array([npy(np.array([1 + 2j]))])
    assert encode(data, tensor((1,), "complex64")) == [[1 + 2j]]
    assert encode(data, tensor((1,), "float64")) == [None]


@pytest.mark.parametrize(
    ("column", "dtype", "rows"),
    [
        (pa.array([1, None, 300]), "uint8", [1, None, None]), (pa.array([True, None]), "bool", [True, None]),
        (pa.array(["a", None]), "string", [b"a", None]), (pa.array([b"\x93NUMPY", None]), "string", [b"\x93NUMPY", None]),
    ],
)  # fmt: skip
def test_single_values_are_tensors_without_dimensions(
    column: pa.Array, dtype: str, rows: list[Any]
) -> None:
    assert encode(column, tensor((), dtype)) == rows


def test_a_default_stands_for_all_elements_of_a_row_without_a_value() -> None:
    column = pa.array([None, [[1, 2]], [[1]]], pa.list_(pa.list_(pa.int64())))
    assert encode(column, tensor((1, 2), "int16", default=7)) == [[[7, 7]], [[1, 2]], None]
    assert encode(column, tensor((None, 2), "int16", default=7)) == [None, [[1, 2]], None], (
        "of how many there is no telling"
    )
    assert encode(pa.array([None], pa.string()), tensor((), "string", default="x")) == [b"x"]


def test_a_column_of_nothing() -> None:
    assert encode(pa.array([], pa.list_(pa.int64())), tensor((None,))) == []
    assert encode(pa.array([[], [None]], pa.list_(pa.null())), tensor((None,))) == [[], None]
    assert encode(pa.nulls(2), tensor((1,))) == [None, None]


def test_a_column_that_no_tensor_is_made_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Arrow type date32\[day\] cannot be a tensor"):
        encode_tensors(pa.array([datetime.date(2020, 1, 1)]), tensor(()))
    with pytest.raises(
        UsageError,
        match=r"feature 't': there are no tensors of 'floaty': use one of float32, .*, string",
    ):
        encode_tensors(pa.array([[1]]), tensor((None,), "floaty"))
    with pytest.raises(UsageError, match=r"Arrow type struct<"):
        encode_tensors(pa.array([[{"a": 1}]]), tensor((None,)))
