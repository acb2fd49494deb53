"""Options for `sampling=`: which classes to draw more often. `sampled_orders` implements them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.reader.order import I64
from shardwright.reader.sampled_orders import ClassOrder
from shardwright.sizes import counted

_SHOWN = 5  # names in a message


class Sampling:
    """The base class of `sampling=`: `ClassBalanced` or `ClassWeights`."""

    def weigh(self, counts: I64, class_names: Sequence[str]) -> dict[int, float]:
        """Return label -> weight above 0, for classes with records.

        Args:
            counts: Records of each label, [labels].
            class_names: By label; empty if the dataset has none.

        Raises:
            UsageError: The weights do not fit these classes.
        """
        raise NotImplementedError

    def _order(
        self, labels: NDArray[np.int32], sizes: I64, *, class_names: Sequence[str], seed: int
    ) -> ClassOrder:
        """Return the order of records that are drawn by class.

        Args:
            labels: Labels of all selected records, shard after shard, [records]; -1 for none.
            sizes: Selected records of each shard, [shards].
            class_names: By label; empty if the dataset has none.
            seed: Any whole number.

        Raises:
            UsageError: No record has a label, or the weights do not fit the classes.
        """
        counts = np.bincount(labels[labels >= 0], minlength=len(class_names)).astype(np.int64)
        if not counts.any():
            raise UsageError(
                f"sampling={type(self).__name__} needs labels, "
                f"but none of the {counted(len(labels), 'record')} has one"
            )
        return ClassOrder(labels, sizes, self.weigh(counts, class_names), seed)


@dataclass(frozen=True)
class ClassBalanced(Sampling):
    """A sampling that draws every class equally often, so records of rare classes repeat sooner.

    The records of a class come in turn, in another order each pass, give or take one block of
    places (at least 64; see `sampled_orders`). Classes without records and unlabeled records are
    never drawn.
    """

    def weigh(self, counts: I64, class_names: Sequence[str]) -> dict[int, float]:  # noqa: ARG002
        return dict.fromkeys(np.flatnonzero(counts).tolist(), 1.0)


@dataclass(frozen=True)
class ClassWeights(Sampling):
    """A sampling that draws classes by weight, whatever the number of their records.

    With weights 2 and 1, two draws in three are of the first class.

    Args:
        weights: {class name: weight} for every class, 0 to leave one out; {label: weight} if the
            dataset has no class names.

    Raises:
        UsageError: A weight is not a number of at least 0, or none is above 0.
    """

    weights: Mapping[str, float] | Mapping[int, float]

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise UsageError(f"ClassWeights({self.weights!r}) must be {{class name: weight}}")
        # A canonical form: equal weights must give equal fingerprints.
        known = sorted(_floats(self.weights).items(), key=lambda item: str(item[0]))
        object.__setattr__(self, "weights", dict(known))

    def weigh(self, counts: I64, class_names: Sequence[str]) -> dict[int, float]:
        weights: Mapping[Any, float] = self.weights
        names: Sequence[Any] = class_names or range(len(counts))
        unknown = [name for name in weights if name not in names]
        missing = [name for name in names if name not in weights]
        if unknown:
            raise UsageError(
                f"ClassWeights: the dataset has no class {_show(unknown)}; "
                f"its classes are {_show(names)}"
            )
        if missing:
            raise UsageError(
                f"ClassWeights gives no weight for {_show(missing)}: "
                "give every class one, 0 to leave it out"
            )
        for label, name in enumerate(names):
            # A class without records would leave its share of every batch to nobody.
            if weights[name] and not counts[label]:
                raise UsageError(
                    f"ClassWeights: class {name!r} has weight {weights[name]}, but none of the "
                    f"{int(counts.sum()):,} labeled records: "
                    "set its weight to 0, or read more of the dataset"
                )
        return {label: weights[name] for label, name in enumerate(names) if weights[name]}


def _floats(weights: Mapping[Any, Any]) -> dict[Any, float]:
    """Return weights by class as floats; raise `UsageError` if one is invalid or all are 0."""
    for name, weight in weights.items():
        if (
            # Before the number check: True is a Real.
            isinstance(weight, bool)
            or not isinstance(weight, Real)
            or not 0 <= float(weight) < math.inf
        ):
            raise UsageError(
                f"ClassWeights: the weight of class {name!r} must be a finite number "
                f"of at least 0, got {weight!r}"
            )
    if not any(weights.values()):
        raise UsageError("ClassWeights: at least one weight must be above 0")
    return {name: float(weight) for name, weight in weights.items()}


def _show(names: Sequence[Any]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
