"""Show the progress of a build: a bar on a terminal, elsewhere a plain line every ten seconds."""

from __future__ import annotations

import sys
import threading
from time import monotonic

from shardwright.sizes import counted, show_bytes, show_seconds
from shardwright.transforms.progress import Progress as Counters

_TICK_SECONDS = 0.2
_LINE_SECONDS = 10.0


class ProgressDisplay:
    """A display of counters until the block ends.

    Args:
        counters: Counters to show.
        line_seconds: Seconds between two lines if stderr is not a terminal.
    """

    def __init__(self, counters: Counters, *, line_seconds: float = _LINE_SECONDS) -> None:
        self._counters = counters
        self._line_seconds = line_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="shardwright-progress")

    def __enter__(self) -> ProgressDisplay:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._run_bar()
        else:
            self._run_lines()

    def _run_bar(self) -> None:
        # 0.2 s, which a build in a log does not need.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("planning", total=None, text="")
            meter = _Meter()
            while not self._stop.wait(_TICK_SECONDS):
                counters = self._counters.snapshot()
                meter.look(counters)
                if counters.total_images:
                    total, done = counters.total_images, counters.images
                    bar.update(
                        task,
                        description="writing",
                        total=total,
                        completed=done,
                        text=meter.text(counters),
                    )
                else:
                    bar.update(task, description=_before_writing(counters))

    def _run_lines(self) -> None:
        meter = _Meter()
        shown = monotonic()
        while not self._stop.wait(_TICK_SECONDS):
            counters = self._counters.snapshot()
            meter.look(counters)
            if monotonic() - shown >= self._line_seconds:
                shown = monotonic()
                text = meter.text(counters) if counters.total_images else _before_writing(counters)
                print(f"shardwright: {text}", file=sys.stderr, flush=True)


def _before_writing(counters: Counters) -> str:
    if counters.read_records:
        return f"read {counted(counters.read_records, 'record')}"
    return (
        f"planning, listed {counted(counters.listed, 'record')}" if counters.listed else "planning"
    )


class _Meter:
    """A formatter of counters. The rate counts written images, from the end of planning."""

    def __init__(self) -> None:
        self._start: float | None = None

    def look(self, counters: Counters) -> None:
        """Note the end of planning. Call it often: its precision is that of the calls."""
        if self._start is None and counters.total_images:
            self._start = monotonic()

    def text(self, counters: Counters) -> str:
        seconds = max(monotonic() - (self._start or 0.0), 1e-6)
        rate = (counters.images - counters.reused_images) / seconds
        left = show_seconds((counters.total_images - counters.images) / rate) if rate else "?"
        return (
            f"{counters.images}/{counters.total_images} images, {rate:.0f}/s, "
            f"{show_bytes(counters.num_bytes / seconds)}/s, "
            f"{counters.shards}/{counters.total_shards} shards, {left} left"
        )
