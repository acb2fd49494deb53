"""`sampling=`: what users may write, what it means for a dataset's classes and records, and what is refused."""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.reader.order import Order
from shardwright.reader.sampling import ClassBalanced, ClassWeights, RecordWeights, order_classes

NAMES = ["cat", "dog", "eel"]


def weigh(
    sampling: ClassBalanced | ClassWeights, counts: list[int], names: list[str] | None = None
) -> dict[int, float]:
    return sampling.weigh(np.array(counts), NAMES if names is None else names)


def test_weights_of_labels() -> None:
    assert weigh(ClassBalanced(), [5, 0, 1]) == {0: 1.0, 2: 1.0}
    assert weigh(ClassWeights({"dog": 1, "cat": 2.5, "eel": 0}), [5, 1, 1]) == {0: 2.5, 1: 1.0}
    assert weigh(ClassWeights([0, 3, 1.5]), [5, 1, 1]) == {1: 3.0, 2: 1.5}
    assert weigh(ClassWeights(np.array([1, 0, 2], np.float32)), [5, 0, 1]) == {0: 1.0, 2: 2.0}  # type: ignore[arg-type]
    assert weigh(ClassWeights((1, 2)), [5, 1], []) == {0: 1.0, 1: 2.0}


def test_equal_weights_are_equal() -> None:
    """A reading's state holds a digest of what is written here."""
    one, two = ClassWeights({"b": 1, "a": 2}), ClassWeights({"a": 2.0, "b": 1.0})
    assert one == two
    assert repr(one) == repr(two) == "ClassWeights(weights={'a': 2.0, 'b': 1.0})"
    assert (
        repr(ClassWeights([1, 2]))
        == repr(ClassWeights(np.array([1, 2])))
        == "ClassWeights(weights=(1.0, 2.0))"
    )  # type: ignore[arg-type]
    assert (
        repr(RecordWeights(lambda rows: rows["width"]))
        == repr(RecordWeights(weigh_widths))
        == "RecordWeights()"
    )
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(RecordWeights(weigh_widths))).weigh_rows is weigh_widths


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            "cat",
            "ClassWeights('cat') must be given {class name: weight}, or a list of weights by label",
        ),
        (
            2.0,
            "ClassWeights(2.0) must be given {class name: weight}, or a list of weights by label",
        ),
        ({}, "ClassWeights({}) must be given {class name: weight}, or a list of weights by label"),
        ([], "ClassWeights([]) must be given {class name: weight}, or a list of weights by label"),
        ({"cat": -1}, "ClassWeights: -1, the weight of class 'cat', must be a number, 0 or more"),
        (
            {"cat": math.nan},
            "ClassWeights: nan, the weight of class 'cat', must be a number, 0 or more",
        ),
        (
            {"cat": math.inf},
            "ClassWeights: inf, the weight of class 'cat', must be a number, 0 or more",
        ),
        (
            {"cat": True},
            "ClassWeights: True, the weight of class 'cat', must be a number, 0 or more",
        ),
        ([1, "2"], "ClassWeights: '2', the weight of class 1, must be a number, 0 or more"),
        ([1, None], "ClassWeights: None, the weight of class 1, must be a number, 0 or more"),
        ([0, 0.0], "ClassWeights: one weight at least must be above 0"),
    ],
)
def test_what_are_no_class_weights(weights: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ClassWeights(weights)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("weights", "counts", "names", "message"),
    [
        (
            {"cat": 1, "dgo": 1},
            [1, 1, 1],
            NAMES,
            "ClassWeights: the dataset has no class 'dgo'; its classes are 'cat', 'dog', 'eel'",
        ),
        (
            {"cat": 1},
            [1, 1, 1],
            NAMES,
            "ClassWeights gives no weight for 'dog', 'eel': give every class one, 0 to leave it out",
        ),
        (
            {"x": 1},
            [1] * 9,
            [f"c{n}" for n in range(9)],
            "ClassWeights: the dataset has no class 'x'; its classes are 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more",
        ),
        (
            {"cat": 1},
            [1],
            [],
            "ClassWeights: this dataset has no class names; give a list of weights by label",
        ),
        (
            [1, 1],
            [1, 1, 1],
            NAMES,
            "ClassWeights has 2 weights for 3 classes: give each label one, 0 to leave it out",
        ),
        (
            [1, 1],
            [1, 1, 1],
            [],
            "ClassWeights has 2 weights for 3 classes: give each label one, 0 to leave it out",
        ),
        (
            {"cat": 1, "dog": 2, "eel": 1},
            [1200, 0, 1],
            NAMES,
            "ClassWeights: class 'dog' has weight 2.0, and no record among the 1,201 labelled ones that are read: "
            "give it weight 0, or read more of the dataset",
        ),
        (
            [1, 1],
            [0, 4],
            [],
            "ClassWeights: class 0 has weight 1.0, and no record among the 4 labelled ones that are read: "
            "give it weight 0, or read more of the dataset",
        ),
    ],
)
def test_weights_that_do_not_fit(
    weights: Any, counts: list[int], names: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        weigh(ClassWeights(weights), counts, names)
    assert str(caught.value) == message


@pytest.mark.parametrize("sampling", [ClassBalanced(), ClassWeights([1.0])])
def test_a_dataset_without_labels(sampling: ClassBalanced | ClassWeights) -> None:
    message = f"sampling={type(sampling).__name__} needs labels, and none of the 1,500 records that are read has one"
    with pytest.raises(UsageError, match=message):
        order_classes(
            sampling, np.full(1500, -1, np.int32), np.array([1500]), class_names=[], seed=0
        )


def labels_of(
    order: Order, sizes: list[int], labels: NDArray[np.int32], count: int
) -> NDArray[np.int32]:
    """Labels of the first so many draws."""
    epochs, places = np.divmod(np.arange(count), order.size)
    shards, rows = order.locate(epochs, places)
    return labels[(np.cumsum(sizes) - sizes)[shards] + rows]


def test_classes_by_weight_from_labels() -> None:
    labels = np.array([2, 0, 0, -1, 0, 2, 1] * 10, np.int32)
    order = order_classes(
        ClassWeights({"cat": 1, "dog": 0, "eel": 3}),
        labels,
        np.array([30, 40]),
        class_names=NAMES,
        seed=4,
    )
    assert Counter(labels_of(order, [30, 40], labels, 6400).tolist()) == {0: 1600, 2: 4800}


def test_balanced_batches_of_an_unbalanced_dataset() -> None:
    """1 record, 99 and 9,900: every class a third of each batch of 256, within one block's cut at either end."""
    labels = np.repeat([0, 1, 2], [1, 99, 9900])
    np.random.default_rng(0).shuffle(labels)
    order = order_classes(
        ClassBalanced(), labels.astype(np.int32), np.array([4000, 6000]), class_names=NAMES, seed=0
    )
    records = labels_of(order, [4000, 6000], labels, 10_000)
    for batch in range(39):
        counts = np.bincount(records[batch * 256 : (batch + 1) * 256], minlength=3)
        assert np.abs(counts - 256 / 3).max() < 20
    assert np.abs(np.bincount(records) - 10_000 / 3).max() < 22


ROWS = pa.table({"id": ["a", "b", "c"], "width": pa.array([10, 20, 30], pa.int32())})


def weigh_widths(rows: pa.Table) -> Any:
    return rows["width"]


@pytest.mark.parametrize(
    "function",
    [
        weigh_widths,
        lambda rows: rows["width"].to_numpy() * 1.0,
        lambda rows: rows["width"].to_pylist(),
    ],
)
def test_weights_of_records(function: Any) -> None:
    found = RecordWeights(function).weigh(ROWS)
    assert found.dtype == np.float64
    assert found.tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1, 2], r"RecordWeights: the function gave int64 [2] for 3 index rows, not a number each"),
        (1.0, r"RecordWeights: the function gave float64 [] for 3 index rows, not a number each"),
        (
            ["a", "b", "c"],
            r"RecordWeights: the function gave <U1 [3] for 3 index rows, not a number each",
        ),
        (None, r"RecordWeights: the function gave object [] for 3 index rows, not a number each"),
        (
            [1, -0.5, 2],
            "RecordWeights: the function gave -0.5 for record 'b': weights must be numbers, 0 or more",
        ),
        (
            [1, 2, math.nan],
            "RecordWeights: the function gave nan for record 'c': weights must be numbers, 0 or more",
        ),
        (
            [math.inf, 2, 1],
            "RecordWeights: the function gave inf for record 'a': weights must be numbers, 0 or more",
        ),
    ],
)
def test_what_are_no_record_weights(result: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        RecordWeights(lambda rows: result).weigh(ROWS)  # noqa: ARG005


def test_record_weights_are_a_function() -> None:
    with pytest.raises(
        UsageError,
        match=re.escape(
            "RecordWeights([1, 2]) must be given a function from index rows to weights"
        ),
    ):
        RecordWeights([1, 2])  # type: ignore[arg-type]
