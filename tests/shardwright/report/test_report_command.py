"""`shardwright report`, and the page that a build writes."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardwright.format.manifest import read_manifest
from shardwright.inspect.cli import main
from shardwright.report import pictures as report_pictures
from shardwright.report.data import collect
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, shards_of, stamps_of
from tests.support.judge import judge

IMAGES = re.compile(r'src="data:image/(\w+);base64,([^"]+)"')
SPLIT = ("--split", "train=0.8,test=0.2")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"), 40, side=60)


@pytest.fixture(scope="module")
def dataset(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dataset") / "out"
    assert build(images, out, *SPLIT) == 0
    return out


def report_of(*args: str | Path) -> int:
    return main(["report", *map(str, args)])


@pytest.mark.long
def test_a_build_shows_its_pictures(dataset: Path) -> None:
    page = (dataset / "report.html").read_text()
    shown = IMAGES.findall(page)
    assert len(shown) == 40
    for kind, data in shown:
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        assert (image.format or "").lower() == kind
        assert max(image.size) <= 128
    assert judge(str(dataset)).is_sound


def test_the_command_writes_the_page_of_the_build(
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = stamps_of(dataset)
    assert report_of(dataset) == 0
    assert capsys.readouterr().err.startswith("shardwright: wrote out-report.html: 40 pictures, ")
    page = (dataset / "report.html").read_text()
    assert (tmp_path / "out-report.html").read_text() == page
    assert stamps_of(dataset) == before


@pytest.mark.long
def test_another_build_of_the_same_input_has_the_same_page(
    images: Path, dataset: Path, tmp_path: Path
) -> None:
    """But for what the manifest says of the run and its command."""
    out = tmp_path / "out"
    assert build(images, out, *SPLIT, "--threads", "1") == 0
    pages = []
    for root in (out, dataset):
        run = json.loads((root / "manifest.json").read_text())["provenance"]
        page = (root / "report.html").read_text()
        pages.append(page.replace(run["created"], "").replace(run["command"], ""))
    assert pages[0] == pages[1]


def test_a_build_that_is_up_to_date_leaves_the_page(images: Path, dataset: Path) -> None:
    before = stamps_of(dataset)
    assert build(images, dataset, *SPLIT) == 0
    assert stamps_of(dataset) == before


def test_the_number_of_pictures_and_json(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert report_of(dataset, "--pictures", "7", "-o", page, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"report": str(page), "num_bytes": page.stat().st_size, "pictures": 7}
    assert len(IMAGES.findall(page.read_text())) == 7
    assert report_of(dataset, "--pictures", "0", "-o", page) == 0
    assert not IMAGES.findall(page.read_text())


def gone_in(page: str) -> str:
    [found] = re.findall(r"<tr><th[^>]*>gone</th><td[^>]*>(\d+)</td>", page)
    return found


@pytest.mark.long
def test_a_build_shows_the_changes_since_the_dataset_that_it_replaces(tmp_path: Path) -> None:
    given = make_images(tmp_path / "in", 20, side=20)
    out = tmp_path / "out"
    assert build(given, out) == 0
    assert "Changes</h2>" not in (out / "report.html").read_text()
    next((given / "cat").iterdir()).unlink()
    assert build(given, out, "--if-exists", "overwrite") == 0
    page = (out / "report.html").read_text()
    assert "Changes</h2>" in page
    assert gone_in(page) == "1"
    before = stamps_of(out)
    assert build(given, out) == 0
    assert stamps_of(out) == before
    other = tmp_path / "page.html"
    assert report_of(out, "--against", out, "-o", other) == 0
    assert gone_in(other.read_text()) == "0"


def test_rejects_have_pictures_unless_they_lie_outside(tmp_path: Path) -> None:
    given = make_images(tmp_path / "in", 4, side=30)
    outside = tmp_path / "outside.png"
    Image.new("RGB", (99, 99)).save(outside)
    (given / "cat" / "link.png").symlink_to(outside)
    Image.new("CMYK", (64, 32)).save(given / "cat" / "print.jpg")
    out = tmp_path / "out"
    options = ("--on", "cmyk=reject", "--max-reject-fraction", "1")
    assert build(given, out, *options) == 0
    rejects = (out / "report.html").read_text().partition('id="rejects"')[2]
    assert "policy_cmyk" in rejects
    assert "outside_input" in rejects
    (shown,) = IMAGES.findall(rejects)
    assert Image.open(io.BytesIO(base64.b64decode(shown[1]))).size == (64, 32)


@pytest.mark.long
def test_damaged_records_are_counted_and_not_shown(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build(images, out) == 0
    (shard,) = shards_of(out)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0xFF
    shard.write_bytes(data)
    assert report_of(out, "-o", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert len(IMAGES.findall(page)) == 39
    assert "1 picture more cannot be decoded" in page


def test_thumbnails_stay_below_their_limit_for_every_class(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Folder(str(dataset))
    manifest = read_manifest(root)
    whole = collect(root, manifest).pictures
    limit = sum(found.num_bytes for found in whole) // 2
    monkeypatch.setattr(report_pictures, "MAX_BYTES", limit)
    shown = [found for found in collect(root, manifest).pictures if found.thumbnail]
    assert len(whole) // 3 < len(shown) < len(whole)
    assert {found.label for found in shown} == {0, 1, 2}


def test_each_picture_of_a_grown_dataset_has_an_anchor_of_its_own(tmp_path: Path) -> None:
    """Each generation has a shard 0 of each split, with a record at offset 0."""
    out = tmp_path / "out"
    assert build(make_images(tmp_path / "in", 12), out) == 0
    more = make_images(tmp_path / "more", 12, names=("owl",))
    assert build(more, out, "--if-exists", "append", "--keep-missing") == 0
    assert report_of(out, "-o", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    anchors = re.findall(r'<figure id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors)) == 24
    assert set(re.findall(r'data-of="([^"]+)"', page)) <= set(anchors)


def test_raw_pixels_have_pictures(tmp_path: Path) -> None:
    given = make_images(tmp_path / "in", 3, side=40)
    out = tmp_path / "out"
    assert build(given, out, "--encode", "raw", "--resize", "40x40") == 0
    shown = IMAGES.findall((out / "report.html").read_text())
    found = [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for _, data in shown]
    assert len(found) == 3
    first = np.asarray(Image.open(given / "bird" / "0000.png"))
    assert any(np.array_equal(pixels, first) for pixels in found)  # as PNG, which loses nothing


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("nowhere",), 2, "is not a shardwright dataset"),
        (("DATASET", "--against", "nowhere"), 2, "is not a shardwright dataset"),
        (("DATASET", "-o", "taken/page.html"), 1, "taken"),
    ],
)
def test_wrong_arguments(
    dataset: Path, args: tuple[str, ...], code: int, told: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    given = [str(dataset) if arg == "DATASET" else arg for arg in args]
    assert report_of(*given) == code
    assert told in capsys.readouterr().err


def test_a_negative_number_of_pictures(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report_of(dataset, "--pictures", "-1")
    assert ended.value.code == 2
    assert "--pictures must be at least 0, got -1" in capsys.readouterr().err
