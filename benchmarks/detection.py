#!/usr/bin/env python
"""Measure reading photographs with boxes, for detection (`make bench-detection`).

Photographs of 1000x750 pixels and about 320 KB, with 7 boxes each, are cropped to 512x512 with
their boxes (see detection_feeds.py), in shuffled batches, on all cores:

  reader   sw.Reader(...).torch() with sw.Boxes, in the environment of `make torch`
  torch    DataLoader with torchvision's v2 transforms, decoded by Pillow or by torchvision
  tf.data  a hand-tuned pipeline on the same shards; the fastest of its variants counts

Each loader runs in its own process, the peers in environments of their own (environments.py).
Rounds are interleaved. Exit code 1 if a target fails, unless --no-check is given. Takes about 6
minutes, and 1 GB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import environments
import page
import raw_results
from measure import RunFailedError
from page import Target, spread
from read_data import make_photos_with_boxes
from read_feeds import time_in_process

READER = "reader"
_TORCH_PYTHON = page.REPO / ".torch" / "bin" / "python"
# Case -> its loader, and the settings of that.
CASES: dict[str, tuple[str, dict[str, str]]] = {
    READER: (READER, {}),
    "torch, Pillow": ("torch", {"decoder": "Pillow"}),
    "torch, torchvision": ("torch", {"decoder": "torchvision"}),
    **{
        f"tf.data, {variant}": ("tf.data", {"variant": variant})
        for variant in (
            "AUTOTUNE",
            "a decoding thread per core",
            "a decoding thread per core, fast DCT",
            "a decoding thread per core, fast DCT, private pool",
        )
    },
}
# Loader -> how many times as fast as the best of its cases the reader must be.
NEED = {"torch": 2.2, "tf.data": 1.4}
_BYTES_PER_PHOTO = 1_200_000  # files, shards, and the photographs that they are made of


class Run(NamedTuple):
    """Images a second, CPU milliseconds an image, and the peak memory of all processes."""

    rate: float
    cpu_msec: float
    peak_pss_bytes: int


Results = dict[tuple[str], list[Run]]


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    loaders = sorted({loader for loader, _ in CASES.values()})
    add("--loaders", type=page.choice(loaders), default=loaders, help="such as reader,torch")
    add("--photos", type=int, default=400, help="number of different photographs")
    add("--batch-size", type=int, default=16, help="images in a batch")
    add("--seconds", type=float, default=6.0, help="timed seconds of a loader")
    add("--warm-up", type=int, default=400, help="images before those")
    return parser.parse_args(argv)


def run(case: str, data: Path, args: argparse.Namespace) -> Run:
    """Time a loader in its own process."""
    name, settings = CASES[case]
    python = str(_TORCH_PYTHON) if name == READER else environments.python_of("detection", name)
    usage = time_in_process("detection_feeds.py", name, python, settings, args, data)
    told = usage.told()
    items = told["items"]
    return Run(items / told["wall_s"], told["cpu_s"] / items * 1e3, usage.peak_pss_bytes)


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "runs": raw_results.unpack(raw["runs"], Run)}


def targets(found: dict[str, Any]) -> list[Target]:
    return [_target(found["runs"], name, need) for name, need in NEED.items()]


def _target(runs: Results, name: str, need: float) -> Target:
    """Compare the reader with the fastest case of a loader, round by round."""
    text = f"reader with boxes at least {need:g}x the best of {name}"
    peers = [case for case in runs if CASES[case[0]][0] == name]
    if not peers or (READER,) not in runs:
        return Target(text, "-", None)
    best = max(peers, key=lambda case: median([run.rate for run in runs[case]]))
    ratios = [ours.rate / other.rate for ours, other in zip(runs[READER,], runs[best], strict=True)]
    return Target(text, f"{spread(ratios, '.2f')}x ({best[0]})", median(ratios) >= need)


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    head = ["", "images/s", "CPU ms an image", "peak PSS GB"]
    rows = [
        [
            case,
            spread([run.rate for run in of], ",.0f"),
            spread([run.cpu_msec for run in of], ".1f"),
            f"{max(run.peak_pss_bytes for run in of) / 1e9:.2f}",
        ]
        for (case,), of in found["runs"].items()
    ]
    return "\n".join([
        "## Photographs with boxes", "", *lines, "", *page.table(head, rows), "",
        f"Crops of 512x512 and their boxes, in shuffled batches of {found['batch_size']}, from "
        f"{found['photos']:,} photographs of {found['photo_kb']:.0f} KB with 7 boxes each. "
        "torchvision antialiases, the others do not.",
    ])  # fmt: skip


def main() -> int:
    args = parse_args(sys.argv[1:])
    if READER in args.loaders and not _TORCH_PYTHON.exists():
        sys.exit("no environment with torch: run `make torch`")
    peers = environments.releases("detection", args.loaders, dated=args.write)
    folder = page.work_folder(args.dir, args.photos * _BYTES_PER_PHOTO)
    page.say(f"working in {folder} ({page.directory_kind(folder)}); making photographs ...")
    cases = [case for case, (name, _) in CASES.items() if name in args.loaders]
    found: Results = {(case,): [] for case in cases}
    try:
        data, photo_bytes = make_photos_with_boxes(folder, args.photos)
        for number, case in page.in_rounds(cases, args.rounds):
            found[(case,)].append(run(case, data, args))
            page.say(f"round {number}: {case}: {found[(case,)][-1]}")
    except RunFailedError as failure:  # without this run there is no fair comparison
        sys.exit(str(failure))
    about = raw_results.circumstances(folder, args.rounds, sources=["shardwright"], peers=peers)
    raw = {
        "batch_size": args.batch_size,
        "photos": args.photos,
        "photo_kb": photo_bytes / 1e3,
        "runs": raw_results.pack(found),
    }
    result = raw_results.Result("detection", about, raw)
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
