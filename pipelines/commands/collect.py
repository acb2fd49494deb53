"""The command `shardwright gc`: remove old versions of a dataset that has grown, and leftovers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from shardwright.format.notes import time_at
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    command,
    make_parser,
    root_of,
    to_json,
)
from shardwright.inspect.versions import describe_pin
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import join_lines, print_safely
from shardwright.transforms.versions.collect import (
    ORPHANS_AFTER,
    Collection,
    Generation,
    collect,
    plan_collection,
)

_EPILOG = """\
examples
  shardwright gc dataset/ --keep 7           # shows what would be removed
  shardwright gc dataset/ --keep 7 --yes     # removes it

Keeps the newest N versions, those that `shardwright pin` has pinned, and every generation that one
of them names. Version 1 stays, too, while one of them names the first generation: after `compact`,
none does. Without --yes nothing is removed. A reader that has opened an older version fails at the
next shard that it opens, so pin the versions that trainings use.

A build that stops before its version is committed leaves a generation that no version names. It is
removed, too, once none of its files was written for --orphans-after hours, at least 24: until then
its build may still run. One that is written or committed just now stays, and `left` says so. A
build whose generation is removed nevertheless fails, and loses nothing.

Exit codes: 0 done, 1 dataset unreadable or a file not removed, 2 wrong usage or not a dataset.
"""
_HOUR = timedelta(hours=1)
_MOST_HOURS = 100_000


@command
def main(argv: Sequence[str]) -> int:
    """Run `shardwright gc` and return its exit code."""
    parser = make_parser("gc", "Remove old versions of a dataset that has grown.", _EPILOG)
    parser.add_argument(
        "--keep", type=int, required=True, metavar="N", help="number of the newest versions to keep"
    )
    parser.add_argument(
        "--orphans-after",
        type=float,
        default=ORPHANS_AFTER / _HOUR,
        metavar="HOURS",
        help="age at which files of a build that was never committed go, at least 24 (default: "
        "%(default)g)",
    )
    parser.add_argument("--yes", action="store_true", help="remove, instead of only showing what")
    args = parser.parse_args(argv)
    if args.keep < 1:
        parser.error(f"--keep must be at least 1, got {args.keep}: the newest version stays")
    least = ORPHANS_AFTER / _HOUR
    if not least <= args.orphans_after <= _MOST_HOURS:
        parser.error(
            f"--orphans-after must be {least:g} to {_MOST_HOURS:,} hours, got "
            f"{args.orphans_after:g}: younger files may be those of a running build"
        )
    root = root_of(args)
    age = args.orphans_after * _HOUR
    # Without --yes nothing is written, so this machine's clock must do.
    clock = partial(time_at, root) if args.yes else time.time
    found = plan_collection(root, args.keep, orphans_after=age, clock=clock)
    if args.yes:
        found = collect(root, found)
    print_safely(to_json(_json(found, done=args.yes)) if args.json else _told(found, args.yes))
    return EXIT_DONE


def _json(found: Collection, *, done: bool) -> dict[str, Any]:
    return {
        "removed": done,
        "versions": list(found.versions),
        "generations": [one.folder for one in found.generations if not one.is_orphan],
        "orphans": [one.folder for one in found.generations if one.is_orphan],
        "files": found.files,
        "num_bytes": found.num_bytes,
        "pins": [describe_pin(pin) for pin in found.pins],
        "left": [one.folder for one in found.left],
    }


def _told(found: Collection, done: bool) -> str:
    kept = [f"kept by a pin: version {pin.version} ({pin})" for pin in found.pins]
    kept += [
        f"left, because a command writes or commits it now: {one.folder}, last written {_time(one)}"
        for one in found.left
    ]
    if not found.versions and not found.generations:
        return join_lines(["nothing to remove", *kept])
    verb = "removed" if done else "would remove (add --yes)"
    versions = ", ".join(map(str, found.versions)) or "none"
    files = f"{counted(len(found.files), 'file')}, {show_bytes(found.num_bytes)}"
    folders = [
        f"  {one.folder}, which was never committed; last written {_time(one)}"
        if one.is_orphan
        else f"  {one.folder or 'the first generation'}"
        for one in found.generations
    ]
    return join_lines([f"{verb} versions: {versions}; {files}", *folders, *kept])


def _time(one: Generation) -> str:
    return datetime.fromtimestamp(one.written, UTC).isoformat(timespec="seconds")
