"""Repairs of whole datasets: only what is broken is written, and it gets its old bytes."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipelines import repair_dataset
from pipelines.job import prepare_job
from pipelines.local_build import build_here
from pipelines.options import parse_options
from shardwright.errors import StorageError
from shardwright.format.index import read_index
from shardwright.format.manifest import read_manifest
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from shardwright.storage.local import LocalFiles
from tests.support.build_helpers import (
    files_below,
    make_images,
    manifest_of,
    record_ids,
    rejects_of,
    write_table,
)
from tests.support.input_forms import FORMS, Form

OPTIONS = (
    "--split", "train=0.7,test=0.3", "--shard-count", "2", "--signals",
    "--max-reject-fraction", "0.5",
)  # fmt: skip
NUM_IMAGES = 24
TRIED = {
    "class-folders", "labels-beside", "sharded-csv", "tar", "tar.gz", "zip-deflated",
    "hub-parquet", "coco",
}  # fmt: skip


def build(source: Path, output: Path, *options: str) -> None:
    """Build without Beam, whose import takes longest: the bytes are the same."""
    build_plainly(source, output, *OPTIONS, *options)


def build_plainly(source: Path, output: Path, *options: str) -> None:
    build_here(prepare_job(parse_options([str(source), str(output), *options])))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `photos`, of which two are rejected, and the dataset `data` of them."""
    root = tmp_path_factory.mktemp("repair")
    make_images(root / "photos", NUM_IMAGES)
    for name in ("cat/bad.png", "bird/bad.png"):
        (root / "photos" / name).write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    (root / "photos/notes.txt").write_text("not an image")
    build(root / "photos", root / "data", "--near-duplicates", "report")
    return root


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the dataset, which names the same INPUT."""
    shutil.copytree(built / "data", tmp_path / "data")
    return tmp_path / "data"


def state_of(root: Path) -> dict[str, tuple[str, int]]:
    """Return the hash and the modification time of every file."""
    return {
        name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for name, path in files_below(root).items()
    }


def hashes_of(root: Path) -> dict[str, str]:
    return {name: found for name, (found, _) in state_of(root).items()}


def repair(dataset: Path, *options: str) -> int:
    return repair_dataset.main([str(dataset), *options])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def names_of(place: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.glob(pattern))


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flip", "cut", "delete"])
@pytest.mark.parametrize(
    "pattern",
    [
        "data-train.tfrecord-*", "index/train-*", "signals/test-*", "rejects/t*-*", "plan.json",
        "rejects/plan.parquet", "features.json", "stats.json", "report.html", "label.labels.txt",
        "near_duplicates.parquet", "stats.pb",
    ],
)  # fmt: skip
def test_a_broken_file_gets_its_bytes_again(
    place: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    before, name = state_of(place), names_of(place, pattern)[0]
    damage(place / name)
    assert not verify(str(place)).is_sound
    assert repair(place) == 0
    after = state_of(place)
    assert after.keys() == before.keys()
    assert {each for each in after if after[each] != before[each]} == {name}
    assert after[name][0] == before[name][0]
    assert verify(str(place)).is_sound


def test_everything_at_once_and_then_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards without their indexes follow from the whole plan, the others from their indexes."""
    before = hashes_of(place)
    first, second = names_of(place, "data-train.tfrecord-*")
    for name in (first, "index/test-00000-of-00002.parquet", "features.json", "report.html"):
        (place / name).unlink()
    for name in (second, names_of(place, "index/train-*")[1], names_of(place, "signals/*")[0]):
        flip(place / name)
    assert repair(place) == 0
    assert hashes_of(place) == before
    assert "7 files repaired" in capsys.readouterr().out
    settled = state_of(place)
    assert repair(place) == 0
    assert "nothing is broken" in capsys.readouterr().out
    assert state_of(place) == settled


def test_input_may_grow_shrink_and_move(
    built: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the sources of damaged records count, wherever they are now."""
    moved = Path(shutil.copytree(built / "photos", tmp_path / "moved"))
    make_images(moved, 40, names=("ant", "cow"))  # a new first class, and images of other sizes
    before, shard = hashes_of(place), names_of(place, "data-train.tfrecord-*")[0]
    damaged = damage_record(place, shard, 2)
    for path in moved.glob("cat/*.png"):
        if f"cat/{path.name}" != damaged:
            path.unlink()
    assert repair(place, "--input", str(moved)) == 0
    assert hashes_of(place) == before
    flip(place / "index/train-00000-of-00002.parquet")
    assert repair(place, "--input", str(moved)) == 1
    assert "INPUT is not as it was when the dataset was built" in capsys.readouterr().out


def damage_record(place: Path, shard: str, number: int) -> str:
    """Flip a byte in the middle of a record's image; return its id."""
    name = next(
        name for name, _ in read_manifest(Folder(str(place))).named_shards() if name.shard == shard
    )
    row = read_index(Folder(str(place)), name).to_pylist()[number]
    with open(place / shard, "r+b") as file:
        file.seek(row["image_offset"] + row["image_length"] // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return str(row["id"])


@pytest.fixture
def changed(built: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """Return a dataset with two damaged records: one source has changed, the other is gone."""
    photos = Path(shutil.copytree(built / "photos", tmp_path / "photos"))
    build(photos, tmp_path / "data")
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
    assert repair(dataset, "--salvage") == 0
    write_table(table, [row for row in rows if row["path"] not in lost])
    build_plainly(table, tmp_path / "fresh", *options)
    for split, fresh in manifest_of(tmp_path / "fresh")["splits"].items():
        stats = manifest_of(dataset)["splits"][split]["stats"]
        assert stats.pop("rejected_labels")
        for each in (stats, fresh["stats"]):
            each.get("record_bytes", {}).pop("estimated", None)
        assert stats == fresh["stats"]
    assert verify(str(dataset)).is_sound


@pytest.mark.parametrize(
    "options",
    [
        ("--transform", "tests.support.user_transforms:tiles"),
        ("--encode", "png", "--shard-size", "2kB"),
        ("--check", "none", "--seed", "5"),
    ],
)
def test_records_are_made_as_the_build_made_them(tmp_path: Path, options: tuple[str, ...]) -> None:
    dataset = tmp_path / "data"
    build_plainly(make_images(tmp_path / "photos", 12), dataset, *options)
    before = hashes_of(dataset)
    damage_record(dataset, names_of(dataset, "data-train*")[0], 1)
    names_of(dataset, "data-train*")[1:] and cut(dataset / names_of(dataset, "data-train*")[1])
    assert repair(dataset) == 0
    assert hashes_of(dataset) == before


@pytest.mark.parametrize("form", [form for form in FORMS if form.name in TRIED], ids=str)
def test_inputs_of_any_form(tmp_path: Path, form: Form) -> None:
    """Some have images that a build and a repair put into a spool; none of these stay there."""
    root, dataset = tmp_path / "root", tmp_path / "data"
    form.write(root)
    options = [option.format(root=root) for option in form.options]
    build_plainly(root / form.input, dataset, *options, "--shard-count", "2")
    before = hashes_of(dataset)
    shard = names_of(dataset, "data-train*")
    damage_record(dataset, shard[0], 1)
    flip(dataset / names_of(dataset, "index/train*")[1])
    assert repair(dataset) == 0
    assert hashes_of(dataset) == before


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
