"""Describe a dataset from its manifest, as JSON and as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from shardwright.format.manifest import Manifest
from shardwright.format.schema import INDEXED, ExampleSchema, Feature, Source
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
    TableView,
    as_text,
    names,
    numbers,
    pairs_view,
    shares,
    sizes,
    texts,
)
from shardwright.sizes import counted, show_bytes, show_number
from shardwright.terminal import join_lines, print_safely

_SHOWN_WORDS = 10
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


def format_description(manifest: Manifest, dataset: str) -> str:
    """Return what `shardwright inspect` prints."""
    num_shards = len(manifest.named_shards())
    rejects = [[reason, number] for reason, number in manifest.rejects.items()]
    parts = [
        [
            f"{manifest.name} {manifest.version}    {dataset}",
            f"{counted(manifest.num_records, 'record')} in {counted(num_shards, 'shard')}, "
            f"{show_bytes(manifest.num_bytes)}, from {counted(manifest.num_inputs, 'input')}",
        ],
        as_text(split_view(manifest)),
        as_text(feature_view(manifest.schema), None),
        as_text(class_view(manifest)) or ["no classes: the dataset is unlabeled"],
        as_text(TableView("Rejects", (texts("reason"), numbers("inputs")), rejects)),
        as_text(pairs_view("Settings", manifest.settings), None),
        as_text(pairs_view("Provenance", manifest.provenance), None),
    ]
    return "\n\n".join(join_lines(lines) for lines in parts if lines)


def shard_view(title: str, splits: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> TableView:
    """Return the table of splits whose shards have these records and bytes."""
    total = max(sum(sum(records) for records, _ in splits.values()), 1)
    rows = [
        [
            *(name, sum(records), f"{sum(records) / total:.1%}", sum(num_bytes), len(records)),
            *(_spread_text(records, show_number), _spread_text(num_bytes, show_bytes)),
        ]
        for name, (records, num_bytes) in splits.items()
    ]
    columns = (
        *(names("split"), numbers("records"), texts("share"), sizes("bytes"), numbers("shards")),
        *(texts("records a shard"), texts("bytes a shard")),
    )
    return TableView(title, columns, rows)


def _spread_text(values: Iterable[int], show: Callable[[float], str]) -> str:
    shown = {name: show(value) for name, value in spread_of(values).items()}
    ends = dict.fromkeys([shown[end] for end in ("min", "max") if shown])
    return " to ".join(ends) + (f", median {shown['median']}" if len(ends) > 1 else "")


def split_view(manifest: Manifest) -> TableView:
    """Return the table of the splits: records, bytes, shards, and what their images are."""
    view = shard_view(
        "Splits",
        {
            name: (
                [shard.num_records for shard in split.shards],
                [shard.num_bytes for shard in split.shards],
            )
            for name, split in manifest.splits.items()
        },
    )
    rows = []
    for row, split in zip(view.rows, manifest.splits.values(), strict=True):
        # Widths and heights, apart: the widest image need not be the highest. A side that all
        # images share appears once.
        sides = [split.stats.get(side, {}) for side in ("width", "height")]
        ends = [dict.fromkeys(str(side[end]) for end in ("min", "max") if side) for side in sides]
        formats = split.stats.get("formats", {}).items()
        texts_of_formats = ", ".join(f"{name} {number:,}" for name, number in formats)
        rows.append([*row, *map(" to ".join, ends), texts_of_formats])
    columns = (*view.columns, texts("width"), texts("height"), texts("formats"))
    return TableView(view.title, columns, rows)


def feature_view(schema: ExampleSchema) -> TableView:
    """Return the table of the features of a record."""
    rows = [
        [
            *(feature.name, str(feature.kind), feature.dtype, _shape(feature)),
            feature.encoding or "",
            feature.column_name if feature.source == Source.COLUMN else f"({feature.source})",
            _names_text(schema.names_of(feature) if feature.kind in INDEXED else ()),
        ]
        for feature in schema.features
    ]
    columns = (
        *(names("feature"), texts("kind"), texts("type"), texts("shape"), texts("encoding")),
        *(names("column"), names("classes or words")),
    )
    return TableView("Features", columns, rows)


def _names_text(words: Sequence[str]) -> str:
    if not words:
        return ""
    more = ", ..." if len(words) > _SHOWN_WORDS else ""
    return f"{len(words):,}: {', '.join(words[:_SHOWN_WORDS])}{more}"


def _shape(feature: Feature) -> str:
    if not feature.shape:
        return "list" if feature.is_list else "one value"
    return " x ".join("any" if size is None else str(size) for size in feature.shape)


def class_name(class_names: Sequence[str], label: int | None) -> str:
    """Return the name of a class, its number if it has no name, "" without a class."""
    if label is None:
        return ""
    return class_names[label] if 0 <= label < len(class_names) else str(label)


def class_view(manifest: Manifest) -> TableView:
    """Return the table of the classes, the most frequent first: records of each split and of all.

    Without labels it has no rows.
    """
    known = manifest.schema.class_names
    by_split = {
        name: {int(label): number for label, number in split.stats.get("labels", {}).items()}
        for name, split in manifest.splits.items()
    }
    labels = sorted({*range(len(known)), *(one for found in by_split.values() for one in found)})
    counts = {one: [found.get(one, 0) for found in by_split.values()] for one in labels}
    most = max(1, *map(sum, counts.values()), 1)
    rows = [
        [class_name(known, one), one, *found, sum(found), round(sum(found) / most, 4)]
        for one, found in sorted(counts.items(), key=lambda item: -sum(item[1]))
    ]
    columns = (
        *(names("class"), numbers("label"), *map(numbers, by_split)),
        *(numbers("all"), shares("of the largest class")),
    )
    return TableView("Classes", columns, rows)


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
    place = manifest, root_of(args).uri
    print_safely(to_json(describe(*place)) if args.json else format_description(*place))
    return EXIT_DONE
