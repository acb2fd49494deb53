"""The progress of a local build: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from shardwright.sizes import show_bytes, show_seconds
from transforms.progress import Progress as Counters

_BAR_SECONDS = 0.2
_LINE_SECONDS = 10.0


class ProgressDisplay:
    """Shows counters until the block ends."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="shardwright-progress")

    def __enter__(self) -> ProgressDisplay:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._run_bar()
        else:
            self._run_lines()

    def _run_bar(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task: TaskID = bar.add_task("planning", total=None, text="")
            meter = _Meter()
            while not self._stop.wait(_BAR_SECONDS):
                counters = self._counters.snapshot()
                if counters.total_images:
                    bar.update(task, description="writing", total=counters.total_images, completed=counters.images, text=meter.text(counters))

    def _run_lines(self) -> None:
        meter = _Meter()
        while not self._stop.wait(_LINE_SECONDS):
            counters = self._counters.snapshot()
            text = meter.text(counters) if counters.total_images else "planning"
            print(f"shardwright: {text}", file=sys.stderr, flush=True)


class _Meter:
    """Turns counters into a line; the rate is counted from the first image on."""

    def __init__(self) -> None:
        self._start: tuple[float, int, int] | None = None

    def text(self, counters: Counters) -> str:
        now = monotonic()
        if self._start is None:
            self._start = (now, counters.images, counters.num_bytes)
        began, images, num_bytes = self._start
        seconds = max(now - began, 1e-6)
        rate = (counters.images - images) / seconds
        left = show_seconds((counters.total_images - counters.images) / rate) if rate else "?"
        speed = show_bytes((counters.num_bytes - num_bytes) / seconds)
        return (
            f"{counters.images}/{counters.total_images} images, {rate:.0f}/s, {speed}/s, "
            f"{counters.shards}/{counters.total_shards} shards, {left} left"
        )
