"""The command `shardwright watch`: follow a build on any runner by what it writes to OUTPUT.

The progress is one line for a log, or several for a terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence

from shardwright.errors import StorageError
from shardwright.inspect.build_progress import BuildPhase, BuildProgress, WriteRate
from shardwright.inspect.build_scan import BuildScan
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
_LONG_SECONDS = 60.0  # of a shard in work, to be shown in a line
_NO_CHANGE = {
    BuildPhase.PLANNING: "the build has stopped, or reads INPUT without unpacking it",
    BuildPhase.WRITING: "the build has stopped, is planning again, or its shards take longer",
    BuildPhase.PUBLISHING: "the build has stopped, or was refused (its log has the reason)",
}


@command
def watch_command(argv: Sequence[str]) -> int:
    """Run `shardwright watch` and return its exit code."""
    args = _parse(argv)
    root = root_of(args)
    scan = BuildScan(root)
    progress = scan.look(time.time())
    if args.once:
        if args.json:
            print_safely(to_json({"output": root.uri, **progress.to_json()}))
        else:
            print_safely(join_lines(show_lines(progress, root.uri)))
        return EXIT_FAULTS if progress.phase in _NOT_THERE else EXIT_DONE
    return _Watch(scan, root, args).run(progress)


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
                say(
                    f"error: no build has begun in {self._root} for {show_seconds(now - begun)}: "
                    "check that it is the OUTPUT of the build, or wait longer with --wait MINUTES"
                )
                return EXIT_FAULTS
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


def show_line(progress: BuildProgress) -> str:
    """Return the progress in one line."""
    parts = [_phase_text(progress)]
    if progress.phase is BuildPhase.WRITING and progress.planned:
        done, planned = progress.done, progress.planned
        parts += [
            f"{done.shards:,}/{planned.shards:,} shards",
            f"{_about(progress)}{done.records:,}/{planned.records:,} records",
        ]
        if progress.recent:
            parts.append(_rate_text(progress.recent))
        if progress.seconds_left is not None:
            parts.append(f"{show_seconds(progress.seconds_left)} left")
    if progress.rejects:
        parts.append(f"rejects: {_rejects_text(progress)}")
    if progress.writing and progress.writing[0][1] > _LONG_SECONDS:
        name, seconds = progress.writing[0]
        parts.append(f"longest in work: {name} for {show_seconds(seconds)}")
    if note := stall_note(progress):
        parts.append(note)
    return ", ".join(parts)


def show_lines(progress: BuildProgress, uri: str) -> list[str]:
    """Return the progress of a build in OUTPUT `uri` as the lines of a terminal."""
    rows = [("state", _phase_text(progress))]
    done, planned = progress.done, progress.planned
    if planned is not None and progress.phase is not BuildPhase.PUBLISHED:
        reused = f", {progress.num_reused:,} of an earlier run" if progress.num_reused else ""
        about = _about(progress)
        rows += [
            ("shards", _part(done.shards, planned.shards) + reused),
            ("records", about + _part(done.records, planned.records)),
            (
                "bytes",
                f"{about}{show_bytes(done.num_bytes)} of {show_bytes(planned.num_bytes)} planned",
            ),
        ]
    if progress.recent and progress.overall:
        period = show_seconds(progress.recent.seconds)
        rows.append(("speed", f"{_rate_text(progress.recent)} over the last {period}"))
        rows.append(("", f"{_rate_text(progress.overall)} since the plan"))
    if progress.seconds_left is not None:
        rows.append(("left", show_seconds(progress.seconds_left)))
    if progress.rejects:
        rows.append(("rejects", _rejects_text(progress)))
    if progress.slowest:
        rows.append(("slowest", _times(progress.slowest)))
    if progress.writing:
        in_work = counted(len(progress.writing), "shard")
        rows.append(("in work", f"{in_work}, longest {_times(progress.writing[:1])}"))
    if note := stall_note(progress):
        rows.append(("note", note))
    return [uri, *(f"  {name:<8}  {text}" for name, text in rows)]


def stall_note(progress: BuildProgress) -> str:
    """Return what it may mean that OUTPUT has not changed for long, or ""."""
    if not progress.is_stalled or progress.idle_seconds is None:
        return ""
    return (
        f"no change for {show_seconds(progress.idle_seconds)}: {_NO_CHANGE[progress.phase]}; "
        "the same command resumes a stopped build"
    )


def _phase_text(progress: BuildProgress) -> str:
    beside = " beside the published dataset" if progress.replaces else ""
    match progress.phase:
        case BuildPhase.EMPTY:
            return "nothing is there yet: the build has not begun, or is planning"
        case BuildPhase.PLANNING:
            return f"planning, {show_bytes(progress.spooled_bytes)} of INPUT unpacked"
        case BuildPhase.WRITING:
            return f"writing{beside} for {show_seconds(progress.seconds)}"
        case BuildPhase.PUBLISHING if progress.replaces:
            return "replacing the published dataset"
        case BuildPhase.PUBLISHING:
            return f"all {counted(progress.done.shards, 'shard')} written, publishing"
        case BuildPhase.FAILED:
            ago = show_seconds(progress.idle_seconds or 0.0)
            cause = ": INPUT lacks too many records (--max-gone)" * ("gone" in progress.rejects)
            return f"the build failed {ago} ago, before it wrote shards{cause}"
    done = progress.done
    return (
        f"published {show_seconds(progress.idle_seconds or 0.0)} ago: "
        f"{counted(done.records, 'record')}, {counted(done.shards, 'shard')}, "
        f"{show_bytes(done.num_bytes)}"
    )


def _about(progress: BuildProgress) -> str:
    return "about " if progress.num_unread else ""


def _part(done: int, planned: int) -> str:
    return f"{done:,} of {planned:,} ({done / max(planned, 1):.0%})"


def _rate_text(rate: WriteRate) -> str:
    return f"{rate.records_per_second:,.0f} images/s, {show_bytes(rate.bytes_per_second)}/s"


def _rejects_text(progress: BuildProgress) -> str:
    least = "at least " if progress.num_unread else ""
    return least + ", ".join(f"{number:,} {reason}" for reason, number in progress.rejects.items())


def _times(shards: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {show_seconds(seconds)}" for name, seconds in shards)
