"""Parse `split` arguments: splits, sums of splits and slices of them, in TFDS syntax.

train            all of it                    train[:10%]      the first tenth of its records
train+test       one after the other          train[5000:]     all but the first 5,000
all              every split                  train[-10%:]     the last tenth
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from shardwright.errors import UsageError

ALL_SPLITS = "all"

_PART = re.compile(r"\s*(?P<name>\w+)\s*(\[(?P<start>[^:\]]*):(?P<stop>[^:\]]*)\])?\s*")
_BOUND = re.compile(r"\s*(?P<number>-?\d+(_\d+)*(?P<decimals>\.\d+)?)\s*(?P<percent>%?)\s*")


@dataclass(frozen=True, slots=True)
class Span:
    """Records [start, stop) of a split, counted in stored order."""

    split: str
    start: int
    stop: int

    @property
    def num_records(self) -> int:
        return self.stop - self.start


def parse_split(
    text: object, sizes: Mapping[str, int], dataset: str = "the dataset"
) -> tuple[Span, ...]:
    """Return the spans that `text` selects, in its order.

    Args:
        text: Such as "train", "train[:10%]", "train[:90%]+validation", "all".
        sizes: Number of records by split.
        dataset: Name of the dataset, for messages.

    Raises:
        UsageError: The syntax is invalid, a split is unknown, a bound is not whole or beyond 100 %,
            or two parts overlap.
    """
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            f"split={text!r} must be a name, such as 'train' or 'train[:10%]'; "
            f"{ALL_SPLITS!r} is all of {', '.join(sizes)}"
        )
    # A split may be named "all" itself, and is meant then.
    if text.strip() == ALL_SPLITS and ALL_SPLITS not in sizes:
        return tuple(Span(split, 0, size) for split, size in sizes.items())
    spans = tuple(_parse_part(part, text, sizes, dataset) for part in text.split("+"))
    for one, other in combinations(spans, 2):
        if one.split == other.split and max(one.start, other.start) < min(one.stop, other.stop):
            raise UsageError(
                f"split {text!r} selects some records of {one.split!r} twice: "
                "its parts must not overlap"
            )
    return spans


def _parse_part(part: str, text: str, sizes: Mapping[str, int], dataset: str) -> Span:
    match = _PART.fullmatch(part)
    if match is None:
        raise UsageError(
            f"split={text!r}: {part.strip()!r} is invalid; "
            "write 'train', 'train[:10%]', 'train[5000:]' or 'train[10%:20%]'"
        )
    name = match["name"]
    if name not in sizes:
        raise UsageError(
            f"split {name!r} is not in {dataset}, which has {', '.join(sizes)} "
            f"(join several with '+'; {ALL_SPLITS!r} is all of them)"
        )
    size = sizes[name]
    start = _parse_bound(match["start"], 0, size, text)
    stop = _parse_bound(match["stop"], size, size, text)
    # As in Python's slices, a stop before the start selects nothing.
    return Span(name, start, max(start, stop))


def _parse_bound(bound: str | None, default: int, size: int, text: str) -> int:
    """Return a bound as a number of records, clipped to the split like Python's slices.

    Percentages are rounded to the nearest record, half to even, as in TFDS.
    """
    if bound is None or not bound.strip():
        return default
    match = _BOUND.fullmatch(bound)
    if match is None or (match["decimals"] and not match["percent"]):
        raise UsageError(
            f"split={text!r}: {bound.strip()!r} must be a whole number of records "
            "or a percentage, such as 5000 or 10%"
        )
    if not match["percent"]:
        number = int(match["number"])
        return min(max(number + size if number < 0 else number, 0), size)
    percent = float(match["number"])
    if abs(percent) > 100:
        raise UsageError(f"split={text!r}: {bound.strip()} is more than 100 %")
    number = round(percent * size / 100.0)  # the expression of TFDS's `_pct_to_abs_closest`
    # Unlike TFDS: it takes -1% of 10 records, which rounds to none, for all of them.
    return number + size if percent < 0 else number
