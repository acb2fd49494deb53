"""Repairs without all sources: what is lost is listed, all else stays, and crashes do no harm."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardwright.errors import StorageError
from shardwright.inspect.verify import verify
from shardwright.storage.local import LocalFiles
from tests.support.build_helpers import (
    files_below,
    make_images,
    manifest_of,
    record_ids,
    rejects_of,
    write_table,
)
from tests.support.repairs import (
    NUM_IMAGES,
    build_photos,
    build_plainly,
    code_of,
    cut,
    damage_record,
    hashes_of,
    make_photos,
    names_of,
    repair,
    state_of,
)


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return a dataset with two damaged records: one source has changed, the other is gone."""
    photos = make_photos(tmp_path / "photos")
    build_photos(photos, tmp_path / "data")
    shard = names_of(tmp_path / "data", "data-train.tfrecord-*")[0]
    ids = [damage_record(tmp_path / "data", shard, number) for number in (1, 4, 5)]
    make_images(tmp_path / "other", NUM_IMAGES, side=9)
    shutil.copy(tmp_path / "other" / ids[0], photos / ids[0])
    (photos / ids[1]).unlink()
    return tmp_path / "data", ids


def test_a_record_whose_source_has_changed_is_named(
    changed: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, ids = changed
    before = state_of(dataset)
    assert repair(dataset) == 1
    told = capsys.readouterr().out
    assert f"{ids[0]} (its source has changed since the build)" in told
    assert f"{ids[1]} (INPUT does not have it any more)" in told
    assert "2 records cannot be made again" in told
    assert ids[2] not in told
    assert "--salvage" in told
    assert state_of(dataset) == before


def test_salvage_keeps_all_other_records(
    changed: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, ids = changed
    before, manifest = state_of(dataset), manifest_of(dataset)
    records = record_ids(dataset)
    assert repair(dataset, "--salvage") == 0
    assert verify(str(dataset)).is_sound
    assert sorted(record_ids(dataset)) == sorted(set(records) - set(ids[:2]))
    lost = [row for row in rejects_of(dataset) if row["reason"] == "lost"]
    assert sorted(row["id"] for row in lost) == sorted(ids[:2])
    after = manifest_of(dataset)
    assert after["rejects"] == {**manifest["rejects"], "lost": 2}
    assert (after["num_records"], after["num_inputs"]) == (
        manifest["num_records"] - 2,
        manifest["num_inputs"],
    )
    assert (
        after["splits"]["train"]["stats"]["signals"]["brightness"]["count"]
        == (after["splits"]["train"]["num_records"])
    )
    touched = {name for name, state in state_of(dataset).items() if state != before.get(name)}
    shard = names_of(dataset, "data-train.tfrecord-*")[0]
    assert {name for name in touched if "-of-" in name} == {
        shard,
        *(f"{kind}/train-00000-of-00002.parquet" for kind in ("index", "signals", "rejects")),
    }
    assert "2 records lost" in capsys.readouterr().out
    settled = state_of(dataset)
    assert repair(dataset) == 0
    assert state_of(dataset) == settled


ENCODINGS = {
    "keep": (),
    "signals": ("--signals",),
    "jpeg": ("--encode", "jpeg", "--resize", "8x8"),
    "transform": ("--transform", "tests.support.user_transforms:add_one"),
}


@pytest.mark.long_but_first
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_statistics_after_salvage_are_those_of_the_other_records(
    tmp_path: Path, encoding: str
) -> None:
    """A fresh build of the other records has the same, because splits are drawn by id."""
    make_images(tmp_path / "photos", 16)
    paths = sorted(files_below(tmp_path / "photos"))
    rows = [
        {
            "path": f"photos/{path}", "label": path.split("/")[0], "age": number**2 - 9,
            "weight": number / 8, "tags": [number] * (number % 4), "note": "ä" * number,
        }
        for number, path in enumerate(paths)
    ]  # fmt: skip
    table = write_table(tmp_path / "table.jsonl", rows)
    options = ("--name", "data", *ENCODINGS[encoding], "--split", "train=0.6,test=0.4")
    build_plainly(table, tmp_path / "data", *options)
    dataset = tmp_path / "data"
    lost = {damage_record(dataset, shard, 1) for shard in names_of(dataset, "data-*.tfrecord-*")}
    for path in lost:
        (tmp_path / path).unlink()
    assert repair(dataset, "--salvage", "--", *code_of(options)) == 0
    write_table(table, [row for row in rows if row["path"] not in lost])
    build_plainly(table, tmp_path / "fresh", *options)
    for split, fresh in manifest_of(tmp_path / "fresh")["splits"].items():
        stats = manifest_of(dataset)["splits"][split]["stats"]
        assert stats.pop("rejected_labels")
        for each in (stats, fresh["stats"]):
            each.get("record_bytes", {}).pop("estimated", None)
        assert stats == fresh["stats"]
    assert verify(str(dataset)).is_sound


def test_a_whole_input_that_is_gone(
    changed: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, ids = changed
    shutil.rmtree(dataset.parent / "photos")
    assert repair(dataset) == 1
    told = capsys.readouterr().out
    assert "photos" in told
    assert "3 records cannot be made again" in told
    assert repair(dataset, "--salvage") == 0
    assert set(ids).isdisjoint(record_ids(dataset))
    assert verify(str(dataset)).is_sound


def test_lost_images_leave_the_list_of_near_duplicates(tmp_path: Path) -> None:
    """Each image is stored six times, in both splits."""
    make_images(tmp_path / "once", 4)
    for number in range(6):
        shutil.copytree(tmp_path / "once", tmp_path / "photos" / f"class{number}")
    dataset = tmp_path / "data"
    options = ("--split", "train=0.6,test=0.4", "--near-duplicates", "report")
    build_plainly(tmp_path / "photos", dataset, *options)
    before = {row["id"]: row for row in near_duplicates(dataset)}
    stats = {name: split["stats"] for name, split in manifest_of(dataset)["splits"].items()}
    lost = damage_record(dataset, names_of(dataset, "data-test*")[0], 0)
    assert before[lost]["split"] == "test"
    assert repair(dataset, "--salvage", "--input", "/none") == 0
    before[lost]["split"] = None
    assert {row["id"]: row for row in near_duplicates(dataset)} == before
    for name, split in manifest_of(dataset)["splits"].items():
        fewer = name == "test"
        key = "near_duplicate_records"
        assert split["stats"][key] == stats[name][key] - fewer
        [leak], [old] = (each["near_duplicates"].values() for each in (split["stats"], stats[name]))
        assert leak["records"] == old["records"] - fewer
        assert leak["examples"] == [pair for pair in old["examples"] if lost not in pair]
    assert verify(str(dataset)).is_sound


def near_duplicates(dataset: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(dataset / "near_duplicates.parquet").to_pylist())


def test_a_build_restores_lost_records_once_their_sources_are_back(tmp_path: Path) -> None:
    photos, dataset = make_photos(tmp_path / "photos"), tmp_path / "data"
    build_photos(photos, dataset)
    before = hashes_of(dataset)
    shard = names_of(dataset, "data-train.tfrecord-*")[0]
    lost = damage_record(dataset, shard, 3)
    (photos / lost).rename(tmp_path / "aside.png")
    assert repair(dataset, "--salvage") == 0
    (tmp_path / "aside.png").rename(photos / lost)
    build_photos(photos, dataset)
    assert lost in record_ids(dataset)
    after = hashes_of(dataset)
    assert {name for name in before if before[name] != after[name]} <= {
        "manifest.json", "report.html",  # which have the time of the build
    }  # fmt: skip


@contextmanager
def stopping_at(step: int) -> Iterator[list[int]]:
    """Make the change number `step` of the disk fail, and all after it, as if killed there.

    Changes of staged files are not counted: without `changes.json` nobody reads these.
    Yields the numbers of the changes that failed.
    """
    numbers, failed = itertools.count(1), list[int]()

    def counted(change: Callable[..., Any], place: int) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            path = str(args[place])
            is_staged = "/staged/" in path and "changes.json" not in path
            number = 0 if is_staged and not failed else next(numbers)
            if number >= step:
                failed.append(number)
                raise StorageError(f"stopped at {number}")
            return change(*args, **kwargs)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in ("copy", "write_bytes", "create_bytes", "remove", "remove_all", "open_sink"):
            patch.setattr(
                LocalFiles, name, counted(getattr(LocalFiles, name), 1 + (name == "copy"))
            )
        yield failed


@pytest.mark.long
def test_a_stop_at_any_change_and_the_next_repair_goes_on(
    changed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    dataset, _ = changed
    cut(dataset / names_of(dataset, "signals/test-*")[0])
    broken = Path(shutil.copytree(dataset, tmp_path / "broken"))
    assert repair(dataset, "--salvage") == 0
    wanted = hashes_of(dataset)
    for step in itertools.count(1):
        shutil.rmtree(dataset)
        shutil.copytree(broken, dataset)
        with stopping_at(step) as failed:
            code = repair(dataset, "--salvage")
        if not failed:
            break
        assert code == 1
        assert repair(dataset, "--salvage") == 0
        assert hashes_of(dataset) == wanted
    assert step > 12
