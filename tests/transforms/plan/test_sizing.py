"""Samples are the same in any order of arrival; builds and plans use the sizes found in them."""

from __future__ import annotations

import itertools
import json
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

from shardwright.format.manifest import Manifest, read_manifest
from shardwright.pipelines.commands import build as build_command
from shardwright.pipelines.commands import plan as plan_command
from shardwright.pipelines.job.build import describe_job
from shardwright.pipelines.local.build import plan_locally
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.transforms.plan.packing import ORDER_KEY, known_sizes, order_keys
from shardwright.transforms.plan.sizing import FEWEST_SAMPLED, MOST_SAMPLED, ReferenceSample
from shardwright.transforms.references import PICTURE_TYPE
from tests.support.helpers import references
from tests.support.random_tests import examples

Capture = pytest.CaptureFixture[str]


@examples(25)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), order=st.randoms(use_true_random=False))
def test_a_sample_does_not_depend_on_arrival(cuts: list[int], order: random.Random) -> None:
    batch = references([f"{number}.png" for number in range(400)])
    ends = itertools.pairwise(sorted({0, 400, *cuts}))
    parts = [ReferenceSample.of(batch.slice(start, stop - start), seed=3) for start, stop in ends]
    order.shuffle(parts)
    merged = ReferenceSample.merged(
        [ReferenceSample(), ReferenceSample.merged(parts[:2]), *parts[2:]]
    )
    lowest = np.argsort(order_keys(batch.column("id"), 3))[:MOST_SAMPLED]
    assert (merged.num_records, merged.references is None) == (400, False)
    assert merged.references["id"].to_pylist() == [f"{number}.png" for number in lowest]
    assert pickle.loads(pickle.dumps(merged)) == merged


@pytest.mark.parametrize(
    ("num_records", "sampled"),
    [(0, None), (1, 1), (64, 64), (65, FEWEST_SAMPLED), (5_000, 100), (20_000, MOST_SAMPLED)],
)
def test_sample_sizes(num_records: int, sampled: int | None) -> None:
    chosen = ReferenceSample.of(
        references([str(number) for number in range(num_records)]), seed=0
    ).chosen
    assert (None if chosen is None else chosen.num_rows) == sampled
    assert chosen is None or ORDER_KEY not in chosen.schema.names


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
    assert build_command.main(arguments(photos, out, *options)) == 0
    return read_manifest(Folder(str(out)))


def plan_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "plan.json").read_text())


def check_sizes(out: Path, manifest: Manifest, most_off: float) -> None:
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert len(shards) > 2
    assert np.mean([shard.num_bytes for shard in shards]) <= 20_000 * (1 + most_off)
    for name, split in manifest.splits.items():
        planned = plan_of(out)["splits"][name]["num_bytes"]
        assert planned == pytest.approx(split.num_bytes, rel=2 * most_off)
    sampled = plan_of(out)["estimate"]["num_sampled"]
    assert sampled in (FEWEST_SAMPLED, FEWEST_SAMPLED - 1), "the broken image may be in the sample"


def test_raw_pixels(photos: Path, tmp_path: Path) -> None:
    raw = ("--encode", "raw", "--resize", "16x16")
    manifest = build(photos, tmp_path, *raw, *SAMPLED[2:])
    check_sizes(tmp_path, manifest, 0.005)


@pytest.mark.long
def test_a_build_follows_its_plan(photos: Path, tmp_path: Path, capsys: Capture) -> None:
    """It resumes after images of its sample became unreadable."""
    copy, out = Path(shutil.copytree(photos, tmp_path / "in")), tmp_path / "out"
    job = describe_job(parse_options(arguments(copy, out, *SAMPLED), "plan"))
    planned = plan_locally(job)
    outline = plan_command.outline(job, planned)
    assert "per record, estimated by encoding" in plan_command.describe_plan(job, planned)
    assert not out.exists()
    manifest = build(copy, out, *SAMPLED)
    check_sizes(out, manifest, 0.15)
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
    assert job.options.samples_sizes is samples


def test_a_build_without_a_sample_has_no_estimate(photos: Path, tmp_path: Path) -> None:
    build(photos, tmp_path, *JPEG, "--shard-count", "3")
    assert "estimate" not in plan_of(tmp_path)
