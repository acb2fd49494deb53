"""Make the tables of docs/performance.md and README.md from the results of the benchmarks.

Each function gets the loaded results by name (see tables.py) and returns lines of Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import damaged_images
import detection
import join
import page
import peers
import read_report as read
import storage_builds as builds
from report import BEAM, OURS, slopes, whole_rates

By = Mapping[str, Any]  # name -> tables.Loaded
_BUILDS = {
    "tar": "`tar`, the same reads and writes with nothing in between",
    OURS: "**shardwright**",
    "tf-loop": "a loop with `tf.io.TFRecordWriter`",
    "webdataset": "webdataset's `ShardWriter`",
    BEAM: "Beam's `ReadMatches` and `WriteToTFRecord`",
}
_STORE_BUILDS = {
    builds.OURS: "**shardwright**",
    builds.BOTO3: "64 threads of boto3 and `tf.io.TFRecordWriter`",
    builds.BEAM: "Beam's `ReadMatches` and `WriteToTFRecord`",
}
_PEERS = {OURS: "**shardwright**", "daft": "Daft", "ray": "Ray Data"}
_LOADERS = {
    read.READER: "**`sw.Reader`**",
    read.READER_TF: "**`sw.Reader(...).tf_data()`**",
    read.LOAD: "**`sw.load(..., image=sw.TrainImage(224))`**",
    read.EXACT: "`sw.Reader`, `fast=False`: TensorFlow's exact pixels",
    read.WHOLE: "`sw.Reader` without its decoder of parts",
    read.TF: "`tf.data`, the best of its variants",
    "keras": "Keras `image_dataset_from_directory`",
    "grain": "Grain",
    "grain-simplejpeg": "Grain, with the same decoder",
    "torch": "torch `DataLoader`",
    "webdataset": "webdataset",
    "streaming": "MosaicML Streaming",
    "litdata": "LitData",
    "lancedb": "LanceDB `StreamingDataset`",
}


def _named(text: str, each: Any, system: str) -> str:
    """Return the text of a system with the version of its peer."""
    version = each.result.version(system)
    return f"{text}, {version}" if version else text


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB"


def _median(values: Iterable[float]) -> float:
    """Return the median, or NaN if noise left no value."""
    found = list(values)
    return median(found) if found else math.nan


def _paired(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """Return the median of how many times as fast we are, round by round."""
    return _median(own / other for own, other in zip(ours, theirs, strict=False))


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def build(by: By) -> list[str]:
    found = by["build"].found
    files = max(found.sizes(OURS))
    rows = []
    for name, text in _BUILDS.items():
        rates, after = whole_rates(found, name), slopes(found, name)
        of = f"{_paired(rates, whole_rates(found, 'tar')):.2f}"
        size = max(found.sizes(name))
        label = _named(text, by["build"], name) + ("" if size == files else f", {size:,} files")
        cells = [f"{median(rates):,.0f}", of, page.spread(after, ",.0f") if after else "noise"]
        rows.append((median(rates), [label, *cells]))
    head = ["", f"{files:,} files, images/s", "of `tar`", "after start-up"]
    cells_by_rate = [cells for _, cells in sorted(rows, reverse=True)]
    peak = _gigabytes(max(found.peaks(OURS, files)))
    fact = f"{files:,} files take {peak} of memory at the peak, all processes together."
    origin = by["build"].result.origin
    return [*page.table(head, cells_by_rate), "", f"{fact} {origin}"]


def plan(by: By) -> list[str]:
    ((rows, usages),) = by["plan"].found.items()
    wall_s = median(usage.wall_s for usage in usages)
    peak = _gigabytes(max(usage.peak_rss_bytes for usage in usages))
    fact = f"A plan of {rows:,} rows takes {wall_s:.0f} s and {peak} (`make bench-plan`)."
    return [f"{fact} {by['plan'].result.origin}"]


def joined(by: By) -> list[str]:
    found = by["join"].found
    rows = max(rows for rows, _ in found)
    peak = _gigabytes(max(usage.peak_rss_bytes for usage in found[rows, True]))
    added = f"{join.added_s(found, rows):.0f} s more than the plan without"
    fact = f"Joining {rows:,} labels takes {peak} and {added} (`make bench-join`)."
    return [f"{fact} {by['join'].result.origin}"]


def encode(by: By) -> list[str]:
    every = [
        median(ours / theirs for ours, theirs in zip(*both, strict=True))
        for work, rates in by["encode"].found["rates"].items()
        if work.startswith("500")
        for cores in ("one core", "all cores")
        for both in [(rates[f"shardwright, {cores}"], rates[f"Pillow, {cores}"])]
    ]
    what = "of one plain Pillow process per core (`make bench-encode`)"
    fact = f"Re-encoding 500 x 375 photographs runs at {_range(every)} {what}."
    return [f"{fact} {by['encode'].result.origin}"]


def peers_table(by: By) -> list[str]:
    found = by["peers"].found
    rows = [
        [
            _named(text, by["peers"], name),
            f"{_median(slopes(found, name)):,.0f}",
            _gigabytes(peers.peak_bytes(found, name)),
        ]
        for name, text in _PEERS.items()
    ]
    table = page.table(["", "images/s", "peak memory (PSS)"], rows)
    return [*table, "", by["peers"].result.origin]


def storage(by: By) -> list[str]:
    found = by["storage"].found
    rows = [
        [
            _named(text, by["storage"], name),
            *(f"{_median(_store_rates(found, output, name)):,.0f}" for output in ("folder", "S3")),
        ]
        for name, text in _STORE_BUILDS.items()
    ]
    table = page.table(["", "to a folder, images/s", "to S3, images/s"], rows)
    ours, theirs = (
        found.of("list")["100 folders", name][0] for name in (builds.OURS, "boto3-paginator")
    )
    uploads = " and ".join(
        f"{check.found} ({added.strip()})"
        for check in by["storage"].targets
        if check.text.startswith("upload to s3")
        for added in check.text.split(",")[1:2]
    )
    return [
        *table,
        "",
        f"Listing {ours.items:,} objects takes {ours.cpu_s:.1f} s of CPU; boto3's paginator takes "
        f"{ours.cpu_rate / theirs.cpu_rate:.0f} times as much.",
        f"A shard uploads at {uploads} the speed of boto3's transfer manager. "
        f"{by['storage'].result.origin}",
    ]


def _store_rates(found: Any, output: str, name: str) -> list[float]:
    return [run.rate for run in found.slopes(output, name)]


def _loader_rates(found: read.Session, name: str) -> list[float]:
    return [run.rate for run in found.runs[read.Case("feed", name, read.SHUFFLED)]]


def loaders(by: By) -> list[str]:
    found = by["read"].found
    rows = []
    for name, text in _LOADERS.items():
        case = read.Case("feed", name, read.SHUFFLED)
        if case in found.runs:
            of = median(read.ratios(found.runs, case, read.Case("feed", read.TF, read.SHUFFLED)))
            peak = _gigabytes(max(run.peak_rss_bytes for run in found.runs[case]))
            label = _named(text, by["read"], name)
            rows.append((median(_loader_rates(found, name)), label, f"{of:.2f}", peak))
    cells = [
        [text, f"{rate:,.0f}", of, peak] for rate, text, of, peak in sorted(rows, reverse=True)
    ]
    head = ["", "images/s", "of tuned `tf.data`", "peak memory"]
    facts = [
        f"- {check.text}: {check.found}"
        for check in by["read"].targets
        if check.text.startswith(("records", "first batch")) or read.IN_ORDER in check.text
    ]
    return [*page.table(head, cells), "", *facts, "", by["read"].result.origin]


def losses(by: By) -> list[str]:
    """Return every failed target."""
    return [
        f"- {check.text}: {check.found}"
        for each in by.values()
        for check in each.targets
        if check.passed is False
    ] or ["No target fails."]


def speed(by: By) -> list[str]:
    """Return the table of README.md: each task with the nearest peer."""
    built = [whole_rates(by["build"].found, name) for name in (OURS, "tf-loop")]
    files = max(by["build"].found.sizes(OURS))
    store = [_store_rates(by["storage"].found, "S3", name) for name in (builds.OURS, builds.BOTO3)]
    best = peers.best_peer(by["peers"].found)
    encoded = [slopes(by["peers"].found, name) for name in (OURS, best)]
    found = by["read"].found
    others = [name for name in (read.TF, *read.PEERS)
              if read.Case("feed", name, read.SHUFFLED) in found.runs]  # fmt: skip
    nearest = max(others, key=lambda name: median(_loader_rates(found, name)))
    loaded = [_loader_rates(found, name) for name in (read.READER, nearest)]
    runs = by["detection"].found["runs"]
    rival, *_ = max((case for case in runs if case != (detection.READER,)),
                    key=lambda case: median(run.rate for run in runs[case]))  # fmt: skip
    boxed = [[run.rate for run in runs[case,]] for case in (detection.READER, rival)]
    loader = detection.CASES[rival][0]
    rows = []
    for task, (ours, theirs), other in (
        (
            f"Build {files:,} JPEGs, with start-up",
            built,
            _named(_BUILDS["tf-loop"], by["build"], "tf-loop"),
        ),
        (
            "Build from S3 to S3",
            store,
            _named(_STORE_BUILDS[builds.BOTO3], by["storage"], builds.BOTO3),
        ),
        ("Decode, resize, write", encoded, _named(_PEERS[best], by["peers"], best)),
        ("Read shuffled crops", loaded, _named(_LOADERS[nearest], by["read"], nearest)),
        ("Read crops with their boxes", boxed, _named(_LOADERS[loader], by["detection"], loader)),
    ):
        rates = f"{_median(ours):,.0f}", f"{_median(theirs):,.0f} ({other})"
        rows.append([task, *rates, f"{_paired(ours, theirs):.2f}x"])
    return page.table(["images/s on 2 cores", "shardwright", "the nearest peer", ""], rows)


def damaged(by: By) -> list[str]:
    """Return the shares of damaged images that each check rejects."""
    return damaged_images.summary(by["damaged_images"].found)


Summary = tuple[Sequence[str], Callable[[By], list[str]]]  # the results it needs, and its lines
PAGES: dict[Path, dict[str, Summary]] = {
    page.REPO / "docs" / "performance.md": {
        "build": (["build"], build),
        "plan": (["plan"], plan),
        "join": (["join"], joined),
        "encode": (["encode"], encode),
        "peers": (["peers"], peers_table),
        "storage": (["storage"], storage),
        "read": (["read"], loaders),
        "losses": ((), losses),
    },
    page.REPO / "docs" / "images.md": {"damaged": (["damaged_images"], damaged)},
    page.REPO / "README.md": {"speed": (("build", "storage", "peers", "read", "detection"), speed)},
}
