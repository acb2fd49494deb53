"""The facts about a planned build that its estimates follow from, and the form of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.pipelines.estimates.timed_sample import TimedSample
from shardwright.pipelines.estimates.workers import Workers
from shardwright.sizes import show_bytes, show_seconds


@dataclass(frozen=True, kw_only=True)
class PlannedWork:
    """The facts about a build that the estimates follow from.

    Attributes:
        num_records: Number of records.
        shard_bytes: Bytes of each shard, of all splits.
        largest_records: Most records of a shard.
        bytes_read: Bytes of all images and features.
        output: Scheme of OUTPUT's store; "" for a local folder.
        planning_requests: Requests to stores while this plan was made.
        decodes: Images are decoded.
        sample: The timed sample.
        workers: Workers of the runner.
    """

    num_records: int
    shard_bytes: Sequence[int]
    largest_records: int
    bytes_read: int
    output: str
    planning_requests: int
    decodes: bool
    sample: TimedSample
    workers: Workers


@dataclass(frozen=True, slots=True)
class Figure:
    """One estimate.

    Attributes:
        name: What is estimated.
        value: The estimate.
        unit: "requests", "bytes", "seconds" or "dollars".
        formula: How it follows from other figures.
    """

    name: str
    value: float
    unit: str
    formula: str

    @property
    def shown(self) -> str:
        """The value with its unit."""
        match self.unit:
            case "requests":
                return f"{self.value:,.0f}"
            case "bytes":
                return show_bytes(self.value)
            case "dollars":
                return f"${self.value:,.2f}" if self.value >= 0.01 else f"${self.value:.5f}"
        if self.value >= 60:
            return show_seconds(self.value)
        return f"{self.value:.3g} s" if self.value >= 1 else f"{1000 * self.value:.3g} ms"


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """All estimates of a build, and what is unknown or a reason to change the plan."""

    figures: Sequence[Figure]
    unknown: Sequence[str] = ()
    warning: str = ""
    sources: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that `plan --estimate --json` prints as `build_estimate`."""
        return {
            "figures": {
                each.name: {"value": each.value, "unit": each.unit, "formula": each.formula}
                for each in self.figures
            },
            "unknown": list(self.unknown),
            "warning": self.warning,
            "prices": list(self.sources),
        }

    def to_lines(self, runner: str) -> list[str]:
        """Return the estimates as lines of text, each with its formula."""
        width = max(len(each.name) for each in self.figures)
        lines = [f"estimate for {runner}:"]
        lines += [
            f"  {each.name:<{width}}  {each.shown:>10} = {each.formula}" for each in self.figures
        ]
        lines += [f"  unknown: {told}" for told in self.unknown]
        lines += [f"  prices: {told}" for told in self.sources]
        return [*lines, *([f"warning: {self.warning}"] if self.warning else [])]
