"""Whole builds with every way to make splits, and their report."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from shardwright.pipelines.commands import plan
from tests.support.build_helpers import (
    build_without_beam as build,
)
from tests.support.build_helpers import (
    index_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
)
from tests.support.judge import judge

FRACTIONS = "train=0.8,validation=0.1,test=0.1"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"), 90)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def splits_of(output: Path) -> dict[str, str]:
    """Id -> split of every record."""
    return {
        image_id: name.split("-")[0]
        for name, rows in index_of(output).items()
        for image_id in rows["id"].to_pylist()
    }


@pytest.mark.long
def test_counts_of_a_plan_and_its_build(
    images: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--split", "test=7,validation=5,train=rest", "--stratify")
    assert plan.main([str(images), str(out), *options]) == 0
    assert re.search(r"  test +7 ", capsys.readouterr().out)
    assert build(images, out, *options[:2]) == 0
    assert Counter(splits_of(out).values()) == {"test": 7, "validation": 5, "train": 78}
    assert manifest_of(out)["settings"]["split"] == {"test": 7, "validation": 5, "train": "rest"}


@pytest.mark.parametrize(
    ("folder", "options", "said"),
    [
        (
            ".",
            "--split test=91,train=rest",
            "--split needs 91 records in test, but INPUT has 90: use smaller numbers",
        ),
        (
            "cat",
            f"--split {FRACTIONS} --stratify",
            "no record has a label of its own (boxes and lists of labels do not count): "
            "remove --stratify",
        ),
    ],
    ids=["too large counts", "nothing to stratify by"],
)
def test_splits_that_cannot_be(
    images: Path,
    out: Path,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    options: str,
    said: str,
) -> None:
    assert build(images / folder, out, *options.split()) == 1
    assert said in capsys.readouterr().err


@pytest.mark.long
def test_stratified(images: Path, out: Path) -> None:
    assert build(images, out, "--split", FRACTIONS, "--stratify") == 0
    counts = Counter((image_id.split("/")[0], split) for image_id, split in splits_of(out).items())
    assert set(counts.values()) == {24, 3}
    assert judge(str(out)).faults == ()


def test_groups_and_classes_together(images: Path, tmp_path: Path, out: Path) -> None:
    paths = sorted(path.relative_to(images) for path in images.rglob("*.png"))
    rows = [f"{path},{path.parts[0]},patient {int(path.stem) // 5}\n" for path in paths]
    (tmp_path / "t.csv").write_text("image,label,patient\n" + "".join(rows))
    options = f"--image-root {images} --split train=0.8,test=0.2 --stratify --group-column patient"
    assert build(tmp_path / "t.csv", out, *options.split()) == 0
    splits = splits_of(out)
    found = defaultdict(set)
    for image_id, split in splits.items():
        found[int(Path(image_id).stem) // 5].add(split)
    assert {len(each) for each in found.values()} == {1}
    assert 15 <= Counter(splits.values())["test"] <= 20
    classes = Counter(image_id.split("/")[0] for image_id, one in splits.items() if one == "test")
    assert all(4 <= classes[name] <= 8 for name in ("Löwe", "bird", "cat"))


def test_listed_ids(images: Path, tmp_path: Path, out: Path) -> None:
    official = tmp_path / "official.txt"
    official.write_text("bird/0000.png\ncat/0001.png\ngone.png\n")
    options = f"--split-ids test={official} --split train=0.9,validation=0.1"
    assert build(images, out, *options.split()) == 0
    splits = splits_of(out)
    listed = {image_id for image_id, split in splits.items() if split == "test"}
    assert listed == {"bird/0000.png", "cat/0001.png"}
    assert set(splits.values()) == {"train", "validation", "test"}
    assert reasons_of(out) == {"gone.png": "unused_id"}
    assert judge(str(out)).faults == ()


def test_listed_ids_alone(images: Path, tmp_path: Path, out: Path) -> None:
    table = tmp_path / "splits.csv"
    table.write_text("id,split\nbird/0000.png,train\ncat/0001.png,val\n")
    assert build(images, out, "--split-ids", str(table), "--max-reject-fraction", "1") == 0
    assert splits_of(out) == {"bird/0000.png": "train", "cat/0001.png": "validation"}
    assert Counter(reasons_of(out).values()) == {"unknown_split": 88}


@pytest.mark.long
def test_with_fractions_an_added_file_moves_no_other(tmp_path: Path) -> None:
    found = []
    for number in (60, 90):
        make_images(tmp_path / "in", number)
        assert build(tmp_path / "in", tmp_path / f"{number}", "--split", FRACTIONS) == 0
        found.append(splits_of(tmp_path / f"{number}"))
    before, after = found
    assert (len(before), len(after)) == (60, 90)
    assert before.items() <= after.items()


@pytest.mark.long
def test_leakage(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_images(tmp_path / "in", 30)
    copies = {f"bird/copy{number}.png": number for number in (0, 3, 6)}
    for name, number in copies.items():
        (root / name).write_bytes(png_of(number))
    (tmp_path / "copies.txt").write_text("\n".join(copies))
    options = ("--split-ids", f"test={tmp_path}/copies.txt", "--split", "train")
    assert build(root, out, *options) == 0
    told = "report.html lists examples, and --duplicates drop keeps one of each"
    assert f"leakage: test shares 3 images with train; {told}" in capsys.readouterr().err
    leak = manifest_of(out)["splits"]["test"]["stats"]["duplicates"]["train"]
    assert (leak["records"], leak["unchecked"]) == (3, 0)
    assert ["bird/copy3.png", "bird/0003.png"] in leak["examples"]
    page = (out / "report.html").read_text()
    assert "Duplicates" in page
    assert "<bdi>bird/copy3.png</bdi> = <bdi>bird/0003.png</bdi>" in page
    assert judge(str(out)).faults == ()
    # Up to date: nothing is compared again, and nothing forgotten.
    before = (out / "manifest.json").stat().st_mtime_ns
    assert build(root, out, *options) == 0
    assert "up to date" in capsys.readouterr().err
    assert (out / "manifest.json").stat().st_mtime_ns == before
