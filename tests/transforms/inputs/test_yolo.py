"""YOLO's text labels as INPUT: names of classes, splits of data.yaml, and lines of labels."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

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
from tests.support.listing_cases import Case, by_case, listing, write_files
from tests.support.listings import detect, list_source

YAML = "nc: 3\nnames: [cat, dog, zebra]\n"


def tree(*names: str, below: str = "") -> dict[str, Any]:
    """Return images and their label files; images without objects have none."""
    files: dict[str, Any] = det.pictures(f"images{below}", names)
    for name in names:
        if det.OBJECTS[name]:
            files[f"labels{below}/{name}.txt"] = det.yolo_txt(det.OBJECTS[name])
    return files


ULTRALYTICS = {
    **tree("a", "b", below="/train2017"), **tree("ü c", below="/val2017"),
    "data.yaml": f"path: .\ntrain: images/train2017\nval: images/val2017\n{YAML}",
}  # fmt: skip


@pytest.mark.parametrize("at", ["", "data.yaml"])
def test_the_layout_of_ultralytics(tmp_path: Path, at: str) -> None:
    found = Case(
        ULTRALYTICS, at, rows={"split": ["train", "train", "validation"]}, source={
            "states_splits": True, "description": "YOLO labels at FOLDER: images with a .txt of "
            "boxes for each, 3 classes, splits from data.yaml",
        },
    ).listed(tmp_path)  # fmt: skip
    det.assert_same_objects(found.rows, tmp_path / "in", tolerance=2e-6, segmentation="")


@pytest.mark.parametrize(("name", "text"), [
    ("data.yaml", YAML), ("my set.yml", "names:\n  0: cat\n  2: 'zebra'  # striped\n  1: dog\n"),
    ("classes.txt", "\ufeffcat\r\ndog\r\nzebra\r\n\r\n"), ("obj.names", "cat\ndog\nzebra"),
    ("labels/classes.txt", "cat\ndog\nzebra"),
])  # fmt: skip
def test_names_of_classes(tmp_path: Path, name: str, text: str) -> None:
    labels = [det.LABELS[name] for name in det.OBJECTS]
    case = Case({**tree(*det.OBJECTS), name: text}, rows={"x/objects/label": labels})
    found = case.listed(tmp_path)
    assert found.source.features[1].names == det.CLASSES


A, B, C = (
    {name: split} for name, split in zip("abc", ("train", "validation", "test"), strict=True)
)


@pytest.mark.parametrize(("places", "splits", "told"), [
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
    files = {"one.txt": "./images/a/a.png\n", "two.txt": f"{tmp_path}/images/b/a.png\n"}
    for name in "abc":
        files |= tree("a", below=f"/{name}")
    files["data.yaml"] = YAML + places.replace("ROOT", str(tmp_path))
    found = listing(write_files(tmp_path, files))
    assert found.source.states_splits == (told is not None)
    assert told is None or found.source.description.endswith(f"splits from data.yaml{told}")
    listed = {row["id"].split("/")[1]: row["split"] for row in found.rows}
    assert listed == (splits or dict.fromkeys("abc"))
    lost = {key: text for key, text in found.details.items() if key.endswith("png")}
    assert lost.keys() == {f"images/{name}/a.png" for name in {*"abc"} - {*listed}}
    told = f"unknown_split: in none of the places of data.yaml (train: {tmp_path}/"
    assert all(text.startswith(told) for text in lost.values())


def test_split_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read whole, or the build fails: those of millions of images are long."""
    monkeypatch.setattr(voc, "MAX_LABEL_BYTES", 1000)
    long = "images/b.png\n" * 100 + "images/a.png\n\n"
    write_files(tmp_path, {
        **tree("a", "ü c"), "images/b.png": det.picture(), "one.txt": long,
        "two.txt": "images/b.png\nimages/x.png\nimages/ü c.png\n",
        "data.yaml": f"{YAML}train: one.txt\nval: two.txt\n",
    })  # fmt: skip
    found = listing(tmp_path)
    assert [row["split"] for row in found.rows] == ["train", "train", "validation"]
    assert found.details == {
        "images/b.png": "duplicate_id: listed in two splits; it stays in train",
        "images/x.png": "missing_file: listed as a validation image, but there is no image of this "
        "name",
    }
    (tmp_path / "one.txt").write_bytes(b"\xff")
    with pytest.raises(BuildError, match=r"the split list .*/one.txt is not UTF-8"):
        listing(tmp_path)
    (tmp_path / "one.txt").unlink()
    (tmp_path / "one.txt").symlink_to("/proc/self/mem")
    with pytest.raises(BuildError, match=r"/one.txt: it leads to /proc/.*, outside of INPUT"):
        list(list_source(found.source))
    with pytest.raises(BuildError, match=r"cannot read the split list .*/one.txt: "):
        listing(tmp_path, allow_outside=("/proc",))


def test_lists_beside_more_files_than_a_page_of_a_store(s3_bucket: Bucket) -> None:
    s3_bucket.fill([f"in/{number:04d}.png" for number in range(520)], TINY_PNG)
    s3_bucket.fill([f"in/{number:04d}.txt" for number in range(520)], b"0 0.5 0.5 1 1")
    for name, text in {"classes": "cat", "train": "0.png", "valid": "1.png"}.items():
        s3_bucket.put(f"in/{name}.txt", text.encode())
    source = detect(f"{s3_bucket.uri}/in", {}, storage=s3_bucket.options())
    assert source.description.endswith("splits from train.txt, valid.txt")


def test_a_data_yaml_that_is_elsewhere(tmp_path: Path) -> None:
    root = write_files(tmp_path / "sets" / "mine", ULTRALYTICS)
    write_files(tmp_path, {"yamls/x.yaml": f"path: ../sets/mine\n{YAML}", "yamls/y.yaml": YAML})
    yamls, sets = tmp_path / "yamls", str(tmp_path / "sets")
    assert len(listing(yamls / "x.yaml", allow_outside=(sets,)).rows) == 3
    assert len(listing(yamls / "y.yaml", image_root=str(root)).rows) == 3


def of_lines(lines: str, config: str = "", **expected: Any) -> Case:
    """Return an image with these label lines."""
    files = {"images/a.png": det.picture(), "labels/a.txt": lines, "data.yaml": YAML + config}
    return Case(files, **expected)


def boxes(*boxes: list[float]) -> list[Any]:
    return [[pytest.approx(box) for box in boxes]]


NOT_YOLO = {
    "a.png": det.picture(), "a.txt": "1 2 3 4 5 once I caught a fish alive",
    "labels/x.txt": "1 320 240 10 10",
}  # fmt: skip
FORCED = {"input_format": "yolo"}
POLYGON = "1 0.1 0.2 0.5 0.25 0.3 0.75\n"
BAD = f"{POLYGON}7 0.5 0.5 0 0.1\n"
NO_NAMES = (
    "has YOLO labels but no class names: add data.yaml with `names`, or classes.txt with one "
    "name per line"
)
CASES = {
    "no names": Case(tree("a"), error=UsageError(NO_NAMES)),
    "a class without a name": Case({**tree("a"), "classes.txt": "a\n\nb\n"}, error=UsageError(
        "classes.txt: class 1 has no name, so it is unclear which "
    )),
    "no yolo": Case(NOT_YOLO, source={
        "description": "a folder at FOLDER, with the folders labels"
    }),
    "forced": Case(NOT_YOLO, options=FORCED, error=UsageError(NO_NAMES)),
    "a file": Case(NOT_YOLO, "a.txt", options=FORCED, error=UsageError(
        r"is not a folder: give the folder of images/ and labels/, or data\.yaml"
    )),
    "a long config": Case(
        {"data.yaml": "names: [a]\n" + "#" * (1 << 20)}, "data.yaml",
        error=UsageError(r"data\.yaml is longer than 1,048,576 bytes"),
    ),
    # Polygons are text, with the box of their extent.
    "polygons and edges": of_lines(
        f"{POLYGON}0 0.5 0.5 0 0.1\n2 0.95 0.5 0.2 0.5\n",
        rows={
            "x/objects/bbox": boxes([0.2, 0.1, 0.75, 0.5], [0.25, 0.85, 0.75, 1]),
            "x/objects/label": [["dog", "zebra"]],
            "x/objects/segmentation": [["[[0.1,0.2,0.5,0.25,0.3,0.75]]", ""]],
        },
        rejects={"images/a.png#2": "empty_box"},
    ),
    "a bad line": of_lines(BAD, rows={"id": []}, rejects={
        "images/a.png":
        "bad_value: labels/a.txt: line 2, '7 0.5 0.5 0 0.1': invalid class 7",
    }),
    **{
        f"keypoints {values}": of_lines(
            f"1 0.5 0.5 0 0 {values}\n2 0.5 0.5 0.2 0.2 {values}", f"kpt_shape: {shape}\n",
            rows={"x/objects/bbox": boxes([0.4, 0.4, 0.6, 0.6]), "x/objects/keypoints": [[points]]},
            rejects={"images/a.png#1": "empty_box"}, says="a .txt of boxes and 2 keypoints for",
        )
        for shape, values, points in (
            ("[2, 3]", "0.75 0.875 2 0.1 0.1 0", [[0.75, 0.875, 2], [0, 0, 0]]),
            ("[2, 3]", "1.25 0.5 1 0 0 2", [[1.25, 0.5, 1], [0, 0, 2]]),
            ("[2, 2]", "0.75 0.875 -1 0", [[0.75, 0.875, 2], [0, 0, 0]]),
        )
    },
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_the_feature_of_keypoints(tmp_path: Path) -> None:
    case = of_lines("1 0.5 0.5 0.2 0.2 0.75 0.875 2 0.1", "kpt_shape: [2, 2]\n")
    feature = case.listed(tmp_path).source.features[-1]
    assert (feature.kind, feature.shape) == (FeatureKind.KEYPOINTS, (None, 2, 3))


@pytest.mark.parametrize(("line", "told"), [
    ("3 0.5 0.5 0.1 0.1", "invalid class 3: there are 3, counted from 0"),
    *((f"{name} 0.5 0.5 0.1 0.1", f"invalid class {name}") for name in ("-1", "1.5", "nan")),
    ("cat 0.5 0.5 0.1 0.1", "could not convert string to float: 'cat'"),
    *((f"1{values}", "expected `class x y width height`, or")
      for values in ("", " 0.5 0.5 0.1", " 0.5 0.5 0.1 0.1 0.9", " 0.1" * 7)),
    ("1 320 240 10 10",
     "320 is not a fraction of the image's width or height: divide pixels by them"),
    *((f"1 0.5 0.5 0.1 {edge}", "is not a fraction") for edge in ("inf", "nan", "-0.5", "9" * 400)),
    ("1 nan 0.5 0.1 0.1 0.9 0.9", "nan is not a fraction"), ("\0", "could not convert"),
])  # fmt: skip
def test_invalid_lines(line: str, told: str) -> None:
    with pytest.raises(BadLabel, match=r"^line 3, ") as raised:
        list(parse_yolo(f"0 0.5 0.5 0.1 0.1\n\n{line}\n".encode(), det.CLASSES))
    assert told in str(raised.value)


@pytest.mark.parametrize("values", [" 0.1 0.1", " 0.1 0.1 2 0.1 0.1", " 1 1 1 1 1 1 1"])
def test_other_keypoints_than_stated(values: str) -> None:
    told = "expected 2 keypoints of 3 values after the box, as the kpt_shape of"
    with pytest.raises(BadLabel, match=told):
        list(parse_yolo(f"1 0.5 0.5 0.2 0.2{values}".encode(), det.CLASSES, (2, 3)))


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
    ("names: " + "[" * 3000, "data.yaml is not valid YAML: it is nested too deeply"),
    ("names: [[cat], dog]", r"not a valid data.yaml: Expected `str`, got `array` - at `\$.names"),
    ("names: cat", r"Expected `object \| array`, got `str` - at `\$.names`"),
    ("nc: 2\nnames: [a, b, c]", "nc is 2, but there are 3 names"),
    ("names: {0: a, 2: b}", "names has 2 classes, but none with number 1"),
    ("names: [a, '']", "class 1 has no name"),
    *((f"{YAML}kpt_shape: {shape}", r"data\.yaml is not a valid data.yaml: .* at `\$.kpt_shape")
      for shape in ("17", "[17]", "[17, 4]", "[0, 3]", "[1e9, 3]")),
])  # fmt: skip
def test_other_configs_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_config(text, "data.yaml")
