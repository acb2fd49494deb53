"""The command `shardwright`: looks at datasets itself, and finds the application's commands by their entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

_GROUP = "shardwright.commands"


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    found = {point.name: point for point in entry_points(group=_GROUP)}
    command: Callable[[Sequence[str]], int] = found[args[0]].load()
    return command(args[1:])


if __name__ == "__main__":
    sys.exit(main())
