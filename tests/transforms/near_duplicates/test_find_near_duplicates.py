"""FindNearDuplicates in a pipeline, and in whole builds: report, drop, reject, resume."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from benchmarks.near_duplicates import distances_of_copies, distinct_hash
from shardwright.format.manifest import read_manifest
from shardwright.inspect.cli import main
from shardwright.pipelines.commands import plan
from shardwright.storage.folder import Folder
from shardwright.transforms.near_duplicates.find_near_duplicates import FindNearDuplicates
from shardwright.transforms.near_duplicates.groups import NearDuplicateOptions
from shardwright.transforms.publish.near_duplicates import list_near_duplicates
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import hashes_of, manifest_of, record_ids, rejects_of, stamps_of
from tests.support.helpers import file_references, run_transform
from tests.support.pictures import copy_of, encoded, picture

Capture = pytest.CaptureFixture[str]
KEEPERS = {  # id -> keeper of all images that are near another
    "test/dog/0.png": "test/dog/0.png",
    "train/cat/0-worse.jpg": "test/dog/0.png",
    "test/cat/0-small.jpg": "test/dog/0.png",
    "train/cat/1-copy.png": "train/cat/1-copy.png",
    "train/dog/1.png": "train/cat/1-copy.png",
}
COPIES = {name for name, keeper in KEEPERS.items() if name != keeper}
REPORT = ("--near-duplicates", "report", "--max-reject-fraction", "0.3")
DROP = ("--near-duplicates", "drop", "--max-reject-fraction", "0.3")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 pictures in two splits, three copies, two flat images, and one that is cut short."""
    root = tmp_path_factory.mktemp("pictures")
    splits = ("test", "train")
    data = {f"{splits[n % 2]}/dog/{n}.png": encoded(picture(n)) for n in range(12)}
    data["test/cat/0-small.jpg"] = copy_of(picture(0), scale=0.5)
    data["train/cat/0-worse.jpg"] = copy_of(picture(0), quality=50)
    data["train/cat/1-copy.png"] = data["train/dog/1.png"]
    data["test/cat/blue.png"] = encoded(Image.new("RGB", (60, 40), "blue"))
    data["train/cat/red.png"] = encoded(Image.new("RGB", (60, 40), "red"))
    data["train/cat/cut.jpg"] = copy_of(picture(50))[:-300]
    for name, content in data.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def listed(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return id -> (split, keeper) of the list in a dataset."""
    rows = pq.read_table(root / "near_duplicates.parquet").to_pylist()
    groups = [row["group"] for row in rows]
    assert groups == sorted(groups)
    assert len({(row["group"], row["keeper"]) for row in rows}) == len({*groups})
    assert all(row["distance"] <= 3 for row in rows)
    return {row["id"]: (row["split"], row["keeper"]) for row in rows}


def stats_of(root: Path, split: str) -> dict[str, Any]:
    stats = manifest_of(root)["splits"][split]["stats"]
    return {key: value for key, value in stats.items() if key.startswith("near")}


@pytest.mark.long_but_first
@pytest.mark.parametrize("size", [3, 100])
def test_all_but_keepers_are_rejected(images: Path, tmp_path: Path, size: int) -> None:
    paths = sorted(images.rglob("*.*"))
    ids = [str(path.relative_to(images)) for path in paths]
    batch = file_references(paths, ids)
    batches = [batch.slice(start, size) for start in range(0, len(ids), size)]
    near = NearDuplicateOptions("reject")
    run = run_transform(FindNearDuplicates(near, spool=Folder(str(tmp_path))), batches)
    assert {row["id"] for row in run.rows} == set(ids) - COPIES
    assert run.rejects == [(name, "near_duplicate") for name in sorted(COPIES)]
    assert run.counters["rejects_near_duplicate"] == 3
    parts = [rows for _, rows in run.outputs["listed"]]
    rows = [row for part in parts for row in part.to_pylist()]
    assert {row["id"]: row["keeper"] for row in rows} == KEEPERS


def test_nothing(tmp_path: Path) -> None:
    near = NearDuplicateOptions("drop")
    run = run_transform(FindNearDuplicates(near, spool=Folder(str(tmp_path))), [])
    assert (run.rows, run.rejects, run.outputs["listed"]) == ([], [], [])


@pytest.mark.long
def test_report(images: Path, tmp_path: Path, capsys: Capture) -> None:
    assert build(images, tmp_path, *REPORT) == 0
    assert len(record_ids(tmp_path)) == 17
    assert listed(tmp_path) == {
        name: (name.split("/")[0], keeper) for name, keeper in KEEPERS.items()
    }
    examples = [["test/dog/0.png", "train/cat/0-worse.jpg"]]
    assert stats_of(tmp_path, "test") == {
        "near_duplicate_records": 2,
        "near_duplicates": {"train": {"records": 2, "unchecked": 0, "examples": examples}},
    }
    back = [pair[::-1] for pair in examples]
    assert stats_of(tmp_path, "train") == {
        "near_duplicate_records": 3,
        "near_duplicates": {"test": {"records": 1, "unchecked": 0, "examples": back}},
    }
    told = "leakage: 2 images of test nearly equal images of train; near_duplicates.parquet"
    assert told in capsys.readouterr().err
    assert manifest_of(tmp_path)["settings"]["near_duplicates"] == "report, distance 3"
    stamps = stamps_of(tmp_path)
    assert build(images, tmp_path, *REPORT) == 0
    assert stamps_of(tmp_path) == stamps
    content = (tmp_path / "near_duplicates.parquet").read_bytes()
    (tmp_path / "near_duplicates.parquet").unlink()
    assert main(["verify", str(tmp_path)]) == 1
    assert build(images, tmp_path, *REPORT) == 0
    assert (tmp_path / "near_duplicates.parquet").read_bytes() == content
    assert main(["verify", str(tmp_path)]) == 0
    check_numbers_of_groups(tmp_path)


def check_numbers_of_groups(dataset: Path) -> None:
    """Check that numbers go on over parts, of which one has no rows, as most on a cluster."""
    root, whole = Folder(str(dataset)), pq.read_table(dataset / "near_duplicates.parquet")
    groups = whole["group"].to_numpy()
    parts = [f"part-{number}" for number in range(groups.max() + 2)]
    assert len(parts) > 2
    for number, name in enumerate(parts, start=-1):
        part = whole.filter(groups == number).select(["id", "distance", "keeper"])
        hashes = pa.array([0] * len(part), pa.uint64())
        part = part.append_column("root", part["keeper"]).append_column("phash", hashes)
        pq.write_table(part, dataset / name)
    data, _ = list_near_duplicates(root, read_manifest(root), [parts[1], parts[0], *parts[2:]])
    assert pq.read_table(io.BytesIO(data)).equals(whole)


@pytest.mark.long
def test_drop_and_what_a_later_build_keeps(images: Path, tmp_path: Path) -> None:
    assert build(images, tmp_path, *DROP) == 0
    ids, shards, stamps = record_ids(tmp_path), hashes_of(tmp_path), stamps_of(tmp_path)
    assert len(ids) == 14
    assert COPIES.isdisjoint(ids)
    manifest = manifest_of(tmp_path)
    assert manifest["rejects"] == {"dropped_near_duplicate": 3, "truncated": 1}
    assert {row["id"] for row in rejects_of(tmp_path)} == {*COPIES, "train/cat/cut.jpg"}
    assert listed(tmp_path)["test/cat/0-small.jpg"] == (None, "test/dog/0.png")
    assert stats_of(tmp_path, "train") == {"near_duplicate_records": 1}
    next(tmp_path.glob("*-train.tfrecord-*")).unlink()
    assert build(images, tmp_path, *DROP) == 0  # on Beam: a shard is missing
    assert hashes_of(tmp_path) == shards
    assert build(images, tmp_path, *DROP, "--if-exists", "overwrite", "--seed", "1") == 0
    assert set(record_ids(tmp_path)) == set(ids)
    spooled = [name for name in stamps if name.endswith(".hashes")]
    assert [stamps_of(tmp_path)[name] for name in spooled] == [stamps[name] for name in spooled]
    assert len(spooled) == 1
    assert not list(tmp_path.glob(".near*"))
    assert main(["verify", str(tmp_path)]) == 0


@pytest.mark.long
def test_no_later_build_reads_an_image_of_a_store_again(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    for number in range(4):
        s3_bucket.folder("in").write_bytes(f"{number}.png", encoded(picture(number)))
    s3_bucket.folder("in").write_bytes("copy.jpg", copy_of(picture(1)))
    places = [f"{s3_bucket.uri}/in", f"{s3_bucket.uri}/out", *s3_bucket.behind(s3_proxy).args()]
    for reads in (5 + 4, 0):  # to hash all, and to write those that are kept
        s3_proxy.requests.clear()
        assert build(*places, *DROP) == 0
        got = [target for method, target in s3_proxy.requests if method == "GET"]
        assert sum(target.partition("?")[0].endswith((".png", ".jpg")) for target in got) == reads
        assert len(s3_bucket.folder("out").names("spool")) == 1


@pytest.mark.long
def test_a_limit_stops_a_build_that_then_resumes(
    images: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert build(images, tmp_path, *REPORT, "--fail-on", "near-leaks>2") == 1
    assert "the limits of --fail-on (near-leaks>2: 3), so it is not" in capsys.readouterr().err
    assert not (tmp_path / "manifest.json").exists()
    shards = hashes_of(tmp_path)
    assert build(images, tmp_path, *REPORT, "--fail-on", "near-leaks>3") == 0
    assert "up to date: all 2 shards were already written" in capsys.readouterr().err
    assert (hashes_of(tmp_path), len(listed(tmp_path))) == (shards, 5)


def test_a_plan_finds_them_and_writes_nothing(
    images: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert plan.main([str(images), str(tmp_path / "out"), *DROP]) == 0
    assert re.search(r"  train +8 ", capsys.readouterr().out)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_another_input_has_other_groups(images: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(images, tmp_path / "in"))
    assert build(source, tmp_path / "out", *DROP) == 0
    (source / "test/dog/0.png").unlink()
    assert build(source, tmp_path / "out", *DROP, "--if-exists", "overwrite") == 0
    names = {"train/cat/0-worse.jpg", "test/cat/0-small.jpg"}
    assert {listed(tmp_path / "out")[name][1] for name in names} == {"train/cat/0-worse.jpg"}


@pytest.mark.long
def test_photographs_are_found_and_not_confused() -> None:
    """A small part of `make bench-near-duplicates`."""
    found = [distances_of_copies(number) for number in range(3)]
    assert all(equal for equal, _ in found)
    distances = [distance for _, copies in found for _, distance in copies]
    assert len(distances) == 39
    assert max(distances) <= 3
    hashes = [distinct_hash(number) for number in range(150)]
    apart = [(one ^ two).bit_count() for row, one in enumerate(hashes) for two in hashes[:row]]
    assert min(apart) > 3
