"""Whole builds with every way to make splits, and what is told of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pipelines import plan_dataset
from shardwright.verify import verify
from tests.build_helpers import build, index_of, make_images, manifest_of, png_of, reasons_of

FRACTIONS = "train=0.8,validation=0.1,test=0.1"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"), 90)


def splits_of(output: Path) -> dict[str, str]:
    """id -> split of every record."""
    return {
        image_id: name.split("-")[0]
        for name, rows in index_of(output).items()
        for image_id in rows["id"].to_pylist()
    }


def test_counts(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build(images, out, "--split", "test=7,validation=5,train=rest") == 0
    assert Counter(splits_of(out).values()) == {"test": 7, "validation": 5, "train": 78}
    assert manifest_of(out)["settings"]["split"] == {"test": 7, "validation": 5, "train": "rest"}


def test_too_large_counts(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(images, tmp_path / "out", "--split", "test=91,train=rest") == 1
    assert (
        "--split asks for 91 records in test, and INPUT has 90 to draw from: ask for fewer"
        in capsys.readouterr().err
    )


def test_stratified(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert build(images, out, "--split", FRACTIONS, "--stratify") == 0
    counts = Counter((image_id.split("/")[0], split) for image_id, split in splits_of(out).items())
    assert set(counts.values()) == {24, 3}
    manifest = manifest_of(out)
    assert manifest["splits"]["test"]["stats"]["label_deviation"] == {
        "mean": 0.0,
        "max": 0.0,
        "label": 0,
    }
    assert (
        "test: class fractions are off those of the whole by 0.000% on average, by 0.000% (Löwe) at worst"
        in capsys.readouterr().err
    )
    assert "Class fractions of the splits" in (out / "report.html").read_text()
    assert verify(str(out)).faults == ()


def test_groups_and_classes_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_images(tmp_path / "in", 90)
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*.png"))
    lines = [f"{path},{path.split('/')[0]},patient {int(Path(path).stem) // 5}" for path in paths]
    (root / "t.csv").write_text("image,label,patient\n" + "\n".join(lines) + "\n")
    out = tmp_path / "out"
    assert (
        build(
            root / "t.csv",
            out,
            "--split",
            "train=0.8,test=0.2",
            "--stratify",
            "--group-column",
            "patient",
        )
        == 0
    )
    splits = splits_of(out)
    found = defaultdict(set)
    for image_id, split in splits.items():
        found[int(Path(image_id).stem) // 5].add(split)
    assert {len(each) for each in found.values()} == {1}
    assert 15 <= Counter(splits.values())["test"] <= 20
    off = manifest_of(out)["splits"]["test"]["stats"]["label_deviation"]
    assert 0 <= off["mean"] <= off["max"] < 0.1
    assert "test: class fractions are off those of the whole by" in capsys.readouterr().err


def test_nothing_to_stratify_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.png").write_bytes(png_of(number))
    assert build(tmp_path / "in", tmp_path / "out", "--split", FRACTIONS, "--stratify") == 1
    error = capsys.readouterr().err
    assert (
        "no record has a label of its own (boxes and lists of labels are not one): leave --stratify out"
        in error
    )


def test_listed_ids(images: Path, tmp_path: Path) -> None:
    out, official = tmp_path / "out", tmp_path / "official.txt"
    official.write_text("bird/0000.png\ncat/0001.png\ngone.png\n")
    assert (
        build(images, out, "--split-ids", f"test={official}", "--split", "train=0.9,validation=0.1")
        == 0
    )
    splits = splits_of(out)
    assert {image_id for image_id, split in splits.items() if split == "test"} == {
        "bird/0000.png",
        "cat/0001.png",
    }
    assert set(splits.values()) == {"train", "validation", "test"}
    assert reasons_of(out) == {"gone.png": "unused_id"}
    assert verify(str(out)).faults == ()


def test_listed_ids_alone(images: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "out", tmp_path / "splits.csv"
    table.write_text("id,split\nbird/0000.png,train\ncat/0001.png,val\n")
    assert build(images, out, "--split-ids", str(table), "--max-reject-fraction", "1") == 0
    assert splits_of(out) == {"bird/0000.png": "train", "cat/0001.png": "validation"}
    assert Counter(reasons_of(out).values()) == {"unknown_split": 88}


def test_a_plan_counts_the_same(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        plan_dataset.main(
            [str(images), str(tmp_path / "out"), "--split", "test=11,train=rest", "--stratify"]
        )
        == 0
    )
    assert "test: 11 records" in capsys.readouterr().out


def test_with_fractions_an_added_file_moves_no_other(tmp_path: Path) -> None:
    root = make_images(tmp_path / "in", 60)
    assert build(root, tmp_path / "before", "--split", FRACTIONS) == 0
    make_images(root, 90)
    assert build(root, tmp_path / "after", "--split", FRACTIONS) == 0
    before, after = splits_of(tmp_path / "before"), splits_of(tmp_path / "after")
    assert (len(before), len(after)) == (60, 90)
    assert before == {image_id: after[image_id] for image_id in before}


def test_leakage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_images(tmp_path / "in", 30)
    for number in (0, 3, 6):
        (root / "bird" / f"copy{number}.png").write_bytes(png_of(number))
    (tmp_path / "copies.txt").write_text(
        "".join(f"bird/copy{number}.png\n" for number in (0, 3, 6))
    )
    out = tmp_path / "out"
    options = ("--split-ids", f"test={tmp_path}/copies.txt", "--split", "train")
    assert build(root, out, *options) == 0
    told = "leakage: 3 images of test are also in train; report.html names some, and --duplicates drop leaves one of each"
    assert told in capsys.readouterr().err
    stats = manifest_of(out)["splits"]["test"]["stats"]
    assert (stats["duplicates"]["train"]["records"], stats["duplicates"]["train"]["unchecked"]) == (
        3,
        0,
    )
    assert ["bird/copy3.png", "bird/0003.png"] in stats["duplicates"]["train"]["examples"]
    page = (out / "report.html").read_text()
    assert "Duplicates across splits" in page
    assert "bird/copy3.png = bird/0003.png" in page
    assert verify(str(out)).faults == ()
    before = (out / "manifest.json").stat().st_mtime_ns
    assert (
        build(root, out, *options) == 0
    )  # up to date: nothing is compared again, and nothing forgotten
    assert "up to date" in capsys.readouterr().err
    assert (out / "manifest.json").stat().st_mtime_ns == before
