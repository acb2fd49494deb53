"""DropDuplicates in a pipeline, from files and from a store, and in whole builds."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.pipelines.commands import plan
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.duplicates.drop_duplicates import DropDuplicates
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, manifest_of, png_of, rejects_of
from tests.support.helpers import make_files, run_transform
from tests.support.listings import detect, list_source

Capture = pytest.CaptureFixture[str]
COPIES = {"bird/copy.png": 0, "cat/a.png": 0, "cat/b.png": 1}  # of the image of this number
DETAILS = {
    "bird/copy.png": "same bytes as 'bird/0000.png', which is kept",
    "cat/a.png": "same bytes as 'bird/0000.png', which is kept, but another label: 'cat' here, "
    "'bird' there",
    "cat/b.png": "same bytes as 'cat/0001.png', which is kept",
}
DROP = ("--duplicates", "drop")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images of three classes, which share five lengths, and three copies."""
    root = make_images(tmp_path_factory.mktemp("images"), 30)
    for name, number in COPIES.items():
        make_files(root, name, data=png_of(number))
    return root


def listed(uri: str, storage: StorageOptions = NO_OPTIONS) -> list[pa.RecordBatch]:
    parts = list_source(detect(uri, dict.fromkeys(ROLE_COLUMNS), storage=storage))
    return [part for part in parts if isinstance(part, pa.RecordBatch)]


@pytest.mark.parametrize("size", [1, 7])
def test_one_of_each_content_stays(images: Path, size: int) -> None:
    (batch,) = listed(str(images))
    batches = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
    run = run_transform(DropDuplicates("reject", threads=3), batches)
    assert {row["id"] for row in run.rows} == set(batch["id"].to_pylist()) - set(COPIES)
    assert run.rejects == [(image_id, "duplicate_image") for image_id in COPIES]
    assert run.counters == {"rejects_duplicate_image": 3}


def test_nothing() -> None:
    run = run_transform(DropDuplicates("drop"), [])
    assert (run.rows, run.rejects) == ([], [])


def test_only_images_of_one_length_are_read(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    """A request that fails with a transient error is repeated."""
    for number, data in enumerate([b"12345", b"12345", b"1234", b"123", b"54321", b"12"]):
        s3_bucket.folder("in").write_bytes(f"{number}.png", data)
    storage = s3_bucket.behind(s3_proxy).options()
    batches = listed(f"{s3_bucket.uri}/in", storage)
    s3_proxy.requests.clear()
    fault = Fault("status", status=503, path_contains="4.png")
    s3_proxy.add(fault)
    run = run_transform(DropDuplicates("drop", storage=storage), batches)
    assert run.rejects == [("1.png", "dropped_duplicate")]
    assert [row["id"] for row in run.rows] == ["0.png", "2.png", "3.png", "4.png", "5.png"]
    read = {target.partition("?")[0][-5:] for _, target in s3_proxy.requests}
    assert read == {"0.png", "1.png", "4.png"}
    assert s3_proxy.hits(fault) == 1


def test_dropped_images_are_no_faults(images: Path, tmp_path: Path) -> None:
    split = ("--split", "test=10,train=rest")
    assert build(images, tmp_path, *DROP, *split, "--max-reject-fraction", "0") == 0
    manifest, rejects = manifest_of(tmp_path), rejects_of(tmp_path)
    assert (manifest["num_records"], manifest["rejects"]) == (30, {"dropped_duplicate": 3})
    assert manifest["splits"]["test"]["num_records"] == 10
    assert manifest["settings"]["duplicates"] == "drop"
    assert {row["id"]: row["detail"] for row in rejects} == DETAILS
    assert {row["reason"] for row in rejects} == {"dropped_duplicate"}


def test_rejected_images_are_faults(images: Path, tmp_path: Path, capsys: Capture) -> None:
    options = ("--duplicates", "reject", "--max-reject-fraction", "0.01")
    assert build(images, tmp_path / "out", *options) == 1
    error = capsys.readouterr().err
    rejects = "3 of 33 inputs (9.09%) are rejects"
    limit = "more than --max-reject-fraction 0.01 allows (3 duplicate_image)"
    assert f"{rejects}, {limit}" in error
    assert f"duplicate_image: cat/b.png: {DETAILS['cat/b.png']}" in error


def test_a_plan_counts_records(images: Path, tmp_path: Path, capsys: Capture) -> None:
    assert plan.main([str(images), str(tmp_path / "out"), *DROP]) == 0
    assert re.search(r"  train +30 ", capsys.readouterr().out)
    assert not (tmp_path / "out").exists()
