"""One shard: its bytes, its index, its rejects, when it counts as finished, and what a failure leaves behind."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow.parquet as pq
import pytest

from schemas.image_classification import image_classification
from shardwright.errors import StorageError
from shardwright.example import parse_example
from shardwright.index import ShardSummary, read_summary
from shardwright.naming import ShardName
from shardwright.records import scan_records
from shardwright.storage import Folder
from tests.build_helpers import leftovers_of, png_of
from tests.helpers import references
from transforms.images import EncodeOptions
from transforms.inputs.file_rules import etag_of
from transforms.planning.shard_plans import ShardPlan
from transforms.reject_files import read_rejects
from transforms.rejects import RejectReason as R
from transforms.writing.image_chunks import CHUNK_RECORDS
from transforms.writing.shard_writing import find_finished, write_shard
from transforms.writing.write_job import WriteJob

NAME = ShardName("tiny", "train", 0, 3)
NUM_IMAGES = 2 * CHUNK_RECORDS + 7


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("images")
    for index in range(NUM_IMAGES):
        (folder / f"{index:03d}.png").write_bytes(png_of(index))
    return sorted(folder.iterdir())


def make_job(root: Path, **changes: Any) -> WriteJob:
    schema = image_classification().with_class_names(("a",))
    return WriteJob(
        **{
            "root": Folder(str(root)),
            "schema": schema,
            "check": "header",
            "encode": EncodeOptions(),
            "threads": 2,
            **changes,
        }
    )


def make_plan(paths: list[Path], settings: bytes = b"s") -> ShardPlan:
    status = [path.stat() if path.exists() else None for path in paths]
    batch = references(
        [f"{number}/{path.name}" for number, path in enumerate(paths)],
        labelled=True,
        uri=[str(path) for path in paths],
        num_bytes=[found.st_size if found else 1 for found in status],
        etag=[etag_of(found) if found else None for found in status],
    )
    return ShardPlan.make(NAME, batch, settings)


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def written(
    images: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ShardPlan, ShardSummary]:
    root = tmp_path_factory.mktemp("written")
    plan = make_plan(images)
    summary, rejects = write_shard(plan, make_job(root))
    assert rejects == []
    return root, plan, summary


def test_records_are_in_plan_order_and_sound(written: tuple[Path, ShardPlan, ShardSummary]) -> None:
    root, plan, summary = written
    with open(root / NAME.shard, "rb") as file:
        records = [parse_example(span.data) for span in scan_records(file)]
    assert [record["id"][0] for record in records] == [
        image_id.encode() for image_id in plan.references["id"].to_pylist()
    ]
    assert [record["image"][0] for record in records] == [
        Path(uri).read_bytes() for uri in plan.references["uri"].to_pylist()
    ]
    assert summary.num_records == len(records) == NUM_IMAGES


def test_the_index_points_at_every_image(written: tuple[Path, ShardPlan, ShardSummary]) -> None:
    root, _, _ = written
    data = (root / NAME.shard).read_bytes()
    rows = pq.read_table(root / NAME.sidecar).to_pylist()
    end = 0
    for row in rows:
        image = data[row["image_offset"] : row["image_offset"] + row["image_length"]]
        assert image == Path(row["uri"]).read_bytes()
        assert row["crc32c"] == google_crc32c.value(image)
        assert row["offset"] == end
        end += row["length"]
    assert end == len(data)


def test_the_summary_is_that_of_the_file(written: tuple[Path, ShardPlan, ShardSummary]) -> None:
    root, plan, summary = written
    data = (root / NAME.shard).read_bytes()
    assert (summary.num_bytes, summary.crc32c, summary.digest) == (
        len(data),
        google_crc32c.value(data),
        plan.digest,
    )
    assert summary.stats["formats"] == {"png": NUM_IMAGES}
    assert read_summary(Folder(str(root)), NAME) == replace(summary, reused=True)


@pytest.mark.parametrize("threads", [1, 8])
def test_the_number_of_threads_changes_no_byte(
    written: tuple[Path, ShardPlan, ShardSummary], tmp_path: Path, threads: int
) -> None:
    root, plan, _ = written
    write_shard(plan, make_job(tmp_path, threads=threads))
    assert files_of(tmp_path) == files_of(root)


def test_a_plan_that_crossed_to_another_worker_gives_the_same_bytes(
    written: Any, tmp_path: Path
) -> None:
    root, plan, _ = written
    restore, arguments = plan.__reduce__()
    write_shard(restore(*arguments), make_job(tmp_path))
    assert files_of(tmp_path) == files_of(root)


def test_rejects_leave_the_shard_short_and_are_listed(images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image at all")
    plan = make_plan([*images[:3], tmp_path / "bad.png", tmp_path / "missing.png", *images[3:5]])
    summary, rejects = write_shard(plan, make_job(tmp_path))
    assert summary.num_records == 5
    assert summary.rejects == {"missing_file": 1, "not_an_image": 1}
    assert [(reject.id, reject.reason) for reject in rejects] == [
        ("3/bad.png", R.NOT_AN_IMAGE),
        ("4/missing.png", R.MISSING_FILE),
    ]
    assert read_rejects(Folder(str(tmp_path)), NAME.rejects) == rejects
    assert pq.read_table(tmp_path / NAME.sidecar)["id"].to_pylist() == [
        *plan.references["id"].to_pylist()[:3], *plan.references["id"].to_pylist()[5:]
    ]  # fmt: skip


def test_a_shard_of_rejects_only_is_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image at all")
    plan = make_plan([tmp_path / "bad.png"])
    summary, _ = write_shard(plan, make_job(tmp_path))
    assert (summary.num_records, summary.num_bytes, summary.crc32c) == (0, 0, 0)
    assert (tmp_path / NAME.shard).read_bytes() == b""
    assert pq.read_table(tmp_path / NAME.sidecar).num_rows == 0
    assert find_finished(Folder(str(tmp_path)), plan, retry=True) == replace(summary, reused=True)


def test_rejects_of_an_earlier_try_do_not_stay(images: list[Path], tmp_path: Path) -> None:
    late = tmp_path / "late.png"
    plan = make_plan([images[0], late])
    write_shard(plan, make_job(tmp_path))
    assert len(read_rejects(Folder(str(tmp_path)), NAME.rejects)) == 1
    late.write_bytes(png_of(1))
    summary, rejects = write_shard(plan, make_job(tmp_path))
    assert (summary.num_records, rejects, read_rejects(Folder(str(tmp_path)), NAME.rejects)) == (
        2,
        [],
        [],
    )


def _nothing(root: Path) -> None:
    assert (root / NAME.shard).exists()


def _remove_sidecar(root: Path) -> None:
    (root / NAME.sidecar).unlink()


def _damage_sidecar(root: Path) -> None:
    (root / NAME.sidecar).write_bytes(b"PAR1")


def _cut_sidecar(root: Path) -> None:
    os.truncate(root / NAME.sidecar, 100)


def _remove_shard(root: Path) -> None:
    (root / NAME.shard).unlink()


def _cut_shard(root: Path) -> None:
    os.truncate(root / NAME.shard, 100)


def _remove_rejects(root: Path) -> None:
    (root / NAME.rejects).unlink()


@pytest.mark.parametrize(
    ("change", "finished"),
    [
        (_nothing, True),
        (_remove_sidecar, False),
        (_damage_sidecar, False),
        (_cut_sidecar, False),
        (_remove_shard, False),
        (_cut_shard, False),
        (_remove_rejects, False),
    ],
)
def test_a_shard_is_finished_when_all_of_it_is_in_place(
    images: list[Path], tmp_path: Path, change: Callable[[Path], None], finished: bool
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image at all")
    plan = make_plan([images[0], tmp_path / "bad.png"])
    write_shard(plan, make_job(tmp_path))
    change(tmp_path)
    assert (find_finished(Folder(str(tmp_path)), plan, retry=True) is not None) == finished


def test_other_settings_or_references_make_it_another_shard(
    images: list[Path], tmp_path: Path
) -> None:
    write_shard(make_plan(images[:2]), make_job(tmp_path))
    assert find_finished(Folder(str(tmp_path)), make_plan(images[:2]), retry=True)
    assert find_finished(Folder(str(tmp_path)), make_plan(images[:2], b"other"), retry=True) is None
    assert find_finished(Folder(str(tmp_path)), make_plan(images[1::-1]), retry=True) is None
    assert find_finished(Folder(str(tmp_path)), make_plan(images[:3]), retry=True) is None


@pytest.mark.parametrize("reason", [R.MISSING_FILE, R.UNREADABLE, R.CHANGED])
def test_a_passing_fault_is_tried_again_until_the_build_is_published(
    images: list[Path], tmp_path: Path, reason: R
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
    assert find_finished(Folder(str(tmp_path)), plan, retry=True) is None
    assert find_finished(Folder(str(tmp_path)), plan, retry=False) is not None


def test_a_lasting_fault_is_not_tried_again(images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image at all")
    plan = make_plan([images[0], tmp_path / "bad.png"])
    write_shard(plan, make_job(tmp_path))
    assert find_finished(Folder(str(tmp_path)), plan, retry=True) is not None


def test_a_full_disk_leaves_neither_a_shard_nor_a_marker(
    written: tuple[Path, ShardPlan, ShardSummary], tmp_path: Path
) -> None:
    _, plan, summary = written
    write_shard(plan, make_job(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (summary.num_bytes // 2, hard))
    try:
        with pytest.raises(StorageError, match=rf"cannot write .*{NAME.shard}: File too large"):
            write_shard(plan, make_job(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert find_finished(Folder(str(tmp_path)), plan, retry=True) is None
    assert leftovers_of(tmp_path) == []
    assert not (tmp_path / NAME.sidecar).exists()
    assert (tmp_path / NAME.shard).stat().st_size == summary.num_bytes, (
        "a file under a final name is whole, if only the earlier one"
    )


def test_a_programming_error_in_a_chunk_is_raised_as_it_is(
    images: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="check must be one of"):
        write_shard(make_plan(images), make_job(tmp_path, check="glance"))
    assert files_of(tmp_path) == {}


def test_memory_does_not_grow_with_the_shard(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png_of(0, side=600))
    peaks = []
    for number in (24, 96):
        plan = make_plan([tmp_path / "large.png"] * number)
        tracemalloc.start()
        summary, _ = write_shard(plan, make_job(tmp_path))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert summary.num_bytes > 100_000_000
    assert max(peaks) < 32_000_000, peaks
    assert peaks[1] < 1.3 * peaks[0]
