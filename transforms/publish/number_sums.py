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
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BINS = 40
_FIRST = 8192  # added to the number of a positive value's bin, so that all are above 0
_ZERO = 0
_LAST, _BINS = 1 << 14, 1 << 15  # above the numbers of all bins, and how many there are at most


def describe_numbers(
    columns: Sequence[NDArray[Any]], edges: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Return a part of a summary of each column, as JSON; {} without values.

    All columns are described together, because a call of NumPy takes as long for one value as for
    a thousand, and a table may have thousands of columns.

    Args:
        columns: Integers or floats of one type, [values]. Those that are not finite are counted
            only.
        edges: Edges of the histogram; values outside count in the first or last bin.
    """
    values, lengths = np.concatenate(columns), list(map(len, columns))
    owners = np.repeat(np.arange(len(columns)), lengths)
    is_finite = np.isfinite(values)
    finite, owners = values[is_finite], owners[is_finite]
    wide = finite.astype(np.float64)
    owned = np.bincount(owners, minlength=len(columns))
    zeros = np.bincount(owners[wide == 0], minlength=len(columns)).tolist()
    some = np.flatnonzero(owned)
    starts = (np.cumsum(owned) - owned)[some]
    numbers, counts = np.unique(owners * _BINS + _bins_of(wide, edges), return_counts=True)
    bins: list[dict[str, int]] = [{} for _ in columns]
    for owner, number, count in zip(
        *(each.tolist() for each in (*np.divmod(numbers + _LAST, _BINS), counts)), strict=True
    ):
        bins[owner][str(number - _LAST)] = count
    plain, squares = wide.tolist(), (wide * wide).tolist()
    parts: list[dict[str, Any]] = [
        {"count": len(column)} if len(column) else {} for column in columns
    ]
    for owner in np.flatnonzero(owned < lengths).tolist():
        parts[owner]["nonfinite"] = lengths[owner] - int(owned[owner])
    for owner, start, low, high in zip(
        some.tolist(),
        starts.tolist(),
        np.minimum.reduceat(finite, starts).tolist() if len(some) else (),
        np.maximum.reduceat(finite, starts).tolist() if len(some) else (),
        strict=True,
    ):
        own = slice(start, start + int(owned[owner]))
        parts[owner] |= {
            # Of 0.0 and -0.0, which are equal, the order of the parts would choose one.
            "min": low + 0,
            "max": high + 0,
            "sum": math.fsum(plain[own]),
            "squares": math.fsum(squares[own]),
            "zeros": zeros[owner],
            "bins": bins[owner],
        }
    return parts


def add_part(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a part to a sum of parts, number by number: `min` and `max` are kept, all else is summed.

    Sums of floats become exact fractions. All else is plain, because a runner pickles many parts.
    """
    for key, more in part.items():
        there = total.get(key)
        if isinstance(more, dict):
            add_part(total.setdefault(key, {}), more)
        elif there is None:
            total[key] = more
        elif key == "min" or isinstance(more, str):
            total[key] = min(there, more)
        elif key == "max":
            total[key] = max(there, more)
        elif isinstance(more, list):
            total[key] = [one + other for one, other in zip(there, more, strict=True)]
        else:
            exact = isinstance(there, int) and isinstance(more, int)
            total[key] = there + more if exact else Fraction(there) + Fraction(more)


def merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of parts."""
    total: dict[str, Any] = {}
    for part in parts:
        add_part(total, part)
    return total


def published(part: Mapping[str, Any], edges: Sequence[float] | None = None) -> dict[str, Any]:
    """Return the summary of a part as published; `edges` as for the part."""
    told: dict[str, Any] = {"count": part.get("count", 0)}
    if part.get("nonfinite"):
        told["nonfinite"] = part["nonfinite"]
    if "sum" not in part:
        return told
    finite = told["count"] - told.get("nonfinite", 0)
    # Exact until the last step, in whole numbers, which are faster than fractions.
    total, unit = part["sum"].as_integer_ratio()
    squares, square_unit = part["squares"].as_integer_ratio()
    unit *= finite
    variance = squares * unit * unit - total * total * square_unit * finite
    bins = {int(number): count for number, count in part["bins"].items()}
    return told | {
        "min": part["min"],
        "max": part["max"],
        "mean": total / unit,
        "std": math.sqrt(max(variance, 0) / (square_unit * finite * unit * unit)),
        "zeros": part["zeros"],
        "histogram": _joined_bins(bins) if edges is None else _fixed(bins, edges),
    }


def _fixed(bins: Mapping[int, int], edges: Sequence[float]) -> dict[str, Any]:
    return {"edges": list(edges), "counts": [bins.get(n, 0) for n in range(len(edges) - 1)]}


def _joined_bins(found: Mapping[int, int]) -> dict[str, Any]:
    """Return at most `MAX_BINS` bins that touch each other."""
    for shift in range(32):
        bins = _joined_by(found, shift)
        if len(bins) <= MAX_BINS:
            break
    edges = [_edges_of(number, shift)[0] for number, _ in bins]
    edges.append(_edges_of(bins[-1][0], shift)[1])
    for place, (number, _) in enumerate(bins):
        if number == _ZERO:  # reaches to its neighbors, or to the next bin's edge
            edges[place], edges[place + 1] = _zero_edges(bins, place, shift)
    return {"edges": edges, "counts": [count for _, count in bins]}


def _bins_of(values: NDArray[np.float64], edges: Sequence[float] | None) -> NDArray[np.intp]:
    if edges is not None:
        return np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
    fractions, exponents = np.frexp(np.abs(values))
    # `frexp` gives 0.5 to 1, so this is 0 to 3.
    quarters = ((fractions - 0.5) * 8).astype(np.intp)
    numbers = exponents.astype(np.intp) * 4 + quarters + _FIRST
    return np.where(values == 0, _ZERO, np.where(values < 0, -numbers, numbers))


def _joined_by(bins: Mapping[int, int], shift: int) -> list[tuple[int, int]]:
    """Return (number, count) of ascending bins of 2 ** shift neighbors, with empty ones between."""
    joined: Counter[int] = Counter()
    for number, count in bins.items():
        sign = (number > 0) - (number < 0)
        # One more than the shifted number, or the lowest bin of a large shift would become that of
        # zero.
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
