"""One loader, timed in a process of its own. `read_systems.py` and `read_torch.py` are the two scripts that do so, each in its environment.

A loader is a function that opens an endless iterator of batches, of arrays with a `shape`: images uint8, or records as stored. The clock
starts when everything is imported. The line of JSON that is printed at the end gives times of the machine's monotonic clock, so that the
process that looks at memory meanwhile (see measure.py) can say how much there was when.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import cpu_seconds_of_children

SIDE = 224
SCALE, RATIO = (
    (0.08, 1.0),
    (3 / 4, 4 / 3),
)  # of the random-resized crop: what all of these libraries default to
ORDERS = ("sequential", "shuffled")
_PARTS = 6  # of a run that are timed apart, so that a page can say how even it was


@dataclass(frozen=True)
class Feed:
    """What a loader is asked for. `data` holds the formats that `read_data.py` made; `settings` are what tuning found, or nothing."""

    data: Path
    shuffle: bool
    batch_size: int
    cores: int
    settings: dict[str, Any] = field(default_factory=dict)

    def files(self, pattern: str) -> list[str]:
        return sorted(map(str, self.data.glob(pattern)))


@dataclass(frozen=True)
class Loader:
    """A function from a feed to its batches, and what it imports: `module` or `module:attribute`."""

    open: Callable[[Feed], Iterable[Any]]
    imports: tuple[str, ...]


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def import_all(names: Iterable[str]) -> None:
    for name in names:
        module, _, attribute = name.partition(":")
        found = importlib.import_module(module)
        if attribute:
            getattr(found, attribute)


def check_images(batch: Any, batch_size: int) -> None:
    """That it did the same work as the others: a batch of uint8 images, channels first or last."""
    shape = tuple(int(side) for side in batch.shape)
    if (
        sorted(shape[1:]) != [3, SIDE, SIDE]
        or not 0 < shape[0] <= batch_size
        or "uint8" not in str(batch.dtype)
    ):
        raise SystemExit(
            f"batches are {batch.dtype} {shape}, not uint8 of at most {batch_size} images of {SIDE}x{SIDE}"
        )


def check_records(batch: Any, batch_size: int) -> None:
    first = bytes(batch.numpy()[0] if hasattr(batch, "numpy") else batch[0])
    if not 0 < int(batch.shape[0]) <= batch_size or len(first) < 1000:
        raise SystemExit(
            f"batches are {batch.shape} with a first record of {len(first)} bytes, not records of images"
        )


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + sum(cpu_seconds_of_children().values())


class _Marks:
    """When each part of the items had come. A run by time has no parts before it ends."""

    def __init__(self, items: int) -> None:
        self.items, self.times = items, [time.monotonic()]

    def saw(self, count: int) -> None:
        while len(self.times) <= _PARTS and count * _PARTS >= self.items * len(self.times):
            self.times.append(time.monotonic())


def time_batches(
    batches: Iterator[Any], *, warm_up_items: int, items: int, seconds: float = 0.0
) -> dict[str, Any]:
    """Takes `warm_up_items`, then times `items`, or as many as come in `seconds`. Whole batches, so some more."""
    count = 0
    while count < warm_up_items:
        count += int(next(batches).shape[0])
    marks, cpu_s, count = _Marks(items), _cpu_s(), 0
    start = marks.times[0]
    while time.monotonic() < start + seconds if seconds else count < items:
        count += int(next(batches).shape[0])
        marks.saw(count)
    wall_s = time.monotonic() - start
    times = (
        [start + part * wall_s / _PARTS for part in range(_PARTS + 1)] if seconds else marks.times
    )
    return {"items": count, "wall_s": wall_s, "cpu_s": _cpu_s() - cpu_s, "times": times}


def run_feed(
    loader: Loader, feed: Feed, args: argparse.Namespace, check: Callable[[Any, int], None]
) -> dict[str, Any]:
    """Seconds from the imports' end to the first batch, then the speed after a warm-up."""
    import_all(loader.imports)
    start = time.monotonic()
    batches = iter(loader.open(feed))
    first = next(batches)
    first_batch_s = time.monotonic() - start
    check(first, feed.batch_size)
    timed = {"items": 0, "wall_s": 0.0, "cpu_s": 0.0, "times": []}
    if args.items or args.seconds:
        timed = time_batches(
            batches, warm_up_items=args.warm_up_items, items=args.items, seconds=args.seconds
        )
    return {**timed, "first_batch_s": first_batch_s}


def parser(doc: str | None, tasks: Iterable[str]) -> argparse.ArgumentParser:
    """The command line that both scripts share."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("task", choices=list(tasks))
    add("name", help="the loader")
    add("--data", type=Path, required=True, help="the folder that read_data.py filled")
    add("--order", choices=ORDERS, default="sequential")
    add("--batch-size", type=int, default=64)
    add("--items", type=int, default=0, help="images or records to time after the warm-up")
    add("--seconds", type=float, default=0.0, help="time as many as come in this time instead")
    add("--warm-up-items", type=int, default=0)
    add(
        "--cores",
        type=int,
        default=os.cpu_count() or 1,
        help="workers or threads, where a loader wants a number",
    )
    add("--shard-bytes", type=int, default=32_000_000, help="of a format to make")
    add("--settings", type=json.loads, default={}, help="of a tuned loader, as JSON")
    return made


def feed_of(args: argparse.Namespace) -> Feed:
    return Feed(args.data, args.order == "shuffled", args.batch_size, args.cores, args.settings)


def tell(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)
