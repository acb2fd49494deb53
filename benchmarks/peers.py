#!/usr/bin/env python
"""Measure re-encoding builds against Daft and Ray Data (`make bench-peers`).

Each decodes the same photographs (see photos.py), resizes them to 256 x 256, and writes them as
JPEG in its own format: shardwright TFRecord shards, the others Parquet (see peer_systems.py). Each
run is one command, measured as a whole process tree (see measure.py). Rounds are interleaved.
Throughput is the slope between two sizes, which excludes start-up.

Exit code 1 if a target fails, unless --no-check is given. Takes about 6 minutes.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import environments
import page
import pyarrow.parquet as pq
import raw_results
from measure import RunFailedError, Usage, measure
from outputs import check_output
from page import Target, spread
from peer_systems import SIDE
from photos import PhotoSet, make_photos
from PIL import Image
from report import OURS, Results, slopes
from systems import HERE, shardwright_command

NAMES = (OURS, "daft", "ray")
MIN_RATIO, MAX_MEMORY = 1.5, 0.5
_BYTES_PER_FILE = 140_000  # the photograph, the result and the peers' temporary files
# Without a mode, Ray writes a token to the home folder.
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def command(name: str, source: Path, out: Path) -> list[str]:
    if name == OURS:
        options = ("--encode", "jpeg", "--resize", f"{SIDE}x{SIDE}")
        return shardwright_command("build", str(source), str(out), *options)
    python = environments.python_of("peers", name)
    return [python, str(HERE / "peer_systems.py"), name, str(source), str(out)]


def check_images(name: str, out: Path, files: int) -> None:
    """Raise RunFailedError unless OUT holds every image, and a JPEG of the right size."""
    if name == OURS:
        check_output(name, out, files=files, num_bytes=0)
        return
    tables = [pq.ParquetFile(path) for path in sorted(out.rglob("*.parquet"))]
    found = sum(table.metadata.num_rows for table in tables)
    data = next(tables[0].iter_batches(1)).column("image")[0].as_py() if tables else b""
    image = Image.open(io.BytesIO(data)) if data else None
    if found != files or image is None or (image.format, image.size) != ("JPEG", (SIDE, SIDE)):
        raise RunFailedError(f"{name}: found {found} rows, expected {files} JPEGs: {image}")


def run(name: str, photos: PhotoSet, folder: Path) -> Usage:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = command(name, photos.folder, out)
    usage = measure(words, log=folder / "logs" / name, env=_ENVIRONMENT)
    check_images(name, out, photos.files)
    shutil.rmtree(out)
    page.say(
        f"{name:<12} {photos.files:>6} files  {usage.wall_s:6.2f} s  CPU {usage.cpu_s:6.2f} s  "
        f"PSS {usage.peak_pss_bytes / 1e9:.2f} GB"
    )
    return usage


def unpack(raw: Any) -> Results:
    """Return the results from their JSON."""
    return Results(raw_results.unpack(raw, Usage))


def peak_bytes(found: Results, name: str) -> int:
    """Return the peak PSS, because Ray's processes share memory, which RSS counts repeatedly."""
    return max(
        usage.peak_pss_bytes
        for (system, _), usages in found.usages.items()
        if system == name
        for usage in usages
    )


def best_peer(found: Results) -> str:
    return max(NAMES[1:], key=lambda name: median(slopes(found, name) or [0.0]))


def targets(found: Results) -> list[Target]:
    best = best_peer(found)
    ours, theirs = slopes(found, OURS), slopes(found, best)
    speed = f"decode, resize, write: at least {MIN_RATIO}x the better of Daft and Ray Data"
    memory = f"decode, resize, write: at most {MAX_MEMORY}x the memory of either (PSS)"
    share = peak_bytes(found, OURS) / min(peak_bytes(found, name) for name in NAMES[1:])
    if not ours or not theirs:
        return [Target(speed, "not measured", None), Target(memory, "not measured", None)]
    ratio = median(ours) / median(theirs)
    rates = f"{spread(ours, ',.0f')} against {best}'s {spread(theirs, ',.0f')}/s"
    return [
        Target(speed, f"{ratio:.2f}x ({rates})", ratio >= MIN_RATIO),
        Target(memory, f"{share:.2f}x", share <= MAX_MEMORY),
    ]


def render(found: Results, lines: Sequence[str]) -> str:
    head = ["system", "files", *page.USAGE_HEAD, "slope images/s"]
    rows = [
        [
            name,
            f"{files:,}",
            *page.usage_cells(usages, ".2f"),
            spread(slopes(found, name), ",.0f") if files == max(found.sizes(name)) else "",
        ]
        for (name, files), usages in found.usages.items()
    ]
    note = (
        f"JPEGs of 500 x 375 pixels and 80 KB, decoded, resized to {SIDE} x {SIDE} and written as "
        "JPEG: shardwright to TFRecord shards, the others to Parquet. Daft has no option for the "
        "quality of JPEG; the others use 90."
    )
    return "\n".join(["## Peers", "", *lines, "", *page.table(head, rows), "", note])


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    sizes = "two sizes (default 2000 8000)"
    parser.add_argument("--files", type=int, nargs=2, default=[2000, 8000], help=sizes)
    return parser.parse_args(argv)


def main() -> int:
    args = parse_args(sys.argv[1:])
    releases = environments.releases("peers", NAMES, dated=args.write)
    need_bytes = 2 * max(args.files) * _BYTES_PER_FILE
    folder = page.work_folder(args.dir, need_bytes)
    sets = [make_photos(folder / "photos", photos=files) for files in sorted(args.files)]
    usages: dict[tuple[str, int], list[Usage]] = {}
    try:
        for number in range(args.rounds):
            for photos in sets:
                for name in page.turned(NAMES, number):
                    found = run(name, photos, folder)
                    usages.setdefault((name, photos.files), []).append(found)
    except RunFailedError as failure:
        sys.exit(str(failure))
    about = raw_results.circumstances(folder, args.rounds, packages=["Pillow"], peers=releases)
    result = raw_results.Result("peers", about, raw_results.pack(usages))
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
