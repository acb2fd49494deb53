"""The command `stats`: the statistics of a dataset as JSON or as tables of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.format.manifest import Manifest
from shardwright.format.stats_keys import CHANNELS, FEATURES
from shardwright.format.stats_keys import SIGNALS as SIGNALS_KEY
from shardwright.images.signals import SIGNALS, Signal
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    command,
    make_parser,
    manifest_of,
    to_json,
)
from shardwright.inspect.views import TableView, as_text, names, numbers, texts
from shardwright.terminal import join_lines, print_safely

_COUNTED, _ENDS = ("count", "min", "mean", "max", "std"), ("least", "mean", "largest")
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
    """Return the statistics as tables of text."""
    views = (image_view, channel_view, value_view, signal_view)
    parts = [as_text(view(manifest), None) for view in views]
    return "\n\n".join(join_lines(lines) for lines in parts if lines)


def image_view(manifest: Manifest) -> TableView:
    """Return the table of the sides of images, in pixels, and of their bytes."""
    rows = [
        [split.name, title, *(found[key] for key in ("count", "min")), mean, found["max"]]
        for split in manifest.splits.values()
        for name, title in (("width", "width"), ("height", "height"), ("image_length", "bytes"))
        if (found := split.stats.get(name))
        for mean in (found["sum"] / found["count"],)
    ]
    columns = (names("split"), texts("of"), numbers("count"), *map(numbers, _ENDS))
    return TableView("Images", columns, rows)


def channel_view(manifest: Manifest) -> TableView:
    """Return the table of the colors of images."""
    rows = [
        [
            *(split.name, found["basis"]),
            *(", ".join(f"{value:.4f}" for value in found[key]) for key in ("mean", "std")),
        ]
        for split in manifest.splits.values()
        if (found := split.stats.get(CHANNELS))
    ]
    columns = (names("split"), texts("measured on"), texts("mean"), texts("deviation"))
    return TableView("Mean and deviation of red, green and blue, 0 to 1", columns, rows)


def value_view(manifest: Manifest) -> TableView:
    """Return the table of the values of features."""
    found = sorted(
        (name, split.name, summary)
        for split in manifest.splits.values()
        for name, summary in split.stats.get(FEATURES, {}).items()
    )
    rows = [
        [name, summary.get("of", "values"), split, *map(summary.get, (*_COUNTED, "zeros"))]
        for name, split, summary in found
    ]
    columns = (
        *(names("feature"), texts("of"), names("split"), numbers("count"), *map(numbers, _ENDS)),
        *(numbers("deviation"), numbers("zeros")),
    )
    return TableView("Values of features", columns, rows)


def signal_view(manifest: Manifest) -> TableView:
    """Return the table of quality signals."""
    rows = [
        [signal.name, split.name, found["basis"], *map(found.get, _COUNTED), _faults(signal, found)]
        for signal in SIGNALS
        for split in manifest.splits.values()
        if (found := split.stats.get(SIGNALS_KEY, {}).get(signal.name))
    ]
    columns = (
        *(texts("signal"), names("split"), texts("measured on"), numbers("count")),
        *(*map(numbers, _ENDS), numbers("deviation"), texts("faults")),
    )
    return TableView("Quality signals", columns, rows)


def _faults(signal: Signal, found: Mapping[str, Any]) -> str:
    number, sign = found.get("faults", 0), "<" if signal.bad == "low" else ">"
    return f"{number:,} {signal.fault} ({sign} {signal.limit:g})" if number else ""


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
