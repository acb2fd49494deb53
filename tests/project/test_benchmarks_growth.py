"""The benchmark of datasets that grow: its photographs, its readings, and its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from tests.support.benchmark_scripts import load, through_json


def test_photographs_are_added_changed_and_removed(tmp_path: Path) -> None:
    for number in range(4):
        file = tmp_path / f"photos/class_{number % 2:02d}/img_{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(number))
    base = load("photos").PhotoSet(tmp_path / "photos", 4, 6)
    photos = load("growth_photos").GrowingPhotos(base, tmp_path / "growing", 6)

    def state() -> dict[Path, tuple[int, int]]:
        found = {path: path.stat() for path in photos.folder.rglob("*.jpg")}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}

    first = state()
    assert len(first) == len(photos) == 6
    added = photos.add(2)
    assert state().keys() - first.keys() == set(added)
    photos.remove(added)
    assert state() == first
    photos.change(3)
    assert sum(state()[path] != first[path] for path in first) == 3
    photos.remove_some(2)
    assert len(state()) == len(photos) == 4


@pytest.fixture
def datasets(tmp_path: Path) -> tuple[str, str]:
    """Two datasets, of 16 and of 12 records."""
    image = load("headers").photograph()
    for name, count in (("many", 16), ("few", 12)):
        rows = [{"id": f"{row}", "image": image, "label": 0} for row in range(count)]
        sw.write(rows, str(tmp_path / name))
    return str(tmp_path / "many"), str(tmp_path / "few")


def test_views_take_turns_and_must_have_the_same_records(
    datasets: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = load("growth_reading")
    monkeypatch.setattr(reading, "_CROPS_A_RUN", 8)
    monkeypatch.setattr(reading, "_BATCH", 8)
    many, few = datasets
    views = [reading.View("fresh build", Path(many)), reading.View("grown", Path(many), 1)]
    rates = reading.read_all(views, 1)
    assert {case: len(each) for case, each in rates.items()} == {
        (kind, view.name): 1 for kind in ("crops", "records") for view in views
    }
    assert min(rate for each in rates.values() for rate in each) > 0
    with pytest.raises(load("measure").RunFailedError, match=r"'fresh build': 16, 'few': 12"):
        reading.read_all([views[0], reading.View("few", Path(few))], 1)


def made_growth() -> Any:
    report, usage = load("growth_report"), load("measure").Usage
    growth = report.Growth(files={"local": 100_000, "tiny": 1_000_000, "days": 20_000}, days=30)
    walls = {"build": 20.0, "list": 0.5, "append": 1.1, "again": 0.9}
    for command, wall_s in walls.items():
        growth.add("local", command, usage(wall_s, 1.0, 10**8, 10**8))
    for wall_s, rss_bytes in ((7.0, 6 * 10**8), (9.0, 8 * 10**8), (7.5, 6 * 10**8)):
        growth.add("tiny", "again", usage(wall_s, 1.0, rss_bytes, rss_bytes))
    growth.shards = {"fresh build": 50, "grown": 80, "compacted": 50}
    rates = {"fresh build": [100.0, 50.0, 80.0], "grown": [95.0, 46.0, 60.0]}
    rates["compacted"] = [90.0, 48.0, 80.0]
    for kind in ("crops", "records"):
        growth.rates |= {(kind, name): each for name, each in rates.items()}
    return growth


def test_growth_is_judged_by_medians_of_ratios() -> None:
    report = load("growth_report")
    growth = through_json(report, made_growth())
    found = [(check.found, check.passed) for check in report.targets(growth)]
    reading = [("0.920x", True), ("0.960x", False)]
    assert found == [
        ("1.10 s; 3 % of 20.00 s + 0.50 s = 1.10 s", True),
        ("7.50 s", True),
        ("800 MB", False),
        *reading,
        *reading,
    ]
    text = report.render(growth, ["- circumstances"])
    assert "| 1,000,000 tiny files | append, nothing has changed | 7.50 (7.00-9.00) |" in text
    assert "| grown | 80 | 60 (46-95) | 0.920 (0.750-0.950) |" in text


def test_parts_that_are_left_out_have_no_targets() -> None:
    report = load("growth_report")
    assert report.targets(report.Growth()) == []
    assert "Reading" not in report.render(report.Growth(), [])
