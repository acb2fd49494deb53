"""Write `report.html`, an overview of the dataset on one page, from the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from shardwright.format.manifest import Manifest, SplitInfo
from shardwright.format.schema import INDEXED, ExampleSchema, Feature, Source
from shardwright.sizes import counted, show_bytes
from transforms.plan.size_errors import record_bytes_of
from transforms.publish.leaks import LEAKS

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #222;
  padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.bar { background: #4a7; height: .8rem }
"""
_MAX_CLASSES = 200


def report_html(manifest: Manifest) -> str:
    """Return the page, which needs no external scripts, fonts or images."""
    faults = sum(manifest.rejects.values())
    parts = [
        f"<h1>{escape(manifest.name)} {escape(manifest.version)}</h1>",
        f"<p>{counted(manifest.num_records, 'record')} in {show_bytes(manifest.num_bytes)}; "
        f"{faults:,} of {counted(manifest.num_inputs, 'input')} are rejects.</p>",
        "<h2>Splits</h2>",
        _table(
            ("split", "records", "shards", "bytes", "records per shard", "image side, pixels"),
            map(_split_row, manifest.splits.values()),
        ),
        *_leak_tables(manifest),
        *_deviation_table(manifest),
        "<h2>Rejects</h2>",
        _table(("reason", "inputs"), manifest.rejects.items())
        if manifest.rejects
        else "<p>None.</p>",
        *_fix_table(manifest),
        *_size_table(manifest),
        "<h2>Features</h2>",
        _table(
            ("name", "kind", "type", "shape", "classes or words"),
            (_feature_row(f, manifest.schema) for f in manifest.schema.features),
        ),
        *_class_tables(manifest),
        *_names_of_others(manifest.schema),
        "<h2>Settings and provenance</h2>",
        _settings_table(manifest),
    ]
    title = f"<title>{escape(manifest.name)}</title>"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{title}'
        f"<style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )


def _split_row(split: SplitInfo) -> Sequence[object]:
    records = sorted(shard.num_records for shard in split.shards)
    width, height = split.stats.get("width"), split.stats.get("height")
    sides = (
        f"{width['min']}x{height['min']} to {width['max']}x{height['max']}"
        if width and height
        else ""
    )
    return (
        split.name,
        split.num_records,
        len(records),
        show_bytes(split.num_bytes),
        f"{records[0]} to {records[-1]}",
        sides,
    )


def _fix_table(manifest: Manifest) -> Iterable[str]:
    rows = [
        (split.name, name, number)
        for split in manifest.splits.values()
        for name, number in split.stats.get("fixes", {}).items()
    ]
    return ("<h2>Fixes</h2>", _table(("split", "fault", "images"), rows)) if rows else ()


def _size_table(manifest: Manifest) -> Iterable[str]:
    """Yield the table of estimated and written record sizes."""
    found = record_bytes_of(manifest)
    if found:
        rows = (
            (name, show_bytes(size.estimated), show_bytes(size.written), f"{size.error:.1%}")
            for name, size in found.items()
        )
        yield "<h2>Record size: estimated from a sample, and written</h2>"
        yield _table(("split", "estimated", "written", "error"), rows)


def _leak_tables(manifest: Manifest) -> Iterable[str]:
    """Yield the table of images that are in several splits, which makes test results too good."""
    found = [
        (name, other, leak)
        for name, split in manifest.splits.items()
        for other, leak in split.stats.get(LEAKS, {}).items()
    ]
    if found:
        rows = (
            (
                name,
                other,
                leak["records"],
                leak["unchecked"],
                ", ".join(" = ".join(pair) for pair in leak["examples"]),
            )
            for name, other, leak in found
        )
        yield "<h2>Duplicates across splits</h2>"
        yield _table(
            (
                "records of",
                "whose image is also in",
                "records",
                "more by checksum only",
                "examples",
            ),
            rows,
        )


def _deviation_table(manifest: Manifest) -> Iterable[str]:
    """Yield the table of deviations between the class fractions of the splits and the dataset."""
    names = manifest.schema.class_names
    found = {
        name: split.stats["label_deviation"]
        for name, split in manifest.splits.items()
        if "label_deviation" in split.stats
    }
    if found:
        rows = (
            (name, f"{off['mean']:.4%}", f"{off['max']:.4%}", names[off["label"]])
            for name, off in found.items()
        )
        yield "<h2>Class fractions of the splits, compared with the whole dataset</h2>"
        yield _table(("split", "mean deviation", "largest deviation", "of class"), rows)


def _feature_row(feature: Feature, schema: ExampleSchema) -> Sequence[object]:
    indexed = feature.kind in INDEXED
    return (
        feature.name,
        feature.kind,
        feature.dtype,
        list(feature.shape),
        len(schema.names_of(feature)) if indexed else "",
    )


def _names_of_others(schema: ExampleSchema) -> Iterable[str]:
    """Yield the classes and words of all features but the label."""
    for feature in schema.features:
        if feature.kind in INDEXED and feature.source != Source.LABEL:
            names = schema.names_of(feature)
            more = (
                f" ... and {len(names) - _MAX_CLASSES:,} more" if len(names) > _MAX_CLASSES else ""
            )
            yield (
                f"<h2>{counted(len(names), 'name')} of {escape(feature.name)}</h2>"
                f"<p>{escape(', '.join(names[:_MAX_CLASSES]))}{more}</p>"
            )


def _class_tables(manifest: Manifest) -> Iterable[str]:
    names = manifest.schema.class_names
    for split in manifest.splits.values():
        counts = {int(label): number for label, number in split.stats.get("labels", {}).items()}
        if not counts:
            continue
        most = max(counts.values())
        shown = range(min(len(names), _MAX_CLASSES))
        rows = "".join(_class_row(names[label], counts.get(label, 0), most) for label in shown)
        more = (
            f"<p>... and {counted(len(names) - _MAX_CLASSES, 'more class')}.</p>"
            if len(names) > _MAX_CLASSES
            else ""
        )
        yield f"<h2>Classes of {escape(split.name)}</h2><table>{rows}</table>{more}"


def _class_row(name: str, number: int, most: int) -> str:
    bar = f'<div class="bar" style="width: {200 * number / most:.0f}px"></div>'
    return f'<tr><td>{escape(name)}</td><td class="number">{number:,}</td><td>{bar}</td></tr>'


def _settings_table(manifest: Manifest) -> str:
    settings = {**manifest.settings, **manifest.provenance}
    return _table(("setting", "value"), ((key, str(value)) for key, value in settings.items()))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{header}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"
