"""Repairs of whole datasets: only what is broken is written, and it gets its old bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shardwright.format.contents import FileContent
from tests.support.build_helpers import make_images
from tests.support.damage import edit_json
from tests.support.input_forms import FORMS, Form
from tests.support.judge import judge
from tests.support.repairs import (
    build_photos,
    build_plainly,
    code_of,
    cut,
    damage_record,
    flip,
    hashes_of,
    make_photos,
    names_of,
    repair,
    state_of,
)

TRIED = {
    "class-folders", "labels-beside", "sharded-csv", "tar", "tar.gz", "zip-deflated",
    "hub-parquet", "coco",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `photos`, of which two are rejected, and the dataset `data` of them."""
    root = tmp_path_factory.mktemp("repair")
    build_photos(make_photos(root / "photos"), root / "data", "--near-duplicates", "report")
    return root


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the dataset, which names the same INPUT."""
    shutil.copytree(built / "data", tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.long_but_first
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flip", "cut", "delete"])
@pytest.mark.parametrize(
    "pattern",
    [
        "data-train.tfrecord-*", "index/train-*", "signals/test-*", "rejects/t*-*", "plan.json",
        "rejects/plan.parquet", "features.json", "stats.json", "label.labels.txt",
        "near_duplicates.parquet",
    ],
)  # fmt: skip
def test_a_broken_file_gets_its_bytes_again(
    place: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    before, name = state_of(place), names_of(place, pattern)[0]
    damage(place / name)
    assert not judge(str(place)).is_sound
    assert repair(place) == 0
    after = state_of(place)
    assert after.keys() == before.keys()
    assert {each for each in after if after[each] != before[each]} == {name}
    assert after[name][0] == before[name][0]
    assert judge(str(place)).is_sound


def test_a_file_of_an_earlier_release_stays_and_is_dropped_once_it_is_broken(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, old = hashes_of(place), place / "stats.pb"
    old.write_bytes(b"statistics")
    content = FileContent.of(old.read_bytes())._asdict()
    edit_json(
        place / "manifest.json", lambda manifest: manifest["files"].update({old.name: content})
    )
    assert repair(place) == 0
    assert old.exists()
    flip(old)
    assert repair(place) == 0
    assert "stats.pb: dropped" in capsys.readouterr().out
    assert hashes_of(place) == before
    assert judge(str(place)).is_sound


def test_everything_at_once_and_then_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards without their indexes follow from the whole plan, the others from their indexes."""
    before = hashes_of(place)
    first, second = names_of(place, "data-train.tfrecord-*")
    for name in (first, "index/test-00000-of-00002.parquet", "features.json"):
        (place / name).unlink()
    for name in (second, names_of(place, "index/train-*")[1], names_of(place, "signals/*")[0]):
        flip(place / name)
    assert repair(place) == 0
    assert hashes_of(place) == before
    assert "6 files repaired" in capsys.readouterr().out
    settled = state_of(place)
    assert repair(place) == 0
    assert "nothing is broken" in capsys.readouterr().out
    assert state_of(place) == settled


def test_input_may_grow_shrink_and_move(
    built: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the sources of broken shards count, wherever they are now."""
    moved = Path(shutil.copytree(built / "photos", tmp_path / "moved"))
    make_images(moved, 40, names=("ant", "cow"))  # a new first class, and images of other sizes
    before, shard = hashes_of(place), names_of(place, "data-train.tfrecord-*")[0]
    damage_record(place, shard, 2)
    needed = read_ids(place / "index/train-00000-of-00002.parquet")
    for path in moved.rglob("*.png"):
        if str(path.relative_to(moved)) not in needed:
            path.unlink()
    assert repair(place, "--input", str(moved)) == 0
    assert hashes_of(place) == before
    damage_record(place, shard, 2)
    (moved / needed[0]).unlink()
    (moved / needed[1]).write_bytes((built / "photos" / needed[2]).read_bytes())
    assert repair(place, "--input", str(moved)) == 1
    lost = "2 records cannot be made again, as the source is gone or has changed: "
    assert f"{lost}{needed[0]}, {needed[1]}. Restore" in capsys.readouterr().out


def test_an_index_needs_only_the_sources_of_its_shard(tmp_path: Path) -> None:
    dataset, photos = tmp_path / "data", make_photos(tmp_path / "photos")
    build_photos(photos, dataset)
    before = hashes_of(dataset)
    make_images(photos, 9, names=("ant",))
    other = names_of(dataset, "index/test-*")[0]
    (photos / read_ids(dataset / other)[0]).unlink()
    for name in names_of(dataset, "index/train-*"):
        flip(dataset / name)
    assert repair(dataset) == 0
    assert hashes_of(dataset) == before
    flip(dataset / other)
    assert repair(dataset) == 1


@pytest.mark.parametrize(
    ("options", "left"), [((), 0), (("--transform", "tests.support.user_transforms:tiles"), 1)]
)
def test_the_only_index_after_input_has_grown(
    options: tuple[str, ...], left: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function may name records as it likes, so that its plan cannot be found by their ids."""
    dataset, photos = tmp_path / "data", make_images(tmp_path / "photos", 12)
    build_plainly(photos, dataset, *options)
    before = hashes_of(dataset)
    make_images(photos, 3, names=("ant",))
    [index] = names_of(dataset, "index/*.parquet")
    flip(dataset / index)
    assert repair(dataset, "--", *code_of(options)) == left
    assert (hashes_of(dataset) == before) == (not left)
    assert ("its plan cannot be made" in capsys.readouterr().out) == bool(left)


def read_ids(index: Path) -> list[str]:
    return list(pq.read_table(index)["id"].to_pylist())


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
    assert repair(dataset, "--", *code_of(options)) == 0
    assert hashes_of(dataset) == before


@pytest.mark.long_but_first
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
