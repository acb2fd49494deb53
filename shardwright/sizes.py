"""Parse, check and format sizes, durations and counts."""

from __future__ import annotations

import re

from shardwright.errors import UsageError

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 10**3, "m": 10**6, "g": 10**9,
}  # fmt: skip


def parse_size(text: str, option: str) -> int:
    """Return a size in bytes: 150,000,000 for `150MB`, 157,286,400 for `150MiB`, 5 for `5`."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].lower() not in _UNITS or float(match[1]) <= 0:
        raise UsageError(
            f"{option} {text!r} is not a size: "
            "write a number above 0 with a unit, such as 150MB or 128MiB"
        )
    num_bytes = int(float(match[1]) * _UNITS[match[2].lower()])
    if num_bytes < 1:
        raise UsageError(f"{option} {text!r} is less than one byte")
    return num_bytes


def show_bytes(num_bytes: float) -> str:
    """Return a size such as `153.2 MB`, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def show_seconds(seconds: float) -> str:
    """Return a duration such as `1:02:03`, or `2:03` below one hour."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count of things, such as `1 shard` or `1,024 shards`.

    Args:
        number: The count.
        noun: The name of one thing.
        plural: Of several; "" for the regular one.
    """
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {noun if number == 1 else plural or noun + ending}"


def show_number(number: float) -> str:
    """Return a number as people write it: `1,024`, `0.125`, `1.2e-07`."""
    if isinstance(number, int):
        return f"{number:,}"
    if number == int(number) and abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:,.4g}" if abs(number) < 1e5 else f"{number:,.0f}"


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `UsageError` if the argument `name` is not a whole number of at least `least`."""
    # `type`, because True is an int, and a NumPy integer is not JSON for `state()`.
    if type(value) is not int or value < least:
        raise UsageError(f"{name}={value!r} must be a whole number, at least {least}")
