"""The commands `log`, which lists a dataset's versions, and `pin`, which keeps some from `gc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwright.format.manifest import Manifest
from shardwright.format.pins import Pin, add_pin, read_pins, remove_pin
from shardwright.format.versions import created_at, number_of, read_version, read_versions
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    command,
    make_parser,
    root_of,
    to_json,
    version_of,
)
from shardwright.inspect.views import TableView, as_text, numbers, sizes, texts
from shardwright.terminal import join_lines, print_safely

_LOG_EPILOG = """\
examples
  shardwright log dataset/
  shardwright inspect dataset/ --version 3
  shardwright diff dataset/ dataset/ --version 2026-11-22  # what has changed since that day

Lists the newest version first. Version 1 is the dataset as it was built; each later one was made by
`shardwright build --if-exists append`, or by `shardwright compact`. The bytes are those of all
shards of a version, which still hold the records that were taken away. Pins are those that hold.

Exit codes: 0 listed, 1 dataset unreadable, 2 wrong usage or not a dataset.
"""
_PIN_EPILOG = """\
examples
  shardwright pin dataset/ resnet-7                       # the newest version, until it is removed
  shardwright pin dataset/ resnet-7 --version 3 --until 2026-12-31
  shardwright pin dataset/ resnet-7 --remove
  shardwright pin dataset/                                # lists the pins

`shardwright gc` keeps a pinned version and all its files. NAME says who needs it: letters, digits,
- and _. A pin is the file versions/pins/NAME.json of the dataset, so pin for readers that may not
write. To renew a pin, pin the same version again.

Exit codes: 0 done, 1 dataset or pin unreadable or not written, 2 wrong usage, not a dataset, or the
version was removed meanwhile.
"""


@command
def log_command(argv: Sequence[str]) -> int:
    """Run `shardwright log` and return its exit code."""
    parser = make_parser("log", "List the versions of a dataset that has grown.", _LOG_EPILOG)
    args = parser.parse_args(argv)
    root = root_of(args)
    pins = [pin for pin in read_pins(root) if pin.holds()]
    found = [describe_version(manifest, pins) for manifest in read_versions(root)]
    keys = ("version", "created", "operation", "num_records", "added", "removed", "num_bytes")
    rows = [[*map(one.get, keys), ", ".join(one["pins"])] for one in found]
    columns = (
        *(numbers("version"), texts("created"), texts("operation"), numbers("records")),
        *(numbers("added"), numbers("removed"), sizes("bytes"), texts("pins")),
    )
    lines = as_text(TableView("Versions", columns, rows), None)
    print_safely(to_json({"versions": found}) if args.json else join_lines(lines))
    return EXIT_DONE


def describe_version(manifest: Manifest, pins: Sequence[Pin]) -> dict[str, Any]:
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


@command
def pin_command(argv: Sequence[str]) -> int:
    """Run `shardwright pin` and return its exit code."""
    parser = make_parser("pin", "Keep a version of a dataset that has grown.", _PIN_EPILOG)
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the pin; all are listed")
    add_version(parser)
    parser.add_argument(
        "--until", metavar="DAY", help="last day of the pin in UTC (default: until it is removed)"
    )
    parser.add_argument("--remove", action="store_true", help="remove the pin")
    args = parser.parse_args(argv)
    changes = args.remove or args.until is not None or args.version != parser.get_default("version")
    if args.name is None and changes:
        parser.error("--version, --until and --remove need the NAME of a pin")
    root = root_of(args)
    if args.name is None:
        read_version(root)  # fails if there is no dataset
        pins = read_pins(root)
        found: dict[str, Any] = {"pins": [describe_pin(one) for one in pins]}
        told = join_lines(_pin_lines(pins))
    elif args.remove:
        remove_pin(root, args.name)
        found, told = {"removed": args.name}, f"removed the pin {args.name}"
    else:
        made = add_pin(root, args.name, version_of(args), args.until)
        found, told = describe_pin(made), f"pinned version {made.version} ({made})"
    print_safely(to_json(found) if args.json else told)
    return EXIT_DONE


def describe_pin(one: Pin) -> dict[str, Any]:
    """Return what the commands tell of a pin as JSON."""
    until = None if one.until is None else one.until.isoformat()
    return {
        "name": one.name,
        "version": one.version,
        "created": one.created,
        "until": until,
        "holds": one.holds(),
    }


def _pin_lines(pins: Sequence[Pin]) -> list[str]:
    rows = [
        [
            *(one.name, one.version, one.created),
            "removed" if one.until is None else f"{one.until}{'' if one.holds() else ' (over)'}",
        ]
        for one in pins
    ]
    columns = (texts("pin"), numbers("version"), texts("created"), texts("holds until"))
    return as_text(TableView("Pins", columns, rows), None) or ["no pins"]
