"""The command `shardwright watch`: follow a build on any runner by what it writes to OUTPUT.

The progress is one line, which a terminal shows in place.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from shardwright.errors import StorageError
from shardwright.inspect.build_scan import BuildPhase, BuildProgress, scan_build
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    command,
    make_parser,
    root_of,
    to_json,
)
from shardwright.sizes import counted, show_bytes, show_seconds
from shardwright.storage.folder import Folder
from shardwright.terminal import is_live, one_line, print_safely, say, show_in_place

_EPILOG = """\
examples
  shardwright watch dataset/
  shardwright watch s3://bucket/dataset --once --json

Reads only OUTPUT, so it works for any runner and from any machine, and may begin before the build
does. On a terminal it refreshes in place; elsewhere it prints a line every 30 seconds, with --json
an object. Records and rate follow from the number of finished shards.

If no shard is finished for five minutes, it says so and continues.

Exit codes: 0 published (with --once, or a build is there), 1 failed, or no build began in --wait
minutes, 2 wrong usage or not the OUTPUT of a build, 130 interrupted.
"""
_NOT_THERE = (BuildPhase.EMPTY, BuildPhase.FAILED)
_LINE_SECONDS = 30.0
_LOCAL_SECONDS, _STORE_SECONDS = 2.0, 10.0  # on a terminal
_STALLED_SECONDS = 300.0


@command
def watch_command(argv: Sequence[str]) -> int:
    """Run `shardwright watch` and return its exit code."""
    args = _parse(argv)
    root = root_of(args)
    progress = scan_build(root, time.time())
    if args.once:
        print_safely(
            to_json({"output": root.uri, **progress.to_json()})
            if args.json
            else f"{root}: {show_line(progress)}"
        )
        return EXIT_FAULTS if progress.phase in _NOT_THERE else EXIT_DONE
    return _follow(root, args, progress)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = make_parser(
        "watch",
        "Follow a build: shards, records, rate and time left.",
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


def _follow(root: Folder, args: argparse.Namespace, progress: BuildProgress) -> int:
    """Show the progress until the build has ended, and return the exit code.

    Raises:
        NotADatasetError: OUTPUT is not of a build.
    """
    in_place = not args.json and is_live(sys.stdout)
    live = _STORE_SECONDS if root.is_remote else _LOCAL_SECONDS
    pause = args.interval or (live if in_place else _LINE_SECONDS)
    started = begun = time.time()
    # A failure from before the start may be followed by another try.
    had_failed = progress.phase is BuildPhase.FAILED
    while True:
        now = time.time()
        is_old = had_failed and (progress.idle_seconds or 0.0) > now - started
        has_failed = progress.phase is BuildPhase.FAILED and not is_old
        has_ended = has_failed or progress.phase is BuildPhase.PUBLISHED
        if args.json:
            print(json.dumps({"output": root.uri, **progress.to_json()}), flush=True)
        elif in_place and not has_ended:
            show_in_place(show_line(progress), sys.stdout)
        else:
            print_safely(f"{'' if in_place else 'shardwright: '}{one_line(show_line(progress))}")
            sys.stdout.flush()
        if has_ended:
            return EXIT_FAULTS if has_failed else EXIT_DONE
        if progress.phase not in _NOT_THERE:
            begun = now
        elif now - begun >= 60 * args.wait:
            say(
                f"error: no build has begun in {root} for {show_seconds(now - begun)}: "
                "check that it is the OUTPUT of the build, or wait longer with --wait MINUTES"
            )
            return EXIT_FAULTS
        progress = _look_again(root, pause)


def _look_again(root: Folder, pause: float) -> BuildProgress:
    """Look after a pause; until OUTPUT can be read, say why not."""
    while True:
        time.sleep(pause)
        try:
            return scan_build(root, time.time())
        except StorageError as error:
            say(f"{error}; trying again")


def show_line(progress: BuildProgress) -> str:
    """Return the progress in one line."""
    beside = " beside the published dataset" if progress.replaces else ""
    done, idle = progress.done, progress.idle_seconds or 0.0
    match progress.phase:
        case BuildPhase.EMPTY:
            return "nothing is there yet: the build has not begun, or is planning"
        case BuildPhase.PLANNING:
            return "planning, INPUT is being unpacked"
        case BuildPhase.FAILED:
            ago = show_seconds(idle)
            return f"the build failed {ago} ago, before it wrote shards: see its log and rejects/"
        case BuildPhase.PUBLISHED:
            records, shards = counted(done.records, "record"), counted(done.shards, "shard")
            return f"published: {records}, {shards}, {show_bytes(done.num_bytes)}"
        case BuildPhase.PUBLISHING:
            parts = [f"all {counted(done.shards, 'shard')} written, publishing{beside}"]
        case BuildPhase.WRITING:
            parts = [f"writing{beside} for {show_seconds(progress.seconds)}", *_amounts(progress)]
    if idle > _STALLED_SECONDS:
        parts.append(
            f"no change for {show_seconds(idle)}: if the build has stopped, the same command "
            "resumes it"
        )
    return ", ".join(parts)


def _amounts(progress: BuildProgress) -> list[str]:
    done, planned = progress.done, progress.planned
    if planned is None:
        return []
    share = done.shards / max(planned.shards, 1)
    parts = [
        f"{done.records:,} of {planned.records:,} images",
        f"{done.shards:,} of {planned.shards:,} shards ({share:.0%})",
    ]
    if progress.reused.shards:
        parts.append(f"{progress.reused.shards:,} of an earlier run")
    if progress.records_per_second:
        parts.append(f"{progress.records_per_second:,.0f} images/s")
    if progress.seconds_left is not None:
        parts.append(f"{show_seconds(progress.seconds_left)} left")
    return parts
