"""YOLO's text labels as INPUT: layouts, names of classes, splits, polygons, and lines that are none."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from tests.buckets import Bucket
from tests.build_helpers import build, reasons_of
from tests.detection_makers import (
    CLASSES,
    OBJECTS,
    expected_boxes,
    listed,
    picture,
    pictures,
    reasons,
    records_of,
    upload,
    write,
    yolo_txt,
)
from transforms.inputs.annotations.plain_yaml import read_plain_yaml
from transforms.inputs.annotations.yolo_labels import BadLine, parse_yolo, read_config

YAML = "nc: 3\nnames: [cat, dog, zebra]\n"


def txts(folder: str, names: list[str] = list(OBJECTS)) -> dict[str, str]:  # noqa: B006 - read only
    """Label files; images without objects have none."""
    return {f"{folder}/{name}.txt": yolo_txt(OBJECTS[name]) for name in names if OBJECTS[name]}


def ultralytics(root: Path) -> Path:
    write(
        root, {**pictures("images/train2017", ["a", "b"]), **txts("labels/train2017", ["a", "b"])}
    )
    write(root, {**pictures("images/val2017", ["ü c"]), **txts("labels/val2017", ["ü c"])})
    return write(
        root, {"data.yaml": f"path: .\ntrain: images/train2017\nval: images/val2017\n{YAML}"}
    )


@pytest.mark.parametrize("given", ["", "data.yaml"])
def test_the_layout_of_ultralytics(tmp_path: Path, given: str) -> None:
    source, rows, rejects = listed(ultralytics(tmp_path) / given)
    assert (
        source.describe()
        == f"YOLO labels at {tmp_path}: images with a .txt of boxes for each, 3 classes, splits from data.yaml"
    )
    assert (source.states_splits, source.features[1].names, rejects) == (True, CLASSES, [])
    assert [(row["id"], row["split"]) for row in rows] == [
        ("images/train2017/a.png", "train"), ("images/train2017/b.png", "train"), ("images/val2017/ü c.png", "validation")
    ]  # fmt: skip
    for row, name in zip(rows, OBJECTS, strict=True):
        assert row["x/objects/bbox"] == [
            pytest.approx(box, abs=2e-6) for box in expected_boxes(name)
        ]
        assert row["x/objects/label"] == [label for label, *_ in OBJECTS[name]]
        assert row["x/objects/segmentation"] == [""] * len(OBJECTS[name])
        assert (row["uri"], row["num_bytes"]) == (
            f"{tmp_path}/{row['id']}",
            (tmp_path / row["id"]).stat().st_size,
        )


@pytest.mark.parametrize(
    ("images", "labels", "splits"),
    [
        ("images", "labels", None),
        ("images/{}", "labels/{}", ("train", "validation")),
        ("{}/images", "{}/labels", ("train", "validation")),
        ("{}", "{}", ("train", "validation")),
        (".", ".", None),
        ("Images/{}", "Labels/{}", ("train", "validation")),
    ],
)
def test_layouts(tmp_path: Path, images: str, labels: str, splits: tuple[str, str] | None) -> None:
    for split, name in (("TRAIN", "a"), ("valid", "ü c")):
        write(
            tmp_path,
            {**pictures(images.format(split), [name]), **txts(labels.format(split), [name])},
        )
    source, rows, rejects = listed(write(tmp_path, {"classes.txt": "cat\ndog\nzebra\n"}))
    assert (source.states_splits, rejects) == (splits is not None, [])
    assert {(*row["x/objects/label"], row["split"]) for row in rows} == {
        ("zebra", "cat", splits and splits[0]), ("dog", splits and splits[1])
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.yaml", YAML),
        ("dataset.yaml", "names:\n  0: cat\n  1: dog\n  2: 'zebra'  # striped\n"),
        ("my set.yml", "names:\n- cat\n- dog\n- zebra\n"),
        ("data.yaml", "names: ['cat',\n  'dog', \"zebra\"]\ntrain: x"),
        ("data.yaml", "names: {0: cat, 2: zebra, 1: dog}"),
        ("classes.txt", "\ufeffcat\r\ndog\r\nzebra\r\n\r\n"),
        ("obj.names", "cat\ndog\nzebra"),
        ("labels/classes.txt", "cat\ndog\nzebra"),
    ],
)
def test_names_of_classes(tmp_path: Path, name: str, text: str) -> None:
    source, rows, rejects = listed(
        write(tmp_path, {**pictures("images"), **txts("labels"), name: text})
    )
    assert (source.features[1].names, rows[0]["x/objects/label"], rejects) == (
        CLASSES,
        ["zebra", "cat"],
        [],
    )


@pytest.mark.parametrize("store", ["s3_bucket", "gcs_bucket"])
def test_in_stores(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> None:
    bucket: Bucket = request.getfixturevalue(store)
    uri = upload(ultralytics(tmp_path), bucket, "data/yolo")
    _, local, _ = listed(tmp_path)
    for place in (uri, f"{uri}/data.yaml"):
        source, rows, rejects = listed(place, bucket.options())
        assert (source.describe().startswith(f"YOLO labels at {uri}: "), rejects) == (True, [])
        same = [key for key in local[0] if key not in ("uri", "etag")]
        assert [{key: row[key] for key in same} for row in rows] == [
            {key: row[key] for key in same} for row in local
        ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("3 0.5 0.5 0.1 0.1", "the class is 3, and there are 3, counted from 0"),
        ("-1 0.5 0.5 0.1 0.1", "the class is -1"),
        ("1.5 0.5 0.5 0.1 0.1", "the class is 1.5"),
        ("nan 0.5 0.5 0.1 0.1", "the class is nan"),
        ("cat 0.5 0.5 0.1 0.1", "could not convert string to float: 'cat'"),
        ("1 0.5 0.5 0.1", "it has neither `class x y width height` nor"),
        ("1", "it has neither"),
        ("1 0.5 0.5 0.1 0.1 0.9", "it has neither"),
        ("1 0.5 0.5 0.1 0.1 0.1 0.1 0.1", "it has neither"),
        (
            "1 320 240 10 10",
            "320 is no fraction of the image's width or height: divide pixels by them",
        ),
        ("1 0.5 0.5 0.1 inf", "inf is no fraction"),
        ("1 0.5 -0.5 0.1 0.1", "-0.5 is no fraction"),
        ("1 0.5 0.5 0.1 " + "9" * 400, "is no fraction"),
        ("1,0.5,0.5,0.1,0.1", "could not convert"),
        ("\0", "could not convert"),
    ],
)
def test_a_line_that_cannot_be_read_rejects_its_image(tmp_path: Path, line: str, told: str) -> None:
    files = {
        **pictures("images"),
        **txts("labels"),
        "data.yaml": YAML,
        "labels/a.txt": f"0 0.5 0.5 0.1 0.1\n\n{line}\n",
    }
    _, rows, rejects = listed(write(tmp_path, files))
    assert ([row["id"] for row in rows], reasons(rejects)) == (
        ["images/b.png", "images/ü c.png"],
        [("images/a.png", "bad_value")],
    )
    assert rejects[0].detail.startswith("labels/a.txt, line 3, ")
    assert told in rejects[0].detail


def test_boxes_without_area_and_beyond_the_edge(tmp_path: Path) -> None:
    lines = "0 0.5 0.5 0 0.1\n2 0.95 0.5 0.2 0.5\n1 nan 0.5 0.1 0.1\n"
    _, [row], rejects = listed(
        write(tmp_path, {"images/a.png": picture(), "labels/a.txt": lines, "data.yaml": YAML})
    )
    assert (row["x/objects/bbox"], row["x/objects/label"]) == (
        [pytest.approx([0.25, 0.85, 0.75, 1])],
        ["zebra"],
    )
    assert reasons(rejects) == [("images/a.png#1", "empty_box"), ("images/a.png#3", "empty_box")]


def test_polygons_are_kept_as_text_with_the_box_of_their_extent(tmp_path: Path) -> None:
    lines = "1 0.1 0.2 0.5 0.25 0.3 0.75\n0 0.5 0.5 0.5 0.5\n"
    _, [row], rejects = listed(
        write(tmp_path, {"images/a.png": picture(), "labels/a.txt": lines, "data.yaml": YAML})
    )
    assert row["x/objects/bbox"] == [
        pytest.approx([0.2, 0.1, 0.75, 0.5]),
        pytest.approx([0.25, 0.25, 0.75, 0.75]),
    ]
    assert [text and json.loads(text) for text in row["x/objects/segmentation"]] == [
        [[0.1, 0.2, 0.5, 0.25, 0.3, 0.75]],
        "",
    ]
    assert rejects == []


def test_keypoints_are_no_polygons(tmp_path: Path) -> None:
    files = {
        "images/a.png": picture(),
        "labels/a.txt": "1 0.5 0.5 0.2 0.2 0.9 0.9 2 0.1 0.1 0",
        "data.yaml": f"{YAML}kpt_shape: [2, 3]\n",
    }
    source, [row], _ = listed(write(tmp_path, files))
    assert (row["x/objects/bbox"], row["x/objects/segmentation"]) == (
        [pytest.approx([0.4, 0.4, 0.6, 0.6])],
        [""],
    )
    assert source.describe().endswith("; keypoints are left out")


@pytest.mark.parametrize(
    ("places", "splits"),
    [
        ("train: images/first\nval: images/second\n", ["train", "validation"]),
        (
            "train: ../images/first/\nval: ['./images/second', images/third]\n",
            ["train", "validation"],
        ),
        ("train: ROOT/images/first\ntest: ROOT/images/second\n", ["train", "test"]),
        ("train: one.txt\nval: two.txt\n", ["train", "validation"]),
        ("train: images/first\nval: images/first\n", None),
        ("train: images/first\nval:\n", None),
    ],
)
def test_splits_of_data_yaml(tmp_path: Path, places: str, splits: list[str] | None) -> None:
    write(tmp_path, {**pictures("images/first", ["a"]), **pictures("images/second", ["ü c"])})
    write(tmp_path, {**txts("labels/first", ["a"]), **txts("labels/second", ["ü c"])})
    lists = (
        {"one.txt": "./images/first/a.png\n", "two.txt": f"{tmp_path}/images/second/ü c.png\n"}
        if "one.txt" in places
        else {}
    )
    source, rows, rejects = listed(
        write(tmp_path, {**lists, "data.yaml": YAML + places.replace("ROOT", str(tmp_path))})
    )
    assert ([row["split"] for row in rows], source.states_splits, rejects) == (
        splits or [None, None],
        splits is not None,
        [],
    )


def test_a_data_yaml_that_is_elsewhere(tmp_path: Path) -> None:
    ultralytics(tmp_path / "sets" / "mine")
    write(tmp_path, {"yamls/x.yaml": f"path: ../sets/mine\n{YAML}", "yamls/y.yaml": YAML})
    assert len(listed(tmp_path / "yamls" / "x.yaml")[1]) == 3
    assert len(listed(tmp_path / "yamls" / "y.yaml", image_root=f"{tmp_path}/sets/mine")[1]) == 3


def test_what_else_rejects(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **pictures("images"),
            **txts("labels"),
            "data.yaml": YAML,
            "labels/left.txt": "0 0.5 0.5 1 1",
            "README.txt": "hello",
        },
    )
    write(
        tmp_path,
        {
            "images/empty.png": b"",
            "images/ü c.txt": "",
            "labels/train.cache": "x",
            "labels/b.txt": "",
        },
    )
    _, rows, rejects = listed(tmp_path)
    assert [row["id"] for row in rows] == ["images/a.png", "images/b.png"]
    assert sorted(reasons(rejects)) == [
        ("README.txt", "other_file"),
        ("images/empty.png", "empty_file"),
        ("images/ü c.png", "bad_value"),
        ("labels/left.txt", "missing_file"),
        ("labels/train.cache", "other_file"),
    ]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {},
            "nothing names their classes: add data.yaml with `names`, or classes.txt with one a line",
        ),
        ({"data.yaml": "nc: 2\nnames: [a, b, c]"}, "nc is 2, and there are 3 names"),
        ({"data.yaml": "names: {0: a, 2: b}"}, "names has 2 classes, and none of the number 1"),
        ({"data.yaml": "names: [a, b, a]"}, "two classes are called 'a', or one has no name"),
        ({"data.yaml": "names: [a, '']"}, "two classes are called '', or one has no name"),
    ],
)
def test_classes_that_nobody_can_tell(tmp_path: Path, files: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        listed(write(tmp_path, {**pictures("images"), **txts("labels"), **files}))
    assert told in str(raised.value)


def test_what_is_not_taken_for_yolo(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.png": picture(),
            "a.txt": "1 2 3 4 5 once I caught a fish alive",
            "labels/x.txt": "1 320 240 10 10",
        },
    )
    assert listed(tmp_path)[0].describe() == f"a folder at {tmp_path}"
    with pytest.raises(UsageError, match="nothing names their classes"):
        listed(tmp_path, input_format="yolo")
    with pytest.raises(
        UsageError, match=r"is no folder: give that of images/ and labels/, or data\.yaml"
    ):
        listed(tmp_path / "a.txt", input_format="yolo")


@given(st.binary(max_size=200))
def test_any_bytes_are_objects_or_a_bad_line(data: bytes) -> None:
    with contextlib.suppress(BadLine):
        assert all(0 <= item.label < 3 for item in parse_yolo(data, num_classes=3))


@given(st.text(max_size=300))
def test_any_text_is_read_as_yaml_of_some_kind(text: str) -> None:
    assert all(isinstance(key, str) for key in read_plain_yaml(text))


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.booleans(),
)
def test_names_in_quotes_come_back(names: list[str], flow: bool) -> None:
    quoted = ["'" + name.replace("'", "''") + "'" for name in names]
    text = (
        f"names: [{', '.join(quoted)}]"
        if flow
        else "names:\n" + "".join(f"- {name}\n" for name in quoted)
    )
    assert read_config(text, "data.yaml").names == tuple(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1 # one\n# b: 2\n\nc:  x # y#z\nd: x#y\n", {"a": "1", "c": "x", "d": "x#y"}),
        ("a: 'it''s' # it's\nb: \"\\u00e4 \\\"q\\\"\"\n", {"a": "it's", "b": 'ä "q"'}),
        ("a:\n  - x\n  -  y # z\nb: dog's # best\n", {"a": ["x", "y"], "b": "dog's"}),
        ("a: [\n'x',\n'y, z'\n]\nb: 2", {"a": ["x", "y, z"], "b": "2"}),
        (
            "a: {x: 1, 'y: z': 2}\nb:\n  0: p\n  -1: q\n",
            {"a": {"x": "1", "y: z": "2"}, "b": {"0": "p", "-1": "q"}},
        ),
        ("---\nurl: https://x/y?z#w\n'a b': c\n", {"url": "https://x/y?z#w", "a b": "c"}),
        (
            "download: |\n  import os\n  x: 1\nnames: [a]\n",
            {"download": "| import os x: 1", "names": ["a"]},
        ),
        ("a:\nb: 1", {"a": "", "b": "1"}),
        ("a: [open, 1", {"a": ["open", "1"]}),
        ("", {}),
    ],
)
def test_plain_yaml(text: str, expected: dict[str, Any]) -> None:
    assert read_plain_yaml(text) == expected


def test_a_whole_build(tmp_path: Path) -> None:
    write(
        ultralytics(tmp_path / "in"),
        {"images/val2017/bad.png": picture(), "labels/val2017/bad.txt": "9 0.5 0.5 0.1 0.1"},
    )
    assert (
        build(tmp_path / "in" / "data.yaml", tmp_path / "out", "--max-reject-fraction", "0.3") == 0
    )
    records = records_of(tmp_path / "out")
    assert {key: record["objects/label"] for key, record in records.items()} == {
        "images/train2017/a.png": [2, 0], "images/train2017/b.png": [], "images/val2017/ü c.png": [1]
    }  # fmt: skip
    assert records["images/val2017/ü c.png"]["objects/bbox"] == pytest.approx(
        expected_boxes("ü c")[0], abs=2e-6
    )
    assert reasons_of(tmp_path / "out") == {"images/val2017/bad.png": "bad_value"}
