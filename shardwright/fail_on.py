"""Parse and check the limits of `--fail-on`, which stop a scheduled task on a bad day."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shardwright.errors import UsageError

# Of records, in the order in which they are shown. One may have several but the first two at once.
CHANGES = ("new", "gone", "changed", "relabeled", "reannotated", "moved")
_LIMIT = re.compile(r"\s*([a-z]+(?:-[a-z]+)*)\s*>\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured value.

    Attributes:
        value: A number of things, or a measure such as drift.
        whole: The number of things of which a percentage is taken; None if it has no percentage.
    """

    value: float
    whole: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: a value above it fails.

    Attributes:
        name: Name of the measured value.
        above: The limit, in percent if `is_percentage`.
        is_percentage: True if the limit is a percentage of the whole.
    """

    name: str
    above: float
    is_percentage: bool

    def __str__(self) -> str:
        """Return the limit as it is written on the command line."""
        return f"{self.name}>{self.above:g}{'%' if self.is_percentage else ''}"


def parse_limits(text: str, names: Collection[str], percentages: Collection[str]) -> list[Limit]:
    """Return the limits in a text such as `drift>0.1,gone>0,changed>1%`.

    Args:
        text: Limits, separated by commas; may be empty.
        names: The values that are measured.
        percentages: Those of them that can be limited by a percentage.

    Raises:
        UsageError: A limit has another form, an unknown name, or a percentage that it cannot have.
    """
    limits = []
    for part in filter(None, text.split(",")):
        match = _LIMIT.fullmatch(part)
        if match is None or match[1] not in names:
            raise UsageError(
                f"--fail-on {part.strip()!r} is not a limit: write NAME>NUMBER or NAME>NUMBER%, "
                f"such as {next(iter(names))}>0.1; the names are {', '.join(names)}"
            )
        if match[3] and match[1] not in percentages:
            raise UsageError(
                f"--fail-on {part.strip()!r}: {match[1]} has no percentage; write a number "
                f"without %"
            )
        limits.append(Limit(match[1], float(match[2]), bool(match[3])))
    return limits


def parse_most(text: str, option: str, name: str) -> Limit:
    """Return the limit of an option of its own, such as `500` or `25%` of `--max-gone`.

    Args:
        text: The most that is allowed.
        option: The option.
        name: Name of the measured value.

    Raises:
        UsageError: The text is neither a number nor a percentage.
    """
    match = _LIMIT.fullmatch(f"{name}>{text}")
    if match is None:
        raise UsageError(
            f"{option} must be a number of records or a percentage, such as 500 or 25%, got "
            f"{text!r}"
        )
    return Limit(name, float(match[2]), bool(match[3]))


def exceeded(limits: Sequence[Limit], values: Mapping[str, Measured]) -> list[str]:
    """Return a line for each limit that a value exceeds, such as `gone>0: 12`."""
    found = []
    for limit in limits:
        measured = values[limit.name]
        value = measured.value
        if limit.is_percentage:
            value = 100 * value / max(measured.whole or 0, 1)
        if value > limit.above:
            found.append(f"{limit}: {value:.4g}{'%' if limit.is_percentage else ''}")
    return found
