"""Read the table of prices for estimates: `prices.toml`, or the user's."""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardwright.errors import UsageError

DEFAULT = Path(__file__).with_name("prices.toml")
_REQUESTS = frozenset({"read", "write", "list"})  # per 1,000
# Sections, and the prices that each may have.
_KNOWN = {
    "s3": _REQUESTS,
    "gs": _REQUESTS,
    "az": _REQUESTS,
    "dataflow": frozenset({"vcpu_hour", "memory_gb_hour", "shuffle_gb"}),
    "memory_gb_per_vcpu": None,
}


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in US dollars by section and name, and where they are from.

    Attributes:
        by_section: For example `{"s3": {"read": 0.0004}}`.
        sources: Section -> source and date, for the output.
    """

    by_section: Mapping[str, Mapping[str, float]]
    sources: Mapping[str, str] = field(default_factory=dict)

    def of(self, section: str, name: str) -> float | None:
        """Return a price, or None if the table has none."""
        return self.by_section.get(section, {}).get(name)

    @classmethod
    def read(cls, path: str | Path = DEFAULT) -> Prices:
        """Return the table in a TOML file.

        Raises:
            UsageError: The file cannot be read, has an unknown name, or a price below 0.
        """
        try:
            content = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--prices {path} cannot be read: {error}") from error
        try:
            return cls(
                {section: _section(section, rows) for section, rows in content.items()},
                {section: _source(rows) for section, rows in content.items() if "source" in rows},
            )
        except ValueError as error:
            raise UsageError(f"--prices {path}: {error}; copy {DEFAULT} and edit it") from error


def _section(section: str, rows: Any) -> dict[str, float]:
    if section not in _KNOWN or not isinstance(rows, dict):
        raise ValueError(f"[{section}] is not one of the sections {', '.join(_KNOWN)}")
    known, found = _KNOWN[section], {}
    for name, value in rows.items():
        if name in ("source", "date"):
            continue
        if known is not None and name not in known:
            raise ValueError(f"[{section}] has no price {name!r}, only {', '.join(sorted(known))}")
        if type(value) not in (int, float) or not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} of [{section}] must be a number of at least 0, got {value!r}")
        found[name] = float(value)
    return found


def _source(rows: Mapping[str, Any]) -> str:
    date = rows.get("date")
    told = date.isoformat() if isinstance(date, datetime.date) else date
    return f"{rows['source']}, {told}" if told else str(rows["source"])
