"""Summarize numbers in bounded memory: count, range, mean, deviation, zeros and a histogram.

Parts can be merged in any order and give the same bytes: a shard's sums are correctly rounded
(`math.fsum`), and sums over shards are exact fractions of them.

Without given edges, a value counts in one of four bins per power of two, as in HdrHistogram
(https://hdrhistogram.github.io/HdrHistogram/), so no pass is needed to find the range. To publish
them, neighbors are joined until at most `MAX_BINS` have values.
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
# Of all float32 but the smallest, which count as zero.
_POSITIVE = np.outer(np.ldexp(1.0, np.arange(-24, 129)), [1, 1.25, 1.5, 1.75]).ravel()
_EDGES = [*(-_POSITIVE[::-1]).tolist(), 0.0, *_POSITIVE.tolist()]


def describe_numbers(
    columns: Sequence[NDArray[Any]], edges: Sequence[float] = _EDGES
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
    places = np.clip(np.searchsorted(edges, wide, "right") - 1, 0, len(edges) - 2)
    numbers, counts = np.unique(owners * len(edges) + places, return_counts=True)
    bins: list[dict[str, int]] = [{} for _ in columns]
    for owner, number, count in zip(
        *(each.tolist() for each in (*np.divmod(numbers, len(edges)), counts)), strict=True
    ):
        bins[owner][str(number)] = count
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
        "histogram": _joined(bins) if edges is None else _fixed(bins, edges),
    }


def _fixed(bins: Mapping[int, int], edges: Sequence[float]) -> dict[str, Any]:
    return {"edges": list(edges), "counts": [bins.get(n, 0) for n in range(len(edges) - 1)]}


def _joined(bins: Mapping[int, int]) -> dict[str, Any]:
    """Return at most `MAX_BINS` bins with values, and each gap between them as an empty bin."""
    shift = 0
    while len({number >> shift for number in bins}) > MAX_BINS:
        shift += 1
    joined: Counter[int] = Counter()
    for number, count in bins.items():
        joined[number >> shift] += count
    edges, counts = [_EDGES[min(joined) << shift]], []
    for number in sorted(joined):
        low, high = number << shift, min(number + 1 << shift, len(_EDGES) - 1)
        if edges[-1] < _EDGES[low]:
            edges.append(_EDGES[low])
            counts.append(0)
        edges.append(_EDGES[high])
        counts.append(joined[number])
    return {"edges": edges, "counts": counts}
