"""Summarize numbers in bounded memory: count, range, mean, deviation, zeros and a histogram.

Parts can be merged in any order and give the same bytes: a shard's sums are correctly rounded
(`math.fsum`), and sums over shards are exact fractions of them.

Without given edges, a value counts in one of four bins per power of two, as in HdrHistogram
(https://hdrhistogram.github.io/HdrHistogram/), so no pass is needed to find the range; a bin
of negative numbers holds its upper edge. To publish
them, neighbors are joined until at most `MAX_BINS` are left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BINS = 40
_FIRST = 8192  # added to the number of a positive value's bin, so that all are above 0
_ZERO = 0


def describe_numbers(
    values: NDArray[Any], edges: Sequence[float] | None = None
) -> dict[str, Any] | None:
    """Return a part of a summary, as JSON; None without values.

    Args:
        values: Integers or floats, [values]. Those that are not finite are counted only.
        edges: Edges of the histogram; values outside count in the first or last bin.
    """
    if not len(values):
        return None
    finite = values[np.isfinite(values)]
    part: dict[str, Any] = {"count": len(values)}
    if len(finite) < len(values):
        part["nonfinite"] = len(values) - len(finite)
    if not len(finite):
        return part
    wide = finite.astype(np.float64)
    bins, counts = np.unique(_bins_of(wide, edges), return_counts=True)
    return part | {
        # Of 0.0 and -0.0, which are equal, the order of the parts would choose one.
        "min": finite.min().item() + 0,
        "max": finite.max().item() + 0,
        "sum": math.fsum(wide.tolist()),
        "squares": math.fsum((wide * wide).tolist()),
        "zeros": int(np.count_nonzero(wide == 0)),
        "bins": {
            str(number): count for number, count in zip(bins.tolist(), counts.tolist(), strict=True)
        },
    }


class NumberSum:
    """The sum of parts of `describe_numbers` with the same edges."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()  # count, nonfinite and zeros
        self._ends: tuple[float, float] | None = None
        self._sums = [Fraction(0), Fraction(0)]
        self._bins: Counter[int] = Counter()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle makes it of: plain values, because a runner pickles many sums."""
        sums = [total.as_integer_ratio() for total in self._sums]
        return _number_sum, (dict(self._counts), self._ends, sums, dict(self._bins))

    def add(self, part: Mapping[str, Any]) -> None:
        """Add a part."""
        self._counts.update({key: part.get(key, 0) for key in ("count", "nonfinite", "zeros")})
        if "min" in part:
            self._widen((part["min"], part["max"]))
            self._add_sums([Fraction(part["sum"]), Fraction(part["squares"])])
            self._bins.update({int(number): count for number, count in part["bins"].items()})

    def add_all(self, other: NumberSum) -> None:
        """Add another sum."""
        self._counts.update(other._counts)
        if other._ends is not None:
            self._widen(other._ends)
        self._add_sums(other._sums)
        self._bins.update(other._bins)

    def _widen(self, ends: tuple[float, float]) -> None:
        low, high = self._ends or ends
        self._ends = min(low, ends[0]), max(high, ends[1])

    def _add_sums(self, sums: Sequence[Fraction]) -> None:
        self._sums = [there + more for there, more in zip(self._sums, sums, strict=True)]

    def to_json(self, edges: Sequence[float] | None = None) -> dict[str, Any]:
        """Return the summary as published; `edges` as for the parts."""
        counts = self._counts
        told: dict[str, Any] = {"count": counts["count"]}
        if counts["nonfinite"]:
            told["nonfinite"] = counts["nonfinite"]
        finite = counts["count"] - counts["nonfinite"]
        if self._ends is None or not finite:
            return told
        mean, square = (total / finite for total in self._sums)
        return told | {
            "min": self._ends[0],
            "max": self._ends[1],
            "mean": float(mean),
            "std": math.sqrt(max(Fraction(0), square - mean * mean)),
            "zeros": counts["zeros"],
            "histogram": self._fixed(edges) if edges is not None else self._joined(),
        }

    def _fixed(self, edges: Sequence[float]) -> dict[str, Any]:
        counts = [self._bins[number] for number in range(len(edges) - 1)]
        return {"edges": list(edges), "counts": counts}

    def _joined(self) -> dict[str, Any]:
        """Return at most `MAX_BINS` bins that touch each other."""
        for shift in range(32):
            bins = _joined_by(self._bins, shift)
            if len(bins) <= MAX_BINS:
                break
        edges = [_edges_of(number, shift)[0] for number, _ in bins]
        edges.append(_edges_of(bins[-1][0], shift)[1])
        for place, (number, _) in enumerate(bins):
            if number == _ZERO:  # reaches to its neighbors, or to the next bin's edge
                edges[place], edges[place + 1] = _zero_edges(bins, place, shift)
        return {"edges": edges, "counts": [count for _, count in bins]}


def _number_sum(
    counts: Mapping[str, int],
    ends: tuple[float, float] | None,
    sums: Sequence[tuple[int, int]],
    bins: Mapping[int, int],
) -> NumberSum:
    found = NumberSum()
    found._counts.update(counts)
    found._ends, found._sums = ends, [Fraction(*total) for total in sums]
    found._bins.update(bins)
    return found


def _bins_of(values: NDArray[np.float64], edges: Sequence[float] | None) -> NDArray[np.intp]:
    if edges is not None:
        return np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
    fractions, exponents = np.frexp(np.abs(values))
    quarters = ((fractions - 0.5) * 8).astype(np.intp)
    numbers = exponents.astype(np.intp) * 4 + quarters + _FIRST
    return np.where(values == 0, _ZERO, np.where(values < 0, -numbers, numbers))


def _joined_by(bins: Mapping[int, int], shift: int) -> list[tuple[int, int]]:
    """Return (number, count) of ascending bins of 2 ** shift neighbors, with empty ones between."""
    joined: Counter[int] = Counter()
    for number, count in bins.items():
        sign = (number > 0) - (number < 0)
        joined[sign * ((abs(number) >> shift) + (number != _ZERO))] += count
    numbers: list[int] = []
    for some in (sorted(n for n in joined if n < 0), sorted(n for n in joined if n > 0)):
        numbers += range(some[0], some[-1] + 1) if some else ()
    if _ZERO in joined or (min(joined) < 0 < max(joined)):
        numbers.append(_ZERO)
    return [(number, joined[number]) for number in sorted(numbers)]


def _edges_of(number: int, shift: int) -> tuple[float, float]:
    if number == _ZERO:
        return 0.0, 0.0
    first = (abs(number) - 1) << shift
    low, high = _edge(first), _edge(first + (1 << shift))
    return (low, high) if number > 0 else (-high, -low)


def _zero_edges(bins: Sequence[tuple[int, int]], place: int, shift: int) -> tuple[float, float]:
    """Return the edges of the bin of zero: those of its neighbors, else its own width."""
    below = _edges_of(bins[place - 1][0], shift)[1] if place else None
    above = _edges_of(bins[place + 1][0], shift)[0] if place + 1 < len(bins) else None
    if below is None and above is None:
        return 0.0, 1.0
    return (0.0 if below is None else below), (0.0 if above is None else above)


def _edge(number: int) -> float:
    """Return the lowest absolute value of a bin."""
    exponent, quarter = divmod(number - _FIRST, 4)
    if exponent < -1080:
        return 0.0
    try:
        return math.ldexp(0.5 + quarter / 8, exponent)
    except OverflowError:
        return math.inf
