"""The command `stats`."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.errors import ShardwrightError
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    fail,
    make_parser,
    manifest_of,
    to_json,
)
from shardwright.terminal import print_safely

_EPILOG = """\
Reads only the manifest: the statistics of the build. Signals and channels are those of all images
if the dataset was built with --signals, else of a sample; docs/signals.md explains each of them.
"""


def stats(argv: Sequence[str]) -> int:
    """Run `shardwright stats` and return its exit code."""
    from shardwright.inspect.stats import format_statistics, statistics_json

    parser = make_parser(
        "stats", "Show distributions of features, image sizes and quality signals.", _EPILOG
    )
    add_version(parser)
    args = parser.parse_args(argv)
    try:
        manifest = manifest_of(args)
    except ShardwrightError as error:
        return fail(error)
    print_safely(to_json(statistics_json(manifest)) if args.json else format_statistics(manifest))
    return EXIT_DONE
