"""Describe a dataset from its manifest, as JSON and as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from shardwright.format.manifest import Manifest
from shardwright.format.schema import Feature
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    command,
    make_parser,
    manifest_of,
    root_of,
    to_json,
)
from shardwright.inspect.views import (
    Cell,
    TableView,
    as_text,
    names,
    numbers,
    sizes,
    table_lines,
    texts,
)
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import join_lines, print_safely

_SHOWN_CLASSES = 10
_INDENT = "  "
_EPILOG = """\
Reads only the manifest, so it is fast on a dataset of any size. `shardwright verify` checks the
dataset against the manifest.
"""


def describe(manifest: Manifest, dataset: str) -> dict[str, Any]:
    """Return what `shardwright inspect --json` prints: sizes in bytes, image sizes in pixels."""
    schema = manifest.schema
    return {
        "dataset": dataset,
        "name": manifest.name,
        "version": manifest.version,
        "num_records": manifest.num_records,
        "num_bytes": manifest.num_bytes,
        "num_inputs": manifest.num_inputs,
        "splits": {
            name: {
                "num_records": split.num_records,
                "num_bytes": split.num_bytes,
                "num_shards": len(split.shards),
                "records_per_shard": spread_of(shard.num_records for shard in split.shards),
                "bytes_per_shard": spread_of(shard.num_bytes for shard in split.shards),
                "stats": dict(split.stats),
            }
            for name, split in manifest.splits.items()
        },
        "features": [feature.to_json() for feature in schema.features],
        "class_names": list(schema.class_names),
        "rejects": dict(manifest.rejects),
        "settings": dict(manifest.settings),
        "fingerprint": manifest.fingerprint,
        "provenance": dict(manifest.provenance),
    }


def spread_of(numbers: Iterable[int]) -> dict[str, float]:
    """Return the least, median and largest number; nothing for no numbers."""
    values = sorted(numbers)
    return {"min": values[0], "median": median(values), "max": values[-1]} if values else {}


def format_description(manifest: Manifest, description: Mapping[str, Any]) -> str:
    """Return the description as lines of text."""
    splits = description["splits"]
    num_shards = sum(split["num_shards"] for split in splits.values())
    provenance = dict(manifest.provenance)
    provenance.pop("timing", None)  # the times of all shards, which the report draws
    parts = [
        [
            f"{manifest.name} {manifest.version}    {description['dataset']}",
            f"{counted(manifest.num_records, 'record')} in {counted(num_shards, 'shard')}, "
            f"{show_bytes(manifest.num_bytes)}, from {counted(manifest.num_inputs, 'input')}",
        ],
        as_text(split_view(manifest)),
        [
            "features",
            *table_lines(
                [
                    (feature.name, str(feature.kind), _shape_text(feature))
                    for feature in manifest.schema.features
                ]
            ),
        ],
        _class_lines(manifest),
        [
            "rejects",
            *table_lines(
                [(reason, f"{number:,}") for reason, number in manifest.rejects.items()]
                or [("none",)]
            ),
        ],
        ["settings", *_pairs(manifest.settings)],
        ["provenance", *_pairs(provenance)],
    ]
    return "\n\n".join(join_lines(lines) for lines in parts if lines)


def split_view(manifest: Manifest) -> TableView:
    """Return the table of the splits: records, bytes, shards, and what their images are."""
    rows: list[list[Cell]] = []
    for split in manifest.splits.values():
        counts = spread_of(shard.num_records for shard in split.shards) or {"min": 0, "max": 0}
        least, most = (f"{counts[end]:,}" for end in ("min", "max"))
        # Widths and heights, apart: the widest image need not be the highest. A side that all
        # images share appears once.
        sides = [split.stats.get(side, {}) for side in ("width", "height")]
        ends = [dict.fromkeys(str(side[end]) for end in ("min", "max") if side) for side in sides]
        formats = split.stats.get("formats", {}).items()
        rows.append(
            [
                split.name,
                split.num_records,
                f"{split.num_records / max(manifest.num_records, 1):.1%}",
                split.num_bytes,
                len(split.shards),
                least if least == most else f"{least} to {most}",
                median([shard.num_bytes for shard in split.shards] or [0]),
                *map(" to ".join, ends),
                ", ".join(f"{name} {number:,}" for name, number in formats),
            ]
        )
    columns = (
        *(names("split"), numbers("records"), texts("share"), sizes("bytes"), numbers("shards")),
        *(texts("records a shard"), sizes("median shard"), texts("width"), texts("height")),
        texts("formats"),
    )
    return TableView("Splits", columns, rows)


def _shape_text(feature: Feature) -> str:
    encoding = f", {feature.encoding}" if feature.encoding else ""
    if feature.stored_shape == (None,):
        return "a list"
    return (
        "x".join("?" if size is None else str(size) for size in feature.shape) or "one value"
    ) + encoding


def _class_lines(manifest: Manifest) -> list[str]:
    names = manifest.schema.class_names
    words = manifest.schema.vocabularies
    others = [
        f"{_INDENT}{feature}: {len(found):,}, {', '.join(found[:_SHOWN_CLASSES])}"
        for feature, found in words.items()
    ]
    if not names:
        return ["classes", *(others or [f"{_INDENT}none: the dataset is unlabeled"])]
    more = f" ... and {len(names) - _SHOWN_CLASSES:,} more" if len(names) > _SHOWN_CLASSES else ""
    shown = "  ".join(f"{number} {name}" for number, name in enumerate(names[:_SHOWN_CLASSES]))
    return [f"classes ({len(names):,})", f"{_INDENT}{shown}{more}", *others]


def _show_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_show_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_show_value, value)) or "none"
    return "none" if value is None else str(value)


def _pairs(values: Mapping[str, Any]) -> list[str]:
    width = max(map(len, values), default=0)
    return [f"{_INDENT}{key.ljust(width)}  {_show_value(value)}" for key, value in values.items()]


@command
def inspect_command(argv: Sequence[str]) -> int:
    """Run `shardwright inspect` and return its exit code."""
    parser = make_parser(
        "inspect",
        "Show a dataset's splits, records, bytes, features, classes and shard sizes.",
        _EPILOG,
    )
    add_version(parser)
    args = parser.parse_args(argv)
    manifest = manifest_of(args)
    description = describe(manifest, root_of(args).uri)
    print_safely(to_json(description) if args.json else format_description(manifest, description))
    return EXIT_DONE
