"""Iterate over the records of tables, data sets and arrays, without importing their libraries."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.transforms.inputs.image_values import has_image_magic
from shardwright.transforms.inputs.records.record_columns import SAMPLE_RECORDS, Record
from shardwright.transforms.inputs.records.record_values import input_key, simple_value
from shardwright.transforms.inputs.tables.table_roles import first_doubled
from shardwright.transforms.inputs.tables.table_schemas import check_width

_LABEL = "label"


def records_of(source: Any) -> Iterator[Record]:
    """Yield the records of a source, with simple values.

    Args:
        source: An iterable of dicts or (input, label) pairs, a pandas DataFrame, an Arrow table, an
            object with `__len__` and `__getitem__`, a `tf.data.Dataset`, or one NumPy array, a
            pair or a dict of them of one length.

    Raises:
        UsageError: It is none of these, or an item is no record.
    """
    return itertools.starmap(_numbered, enumerate(_items_of(source)))


def _numbered(number: int, item: Any) -> Record:
    """Return a record with simple values; an error says its number."""
    try:
        return simple_record(item)
    except UsageError as error:
        raise UsageError(f"record {number}: {error}") from error


def simple_record(item: Any) -> Record:
    """Return a record with simple values.

    Raises:
        UsageError: The item is neither a dict nor a pair of input and label.
    """
    if isinstance(item, tuple) and len(item) == 2:
        inputs, label = map(simple_value, item)
        return {input_key(inputs): inputs, _LABEL: label}
    if not isinstance(item, Mapping):
        raise UsageError(
            f"a record must be a dict, or a pair of input and label, got {type(item).__name__}"
        )
    return {name: simple_value(value) for name, value in item.items()}


def _items_of(source: Any) -> Iterable[Any]:
    if isinstance(source, np.ndarray) and not source.ndim:
        source = source.item()
    if isinstance(source, str | bytes | os.PathLike):
        raise UsageError(
            f"records must be an iterable of dicts, a table, a data set or arrays, got {source!r}; "
            "`shardwright build` reads files and folders"
        )
    if isinstance(source, np.ndarray):
        names = source.dtype.names
        columns = {name: source[name] for name in names} if names else _named([source])
        return _rows_of_arrays(columns, len(columns))
    if isinstance(source, tuple) and all(isinstance(each, np.ndarray) for each in source):
        return _rows_of_arrays(_named(source), len(source))
    if isinstance(source, Mapping):
        return _rows_of_arrays(source, len(source))
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return _rows_of_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _rows_of_arrow(source)
    if hasattr(source, "as_numpy_iterator"):
        return map(_with_texts, source.as_numpy_iterator())
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[index] for index in range(len(source)))
    if isinstance(source, Iterable):
        return source
    raise UsageError(
        "records must be an iterable of dicts, a table, a data set or arrays, got "
        f"{type(source).__name__}; for a function that makes them, pass shards="
    )


def _named(arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the first array by the key of its rows, and the second as the label."""
    keys = [*(input_key(np.empty(one.shape[1:], one.dtype)) for one in arrays[:1]), _LABEL]
    return dict(zip(keys, arrays, strict=False))


def _rows_of_arrays(columns: Mapping[str, Any], number: int) -> Iterator[Record]:
    """Yield a record for each row of arrays of the same length."""
    if any(isinstance(one, str | bytes) or not hasattr(one, "__len__") for one in columns.values()):
        raise UsageError(
            "records must be an iterable of dicts, or a dict of arrays, got one dict of single "
            "values: put it in a list"
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(columns) < number or len(set(lengths.values())) != 1:
        raise UsageError(
            f"arrays must be (inputs, labels) or a dict, of one length, got "
            f"{counted(number, 'array')} of lengths {sorted(set(lengths.values()))}"
        )
    for row in range(next(iter(lengths.values()))):
        yield {name: column[row] for name, column in columns.items()}


def _rows_of_arrow(source: Any) -> Iterator[Record]:
    """Yield the rows of what has Arrow's interface: tables and readers of it, Polars, DuckDB."""
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"records must be a table, got one column ({type(source).__name__}): name it, as in "
            '{"key": column}'
        ) from error
    _check_names(reader.schema.names)
    for batch in reader:
        for start in range(0, batch.num_rows, SAMPLE_RECORDS):
            yield from batch.slice(start, SAMPLE_RECORDS).to_pylist()


def _rows_of_pandas(table: Any) -> Iterator[Record]:
    _check_names(list(table.columns))
    for start in range(0, len(table), SAMPLE_RECORDS):
        rows = table.iloc[start : start + SAMPLE_RECORDS]
        # A missing text is NaN, a float, which Arrow would not take for one.
        yield from rows.astype(object).where(rows.notna(), None).to_dict("records")


def _check_names(names: Sequence[Any]) -> None:
    doubled = first_doubled(names)
    if doubled is not None:
        raise UsageError(f"the table has two columns called {doubled!r}: rename one of them")
    check_width("the table", names)


def _with_texts(item: Any) -> Any:
    """Return an element of tf.data with texts in place of bytes that are UTF-8 and no image."""
    if isinstance(item, Mapping):
        return {name: _as_text(value) for name, value in item.items()}
    return tuple(map(_as_text, item)) if isinstance(item, tuple) else item


def _as_text(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _as_text(value.tolist())
    if isinstance(value, list):
        return list(map(_as_text, value))
    if not isinstance(value, bytes) or has_image_magic(value):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
