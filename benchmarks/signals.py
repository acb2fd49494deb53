#!/usr/bin/env python
"""Time the signals of a photograph, per image and in CPU time of one thread.

Prints the time to decode a preview, to measure it, and both, for the photographs of `photos`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.photos import render_photo
from shardwright.images.decode import StoredImage
from shardwright.images.previews import decode_preview
from shardwright.images.signals import measure_picture

T = TypeVar("T")
_LIMIT_MSEC = 0.9


def main() -> int:
    """Print the figures; return 1 if measuring takes longer than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=int, default=200, help="photographs (default: 200)")
    parser.add_argument("--rounds", type=int, default=5, help="the best of N (default: 5)")
    args = parser.parse_args()
    files = [render_photo(number) for number in range(args.photos)]
    stored = StoredImage()
    previews = [decode_preview(data, stored).pixels for data in files]
    decoding = _msec(lambda data: decode_preview(data, stored), files, args.rounds)
    measuring = _msec(measure_picture, previews, args.rounds)
    height, width, _ = previews[0].shape
    print(f"{args.photos} photographs of {width}x{height}, CPU ms each, best of {args.rounds}")
    print(f"  decode   {decoding:.2f}")
    print(f"  measure  {measuring:.2f}  (limit {_LIMIT_MSEC})")
    return 1 if measuring > _LIMIT_MSEC else 0


def _msec(work: Callable[[T], object], items: Sequence[T], rounds: int) -> float:
    """Return the least CPU time per item over some rounds, in milliseconds."""
    found = []
    for _ in range(rounds):
        start = time.thread_time()
        for item in items:
            work(item)
        found.append(time.thread_time() - start)
    return 1000 * min(found) / len(items)


if __name__ == "__main__":
    raise SystemExit(main())
