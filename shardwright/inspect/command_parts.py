"""Parts that the commands on a dataset share: their parser, exit codes and output.

Results go to stdout, messages and progress to stderr.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, ParamSpec

from shardwright.errors import NotADatasetError, ShardwrightError, UsageError
from shardwright.format.manifest import Manifest
from shardwright.format.versions import LATEST, VersionKey, read_version
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.terminal import say, show_in_place, visible_json

EXIT_DONE, EXIT_FAULTS, EXIT_USAGE = 0, 1, 2
_P = ParamSpec("_P")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error alone, where argparse prints the usage, too."""
        say(f"error: {message}; see `{self.prog} --help`")
        self.exit(EXIT_USAGE)


def make_parser(
    command: str, description: str, epilog: str, *, metavar: str = "DATASET"
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"shardwright {command}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "dataset",
        metavar=metavar,
        help="a dataset's folder: a local path, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
    )
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a storage option, such as endpoint=http://minio:9000; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a version of a dataset that has grown."""
    parser.add_argument(
        "--version",
        "--at",
        action=_Version,
        metavar="VERSION",
        default=LATEST,
        help="the version of a dataset that has grown: a number or a day; see `shardwright log` "
        "(default: %(default)s)",
    )


class _Version(argparse.Action):
    """Store the version, and announce that `--at` goes away."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del parser
        if option_string == "--at":
            say("--at is --version now; the next release no longer takes --at")
        setattr(namespace, self.dest, values)


def manifest_of(args: argparse.Namespace) -> Manifest:
    """Return the manifest of the version that the command asks for; raise as `read_version`."""
    return read_version(root_of(args), version_of(args))


def version_of(args: argparse.Namespace) -> VersionKey:
    """Return the version that --version names."""
    return int(args.version) if args.version.isdecimal() else args.version


def root_of(args: argparse.Namespace, address: str | None = None) -> Folder:
    """Return the folder of DATASET, or of another address with the same options."""
    options = StorageOptions.parse(args.storage_option)
    return Folder.at(args.dataset if address is None else address, options)


def to_json(content: Mapping[str, Any]) -> str:
    return visible_json(json.dumps(content, indent=1, ensure_ascii=False))


def fail(error: ShardwrightError) -> int:
    say(f"error: {error}")
    return EXIT_USAGE if isinstance(error, (NotADatasetError, UsageError)) else EXIT_FAULTS


def command(run: Callable[_P, int]) -> Callable[_P, int]:
    """Print the error that ends a command, and return its exit code."""

    @functools.wraps(run)
    def run_or_fail(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            return run(*args, **kwargs)
        except ShardwrightError as error:
            return fail(error)

    return run_or_fail


def show_progress(done: int, total: int) -> None:
    """Show the number of files that `verify` has checked."""
    show_in_place(f"{done} of {counted(total, 'file')} checked", sys.stderr)
