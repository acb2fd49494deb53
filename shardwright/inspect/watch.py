"""The command `shardwright watch`: follow a build on any runner by what it writes to OUTPUT."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence

from shardwright.errors import ShardwrightError, StorageError
from shardwright.inspect.build_progress import BuildPhase, BuildProgress
from shardwright.inspect.build_scan import BuildScan
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    fail,
    make_parser,
    root_of,
    to_json,
)
from shardwright.inspect.watch_report import show_line, show_lines
from shardwright.sizes import show_seconds
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines, one_line, print_safely, say

_EPILOG = """\
examples
  shardwright watch dataset/
  shardwright watch s3://bucket/dataset --once --json

Reads only OUTPUT, so it works for any runner and from any machine, and may begin before the build
does. On a terminal it refreshes in place; elsewhere it prints a line every 30 seconds, with --json
an object. Rates and times left follow from when shards were finished: they begin with the first
one. The slowest shards are those that this command saw begin and end.

If nothing changes for five minutes, it says so and continues.

Exit codes: 0 published (with --once, or a build is there), 1 failed, or no build began in --wait
minutes, 2 wrong usage or not the OUTPUT of a build, 130 interrupted.
"""
_NOT_THERE = (BuildPhase.EMPTY, BuildPhase.FAILED)
_LINE_SECONDS = 30.0
_LOCAL_SECONDS, _STORE_SECONDS = 2.0, 10.0  # on a terminal
_LOOKS_SHARE = 10  # pauses are at least so many times as long as the last look, up to 30 s


def watch(argv: Sequence[str]) -> int:
    """Run `shardwright watch` and return its exit code."""
    args = _parse(argv)
    try:
        root = root_of(args)
        scan = BuildScan(root)
        progress = scan.look(time.time())
        if args.once:
            _print_once(progress, root, as_json=args.json)
            return EXIT_FAULTS if progress.phase in _NOT_THERE else EXIT_DONE
        return _Watch(scan, root, args).run(progress)
    except ShardwrightError as error:
        return fail(error)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = make_parser(
        "watch",
        "Follow a build: shards, records, rate, rejects and time left.",
        _EPILOG,
        metavar="OUTPUT",
    )
    parser.add_argument("--once", action="store_true", help="print the present state and exit")
    parser.add_argument(
        "--interval",
        type=float,
        metavar="S",
        help="seconds between looks (default: 30; on a terminal 2, or 10 for a store)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="MINUTES",
        help="minutes to wait for a build to begin (default: %(default)g)",
    )
    args = parser.parse_args(argv)
    for name, least, most in (("interval", 0.1, 3600), ("wait", 0, 100_000)):
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            parser.error(f"--{name} must be from {least:g} to {most:,}, got {value:g}")
    return args


def _print_once(progress: BuildProgress, root: Folder, *, as_json: bool) -> None:
    if as_json:
        print_safely(to_json({"output": root.uri, **progress.to_json()}))
    else:
        print_safely(join_lines(show_lines(progress, root.uri)))


class _Watch:
    """Looks at OUTPUT until its build ends."""

    def __init__(self, scan: BuildScan, root: Folder, args: argparse.Namespace) -> None:
        self._scan, self._root, self._as_json = scan, root, args.json
        self._wait_seconds = 60 * args.wait
        self._in_place = not args.json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        live = _STORE_SECONDS if root.is_remote else _LOCAL_SECONDS
        self._interval = args.interval or (live if self._in_place else _LINE_SECONDS)
        self._last_look = 0.0  # seconds that it took
        self._num_lines = 0  # of the last text, which the next one replaces

    def run(self, progress: BuildProgress) -> int:
        """Show the progress until the build has ended, and return the exit code.

        Raises:
            NotADatasetError: OUTPUT is not of a build.
        """
        started = begun = time.time()
        # A failure from before the start may be followed by another try.
        had_failed = progress.phase is BuildPhase.FAILED
        while True:
            self._show(progress)
            now = time.time()
            if progress.phase is BuildPhase.PUBLISHED:
                return EXIT_DONE
            if progress.phase is BuildPhase.FAILED and not (
                had_failed and (progress.idle_seconds or 0.0) > now - started
            ):
                return EXIT_FAULTS
            if progress.phase not in _NOT_THERE:
                begun = now
            elif now - begun >= self._wait_seconds:
                return self._give_up(now - begun)
            progress = self._next_look()

    def _next_look(self) -> BuildProgress:
        """Look again after a pause; until OUTPUT can be read, say why not."""
        while True:
            time.sleep(max(self._interval, min(_LOOKS_SHARE * self._last_look, _LINE_SECONDS)))
            began = time.time()
            try:
                progress = self._scan.look(began)
            except StorageError as error:
                self._clear()
                say(f"{error}; trying again")
                continue
            self._last_look = time.time() - began
            return progress

    def _show(self, progress: BuildProgress) -> None:
        if self._as_json:
            print(json.dumps({"output": self._root.uri, **progress.to_json()}), flush=True)
            return
        if not self._in_place:
            print_safely(f"shardwright: {show_line(progress)}")
            sys.stdout.flush()
            return
        width = shutil.get_terminal_size().columns - 1  # a wrapped line would take two
        lines = [one_line(line)[:width] for line in show_lines(progress, self._root.uri)]
        self._clear()
        print_safely(join_lines(lines))
        sys.stdout.flush()
        self._num_lines = len(lines)

    def _clear(self) -> None:
        """Move the cursor to the first line of the last text, and erase from there."""
        if self._num_lines:
            print(f"\x1b[{self._num_lines}A\x1b[J", end="", flush=True)
        self._num_lines = 0

    def _give_up(self, seconds: float) -> int:
        say(
            f"error: no build has begun in {self._root} for "
            f"{show_seconds(seconds)}: check that it is the OUTPUT of the build, or wait longer "
            "with --wait MINUTES"
        )
        return EXIT_FAULTS
