"""Time one loader in its own process, for `read_systems.py` and `read_torch.py`.

These two scripts run in different environments. A loader is a function that opens an endless
iterator of batches, arrays with a `shape`: uint8 images, or records as stored. Timing starts after
all imports. The line of JSON at the end has times of the monotonic clock, so that the process that
samples memory (see measure.py) can assign its samples to them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Usage, cpu_seconds_of_children, measure

SIDE = 224
# Of the random-resized crop, the default of all these libraries.
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
ORDERS = ("sequential", "shuffled")
_LABEL_BYTES = 8
_PARTS = 6  # a run is timed in equal parts, to see whether it changes over time


@dataclass(frozen=True)
class Feed:
    """The arguments of a loader: `data` from `read_data.py`, `settings` from tuning or empty."""

    data: Path
    shuffle: bool
    batch_size: int
    cores: int
    settings: dict[str, Any] = field(default_factory=dict)

    def files(self, pattern: str) -> list[str]:
        return sorted(map(str, self.data.glob(pattern)))


@dataclass(frozen=True)
class Loader:
    """A function from a feed to its batches, and its imports: `module` or `module:attribute`."""

    open: Callable[[Feed], Iterable[Any]]
    imports: tuple[str, ...]


def labelled(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each file of CLASS/NAME with the number of its class."""
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(folder / name)):
            yield folder / name / file, label


def pack(image: bytes, label: int) -> bytes:
    """Return a record for ArrayRecord: the label in 8 bytes, little-endian, then the JPEG."""
    return label.to_bytes(_LABEL_BYTES, "little") + image


def unpack(record: bytes) -> tuple[bytes, int]:
    return record[_LABEL_BYTES:], int.from_bytes(record[:_LABEL_BYTES], "little")


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the items epoch after epoch."""
    while True:
        yield from loader


def import_all(names: Iterable[str]) -> None:
    for name in names:
        module, _, attribute = name.partition(":")
        found = importlib.import_module(module)
        if attribute:
            getattr(found, attribute)


def check_images(batch: Any, batch_size: int) -> None:
    """Exit unless the batch has uint8 images of the right size, channels first or last.

    This ensures that all loaders do the same work.
    """
    shape = tuple(int(side) for side in batch.shape)
    if (
        sorted(shape[1:]) != [3, SIDE, SIDE]
        or not 0 < shape[0] <= batch_size
        or "uint8" not in str(batch.dtype)
    ):
        raise SystemExit(
            f"batches are {batch.dtype} {shape}, not uint8 of at most {batch_size} images of "
            f"{SIDE}x{SIDE}"
        )


def check_records(batch: Any, batch_size: int) -> None:
    first = bytes(batch.numpy()[0] if hasattr(batch, "numpy") else batch[0])
    if not 0 < int(batch.shape[0]) <= batch_size or len(first) < 1000:
        raise SystemExit(
            f"batches are {batch.shape} with a first record of {len(first)} bytes, not records of "
            "images"
        )


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + sum(cpu_seconds_of_children().values())


class _Marks:
    """The times at which each part of the items was complete, for a run with a fixed number."""

    def __init__(self, items: int) -> None:
        self.items, self.times = items, [time.monotonic()]

    def saw(self, count: int) -> None:
        while len(self.times) <= _PARTS and count * _PARTS >= self.items * len(self.times):
            self.times.append(time.monotonic())


def time_batches(
    batches: Iterator[Any], *, warm_up_items: int, items: int, seconds: float = 0.0
) -> dict[str, Any]:
    """Take `warm_up_items`, then time `items`, or all in `seconds`: one whole batch or more."""
    count = 0
    while count < warm_up_items:
        count += int(next(batches).shape[0])
    marks, cpu_s, count = _Marks(items), _cpu_s(), 0
    start = marks.times[0]
    # One batch at least, on a machine that stands still for all of the time.
    while not count or (time.monotonic() < start + seconds if seconds else count < items):
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
    """Time the first batch, from the end of imports, and then a run after a warm-up."""
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
    """Return the parser of both scripts."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("task", choices=list(tasks))
    add("name", help="the loader")
    add("--data", type=Path, required=True, help="folder made by read_data.py")
    add("--order", choices=ORDERS, default="sequential")
    add("--batch-size", type=int, default=64)
    add("--items", type=int, default=0, help="images or records to time after the warm-up")
    add("--seconds", type=float, default=0.0, help="time all items within this time instead")
    add("--warm-up-items", type=int, default=0)
    add(
        "--cores",
        type=int,
        default=os.cpu_count() or 1,
        help="workers or threads, if a loader needs a number",
    )
    add("--shard-bytes", type=int, default=32_000_000, help="shard size of a format to make")
    add("--settings", type=json.loads, default={}, help="settings of a tuned loader, as JSON")
    return made


def feed_of(args: argparse.Namespace) -> Feed:
    return Feed(args.data, args.order == "shuffled", args.batch_size, args.cores, args.settings)


def time_in_process(
    script: str,
    name: str,
    python: str,
    settings: Mapping[str, Any],
    args: argparse.Namespace,
    data: Path,
) -> Usage:
    """Time a loader of a script in shuffled order, with the options of `args`.

    Raises:
        RunFailedError: As `measure`.
    """
    words = ["--data", data, "--order", "shuffled", "--batch-size", args.batch_size]
    words += ["--seconds", args.seconds, "--warm-up-items", args.warm_up]
    words += ["--settings", json.dumps(settings)]
    return measure(
        [python, str(Path(__file__).with_name(script)), "feed", name, *map(str, words)],
        log=data / "logs" / name,
        env={"TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout_s=300,
    )


def tell(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)
