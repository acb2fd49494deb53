"""`report.html`: the dataset on one page, for a person; everything on it is also in the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from shardwright.manifest import Manifest, SplitInfo
from shardwright.sizes import show_bytes

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums } .bar { background: #4a7; height: .8rem }
"""
_MAX_CLASSES = 200


def report_html(manifest: Manifest) -> str:
    """The page. It is complete in itself: no script, no font, no picture from elsewhere."""
    faults = sum(manifest.rejects.values())
    parts = [
        f"<h1>{escape(manifest.name)} {escape(manifest.version)}</h1>",
        f"<p>{manifest.num_records:,} records in {show_bytes(manifest.num_bytes)}; "
        f"{faults:,} of {manifest.num_inputs:,} inputs are rejects.</p>",
        "<h2>Splits</h2>",
        _table(("split", "records", "shards", "bytes", "records a shard", "image side, pixels"), map(_split_row, manifest.splits.values())),
        "<h2>Rejects</h2>",
        _table(("reason", "inputs"), manifest.rejects.items()) if manifest.rejects else "<p>None.</p>",
        "<h2>Features</h2>",
        _table(("name", "kind", "shape"), ((f.name, str(f.kind), str(list(f.shape))) for f in manifest.schema.features)),
        *_class_tables(manifest),
        "<h2>Settings and provenance</h2>",
        _table(("what", "value"), ((key, str(value)) for key, value in {**manifest.settings, **manifest.provenance}.items())),
    ]
    title = f"<title>{escape(manifest.name)}</title>"
    return f'<!doctype html><html lang="en"><meta charset="utf-8">{title}<style>{_STYLE}</style>{"".join(parts)}</html>\n'


def _split_row(split: SplitInfo) -> Sequence[object]:
    records = sorted(shard.num_records for shard in split.shards)
    width, height = split.stats.get("width"), split.stats.get("height")
    sides = f"{width['min']}x{height['min']} to {width['max']}x{height['max']}" if width and height else ""
    return (split.name, split.num_records, len(records), show_bytes(split.num_bytes), f"{records[0]} to {records[-1]}", sides)


def _class_tables(manifest: Manifest) -> Iterable[str]:
    names = manifest.schema.class_names
    for split in manifest.splits.values():
        counts = {int(label): number for label, number in split.stats.get("labels", {}).items()}
        if not counts:
            continue
        most = max(counts.values())
        shown = range(min(len(names), _MAX_CLASSES))
        rows = "".join(_class_row(names[label], counts.get(label, 0), most) for label in shown)
        more = f"<p>... and {len(names) - _MAX_CLASSES} more classes.</p>" if len(names) > _MAX_CLASSES else ""
        yield f"<h2>Classes of {escape(split.name)}</h2><table>{rows}</table>{more}"


def _class_row(name: str, number: int, most: int) -> str:
    bar = f'<div class="bar" style="width: {200 * number / most:.0f}px"></div>'
    return f'<tr><td>{escape(name)}</td><td class="number">{number:,}</td><td>{bar}</td></tr>'


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{header}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"
