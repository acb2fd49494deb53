#!/usr/bin/env python
"""Make `report.html` of 10,000,000 photographs in 1,000 classes (`make bench-report`).

A small dataset of 200 photographs is built. Its one shard then stands under 1,000 names, each with
an index of 10,000 rows with ids and classes of their own, so that the report reads real photographs
of a large dataset. There are 100,000 rejects. Prints the seconds, CPU and peak memory of
`shardwright report`, with the start of Python, and the bytes of the page. Exit code 1 above 5 MB or
10 seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import Usage, measure
from page import scratch_folder
from photos import make_photos

from shardwright.format import naming
from shardwright.format.index import ShardSummary, read_index, write_sidecar
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.pipelines.commands import build
from shardwright.sizes import show_bytes
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject, RejectReason

MAX_BYTES, MAX_SECONDS = 5_000_000, 10.0
_CLASSES, _RECORDS, _REJECTS, _PHOTOS = 1000, 10_000, 100_000, 200
_SHARES = {"test": 0.1, "train": 0.8, "validation": 0.1}
_REASONS = (RejectReason.CORRUPT, RejectReason.TRUNCATED, RejectReason.OTHER_FILE)


def make_dataset(folder: Path, num_records: int) -> Path:
    """Write shards, sidecars, rejects and manifest; return the dataset's folder."""
    photos = make_photos(folder, photos=_PHOTOS).folder
    small = folder / "small"
    if build.main([str(photos), str(small), "--name", "many", "--split", "train"]):
        sys.exit("the small dataset could not be built")
    manifest, root = read_manifest(Folder(str(small))), Folder(str(folder / "many"))
    (shard,) = manifest.shard_names("train")
    rows = read_index(Folder(str(small)), shard)
    Path(root.uri, naming.INDEX_DIR).mkdir(parents=True)
    splits = {}
    for split, share in _SHARES.items():
        count = max(1, round(share * num_records / _RECORDS))
        names = [ShardName("many", split, number, count) for number in range(count)]
        for name in names:
            os.link(small / shard.shard, folder / "many" / name.shard)
        info = manifest.splits["train"].shards[0]
        written = [_write_index(root, name, info, rows) for name in names]
        splits[split] = SplitInfo(split, tuple(written), _stats(manifest, count * _RECORDS))
    _write_manifest(root, manifest, splits)
    return folder / "many"


def _write_index(root: Folder, name: ShardName, info: ShardInfo, rows: pa.Table) -> ShardInfo:
    """Write an index whose rows repeat those of the small dataset, with other ids and classes."""
    rng = np.random.default_rng((name.index, len(name.split)))
    table = rows.take(pa.array(np.arange(_RECORDS) % len(rows)))
    ids = [f"{name.split}/{name.index:05d}/{row:05d}.jpg" for row in range(_RECORDS)]
    labels = (_CLASSES * rng.random(_RECORDS) ** 2).astype(np.int64)
    for column, values in (("id", ids), ("label", labels)):
        place = table.schema.get_field_index(column)
        table = table.set_column(place, table.schema.field(column), pa.array(values))
    summary = ShardSummary(name, _RECORDS, info.num_bytes, info.crc32c, "")
    sidecar = write_sidecar(root, summary, table).sidecar
    assert sidecar is not None
    return ShardInfo(
        name.index, _RECORDS, info.num_bytes, info.crc32c, "",
        sidecar_bytes=sidecar.num_bytes, sidecar_crc32c=sidecar.crc32c,
    )  # fmt: skip


def _stats(manifest: Manifest, num_records: int) -> dict[str, object]:
    shares = np.diff(np.sqrt(np.arange(_CLASSES + 1) / _CLASSES))
    labels = {str(label): round(num_records * share) for label, share in enumerate(shares)}
    return {**manifest.splits["train"].stats, "labels": labels, "formats": {"jpeg": num_records}}


def _rejects() -> Iterator[Reject]:
    for number in range(_REJECTS):
        reason = _REASONS[number % len(_REASONS)]
        name = f"class/{number:08d}.jpg"
        yield Reject(name, f"/nowhere/{name}", reason, "the file ends in the middle of a scan")


def _write_manifest(root: Folder, manifest: Manifest, splits: dict[str, SplitInfo]) -> None:
    content = write_rejects(root, naming.PLAN_REJECTS, list(_rejects()))
    assert content is not None
    counts = {str(reason): _REJECTS // len(_REASONS) for reason in _REASONS}
    records = sum(split.num_records for split in splits.values())
    changed = replace(
        manifest,
        schema=manifest.schema.with_class_names(tuple(f"class {n:04d}" for n in range(_CLASSES))),
        splits=splits,
        rejects=counts,
        num_inputs=records + sum(counts.values()),
        files={naming.PLAN_REJECTS: content},
    )
    root.write_bytes(naming.MANIFEST, changed.to_bytes())


def report(dataset: Path, page: Path) -> Usage:
    """Write the report in another process."""
    words = [
        sys.executable,
        "-c",
        "import sys; from shardwright.inspect.cli import main; sys.exit(main())",
    ]
    return measure([*words, "report", str(dataset), "-o", str(page)], log=page.with_suffix(".log"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--dir", help="work here (default: the temp folder)")
    parser.add_argument("--keep", help="copy the page to this file")
    args = parser.parse_args()
    with scratch_folder("report-", args.dir) as folder:
        used = report(make_dataset(folder, args.records), folder / "page.html")
        page = (folder / "page.html").read_bytes()
    if args.keep:
        Path(args.keep).write_bytes(page)
    print(
        f"{args.records:,} records in {_CLASSES:,} classes: a page of {show_bytes(len(page))} with "
        f"{page.count(b'<figure')} figures in {used.wall_s:.1f} s, CPU {used.cpu_s:.1f} s, "
        f"RSS {used.peak_rss_bytes / 1e6:.0f} MB"
    )
    return 0 if len(page) <= MAX_BYTES and used.wall_s <= MAX_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
