"""Results, targets and Markdown of `growth.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import raw_results
from measure import Usage
from page import Target, spread, table

BUILD, FIND, LIST, APPEND, AGAIN, COMPACT = "build", "find", "list", "append", "again", "compact"
LOCAL, S3, TINY, DAYS = "local", "S3", "tiny", "days"
FRESH, GROWN, COMPACTED = "fresh build", "grown", "compacted"
CROPS, RECORDS = "crops", "records"
_PART_OF_BUILD = 0.03
_AGAIN_S, _AGAIN_BYTES = 8, 700e6
_LEAST = {GROWN: 0.9, COMPACTED: 0.98}
_PLACES = {
    LOCAL: "{files:,} photographs",
    S3: "{files:,} photographs on S3",
    TINY: "{files:,} tiny files",
    DAYS: "{files:,} photographs, daily",
}
_COMMANDS = {
    BUILD: "full build",
    FIND: "`find -printf '%s %T@'`",
    LIST: "listing alone",
    APPEND: "append",
    AGAIN: "append, nothing has changed",
    COMPACT: "compact",
}


@dataclass
class Growth:
    """The measurements of `growth.py`.

    Attributes:
        files: The number of files by part, before any append; absent if it was left out.
        days: The number of daily appends.
        runs: The whole commands, by part and command.
        rates: Crops or records a second, by kind and dataset, each by round.
        shards: The number of shards that were read, by dataset.
    """

    files: dict[str, int] = field(default_factory=dict)
    days: int = 0
    runs: dict[tuple[str, str], list[Usage]] = field(default_factory=dict)
    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)

    def add(self, part: str, command: str, usage: Usage) -> None:
        self.runs.setdefault((part, command), []).append(usage)

    def wall_s(self, part: str, command: str) -> float:
        """Return the median of the rounds in seconds."""
        return median(usage.wall_s for usage in self.runs[part, command])

    def ratios(self, kind: str, dataset: str) -> list[float]:
        """Return the rates relative to those of a fresh build in the same round."""
        pairs = zip(self.rates[kind, dataset], self.rates[kind, FRESH], strict=True)
        return [rate / fresh for rate, fresh in pairs]


def packed(growth: Growth) -> dict[str, Any]:
    """Return the results as JSON."""
    return {
        "files": growth.files,
        "days": growth.days,
        "runs": raw_results.pack(growth.runs),
        "rates": [[*case, rates] for case, rates in growth.rates.items()],
        "shards": growth.shards,
    }


def unpack(raw: Mapping[str, Any]) -> Growth:
    """Return the results from their JSON."""
    return Growth(
        files=dict(raw["files"]),
        days=raw["days"],
        runs=raw_results.unpack(raw["runs"], Usage),
        rates={(kind, dataset): rates for kind, dataset, rates in raw["rates"]},
        shards=dict(raw["shards"]),
    )


def _append_targets(growth: Growth) -> list[Target]:
    found = []
    for part in (LOCAL, S3):
        if part not in growth.files:
            continue
        build_s, list_s = growth.wall_s(part, BUILD), growth.wall_s(part, LIST)
        append_s, limit_s = growth.wall_s(part, APPEND), _PART_OF_BUILD * build_s + list_s
        place = _PLACES[part].format(files=growth.files[part])
        found.append(
            Target(
                f"1 % added to {place}: at most 3 % of a full build, and a listing",
                f"{append_s:.2f} s; 3 % of {build_s:.2f} s + {list_s:.2f} s = {limit_s:.2f} s",
                append_s <= limit_s,
            )
        )
    return found


def _again_targets(growth: Growth) -> list[Target]:
    if TINY not in growth.files:
        return []
    wall_s = growth.wall_s(TINY, AGAIN)
    peak = max(usage.peak_rss_bytes for usage in growth.runs[TINY, AGAIN])
    text = f"{_PLACES[TINY].format(files=growth.files[TINY])}, nothing has changed"
    return [
        Target(f"{text}: at most {_AGAIN_S} s", f"{wall_s:.2f} s", wall_s <= _AGAIN_S),
        Target(
            f"{text}: under {_AGAIN_BYTES / 1e6:.0f} MB",
            f"{peak / 1e6:.0f} MB",
            peak < _AGAIN_BYTES,
        ),
    ]


def _reading_targets(growth: Growth) -> list[Target]:
    found = []
    for kind, dataset in growth.rates:
        if dataset != FRESH:
            ratio, least = median(growth.ratios(kind, dataset)), _LEAST[dataset]
            text = f"{kind} of the {dataset} dataset: at least {least:g}x those of a fresh build"
            found.append(Target(text, f"{ratio:.3f}x", ratio >= least))
    return found


def targets(growth: Growth) -> list[Target]:
    """Return the targets of the parts that were measured."""
    return [*_append_targets(growth), *_again_targets(growth), *_reading_targets(growth)]


def _commands_table(growth: Growth) -> list[str]:
    rows = [
        [
            _PLACES[part].format(files=growth.files[part]),
            _COMMANDS[command],
            spread([usage.wall_s for usage in usages], ".2f"),
            spread([usage.cpu_s for usage in usages], ".2f"),
            f"{max(usage.peak_rss_bytes for usage in usages) / 1e6:.0f}",
        ]
        for (part, command), usages in growth.runs.items()
    ]
    head = ["files", "command", "wall s", "CPU s", "peak RSS MB"]
    return table(head, rows)


def _reading_table(growth: Growth) -> list[str]:
    head = ["dataset", "shards", "crops/s", "ratio", "records/s", "ratio"]
    rows = []
    for dataset, shards in growth.shards.items():
        cells = [dataset, f"{shards:,}"]
        for kind in (CROPS, RECORDS):
            cells.append(spread(growth.rates[kind, dataset], ",.0f"))
            cells.append(spread(growth.ratios(kind, dataset), ".3f"))
        rows.append(cells)
    return table(head, rows)


def _reading_lines(growth: Growth) -> list[str]:
    if not growth.rates:
        return []
    return [
        "",
        f"Reading with `sw.Reader`, shuffled, after {growth.days} daily appends: each adds 1 % and "
        "replaces and removes 0.1 %. Crops are `TrainImage(224)`; records are not decoded. Every "
        "ratio is to the fresh build of the same images in the same round.",
        "",
        *_reading_table(growth),
    ]


def render(growth: Growth, circumstances: Sequence[str]) -> str:
    """Return the section as Markdown."""
    return "\n".join(
        [
            "## Datasets that grow",
            "",
            *circumstances,
            "",
            *_commands_table(growth),
            "",
            "Appends add 1 %. `listing alone` is a process that lists the input as a build does: "
            "names, lengths and etags. `daily` rows are the appends of all days, and one `compact` "
            "after them.",
            *_reading_lines(growth),
        ]
    )
