#!/usr/bin/env python
"""Look for images that are in two splits of 10,000,000 records (`make bench-leaks`).

Only sidecars are made, half of them of each split. Prints the seconds, CPU and peak memory of the
comparison, with the start of Python. Exit code 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import Usage, measure
from page import scratch_folder

from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder

MAX_BYTES = 5 * 10**8
_RECORDS, _SPLITS = 10_000, ("test", "train")  # records in a shard
_COMPARE = """
import sys
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.leaks import find_leaks
root, count = sys.argv[1], int(sys.argv[2])
every = range(count)
names = {split: [ShardName("many", split, n, count) for n in every] for split in sys.argv[3:]}
print(find_leaks(Folder(root), names))
"""


def make_sidecars(root: Folder, count: int) -> None:
    """Write `count` sidecars of each split, of images with random lengths and checksums."""
    rng = np.random.default_rng(0)
    for name in (ShardName("many", split, row, count) for row in range(count) for split in _SPLITS):
        rows = {
            "id": [f"{name.split}/{name.index:05d}-{row:05d}.jpg" for row in range(_RECORDS)],
            "image_length": rng.integers(1, 1 << 31, _RECORDS),
            "crc32c": rng.integers(0, 1 << 32, _RECORDS, np.uint32),
            "record_crc32c": np.zeros(_RECORDS, np.uint32),
        }
        zeros = dict.fromkeys(("offset", "length", "image_offset"), np.zeros(_RECORDS, np.int64))
        known = {key: pa.array(column) for key, column in (rows | zeros).items()}
        columns = [known.get(field.name, pa.nulls(_RECORDS, field.type)) for field in INDEX_SCHEMA]
        table = pa.table(columns, schema=INDEX_SCHEMA)
        write_sidecar(root, ShardSummary(name, _RECORDS, 0, 0, ""), table)


def compare(root: Path, num_records: int) -> Usage:
    """Compare the splits in another process."""
    count = max(1, num_records // _RECORDS // len(_SPLITS))
    make_sidecars(Folder(str(root)), count)
    words = [sys.executable, "-c", _COMPARE, str(root), str(count), *_SPLITS]
    usage = measure(words, log=root / "log")
    assert usage.stdout.read_text() == "{}\n"
    return usage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--dir", help="work here (default: the temp folder)")
    args = parser.parse_args()
    with scratch_folder("leaks-", args.dir) as root:
        used = compare(root, args.records)
    print(
        f"{args.records:,} records in two splits: compared in {used.wall_s:.1f} s, "
        f"CPU {used.cpu_s:.1f} s, RSS {used.peak_rss_bytes / 1e6:.0f} MB"
    )
    return 0 if used.peak_rss_bytes <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
