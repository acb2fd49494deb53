"""YOLO's text labels as INPUT: names of classes, splits of data.yaml, and lines of labels."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind
from shardwright.transforms.inputs.formats import voc
from shardwright.transforms.inputs.formats.yolo import BadLabel, parse_yolo, read_config
from tests.support import detection_makers as det
from tests.support.buckets import Bucket
from tests.support.helpers import TINY_PNG
from tests.support.listings import detect, list_source

YAML = "nc: 3\nnames: [cat, dog, zebra]\n"


def txts(folder: str, *names: str) -> dict[str, str]:
    """Return label files; images without objects have none."""
    chosen = [name for name in names or det.OBJECTS if det.OBJECTS[name]]
    return {f"{folder}/{name}.txt": det.yolo_txt(det.OBJECTS[name]) for name in chosen}


def ultralytics(root: Path) -> Path:
    config = f"path: .\ntrain: images/train2017\nval: images/val2017\n{YAML}"
    for split, names in (("train2017", ["a", "b"]), ("val2017", ["ü c"])):
        det.write(root, det.pictures(f"images/{split}", names) | txts(f"labels/{split}", *names))
    return det.write(root, {"data.yaml": config})


@pytest.mark.parametrize("given", ["", "data.yaml"])
def test_the_layout_of_ultralytics(tmp_path: Path, given: str) -> None:
    source, rows, rejects = det.listed(ultralytics(tmp_path) / given)
    assert source.description == (
        f"YOLO labels at {tmp_path}: images with a .txt of boxes for each, 3 classes, "
        "splits from data.yaml"
    )
    assert (source.states_splits, source.features[1].names, rejects) == (True, det.CLASSES, [])
    assert [row["split"] for row in rows] == ["train", "train", "validation"]
    det.assert_same_objects(rows, tmp_path, tolerance=2e-6, segmentation="")


@pytest.mark.parametrize(("name", "text"), [
    ("data.yaml", YAML), ("my set.yml", "names:\n  0: cat\n  2: 'zebra'  # striped\n  1: dog\n"),
    ("classes.txt", "\ufeffcat\r\ndog\r\nzebra\r\n\r\n"), ("obj.names", "cat\ndog\nzebra"),
    ("labels/classes.txt", "cat\ndog\nzebra"),
])  # fmt: skip
def test_names_of_classes(tmp_path: Path, name: str, text: str) -> None:
    files = {**det.pictures("images"), **txts("labels"), name: text}
    source, rows, rejects = det.listed(det.write(tmp_path, files))
    assert (source.features[1].names, rejects) == (det.CLASSES, [])
    assert rows[0]["x/objects/label"] == ["zebra", "cat"]


@pytest.mark.parametrize(("files", "told"), [
    ({}, "has YOLO labels but no class names: "
     "add data.yaml with `names`, or classes.txt with one name per line"),
    ({"classes.txt": "a\n\nb\n"}, "classes.txt: class 1 has no name, so it is unclear which "),
])  # fmt: skip
def test_invalid_names_of_classes(tmp_path: Path, files: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        det.listed(det.write(tmp_path, {**det.pictures("images"), **txts("labels"), **files}))
    assert told in str(raised.value)


A, B, C = (
    {name: split} for name, split in zip("abc", ("train", "validation", "test"), strict=True)
)


@pytest.mark.parametrize(("places", "splits", "told"), [
    ("train: images/a\nval: images/b\n", A | B, ""),
    ("train: ../images/a/\nval: ['./images/b', images/third]\n", A | B, ""),
    ("train: ROOT/images/a\ntest: ROOT/images/c\n", A | C, ""),
    ("train: one.txt\nval: two.txt\n", A | B, ""),
    ("train: images/a\nval: images/a\n", {}, None), ("train: images/a\nval:\n", {}, None),
    # Ultralytics' VOC.yaml and GlobalWheat2020.yaml name a folder twice.
    ("train: images/a\nval: images/b\ntest: images/b", A | B,
     ", images/b of test stays in validation"),
    ("train: [images/a, images/b]\nval: images/b\ntest: images/c", A | C | {"b": "train"},
     ", images/b of validation stays in train"),
    ("train: [images/a, images/a, images/c]", A | {"c": "train"}, ""),
])  # fmt: skip
def test_splits_of_data_yaml(
    tmp_path: Path, places: str, splits: dict[str, str], told: str | None
) -> None:
    """A place of two splits stays in the first; images in no place are rejects."""
    for name in "abc":
        det.write(tmp_path, {**det.pictures(f"images/{name}", "a"), **txts(f"labels/{name}", "a")})
    det.write(
        tmp_path, {"one.txt": "./images/a/a.png\n", "two.txt": f"{tmp_path}/images/b/a.png\n"}
    )
    det.write(tmp_path, {"data.yaml": YAML + places.replace("ROOT", str(tmp_path))})
    source, rows, rejects = det.listed(tmp_path)
    assert source.states_splits == (told is not None)
    assert told is None or source.description.endswith(f"splits from data.yaml{told}")
    found = {row["id"].split("/")[1]: row["split"] for row in rows}
    assert found == (splits or dict.fromkeys("abc"))
    lost = {reject.id: reject for reject in rejects if reject.id.endswith("png")}
    assert lost.keys() == {f"images/{name}/a.png" for name in {*"abc"} - {*found}}
    for reject in lost.values():
        assert reject.reason == "unknown_split"
        assert reject.detail.startswith(f"in none of the places of data.yaml (train: {tmp_path}/")


def test_split_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read whole, or the build fails: those of millions of images are long."""
    monkeypatch.setattr(voc, "MAX_LABEL_BYTES", 1000)
    det.write(tmp_path, {**det.pictures("images", "ab"), **txts("labels", "a", "b")})
    long = "images/b.png\n" * 100 + "images/a.png\n\n"
    det.write(tmp_path, {"one.txt": long, "two.txt": "images/b.png\nimages/x.png\n"})
    det.write(tmp_path, {"data.yaml": f"{YAML}train: one.txt\nval: two.txt\n"})
    source, rows, rejects = det.listed(tmp_path)
    assert [row["split"] for row in rows] == ["train", "train"]
    assert [(reject.id, reject.reason, reject.detail) for reject in rejects] == [
        ("images/b.png", "duplicate_id", "listed in two splits; it stays in train"),
        ("images/x.png", "missing_file",
         "listed as a validation image, but there is no image of this name"),
    ]  # fmt: skip
    (tmp_path / "one.txt").write_bytes(b"\xff")
    with pytest.raises(BuildError, match=r"the split list .*/one.txt is not UTF-8"):
        det.listed(tmp_path)
    (tmp_path / "one.txt").unlink()
    (tmp_path / "one.txt").symlink_to("/proc/self/mem")
    with pytest.raises(BuildError, match=r"/one.txt: it leads to /proc/.*, outside of INPUT"):
        list(list_source(source))
    with pytest.raises(BuildError, match=r"cannot read the split list .*/one.txt: "):
        det.listed(tmp_path, allow_outside=("/proc",))


def test_lists_beside_more_files_than_a_page_of_a_store(s3_bucket: Bucket) -> None:
    s3_bucket.fill([f"in/{number:04d}.png" for number in range(520)], TINY_PNG)
    s3_bucket.fill([f"in/{number:04d}.txt" for number in range(520)], b"0 0.5 0.5 1 1")
    for name, text in {"classes": "cat", "train": "0.png", "valid": "1.png"}.items():
        s3_bucket.put(f"in/{name}.txt", text.encode())
    source = detect(f"{s3_bucket.uri}/in", {}, storage=s3_bucket.options())
    assert source.description.endswith("splits from train.txt, valid.txt")


def test_a_data_yaml_that_is_elsewhere(tmp_path: Path) -> None:
    root = ultralytics(tmp_path / "sets" / "mine")
    det.write(tmp_path, {"yamls/x.yaml": f"path: ../sets/mine\n{YAML}", "yamls/y.yaml": YAML})
    x, y = (tmp_path / "yamls" / name for name in ("x.yaml", "y.yaml"))
    assert len(det.listed(x, allow_outside=(str(tmp_path / "sets"),))[1]) == 3
    assert len(det.listed(y, image_root=str(root))[1]) == 3
    with pytest.raises(UsageError, match=r"x\.yaml leads to .*/sets/mine, outside of INPUT: allow"):
        det.listed(x)


def test_folders_and_files_that_are_not_yolo(tmp_path: Path) -> None:
    det.write(tmp_path, {"a.png": det.picture(), "a.txt": "1 2 3 4 5 once I caught a fish alive"})
    det.write(tmp_path, {"labels/x.txt": "1 320 240 10 10"})
    description = f"a folder at {tmp_path}, with the folders labels"
    assert det.listed(tmp_path)[0].description == description
    with pytest.raises(UsageError, match="has YOLO labels but no class names"):
        det.listed(tmp_path, input_format="yolo")
    message = r"is not a folder: give the folder of images/ and labels/, or data\.yaml"
    with pytest.raises(UsageError, match=message):
        det.listed(tmp_path / "a.txt", input_format="yolo")


def list_lines(root: Path, lines: str, config: str = YAML) -> det.Listing:
    """List one image with these label lines."""
    files = {"images/a.png": det.picture(), "labels/a.txt": lines, "data.yaml": config}
    return det.listed(det.write(root, files))


@pytest.mark.parametrize(("line", "told"), [
    ("3 0.5 0.5 0.1 0.1", "invalid class 3: there are 3, counted from 0"),
    ("-1 0.5 0.5 0.1 0.1", "invalid class -1"), ("1.5 0.5 0.5 0.1 0.1", "invalid class 1.5"),
    ("nan 0.5 0.5 0.1 0.1", "invalid class nan"),
    ("cat 0.5 0.5 0.1 0.1", "could not convert string to float: 'cat'"),
    *((f"1{values}", "expected `class x y width height`, or")
      for values in ("", " 0.5 0.5 0.1", " 0.5 0.5 0.1 0.1 0.9", " 0.1" * 7)),
    ("1 320 240 10 10",
     "320 is not a fraction of the image's width or height: divide pixels by them"),
    *((f"1 0.5 0.5 0.1 {edge}", "is not a fraction") for edge in ("inf", "nan", "-0.5", "9" * 400)),
    ("1 nan 0.5 0.1 0.1 0.9 0.9", "nan is not a fraction"),
    ("1,0.5,0.5,0.1,0.1", "could not convert"), ("\0", "could not convert"),
])  # fmt: skip
def test_invalid_lines(line: str, told: str) -> None:
    with pytest.raises(BadLabel, match=r"^line 3, ") as raised:
        list(parse_yolo(f"0 0.5 0.5 0.1 0.1\n\n{line}\n".encode(), det.CLASSES))
    assert told in str(raised.value)


@pytest.mark.parametrize("values", ["", " 0.1 0.1", " 0.1 0.1 2 0.1 0.1", " 1 1 1 1 1 1 1"])
def test_other_keypoints_than_stated(values: str) -> None:
    told = "expected 2 keypoints of 3 values after the box, as the kpt_shape of"
    with pytest.raises(BadLabel, match=told):
        list(parse_yolo(f"1 0.5 0.5 0.2 0.2{values}".encode(), det.CLASSES, (2, 3)))


def test_polygons_and_boxes_without_area_and_beyond_the_edge(tmp_path: Path) -> None:
    """Polygons are text, with the box of their extent."""
    polygon = "1 0.1 0.2 0.5 0.25 0.3 0.75\n"
    lines = f"{polygon}0 0.5 0.5 0 0.1\n2 0.95 0.5 0.2 0.5\n"
    _, [row], rejects = list_lines(tmp_path, lines)
    expected = ([0.2, 0.1, 0.75, 0.5], [0.25, 0.85, 0.75, 1])
    assert row["x/objects/bbox"] == [pytest.approx(box) for box in expected]
    assert row["x/objects/label"] == ["dog", "zebra"]
    text, none = row["x/objects/segmentation"]
    assert (json.loads(text), none) == ([[0.1, 0.2, 0.5, 0.25, 0.3, 0.75]], "")
    assert det.reasons(rejects) == [("images/a.png#2", "empty_box")]
    _, rows, [reject] = list_lines(tmp_path, f"{polygon}7 0.5 0.5 0 0.1\n")
    assert (rows, reject.id, reject.reason) == ([], "images/a.png", "bad_value")
    assert reject.detail.startswith("labels/a.txt: line 2, '7 0.5 0.5 0 0.1': invalid class 7")


@pytest.mark.parametrize(("shape", "values", "points"), [
    ("[2, 3]", "0.75 0.875 2 0.1 0.1 0", [[0.75, 0.875, 2], [0, 0, 0]]),
    ("[2, 3]", "1.25 0.5 1 0 0 2", [[1.25, 0.5, 1], [0, 0, 2]]),
    ("[2, 2]", "0.75 0.875 -1 0", [[0.75, 0.875, 2], [0, 0, 0]]),
])  # fmt: skip
def test_keypoints(tmp_path: Path, shape: str, values: str, points: list[list[float]]) -> None:
    lines, config = f"1 0.5 0.5 0 0 {values}\n2 0.5 0.5 0.2 0.2 {values}", f"kpt_shape: {shape}\n"
    source, [row], rejects = list_lines(tmp_path, lines, YAML + config)
    assert row["x/objects/bbox"] == [pytest.approx([0.4, 0.4, 0.6, 0.6])]
    assert row["x/objects/keypoints"] == [points]
    assert det.reasons(rejects) == [("images/a.png#1", "empty_box")]
    assert "a .txt of boxes and 2 keypoints for each" in source.description
    feature = source.features[-1]
    assert (feature.kind, feature.shape) == (FeatureKind.KEYPOINTS, (None, 2, 3))


@given(st.binary(max_size=200))
def test_any_bytes_are_objects_or_a_bad_line(data: bytes) -> None:
    with contextlib.suppress(BadLabel):
        assert all(item.values[0] in det.CLASSES for item in parse_yolo(data, det.CLASSES))


@given(st.text(max_size=100))
def test_any_text_is_a_config_or_told_to_be_none(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert all(isinstance(name, str) for name in read_config(text, "data.yaml").names)


@pytest.mark.parametrize(("text", "names"), [
    ("names: [cat, 'it''s', x#y, 'y: z'] # z\n", ("cat", "it's", "x#y", "y: z")),
    ("names:\n  1: 1.50\n  0: yes\n", ("yes", "1.50")),
    ("download: |\n  import os\n  names: [b]\nnames: [\n  a\n]\n", ("a",)),
    ("\ufeff---\nnames: !!python/object/apply:os.system [a]\n", ("a",)),
    ("names: &all [a, b]\ntrain: *all\n", ("a", "b")),
    ("names: [cat, dog, cat]", ("cat (0)", "dog", "cat (2)")), ("- names", ()), ("", ()),
])  # fmt: skip
def test_names_as_yaml_writes_them(text: str, names: tuple[str, ...]) -> None:
    assert read_config(text, "data.yaml").names == names


@pytest.mark.parametrize(("text", "told"), [
    ("names: [open, 1", "data.yaml is not a valid data.yaml: while parsing a flow sequence"),
    ("names: &a [*a]", "recursive"),
    ("names: " + "[" * 10_000, "data.yaml is not valid YAML: it is nested too deeply"),
    ("names: [[cat], dog]", r"not a valid data.yaml: Expected `str`, got `array` - at `\$.names"),
    ("names: cat", r"Expected `object \| array`, got `str` - at `\$.names`"),
    ("nc: 2\nnames: [a, b, c]", "nc is 2, but there are 3 names"),
    ("names: {0: a, 2: b}", "names has 2 classes, but none with number 1"),
    ("names: [a, '']", "class 1 has no name"),
    *((f"{YAML}kpt_shape: {shape}", r"data\.yaml is not a valid data.yaml: .* at `\$.kpt_shape")
      for shape in ("17", "[17]", "[17, 4]", "[0, 3]", "[x, 3]", "[1e9, 3]", "{}")),
])  # fmt: skip
def test_other_configs_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_config(text, "data.yaml")


def test_a_long_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("names: [a]\n" + "#" * (1 << 20))
    with pytest.raises(UsageError, match=r"data\.yaml is longer than 1,048,576 bytes"):
        detect(f"{tmp_path}/data.yaml", columns={})
