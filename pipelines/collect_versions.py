"""The command `shardwright gc`: remove old versions of a dataset that has grown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from shardwright.errors import ShardwrightError
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    fail,
    make_parser,
    print_safely,
    root_of,
    to_json,
)
from shardwright.sizes import counted, show_bytes
from transforms.versions.collect import Collection, collect, plan_collection

_EPILOG = """\
examples
  shardwright gc dataset/ --keep 7           # shows what would be removed
  shardwright gc dataset/ --keep 7 --yes     # removes it

Keeps the newest N versions, and every generation that one of them names. Without --yes nothing is
removed. A reader that has opened an older version fails at the next shard that it opens, so keep
the versions that trainings use.

Exit codes: 0 done, 1 dataset unreadable or a file not removed, 2 wrong usage or not a dataset.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shardwright gc` and return its exit code."""
    parser = make_parser("gc", "Remove old versions of a dataset that has grown.", _EPILOG)
    parser.add_argument(
        "--keep", type=int, required=True, metavar="N", help="number of the newest versions to keep"
    )
    parser.add_argument("--yes", action="store_true", help="remove, instead of only showing what")
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    if args.keep < 1:
        parser.error(f"--keep must be at least 1, got {args.keep}: the newest version stays")
    try:
        root = root_of(args)
        found = plan_collection(root, args.keep)
        if args.yes:
            collect(root, found)
    except ShardwrightError as error:
        return fail(error)
    print_safely(to_json(_json(found, done=args.yes)) if args.json else _told(found, args.yes))
    return EXIT_DONE


def _json(found: Collection, *, done: bool) -> dict[str, Any]:
    return {
        "removed": done,
        "versions": list(found.versions),
        "generations": list(found.folders),
        "files": list(found.files),
        "num_bytes": found.num_bytes,
    }


def _told(found: Collection, done: bool) -> str:
    if not found.versions and not found.files:
        return "nothing to remove"
    verb = "removed" if done else "would remove (add --yes)"
    versions = ", ".join(map(str, found.versions)) or "none"
    files = f"{counted(len(found.files), 'file')}, {show_bytes(found.num_bytes)}"
    folders = [f"  {folder or 'the first generation'}" for folder in found.folders]
    return "\n".join([f"{verb} versions: {versions}; {files}", *folders])
