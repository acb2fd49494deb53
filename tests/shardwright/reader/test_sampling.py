"""`sampling=`: its forms, the weights of a dataset's classes, and errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from shardwright.errors import UsageError
from shardwright.reader.sampling import ClassBalanced, ClassWeights

NAMES = ["cat", "dog", "eel"]


def weigh(sampling: Any, counts: list[int], names: list[str] = NAMES) -> dict[int, float]:
    weights: dict[int, float] = sampling.weigh(np.array(counts), names)
    return weights


def test_weights_of_labels() -> None:
    assert weigh(ClassBalanced(), [5, 0, 1]) == {0: 1.0, 2: 1.0}
    assert weigh(ClassWeights({"dog": 1, "cat": 2.5, "eel": 0}), [5, 1, 1]) == {0: 2.5, 1: 1.0}
    assert weigh(ClassWeights({0: 1, 1: np.float32(2)}), [5, 1], []) == {0: 1.0, 1: 2.0}


def test_equal_weights_are_equal() -> None:
    """The state of a reader holds a digest of this text."""
    one, two = ClassWeights({"b": 1, "a": 2}), ClassWeights({"a": 2.0, "b": 1.0})
    assert one == two
    assert repr(one) == repr(two) == "ClassWeights(weights={'a': 2.0, 'b': 1.0})"
    assert pickle.loads(pickle.dumps(one)) == one


NOT_GIVEN = "must be {class name: weight}"
NOT_A_NUMBER = "must be a finite number of at least 0"


@pytest.mark.parametrize(("weights", "message"), [
    ("cat", f"ClassWeights('cat') {NOT_GIVEN}"),
    (2.0, f"ClassWeights(2.0) {NOT_GIVEN}"),
    ({}, f"ClassWeights({{}}) {NOT_GIVEN}"),
    ([1, 2], f"ClassWeights([1, 2]) {NOT_GIVEN}"),
    ({"cat": -1}, f"ClassWeights: the weight of class 'cat' {NOT_A_NUMBER}, got -1"),
    ({"cat": math.nan}, f"ClassWeights: the weight of class 'cat' {NOT_A_NUMBER}, got nan"),
    ({"cat": math.inf}, f"ClassWeights: the weight of class 'cat' {NOT_A_NUMBER}, got inf"),
    ({"cat": True}, f"ClassWeights: the weight of class 'cat' {NOT_A_NUMBER}, got True"),
    ({0: 1, 1: "2"}, f"ClassWeights: the weight of class 1 {NOT_A_NUMBER}, got '2'"),
    ({1: None}, f"ClassWeights: the weight of class 1 {NOT_A_NUMBER}, got None"),
    ({0: 0, 1: 0.0}, "ClassWeights: at least one weight must be above 0"),
])  # fmt: skip
def test_invalid_class_weights(weights: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ClassWeights(weights)
    assert str(caught.value) == message


NO_RECORD = "labeled records: set its weight to 0, or read more of the dataset"


@pytest.mark.parametrize(("weights", "counts", "names", "message"), [
    ({"cat": 1, "dgo": 1}, [1, 1, 1], NAMES,
     "ClassWeights: the dataset has no class 'dgo'; its classes are 'cat', 'dog', 'eel'"),
    ({"cat": 1}, [1, 1, 1], NAMES,
     "ClassWeights gives no weight for 'dog', 'eel': give every class one, 0 to leave it out"),
    ({"x": 1}, [1] * 9, [f"c{n}" for n in range(9)],
     "ClassWeights: the dataset has no class 'x'; its classes are 'c0', 'c1', 'c2', 'c3', 'c4' and "
     "4 more"),
    ({"cat": 1}, [1], [],
     "ClassWeights: the dataset has no class 'cat'; its classes are 0"),
    ({"cat": 1, "dog": 2, "eel": 1}, [1200, 0, 1], NAMES,
     f"ClassWeights: class 'dog' has weight 2.0, but none of the 1,201 {NO_RECORD}"),
    ({0: 1, 1: 1}, [0, 4], [],
     f"ClassWeights: class 0 has weight 1.0, but none of the 4 {NO_RECORD}"),
])  # fmt: skip
def test_unsuitable_weights(weights: Any, counts: list[int], names: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        weigh(ClassWeights(weights), counts, names)
    assert str(caught.value) == message


@pytest.mark.parametrize("sampling", [ClassBalanced(), ClassWeights({0: 1.0})])
def test_a_dataset_without_labels(sampling: ClassBalanced | ClassWeights) -> None:
    what = "needs labels, but none of the 1,500 records has one"
    labels = np.full(1500, -1, np.int32)
    with pytest.raises(UsageError, match=f"sampling={type(sampling).__name__} {what}"):
        sampling._order(labels, np.array([1500]), class_names=[], seed=0)
