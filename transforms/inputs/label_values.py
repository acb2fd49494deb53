"""Convert labels to class texts: a label's type follows from its values, not from its container.

Whole numbers are class numbers, also as floats, which pandas makes of a column with a gap. Numbers
with a fraction are values to predict and no classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.transforms.features.lists import empty_as_null, is_text, plain

NOT_A_CLASS = (
    "is not a class, where the first labels are: for numbers to predict, rename the column"
)
K = TypeVar("K")
_EXACT = 2**53  # whole numbers below have a float64 of their own


def can_be_text(kind: pa.DataType) -> bool:
    """Return whether a column can be a path, id, label, split or group."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_null, pa.types.is_integer, pa.types.is_boolean, is_text)
    return any(test(kind) for test in tests)


def check_text(kind: pa.DataType, name: str) -> None:
    """Check that a column can be a path, id, label, split or group.

    Raises:
        BuildError: It holds neither text nor whole numbers.
    """
    if not can_be_text(kind):
        raise BuildError(
            f"column {name!r} is of type {kind}; "
            "ids, paths, labels and splits must be text or whole numbers"
        )


def as_text(column: pa.Array, name: str) -> pa.Array:
    """Return a column of text or whole numbers as strings.

    Raises:
        BuildError: It has another type.
    """
    check_text(column.type, name)
    return plain(column).cast(pa.string())


def class_texts(labels: pa.Array, name: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return labels as texts, and a mask of those that are no classes.

    Args:
        labels: Labels of any type that a label can have.
        name: Their column.

    Raises:
        BuildError: They have another type.
    """
    labels = plain(labels)
    if not pa.types.is_floating(labels.type):
        return empty_as_null(as_text(labels, name)), np.zeros(len(labels), bool)
    numbers = labels.cast(pa.float64()).fill_null(np.nan).to_numpy()
    whole = (numbers == np.trunc(numbers)) & (np.abs(numbers) < _EXACT)
    bad = ~whole & ~np.isnan(numbers)
    classes = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole)
    texts = pc.if_else(pa.array(bad), labels.cast(pa.string()), classes.cast(pa.string()))
    return texts, bad


def check_labels(values: pa.Array, name: str) -> None:
    """Check that the first values of the column of `--label-column` can be labels.

    Raises:
        BuildError: They have another type, or one is a number with a fraction.
    """
    texts, bad = class_texts(values, name)
    if bad.any():
        raise BuildError(
            f"column {name!r} holds {texts.filter(pa.array(bad))[0]}, and labels are classes: "
            "leave --label-column out, and the column becomes a feature of numbers"
        )


def can_be_classes(values: pa.Array) -> bool:
    """Return whether a column with these first values may hold labels, and no fractions."""
    values = plain(values)
    return not (pa.types.is_floating(values.type) and class_texts(values, "")[1].any())


def names_of(numbers: pa.Array, names: Sequence[str]) -> pa.Array:
    """Return the class name of each number.

    -1, which data sets use for an unknown class, becomes null; other numbers become text.
    """
    texts = class_texts(numbers, "")[0]
    places = pc.index_in(texts, value_set=pa.array(map(str, range(len(names))), pa.string()))
    others = pc.if_else(pc.equal(texts, "-1"), pa.scalar(None, pa.string()), texts)
    return pc.coalesce(pa.array(names, pa.string()).take(places), others)


def distinct_names(names: Mapping[K, str]) -> dict[K, str]:
    """Return names of one class each: "crane (517)" where several classes are called crane."""
    counts = Counter(names.values())
    return {key: name if counts[name] == 1 else f"{name} ({key})" for key, name in names.items()}
