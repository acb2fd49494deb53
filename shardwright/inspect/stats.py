"""The command `stats`: the statistics of a dataset as JSON or as tables of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.format.manifest import Manifest
from shardwright.format.splits import SplitInfo
from shardwright.images.signals import SIGNALS
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    command,
    make_parser,
    manifest_of,
    to_json,
)
from shardwright.sizes import counted
from shardwright.terminal import join_lines, one_line, print_safely

_COLORS = ("red", "green", "blue")
_WIDTH = 12  # of a column at least
_COLUMNS = ("min", "mean", "max", "std")

Row = tuple[str, Mapping[str, Any]]
_EPILOG = """\
Reads only the manifest: the statistics of the build. Signals and channels are those of all images
if the dataset was built with --signals, else of a sample; docs/signals.md explains each of them.
"""


def statistics_json(manifest: Manifest) -> dict[str, Any]:
    """Return what `shardwright stats --json` prints: `stats.json` and the numbers of records."""
    return {
        name: {"num_records": split.num_records, **split.stats}
        for name, split in manifest.splits.items()
    }


def format_statistics(manifest: Manifest) -> str:
    """Return the statistics as tables of text, split by split."""
    return "\n\n".join(join_lines(_lines(split)) for split in manifest.splits.values())


def _lines(split: SplitInfo) -> Iterator[str]:
    yield f"{split.name}: {counted(split.num_records, 'record')}"
    rows: list[Row] = [
        (title, {**found, "mean": found["sum"] / found["count"]})
        for name, title in (("width", "width"), ("height", "height"), ("image_length", "bytes"))
        if (found := split.stats.get(name)) is not None
    ]
    yield from _table("images", rows)
    channels = split.stats.get("channels")
    if channels:
        rows = [
            (color, {"mean": mean, "std": std})
            for color, mean, std in zip(_COLORS, channels["mean"], channels["std"], strict=True)
        ]
        yield from _table(f"channels ({channels['basis']})", rows)
    features = split.stats.get("features", {})
    rows = [
        (name if found["of"] == "values" else f"{name} ({found['of']})", found)
        for name, found in features.items()
    ]
    yield from _table("features", rows)
    signals = split.stats.get("signals", {})
    if signals:
        rows = [(signal.name, signals[signal.name]) for signal in SIGNALS if signal.name in signals]
        yield from _table(f"signals ({rows[0][1]['basis']})", rows)
        for signal in SIGNALS:
            if number := signals.get(signal.name, {}).get("faults", 0):
                sign = "<" if signal.bad == "low" else ">"
                found = f"{counted(number, 'image')} {signal.fault}"
                yield f"    {found} ({signal.name} {sign} {signal.limit:g})"


def _table(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    lines: list[tuple[str, ...]] = [(f"  {title}", *_COLUMNS)]
    for name, found in rows:
        lines.append((f"    {one_line(name)}", *(_number(found.get(key)) for key in _COLUMNS)))
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    for head, *values in lines:
        cells = (
            value.rjust(max(width + 2, _WIDTH)) for value, width in zip(values, others, strict=True)
        )
        yield (head.ljust(first + 2) + "".join(cells)).rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


@command
def stats_command(argv: Sequence[str]) -> int:
    """Run `shardwright stats` and return its exit code."""
    parser = make_parser(
        "stats", "Show distributions of features, image sizes and quality signals.", _EPILOG
    )
    add_version(parser)
    args = parser.parse_args(argv)
    manifest = manifest_of(args)
    print_safely(to_json(statistics_json(manifest)) if args.json else format_statistics(manifest))
    return EXIT_DONE
