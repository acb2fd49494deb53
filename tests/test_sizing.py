"""Sizes estimated from a sample: the sample is the same however references arrive, and shards planned by it keep their cap."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipelines import build_dataset, plan_dataset
from shardwright.manifest import Manifest, read_manifest
from shardwright.storage import Folder
from tests.helpers import references
from transforms.planning.packing import ORDER_KEY, ShardPolicy, known_sizes, order_keys
from transforms.planning.size_errors import RecordBytes, average
from transforms.planning.sizing import FEWEST_SAMPLED, MOST_SAMPLED, Sample, SizeEstimate
from transforms.references import PICTURE_TYPE


def estimate_of(
    made: np.ndarray, known: np.ndarray | None = None, num_records: int | None = None
) -> SizeEstimate:
    known = np.ones(len(made)) if known is None else known
    return SizeEstimate.of(known, made, num_records=num_records or len(made), sample="s")


@given(cuts=st.lists(st.integers(0, 400), max_size=6), order=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=25)
def test_a_sample_is_the_same_however_references_arrive(cuts: list[int], order: object) -> None:
    batch = references([f"{number}.png" for number in range(400)])
    ends = sorted({0, 400, *cuts})
    parts = [
        Sample.of(batch.slice(start, stop - start), seed=3)
        for start, stop in itertools.pairwise(ends)
    ]
    order.shuffle(parts)  # type: ignore[attr-defined]
    merged = Sample.merged([Sample(), Sample.merged(parts[:2]), *parts[2:]])
    keys = order_keys(batch.column("id"), 3)
    assert merged.num_records == 400
    assert merged.references is not None
    assert merged.references.column("id").to_pylist() == [
        f"{number}.png" for number in np.argsort(keys)[:MOST_SAMPLED]
    ]
    assert pickle.loads(pickle.dumps(merged)) == merged


@pytest.mark.parametrize(
    ("num_records", "sampled"),
    [(0, None), (1, 1), (64, 64), (65, FEWEST_SAMPLED), (5_000, 100), (20_000, MOST_SAMPLED)],
)
def test_how_many_are_sampled(num_records: int, sampled: int | None) -> None:
    batch = references([str(number) for number in range(num_records)])
    chosen = Sample.of(batch, seed=0).chosen
    assert (None if chosen is None else chosen.num_rows) == sampled
    assert chosen is None or ORDER_KEY not in chosen.schema.names


def test_the_model_that_tells_more_is_taken() -> None:
    """A ratio where records shrink in proportion, the mean where all come out alike."""
    known = np.array([1000.0, 2000, 4000, 8000])
    by_ratio = estimate_of(known * 0.25, known)
    assert by_ratio.ratio == pytest.approx(0.25)
    assert by_ratio.total(10, 100_000) == 25_000
    alike = estimate_of(np.array([500.0, 501, 499, 500]), known)
    assert alike.ratio is None
    assert alike.total(10, 100_000) == 5_000


def test_json_there_and_back() -> None:
    estimate = estimate_of(np.array([1.0, 2, 4]), np.array([2.0, 4, 8]), 10)
    assert SizeEstimate.from_json(json.loads(json.dumps(estimate.to_json()))) == estimate


def test_records_of_one_size_need_no_margin() -> None:
    estimate = estimate_of(np.full(100, 1000.0), num_records=10_000)
    assert estimate.shards_under(100_000, num_records=10_000, num_bytes=10_000_000) == 100
    assert estimate.shards_under(99_999, num_records=10_000, num_bytes=10_000_000) == math.ceil(
        10_000 / 99
    )


def test_a_whole_split_in_one_shard_that_was_sampled_whole_needs_none_either() -> None:
    made = np.array([10.0, 1000, 500])
    assert estimate_of(made).shards_under(1510, num_records=3, num_bytes=1510) == 1
    assert estimate_of(made).shards_under(1509, num_records=3, num_bytes=1510) > 1


@pytest.mark.parametrize("limit", [1, 100])
def test_a_cap_below_one_record_gives_a_shard_to_each(limit: int) -> None:
    assert (
        estimate_of(np.array([1000.0, 1200]), num_records=50).shards_under(
            limit, num_records=50, num_bytes=55_000
        )
        == 50
    )


@pytest.mark.parametrize(
    ("per_shard", "spread", "most_margin"),
    [
        (20, 0.1, 0.2),
        (20, 0.5, 0.65),
        (100, 0.5, 0.35),
        (1000, 0.1, 0.06),
        (1000, 0.5, 0.2),
        (1000, 1.0, 0.35),
    ],
)
def test_the_cap_holds(per_shard: int, spread: float, most_margin: float) -> None:
    """100 datasets of 20,000 records with sizes as those of photos: where the sample can tell the tail, hardly one has a shard above
    the cap, though a cap of 20 records has a thousand chances to be broken."""
    rng, limit, over, margins = np.random.default_rng(7), per_shard * 10_000, 0, []
    for _ in range(100):
        sizes = rng.lognormal(math.log(10_000) - spread**2 / 2, spread, 20_000)
        estimate = estimate_of(sizes[:256], num_records=len(sizes))
        shards = ShardPolicy(num_bytes=limit).cut(
            len(sizes), estimate.total(len(sizes), 0), estimate
        )
        written = np.add.reduceat(sizes, shards.starts[:-1])
        over += written.max() > limit
        margins.append(1 - written.mean() / limit)
    assert over <= 2
    assert np.mean(margins) < most_margin


def test_what_is_known_of_a_record() -> None:
    batch = references(["ab", "c"], num_bytes=[1000, 2000])
    plain = known_sizes(batch).to_pylist()
    assert plain == [1082, 2081]
    extras = {
        "x/text": pa.array([b"12345", b""]),
        "x/n": pa.array([1, 2]),
        "x/list": pa.array([[1.0, 2.0], []], pa.list_(pa.float32())),
        "x/words": pa.array([[b"abc", b"de"], [b"f"]]),
        "x/mask": pa.array(
            [{"uri": "m", "offset": None, "num_bytes": 70, "etag": None}, None], PICTURE_TYPE
        ),
    }
    names = sum(len(name) for name in extras if name != "x/mask")
    rich = known_sizes(references(["ab", "c"], num_bytes=[1000, 2000], extras=extras)).to_pylist()
    more = [big - small for big, small in zip(rich, plain, strict=True)]
    assert more == [names + 5 + 4 + 8 + 5 + 70, names + 4 + 1]
    assert known_sizes(references([])).to_pylist() == []


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([RecordBytes(10, 12_300, 12_100)], "estimated 12.3 kB a record, wrote 12.1 kB: 1.7% off"),
        (
            [RecordBytes(30, 1000, 2000), RecordBytes(10, 5000, 2000)],
            "estimated 2.0 kB a record, wrote 2.0 kB: 0.0% off",
        ),
        ([RecordBytes(0, 0, 0)], "estimated 0 B a record, wrote 0 B: 0.0% off"),
    ],
)
def test_how_good_an_estimate_was(parts: list[RecordBytes], told: str) -> None:
    """Splits count by their records."""
    assert average(parts).describe() == told


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 noisy pictures of very different sizes, as lossless files, and one that does not decode."""
    folder, rng = tmp_path_factory.mktemp("photos") / "in", np.random.default_rng(5)
    for number in range(150):
        path = folder / f"class{number % 3}/{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        side = int(rng.integers(16, 120))
        noise = rng.integers(0, 1 + int(rng.integers(1, 255)), (side, side, 3), np.uint8)
        Image.fromarray(noise).save(path, compress_level=1)
    (folder / "class0/broken.png").write_bytes(Image.new("RGB", (4, 4)).tobytes())
    return folder


def build(photos: Path, out: Path, *options: str) -> Manifest:
    assert (
        build_dataset.main([str(photos), str(out), "--max-reject-fraction", "0.1", *options]) == 0
    )
    return read_manifest(Folder(str(out)))


@pytest.mark.parametrize(
    ("options", "most_off"),
    [
        (("--encode", "jpeg"), 0.15),
        (("--encode", "jpeg", "--resize", "48x48"), 0.15),
        (("--encode", "raw", "--resize", "16x16"), 0.005),
    ],
)
def test_a_build_keeps_its_cap(
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    most_off: float,
) -> None:
    manifest = build(
        photos, tmp_path / "out", *options, "--shard-size", "20kB", "--split", "train=0.8,test=0.2"
    )
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert len(shards) > 2
    assert max(shard.num_bytes for shard in shards) <= 20_000
    for split in manifest.splits.values():
        sizes = split.stats["record_bytes"]
        assert sizes["written"] == pytest.approx(split.num_bytes / split.num_records, abs=0.1)
        assert sizes["estimated"] == pytest.approx(sizes["written"], rel=2 * most_off)
    told = [line for line in capsys.readouterr().err.splitlines() if "a record, wrote" in line]
    assert len(told) == 1
    assert float(told[0].rpartition(": ")[2].removesuffix("% off")) <= 100 * most_off
    assert (
        "Bytes of a record: estimated from a sample, and written"
        in (tmp_path / "out/report.html").read_text()
    )
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert plan["estimate"]["num_sampled"] in (
        FEWEST_SAMPLED,
        FEWEST_SAMPLED - 1,
    )  # one that is broken may be among them


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--encode", "jpeg", "--records-per-shard", "100"),
        ("--encode", "jpeg", "--shard-count", "3"),
    ],
)
def test_nothing_is_sampled_where_nothing_follows_from_it(
    photos: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    manifest = build(photos, tmp_path / "out", *options)
    assert "estimate" not in json.loads((tmp_path / "out/plan.json").read_text())
    assert all("record_bytes" not in split.stats for split in manifest.splits.values())


def test_a_build_that_goes_on_keeps_its_estimate(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though images of the sample cannot be read any more: what was planned from them is known."""
    options = ("--encode", "jpeg", "--shard-size", "40kB")
    copy = Path(shutil.copytree(photos, tmp_path / "in"))
    manifest = build(copy, tmp_path / "out", *options)
    before = (tmp_path / "out/plan.json").read_bytes()
    capsys.readouterr()
    for path in copy.rglob("*.png"):
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert build(copy, tmp_path / "out", *options) == manifest
    assert "up to date" in capsys.readouterr().err
    assert (tmp_path / "out/plan.json").read_bytes() == before


def test_a_plan_shows_the_estimate(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        str(photos),
        str(tmp_path / "out"),
        "--max-reject-fraction",
        "0.1",
        "--encode",
        "jpeg",
        "--shard-size",
        "40kB",
    ]
    assert plan_dataset.main([*options, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert plan_dataset.main(options) == 0
    assert "a record, estimated by encoding" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert build_dataset.main(options) == 0
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert (planned["estimate"], planned["splits"]) == (plan["estimate"], plan["splits"])
