"""Sizes estimated from a sample: the same in any order of arrival; shards keep to their cap."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipelines import build_dataset, plan_dataset
from pipelines.job import describe_job
from pipelines.local_plan import plan_locally
from pipelines.options import parse_options
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.storage import Folder
from tests.support.helpers import references
from tests.support.random_tests import examples
from transforms.plan.packing import ORDER_KEY, ShardPolicy, known_sizes, order_keys
from transforms.plan.size_errors import RecordBytes, average
from transforms.plan.sizing import FEWEST_SAMPLED, MOST_SAMPLED, Sample, SizeEstimate
from transforms.references import PICTURE_TYPE

Capture = pytest.CaptureFixture[str]


def estimate_of(
    made: np.ndarray, known: np.ndarray | None = None, num_records: int | None = None
) -> SizeEstimate:
    known = np.ones(len(made)) if known is None else known
    return SizeEstimate.of(known, made, num_records=num_records or len(made), sample="s")


@examples(25, 300)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), order=st.randoms(use_true_random=False))
def test_a_sample_does_not_depend_on_arrival(cuts: list[int], order: random.Random) -> None:
    batch = references([f"{number}.png" for number in range(400)])
    ends = itertools.pairwise(sorted({0, 400, *cuts}))
    parts = [Sample.of(batch.slice(start, stop - start), seed=3) for start, stop in ends]
    order.shuffle(parts)
    merged = Sample.merged([Sample(), Sample.merged(parts[:2]), *parts[2:]])
    lowest = np.argsort(order_keys(batch.column("id"), 3))[:MOST_SAMPLED]
    assert (merged.num_records, merged.references is None) == (400, False)
    assert merged.references["id"].to_pylist() == [f"{number}.png" for number in lowest]
    assert pickle.loads(pickle.dumps(merged)) == merged


@pytest.mark.parametrize(
    ("num_records", "sampled"),
    [(0, None), (1, 1), (64, 64), (65, FEWEST_SAMPLED), (5_000, 100), (20_000, MOST_SAMPLED)],
)
def test_sample_sizes(num_records: int, sampled: int | None) -> None:
    chosen = Sample.of(references([str(number) for number in range(num_records)]), seed=0).chosen
    assert (None if chosen is None else chosen.num_rows) == sampled
    assert chosen is None or ORDER_KEY not in chosen.schema.names


def test_the_model_with_the_smaller_error_is_used() -> None:
    """A ratio where records shrink in proportion, the mean where all have about one size."""
    known = np.array([1000.0, 2000, 4000, 8000])
    shrunk = estimate_of(known * 0.25, known)
    assert (shrunk.ratio, shrunk.total(10, 100_000)) == (pytest.approx(0.25), 25_000)
    alike = estimate_of(np.array([500.0, 501, 499, 500]), known)
    assert (alike.ratio, alike.total(10, 100_000)) == (None, 5_000)


def test_json_round_trip() -> None:
    estimate = estimate_of(np.array([1.0, 2, 4]), np.array([2.0, 4, 8]), 10)
    assert SizeEstimate.from_json(json.loads(json.dumps(estimate.to_json()))) == estimate


@pytest.mark.parametrize(
    ("made", "num_records", "num_bytes", "limit", "shards"),
    [
        # Records of one size need no margin.
        (np.full(100, 1000.0), 10_000, 10_000_000, 100_000, 100),
        (np.full(100, 1000.0), 10_000, 10_000_000, 99_999, math.ceil(10_000 / 99)),
        # Neither does a split in one shard that was sampled completely.
        (np.array([10.0, 1000, 500]), 3, 1510, 1510, 1),
        (np.array([10.0, 1000, 500]), 3, 1510, 1509, 3),
        # With a cap below one record, each has a shard.
        (np.array([1000.0, 1200]), 50, 55_000, 1, 50),
        (np.array([1000.0, 1200]), 50, 55_000, 100, 50),
    ],
)
def test_number_of_shards(
    made: np.ndarray, num_records: int, num_bytes: int, limit: int, shards: int
) -> None:
    estimate = estimate_of(made, num_records=num_records)
    assert estimate.shards_under(limit, num_records=num_records, num_bytes=num_bytes) == shards


@pytest.mark.parametrize(
    ("per_shard", "spread", "most_margin"),
    [(20, 0.1, 0.2), (20, 0.5, 0.65), (100, 0.5, 0.35), (1000, 0.1, 0.06), (1000, 0.5, 0.2),
     (1000, 1.0, 0.35)],
)  # fmt: skip
def test_the_cap_holds(per_shard: int, spread: float, most_margin: float) -> None:
    """In 100 datasets of 20,000 records, at most two have a shard above the cap.

    Sizes are like those of photos. A cap of 20 records could be broken a thousand times in each.
    """
    rng, limit, over, margins = np.random.default_rng(7), per_shard * 10_000, 0, []
    for _ in range(100):
        sizes = rng.lognormal(math.log(10_000) - spread**2 / 2, spread, 20_000)
        estimate = estimate_of(sizes[:256], num_records=len(sizes))
        total = estimate.total(len(sizes), 0)
        shards = ShardPolicy(num_bytes=limit).cut(len(sizes), total, estimate)
        written = np.add.reduceat(sizes, shards.starts[:-1])
        over += written.max() > limit
        margins.append(1 - written.mean() / limit)
    assert over <= 2
    assert np.mean(margins) < most_margin


def test_known_sizes() -> None:
    batch = references(["ab", "c"], num_bytes=[1000, 2000])
    assert known_sizes(batch).to_pylist() == [1082, 2081]
    mask = {"uri": "m", "offset": None, "num_bytes": 70, "etag": None}
    extras = {
        "x/text": pa.array([b"12345", b""]),
        "x/n": pa.array([1, 2]),
        "x/list": pa.array([[1.0, 2.0], []], pa.list_(pa.float32())),
        "x/words": pa.array([[b"abc", b"de"], [b"f"]]),
        "x/mask": pa.array([mask, None], PICTURE_TYPE),
    }
    names = sum(len(name) for name in extras if name != "x/mask")
    rich = known_sizes(references(["ab", "c"], num_bytes=[1000, 2000], extras=extras)).to_pylist()
    assert rich == [1082 + names + 5 + 4 + 8 + 5 + 70, 2081 + names + 4 + 1]
    assert known_sizes(references([])).to_pylist() == []


@pytest.mark.parametrize(
    ("parts", "estimated", "wrote"),
    [
        ([RecordBytes(10, 12_300, 12_100)], "12.3 kB", "12.1 kB: 1.7% off"),
        ([RecordBytes(30, 1000, 2000), RecordBytes(10, 5000, 2000)], "2.0 kB", "2.0 kB: 0.0% off"),
        ([RecordBytes(0, 0, 0)], "0 B", "0 B: 0.0% off"),
    ],
)
def test_the_error_of_an_estimate(parts: list[RecordBytes], estimated: str, wrote: str) -> None:
    """Splits are weighted by their records."""
    assert average(parts).describe() == f"estimated {estimated} per record, wrote {wrote}"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 lossless files of noise, of very different sizes, and one that does not decode."""
    folder, rng = tmp_path_factory.mktemp("photos") / "in", np.random.default_rng(5)
    for number in range(150):
        path = folder / f"class{number % 3}/{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        side = int(rng.integers(16, 120))
        noise = rng.integers(0, 1 + int(rng.integers(1, 255)), (side, side, 3), np.uint8)
        Image.fromarray(noise).save(path, compress_level=1)
    (folder / "class0/broken.png").write_bytes(Image.new("RGB", (4, 4)).tobytes())
    return folder


JPEG = ("--encode", "jpeg")
SAMPLED = (*JPEG, "--shard-size", "20kB", "--split", "train=0.8,test=0.2")


def arguments(photos: Path, out: Path, *options: str) -> list[str]:
    return [str(photos), str(out), "--max-reject-fraction", "0.1", *options]


def build(photos: Path, out: Path, *options: str) -> Manifest:
    assert build_dataset.main(arguments(photos, out, *options)) == 0
    return read_manifest(Folder(str(out)))


def plan_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "plan.json").read_text())


def check_cap(out: Path, manifest: Manifest, log: str, most_off: float) -> None:
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert len(shards) > 2
    assert max(shard.num_bytes for shard in shards) <= 20_000
    for split in manifest.splits.values():
        sizes = split.stats["record_bytes"]
        assert sizes["written"] == pytest.approx(split.num_bytes / split.num_records, abs=0.1)
        assert sizes["estimated"] == pytest.approx(sizes["written"], rel=2 * most_off)
    (line,) = [line for line in log.splitlines() if "per record, wrote" in line]
    assert float(line.rpartition(": ")[2].removesuffix("% off")) <= 100 * most_off
    report = (out / "report.html").read_text()
    assert "Record size: estimated from a sample, and written" in report
    sampled = plan_of(out)["estimate"]["num_sampled"]
    assert sampled in (FEWEST_SAMPLED, FEWEST_SAMPLED - 1), "the broken image may be in the sample"


def test_raw_pixels_keep_the_cap(photos: Path, tmp_path: Path, capsys: Capture) -> None:
    raw = ("--encode", "raw", "--resize", "16x16")
    manifest = build(photos, tmp_path, *raw, *SAMPLED[2:])
    check_cap(tmp_path, manifest, capsys.readouterr().err, 0.005)


def test_a_build_follows_its_plan(photos: Path, tmp_path: Path, capsys: Capture) -> None:
    """It keeps its cap, and resumes after images of its sample became unreadable."""
    copy, out = Path(shutil.copytree(photos, tmp_path / "in")), tmp_path / "out"
    job = describe_job(parse_options(arguments(copy, out, *SAMPLED), "plan"))
    planned = plan_locally(job)
    outline = plan_dataset.outline(job, planned)
    assert "per record, estimated by encoding" in plan_dataset.describe_plan(job, planned)
    assert not out.exists()
    manifest = build(copy, out, *SAMPLED)
    check_cap(out, manifest, capsys.readouterr().err, 0.15)
    before = (out / "plan.json").read_bytes()
    plan = plan_of(out)
    assert (outline["estimate"], outline["splits"]) == (plan["estimate"], plan["splits"])
    for path in copy.rglob("*.png"):
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert build(copy, out, *SAMPLED) == manifest
    assert "up to date" in capsys.readouterr().err
    assert (out / "plan.json").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "samples"),
    [((), False), ((*JPEG, "--records-per-shard", "100"), False),
     ((*JPEG, "--shard-count", "3"), False), (JPEG, True)],
)  # fmt: skip
def test_jobs_sample_only_where_shards_depend_on_it(
    photos: Path, tmp_path: Path, options: tuple[str, ...], samples: bool
) -> None:
    job = describe_job(parse_options(arguments(photos, tmp_path / "out", *options)))
    assert job.samples_sizes is samples


def test_a_build_without_a_sample_has_no_estimate(photos: Path, tmp_path: Path) -> None:
    manifest = build(photos, tmp_path, *JPEG, "--shard-count", "3")
    assert "estimate" not in plan_of(tmp_path)
    assert all("record_bytes" not in split.stats for split in manifest.splits.values())
