"""The command `log`, which lists the versions of a dataset that has grown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwright.errors import ShardwrightError
from shardwright.format.manifest import Manifest
from shardwright.format.pins import Pin, read_pins
from shardwright.format.versions import created_at, number_of, read_versions
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    fail,
    make_parser,
    root_of,
    to_json,
)
from shardwright.inspect.describe import table_lines
from shardwright.sizes import show_bytes
from shardwright.terminal import join_lines, print_safely

_EPILOG = """\
examples
  shardwright log dataset/
  shardwright inspect dataset/ --at 3
  shardwright diff dataset/ dataset/ --at 2026-11-22    # what has changed since that day

Lists the newest version first. Version 1 is the dataset as it was built; each later one was made by
`shardwright build --if-exists append`, or by `shardwright compact`. The bytes are those of all
shards of a version, which still hold the records that were taken away. Pins are those that hold.

Exit codes: 0 listed, 1 dataset unreadable, 2 wrong usage or not a dataset.
"""


def log(argv: Sequence[str]) -> int:
    """Run `shardwright log` and return its exit code."""
    parser = make_parser("log", "List the versions of a dataset that has grown.", _EPILOG)
    args = parser.parse_args(argv)
    try:
        root = root_of(args)
        pins = [pin for pin in read_pins(root) if pin.holds()]
        found = [describe_version(manifest, pins) for manifest in read_versions(root)]
    except ShardwrightError as error:
        return fail(error)
    print_safely(to_json({"versions": found}) if args.json else join_lines(_lines(found)))
    return EXIT_DONE


def describe_version(manifest: Manifest, pins: Sequence[Pin] = ()) -> dict[str, Any]:
    """Return what `log` tells of a version, with those of some pins that keep it."""
    history = manifest.history
    return {
        "version": number_of(manifest),
        "created": created_at(manifest).isoformat(timespec="seconds"),
        "operation": history.get("operation", "build"),
        "num_records": manifest.num_records,
        "added": history.get("added", manifest.num_records),
        "removed": history.get("removed", 0),
        "num_bytes": manifest.num_bytes,
        "generations": list(history.get("generations", [""])),
        "pins": [pin.name for pin in pins if pin.version == number_of(manifest)],
    }


def _lines(found: Sequence[dict[str, Any]]) -> list[str]:
    head = ("version", "created", "operation", "records", "added", "removed", "bytes", "pins")
    rows = [
        (
            str(one["version"]),
            one["created"],
            one["operation"],
            f"{one['num_records']:,}",
            f"{one['added']:,}",
            f"{one['removed']:,}",
            show_bytes(one["num_bytes"]),
            ", ".join(one["pins"]),
        )
        for one in found
    ]
    shown = len(head) if any(one["pins"] for one in found) else -1
    return table_lines([row[:shown] for row in (head, *rows)])
