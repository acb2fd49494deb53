"""Losses of a build: none without a word, and more than a few end it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.support import detection_makers as det
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, manifest_of, png_of, reasons_of

BEAM = ("--runner", "DirectRunner")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize(("wrong", "code", "told"), [
    (20, 1, "--split-ids lists 20 ids for test, and INPUT has no image with any of them"),
    (18, 1, "18 of 108 inputs (16.67%) are rejects"),
    (2, 0, "INPUT has no image with this id, and with 2 of the 20 ids that --split-ids lists"),
])  # fmt: skip
def test_ids_of_a_split_list_that_match_no_image(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], wrong: int, code: int, told: str
) -> None:
    images = make_images(tmp_path / "in", 90)
    names = sorted(str(path.relative_to(images)) for path in images.rglob("*.png"))[:20]
    listed = [name.removesuffix(".png") for name in names[:wrong]] + names[wrong:]
    (tmp_path / "list.txt").write_text("\n".join(listed))
    options = ("--split", "train", "--split-ids", f"test={tmp_path}/list.txt")
    assert build(images, out, *options) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("box", "reason"), [
    ([4, 2, 0, 10], "empty_box"), ([8, 2, -4, 10], "bad_value"), ([4, 2, "NaN", 10], "bad_value"),
])  # fmt: skip
def test_lost_boxes_count(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], box: list[object], reason: str
) -> None:
    images = [{"id": number, "file_name": f"{number}.png"} for number in range(12)]
    objects = [{**det.GOOD, "image_id": number, "bbox": box} for number in range(11)]
    text = det.coco_json(*objects, {**det.GOOD, "image_id": 11}, images=images)
    pictures = {image["file_name"]: det.picture() for image in images}
    text = text.replace('"NaN"', "NaN")
    det.write(tmp_path / "in", {**pictures, "instances_x.json": text})
    assert build(tmp_path / "in", out) == 1
    assert f"(11 {reason})" in capsys.readouterr().err
    assert build(tmp_path / "in", out, "--max-rejects", "10") == 1


def test_a_field_that_the_first_samples_lack(tmp_path: Path, out: Path) -> None:
    samples = {}
    for number in range(1012):
        fields = {"n": number, "late": 5 if number > 1000 else None, "list": []}
        samples[f"{number:04}.png"] = png_of(number)
        samples[f"{number:04}.json"] = json.dumps(fields).encode()
    pack_tar(tmp_path / "x.tar", samples)
    assert build(tmp_path / "x.tar", out) == 1  # 11 of 1,012
    assert build(tmp_path / "x.tar", out, "--max-rejects", "11") == 0
    assert set(reasons_of(out).values()) == {"bad_value"}


def test_a_table_with_a_row_a_box_is_not_cut_to_one_box(tmp_path: Path, out: Path) -> None:
    make_images(tmp_path, 12, names=("c",))
    paths = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png"))
    rows = [f"{path},{number}" for path in paths for number in range(2)]
    (tmp_path / "t.csv").write_text("\n".join(["image,corner", *rows]) + "\n")
    assert build(tmp_path / "t.csv", out) == 1  # 12 of 24 are duplicate_id


LEFT_BEHIND = (
    "Thumbs.db", ".DS_Store", "._a.png", "__MACOSX/a.png", "@eaDir/a.png", "$RECYCLE.BIN/a.png",
    ".Trash-1000/a.png", "~$a.png", ".a.png.swp", "a.png~", "a.png.part", "a.png.crdownload",
    "a.png.tmp", "desktop.ini", ".ipynb_checkpoints/a.png",
)  # fmt: skip


@pytest.mark.parametrize("name", ["", "x.tar"])
def test_what_programs_leave_behind_is_no_image(tmp_path: Path, out: Path, name: str) -> None:
    files = {f"cat/{each}": png_of(1) for each in (*LEFT_BEHIND, "a.png")}
    if name:
        pack_tar(tmp_path / name, files)
    else:
        det.write(tmp_path / "in", files)
    assert build(tmp_path / (name or "in"), out, "--max-rejects", "0") == 0
    assert manifest_of(out)["num_records"] == 1
    assert set(reasons_of(out).values()) == {"other_file"}


def test_tables_beside_what_programs_leave_behind(tmp_path: Path, out: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_of(1))
    for name in ("t.csv", "~$t.csv", "._t.csv"):
        (tmp_path / name).write_text("image\na.png\n" if name == "t.csv" else "half")
    assert build(f"{tmp_path}/*.csv", out, "--max-rejects", "0") == 0
    assert manifest_of(out)["num_records"] == 1


def turned(kind: str) -> bytes:
    image, file = Image.new("RGB", (8, 4)), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(file, kind, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("options", [(), BEAM], ids=["local", "beam"])
def test_images_that_only_viewers_turn_are_counted(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    files = {f"cat/{kind}.{kind}": turned(kind) for kind in ("jpeg", "png", "webp")}
    det.write(tmp_path / "in", {**files, "cat/upright.png": png_of(1)})
    assert build(tmp_path / "in", out, *options) == 0
    told = "EXIF: viewers turn 3 images (75.0%), training does not; --on exif=fix stores them"
    assert told in capsys.readouterr().err
    assert manifest_of(out)["splits"]["train"]["stats"]["fixes"] == {"exif_kept": 3}
    assert build(tmp_path / "in", tmp_path / "fixed", *options, "--on", "exif=fix") == 0
    assert "viewers turn" not in capsys.readouterr().err
