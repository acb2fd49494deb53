"""Shards: bytes, index, rejects, when one counts as finished, and the state after a failure."""

from __future__ import annotations

import os
import resource
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow.parquet as pq
import pytest

from shardwright.errors import StorageError
from shardwright.format.example import parse_example
from shardwright.format.index import ShardSummary, read_summary
from shardwright.format.naming import ShardName
from shardwright.format.records import scan_records
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.rejects import RejectReason as R
from shardwright.transforms.write import image_reads
from shardwright.transforms.write.image_chunks import CHUNK_RECORDS
from shardwright.transforms.write.image_reads import ImageLocation
from shardwright.transforms.write.shard_writing import find_finished, write_records, write_shard
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob
from tests.support.build_helpers import leftovers_of, png_of
from tests.support.helpers import file_references

Paths = list[Path]
NAME = ShardName("tiny", "train", 0, 3)
NUM_IMAGES = 2 * CHUNK_RECORDS + 7


@dataclass(frozen=True)
class Written:
    """A shard without rejects, its plan and its summary."""

    root: Path
    plan: ShardPlan
    summary: ShardSummary

    @property
    def data(self) -> bytes:
        return (self.root / NAME.shard).read_bytes()


def make_job(root: Path, **changes: Any) -> WriteJob:
    schema = image_classification().with_class_names(("a",))
    return replace(
        WriteJob(Folder(str(root)), schema, StoredRecords("header", EncodeOptions()), threads=2),
        **changes,
    )


def make_plan(paths: Paths, settings: bytes = b"s") -> ShardPlan:
    ids = [f"{number}/{path.name}" for number, path in enumerate(paths)]
    return ShardPlan.make(NAME, file_references(paths, ids, labelled=True), settings)


def files_of(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def is_finished(root: Path, plan: ShardPlan, *, unpublished: bool = True) -> bool:
    return find_finished(Folder(str(root)), plan, unpublished=unpublished) is not None


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    folder = tmp_path_factory.mktemp("images")
    for index in range(NUM_IMAGES):
        (folder / f"{index:03d}.png").write_bytes(png_of(index))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def written(images: Paths, tmp_path_factory: pytest.TempPathFactory) -> Written:
    root, plan = tmp_path_factory.mktemp("written"), make_plan(images)
    summary, rejects = write_shard(plan, make_job(root))
    assert rejects == []
    return Written(root, plan, summary)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.png"
    path.write_bytes(b"no image at all")
    return path


def test_records_are_complete_and_in_plan_order_and_counted(written: Written) -> None:
    with open(written.root / NAME.shard, "rb") as file:
        records = [parse_example(span.data) for span in scan_records(file)]
    assert [(record["id"][0].decode(), record["image"][0]) for record in records] == [
        (row["id"], Path(row["uri"]).read_bytes()) for row in written.plan.references.to_pylist()
    ]
    summary = written.summary
    assert (summary.num_records, summary.stats["formats"]) == (NUM_IMAGES, {"png": NUM_IMAGES})
    assert summary.num_bytes == len(written.data)
    assert summary.crc32c == google_crc32c.value(written.data)
    assert summary.digest == written.plan.digest
    assert read_summary(Folder(str(written.root)), NAME) == summary


def test_the_index_points_at_every_image(written: Written) -> None:
    data, end = written.data, 0
    for row in pq.read_table(written.root / NAME.sidecar).to_pylist():
        image = data[row["image_offset"] : row["image_offset"] + row["image_length"]]
        assert image == Path(row["uri"]).read_bytes()
        assert (row["crc32c"], row["offset"]) == (google_crc32c.value(image), end)
        end += row["length"]
    assert end == len(data)


@pytest.mark.parametrize("threads", [1, 8])
def test_threads_and_pickling_change_nothing(
    written: Written, tmp_path: Path, threads: int
) -> None:
    restore, arguments = written.plan.__reduce__()
    write_shard(restore(*arguments), make_job(tmp_path, threads=threads))
    assert files_of(tmp_path) == files_of(written.root)


def test_records_are_written_until_the_last_image_is_being_read(
    written: Written, images: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next shard's reads start while this one's last images arrive."""
    read, arrived = image_reads.read_local_image, threading.Event()

    def read_late(place: ImageLocation) -> bytes:
        if place.uri == str(images[-1]):
            assert arrived.wait(250)
        return read(place)

    monkeypatch.setattr(image_reads, "read_local_image", read_late)
    finish = write_records(written.plan, make_job(tmp_path))
    assert not (tmp_path / NAME.shard).exists()
    arrived.set()
    assert finish() == (written.summary, [])
    assert files_of(tmp_path) == files_of(written.root)


def test_rejects_are_left_out_and_listed(images: Paths, bad: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = make_plan([*images[:3], bad, tmp_path / "missing.png", *images[3:5]])
    summary, rejects = write_shard(plan, make_job(out))
    assert summary.num_records == 5
    assert summary.rejects == {"missing_file": 1, "not_an_image": 1}
    assert [(reject.id, reject.reason) for reject in rejects] == [
        ("3/bad.png", R.NOT_AN_IMAGE),
        ("4/missing.png", R.MISSING_FILE),
    ]
    assert read_rejects(Folder(str(out)), NAME.rejects) == rejects
    planned = plan.references["id"].to_pylist()
    assert pq.read_table(out / NAME.sidecar)["id"].to_pylist() == planned[:3] + planned[5:]


def test_a_shard_of_rejects_only_is_an_empty_file(bad: Path, tmp_path: Path) -> None:
    plan = make_plan([bad])
    summary, _ = write_shard(plan, make_job(tmp_path))
    assert (summary.num_records, summary.num_bytes, summary.crc32c) == (0, 0, 0)
    assert (tmp_path / NAME.shard).read_bytes() == b""
    assert pq.read_table(tmp_path / NAME.sidecar).num_rows == 0
    assert find_finished(Folder(str(tmp_path)), plan, unpublished=True) == summary


def test_rejects_of_an_earlier_attempt_are_removed(images: Paths, tmp_path: Path) -> None:
    late, folder = tmp_path / "late.png", Folder(str(tmp_path))
    plan = make_plan([images[0], late])
    write_shard(plan, make_job(tmp_path))
    assert len(read_rejects(folder, NAME.rejects)) == 1
    late.write_bytes(png_of(1))
    summary, rejects = write_shard(plan, make_job(tmp_path))
    assert (summary.num_records, rejects, read_rejects(folder, NAME.rejects)) == (2, [], [])


@pytest.mark.parametrize(
    ("damage", "filename"),
    [
        (Path.unlink, NAME.sidecar),
        (lambda path: path.write_bytes(b"PAR1"), NAME.sidecar),
        (lambda path: os.truncate(path, 100), NAME.sidecar),
        (Path.unlink, NAME.shard),
        (lambda path: os.truncate(path, 100), NAME.shard),
        (Path.unlink, NAME.rejects),
    ],
)
def test_a_shard_is_finished_if_all_its_files_are_complete(
    images: Paths, bad: Path, tmp_path: Path, damage: Callable[[Path], Any], filename: str
) -> None:
    plan = make_plan([images[0], bad])
    write_shard(plan, make_job(tmp_path))
    assert is_finished(tmp_path, plan), "and a permanent fault is not retried"
    damage(tmp_path / filename)
    assert not is_finished(tmp_path, plan)


def test_other_settings_or_references_are_not_finished(images: Paths, tmp_path: Path) -> None:
    write_shard(make_plan(images[:2]), make_job(tmp_path))
    assert is_finished(tmp_path, make_plan(images[:2]))
    assert not is_finished(tmp_path, make_plan(images[:2], b"other"))
    assert not is_finished(tmp_path, make_plan(images[1::-1]))
    assert not is_finished(tmp_path, make_plan(images[:3]))


@pytest.mark.parametrize("reason", [R.MISSING_FILE, R.UNREADABLE, R.CHANGED])
def test_a_transient_fault_is_retried_until_the_build_is_published(
    images: Paths, tmp_path: Path, reason: R
) -> None:
    path = tmp_path / "a.png"
    if reason == R.CHANGED:
        path.write_bytes(png_of(1))
    plan = make_plan([images[0], path])
    if reason == R.CHANGED:
        path.write_bytes(png_of(2) + b"longer")
    elif reason == R.UNREADABLE:
        path.symlink_to(path)
    summary, _ = write_shard(plan, make_job(tmp_path))
    assert summary.rejects == {str(reason): 1}
    assert not is_finished(tmp_path, plan)
    assert is_finished(tmp_path, plan, unpublished=False)


def test_a_full_disk_leaves_no_new_shard_and_no_sidecar(written: Written, tmp_path: Path) -> None:
    plan, num_bytes = written.plan, written.summary.num_bytes
    write_shard(plan, make_job(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes // 2, hard))
    try:
        with pytest.raises(StorageError, match=rf"cannot write .*{NAME.shard}: File too large"):
            write_shard(plan, make_job(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not is_finished(tmp_path, plan)
    assert leftovers_of(tmp_path) == []
    assert not (tmp_path / NAME.sidecar).exists()
    assert (tmp_path / NAME.shard).stat().st_size == num_bytes, "the earlier shard is complete"


def test_an_unexpected_error_is_a_reject_and_retried(images: Paths, tmp_path: Path) -> None:
    plan = make_plan(images)
    summary, rejects = write_shard(
        plan, make_job(tmp_path, maker=StoredRecords("glance", EncodeOptions()))
    )
    assert (summary.num_records, summary.rejects) == (0, {"internal_error": NUM_IMAGES})
    assert all("ValueError: check must be one of" in reject.detail for reject in rejects)
    assert not is_finished(tmp_path, plan)
    assert is_finished(tmp_path, plan, unpublished=False)


def test_memory_is_that_of_the_images_read_ahead(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png_of(0, side=600))
    plan = make_plan([tmp_path / "large.png"] * 192)
    tracemalloc.start()
    try:
        summary, _ = write_shard(plan, make_job(tmp_path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert summary.num_bytes > 200_000_000
    # Up to 16 MB are read ahead; how many of them there are at once depends on the machine's load.
    assert peak < summary.num_bytes / 10
