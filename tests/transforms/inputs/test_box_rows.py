"""Tables with a row for each box: their rows become the objects of images, in any order of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind
from shardwright.transforms.inputs import box_rows
from shardwright.transforms.inputs.formats.box_tables import Objects
from shardwright.transforms.inputs.formats.tables import open_label_table
from shardwright.transforms.inputs.source import SourceRequest
from tests.support.detection_makers import (
    CLASSES,
    HEIGHT,
    OBJECTS,
    WIDTH,
    coco,
    listed,
    picture,
    pictures,
    reasons,
    write,
)
from tests.support.input_forms import csv_of
from tests.support.listings import NONE, Rows, columns_of
from tests.support.random_tests import examples

# datitran/raccoon_dataset, data/raccoon_labels.csv.
RACCOON = """\
filename,width,height,class,xmin,ymin,xmax,ymax
117.jpg,640,448,raccoon,100,124,266,324
118.jpg,448,297,raccoon,109,31,307,297
117.jpg,640,448,raccoon,342,101,570,297
"""
# Shenggan/BCCD_Dataset, test.csv: no size, and a column of classes with its own name.
BCCD = """\
filename,cell_type,xmin,xmax,ymin,ymax
117.jpg,WBC,260,491,177,376
117.jpg,RBC,78,184,336,435
118.jpg,WBC,68,286,315,480
"""
# Kaggle's global-wheat-detection, train.csv: no class, and ids in place of paths.
WHEAT = """\
image_id,width,height,bbox,source
117,1024,1024,"[834.0, 222.0, 56.0, 36.0]",usask_1
118,1024,1024,"[226.0, 548.0, 130.0, 58.0]",usask_1
"""
# Open Images, oidv6-train-annotations-bbox.csv: fractions, codes of classes, and ids.
OPEN_IMAGES = """\
ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf
000002b66c9c498e,xclick,/m/01g317,1,0.012500,0.195312,0.148438,0.587500,0,1,0
000002b66c9c498e,xclick,/m/01g317,1,0.025000,0.276563,0.714063,0.948438,0,1,0
"""


def by_id(rows: Rows) -> dict[str, Rows]:
    return {row["id"]: row for row in sorted(rows, key=lambda row: row["id"])}


def fractions(width: int, height: int, *corners: float) -> Any:
    x_min, y_min, x_max, y_max = corners
    return pytest.approx([y_min / height, x_min / width, y_max / height, x_max / width], abs=1e-6)


@pytest.mark.parametrize(("table", "label", "size", "box", "values"), [
    (RACCOON, None, (640, 448), (342, 101, 570, 297), {"label": ["raccoon"] * 2}),
    # The images' headers have the size, and --label-column names the class.
    (BCCD, "cell_type", (640, 480), (78, 336, 184, 435), {"label": ["WBC", "RBC"]}),
    (WHEAT, None, (1024, 1024), (834, 222, 890, 258), {"source": ["usask_1"]}),
])  # fmt: skip
def test_tables_as_they_are_found(
    tmp_path: Path, table: str, label: str | None, size: Any, box: Any, values: Any
) -> None:
    images = {f"images/{name}.jpg": picture(640, 480) for name in (117, 118)}
    write(tmp_path, {"t.csv": table, **images})
    source, rows, rejects = listed(tmp_path / "t.csv", columns={**NONE, "label": label})
    row = by_id(rows)["117.jpg"]
    assert row["x/objects/bbox"][-1] == fractions(*size, *box)
    assert {name: row[f"x/objects/{name}"] for name in values} == values
    assert (row["stated_size"], len(rows), rejects) == ([size[1], size[0]], 2, [])
    features = {one.name.removeprefix("objects/") for one in source.features}
    assert (features, source.label_paths_root) == ({"bbox", *values}, f"{tmp_path}/images")
    assert "csv with a row for each box (" in source.description


@pytest.mark.parametrize("suffix", [".jpg", ".png", ""])
def test_open_images(tmp_path: Path, suffix: str) -> None:
    name = f"000002b66c9c498e{suffix}"
    write(tmp_path, {"boxes.csv": OPEN_IMAGES, name: picture()})
    source, [row], rejects = listed(tmp_path / "boxes.csv")
    assert row["id"] == name
    assert row["x/objects/bbox"][0] == fractions(1, 1, 0.0125, 0.148438, 0.195312, 0.5875)
    assert row["x/objects/label"] == ["/m/01g317"] * 2
    assert (row["x/objects/IsTruncated"], row["x/objects/Confidence"]) == ([1, 1], [1, 1])
    assert (row["stated_size"], rejects) == (None, [])
    assert {one.sequence for one in source.features} == {"objects"}


@pytest.mark.parametrize(("header", "row"), [
    ("x,y,width,height", "4,2,8,10"), ("X,Y,W,H", "4,2,8,10"), ("x_1,y_1,width,height", "4,2,8,10"),
    ("x0,y0,x1,y1", "4,2,12,12"), ("left,top,right,bottom", "4,2,12,12"),
    ("width,height,bbox_x,bbox_y,bbox_width,bbox_height", "40,20,4,2,8,10"),
    ("width,height,xc,yc,w,h", "40,20,8,7,8,10"), ("box x center,box y center,w,h", ".2,.35,.2,.5"),
    ("bounding_box.xmin,bounding_box.ymin,w,h", ".1,.1,.2,.5"),
])  # fmt: skip
def test_names_of_the_columns_of_boxes(tmp_path: Path, header: str, row: str) -> None:
    """Of a corner or a center and two sides, too; a row without sides has only some values."""
    text = f"image,{header}\na.png,{row}\nb.png,{row.rpartition(',')[0]},\n"
    write(tmp_path, {"t.csv": text, "a.png": picture(), "b.png": picture()})
    _, [found], [reject] = listed(tmp_path / "t.csv")
    assert found["x/objects/bbox"] == [fractions(WIDTH, HEIGHT, 4, 2, 12, 12)]
    assert (reject.id, "only some of" in reject.detail) == ("b.png", True)


COLUMNS = "image,xmin,ymin,xmax,ymax,label\n"


@pytest.mark.parametrize(("table", "reason", "told"), [
    ("a.png,x,2,12,12,cat\na.png,4,2,12,12,cat\n", "bad_value", "row 0: xmin is 'x', not a number"),
    ("a.png,4,,12,12,cat\n", "bad_value", "only some of xmin, ymin, xmax, ymax have a value"),
    ("a.png,4,2,12,12,\n", "bad_value", "row 0: label has no class in UTF-8 for its box"),
    ("a.png,4,2,12,12,cat\na.png,.1,.1,.2,.3,cat\n", "bad_value",
     "row 1: its box is a fraction of the image, and those of other rows are in pixels"),
    ("gone.png,4,2,12,12,cat\n", "missing_file", "there is no such file"),
    (",4,2,12,12,cat\n", "bad_value", "row 0: the image column 'image' is empty"),
    ("a.png,4,2,12,12,cat,train\na.png,4,2,12,12,cat,test\n", "bad_value",
     "its rows have several values of split, 'train' and 'test'"),
    ("a.png,4,2,12,12,cat,,40,20\na.png,4,2,12,12,cat,,20,40\n", "bad_value",
     "several values of height, 20.0 and 40.0"),
])  # fmt: skip
def test_bad_rows(tmp_path: Path, table: str, reason: str, told: str) -> None:
    """A row that cannot be read rejects its image, as a bad annotation of COCO does."""
    lines = [f"{COLUMNS.strip()},split,width,height"]
    for row in (*table.splitlines(), "b.png,4,2,12,12,cat"):
        lines.append(",".join([*row.split(","), *["train", "40", "20"][row.count(",") - 5 :]]))
    write(tmp_path, {"t.csv": "\n".join(lines), "a.png": picture(), "b.png": picture()})
    _, rows, [reject] = listed(tmp_path / "t.csv")
    assert [row["id"] for row in rows] == ["b.png"]
    assert (str(reject.reason), told in reject.detail) == (reason, True), reject.detail


def test_boxes_that_are_none(tmp_path: Path) -> None:
    """A row without a box says that its image has none.

    A box without area is left out and listed; an image with an invalid box is rejected.
    """
    lines = "a.png,,,,,nothing", "b.png,3,2,3,12,cat", "c.png,9,2,3,12,cat", "d.png,4,2,inf,12,cat"
    text = COLUMNS + "".join(f"{line}\n" for line in lines)
    write(tmp_path, {"t.csv": text, **{f"{name}.png": picture() for name in "abcd"}})
    _, rows, rejects = listed(tmp_path / "t.csv")
    assert [(row["id"], row["x/objects/bbox"]) for row in rows] == [("a.png", []), ("b.png", [])]
    assert sorted(reasons(rejects)) == [
        ("b.png#1", "empty_box"), ("c.png", "bad_value"), ("d.png", "bad_value"),
    ]  # fmt: skip


@pytest.mark.parametrize(("header", "row", "told"), [
    ("image,label,class,xmin,ymin,xmax,ymax,bbox", "a.png,cat,b,4,2,12,12,x",
     "column 'bbox' would be the feature 'objects/bbox'"),
    ("image,xmin,ymin,xmax,ymax,width,height", "a.png,4,2,12,12,8,10",
     "the columns height and width hold heights and widths of boxes"),
    ("image,x,y,width,height", "a.png,4,2,40,20", "'x', 'y' are no points of boxes: rename"),
    ("image,x,y,width,height", "a.png,.4,.2,.2,.3", "'x' and 'y' may be their corners or their"),
])  # fmt: skip
def test_columns_that_clash(tmp_path: Path, header: str, row: str, told: str) -> None:
    write(tmp_path, {"t.csv": f"{header}\n{row}\n", "a.png": picture()})
    with pytest.raises((UsageError, BuildError), match=told):
        listed(tmp_path / "t.csv")


def test_columns_that_are_no_boxes(tmp_path: Path) -> None:
    """Those that a schema names, and outlines."""
    write(tmp_path, {"t.csv": f"{COLUMNS}a.png,4,2,12,12,cat\n", "a.png": picture()})
    _, [row], _ = listed(tmp_path / "t.csv", kinds={"xmin": FeatureKind.INT64})
    assert (row["x/xmin"], row["label"]) == (4, "cat")
    write(tmp_path, {"t.csv": "image,x1,y1,x2,y2,x3,y3\na.png,1,2,3,4,5,6\n"})
    assert columns_of(listed(tmp_path / "t.csv")[1], "x/x1", "x/y3") == [(1, 6)]


Object = tuple[str, int, int, int, int]
LISTS = st.lists(
    st.tuples(
        st.sampled_from(CLASSES), st.integers(2, 39), st.integers(0, 19), st.integers(0, 50),
        st.integers(0, 30),
    ), max_size=5
)  # fmt: skip


@examples(10)
@given(
    objects=st.fixed_dictionaries(dict.fromkeys(OBJECTS, LISTS)),
    form=st.sampled_from(["csv", "jsonl", "parquet", "bbox"]),
    has_size=st.booleans(),
    buckets=st.sampled_from([24, 2]),
    data=st.data(),
)
def test_the_same_as_coco_in_any_order(
    objects: Mapping[str, list[Object]],
    form: str,
    has_size: bool,
    buckets: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = write(tmp_path_factory.mktemp("boxes"), pictures("."))
    size = {"width": WIDTH, "height": HEIGHT} if has_size else {}
    rows: list[dict[str, Any]] = []
    annotations = []
    for number, name in enumerate(OBJECTS):
        for label, x, y, w, h in [*objects[name], ("cat", 5, 5, 5, 5)]:
            box: dict[str, Any] = {"xmin": x, "xmax": x + w, "ymin": y, "ymax": y + h}
            box = {"bbox": [x, y, w, h]} if form == "bbox" else box
            rows.append({"file_name": f"{name}.png", **size, "class": label, **box})
            more = {"category_id": 10 * CLASSES.index(label), "bbox": [x, y, w, h]}
            annotations.append({"id": len(rows), "image_id": number, **more})
    rows = data.draw(st.permutations(rows))
    names = {"csv": "t.csv", "jsonl": "t.jsonl", "parquet": "t.parquet", "bbox": "t.csv"}
    table = root / names[form]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), table)
    else:
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        table.write_text(lines if form == "jsonl" else csv_of(rows))
    write(root, {"c.json": json.dumps(coco(annotations=annotations))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_rows, "_BUCKET_BITS", buckets)
        _, of_table, dropped = listed(table)
    _, of_coco, same = listed(root / "c.json")

    def of(rows: Rows) -> list[Any]:
        return [
            (row["id"], row["stated_size"], sorted(zip(
                row["x/objects/label"], map(tuple, row["x/objects/bbox"]), strict=True)))
            for row in by_id(rows).values()
        ]  # fmt: skip

    assert len(of_table) == len(OBJECTS)
    assert of(of_table) == of(of_coco)
    assert len(dropped) == len(same)


def test_rows_in_several_files(tmp_path: Path) -> None:
    """The rows of an image may be in several files; classes of whole numbers stay numbers."""
    files = {f"t-{n}.csv": f"{COLUMNS}a.png,4,2,12,12,{label}\n" for n, label in enumerate((10, 9))}
    _, [row], rejects = listed(f"{write(tmp_path, {**files, 'a.png': picture()})}/t-*.csv")
    assert (row["x/objects/label"], rejects) == ([10, 9], [])


def test_a_table_of_labels(tmp_path: Path) -> None:
    request = SourceRequest(str(write(tmp_path, {"t.csv": RACCOON}) / "t.csv"), "--labels")
    with pytest.raises(UsageError, match="give it as INPUT, with --image-root"):
        open_label_table(request, key="id", root=None, finder=Objects())
