"""Tables of boxes: a row or a struct for each box becomes an object of its image, as in COCO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
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
    LABELS,
    OBJECTS,
    WIDTH,
    coco,
    expected_boxes,
    picture,
    pictures,
)
from tests.support.input_forms import csv_of
from tests.support.listing_cases import Case, by_case, listing, write_files
from tests.support.listings import Rows
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
117,xclick,/m/01g317,1,0.012500,0.195312,0.148438,0.587500,0,1,0
117,xclick,/m/01g317,1,0.025000,0.276563,0.714063,0.948438,0,1,0
"""


def fractions(width: int, height: int, *corners: float) -> Any:
    x_min, y_min, x_max, y_max = corners
    return pytest.approx([y_min / height, x_min / width, y_max / height, x_max / width], abs=1e-6)


@pytest.mark.parametrize(("table", "label", "size", "box", "values"), [
    (RACCOON, None, (640, 448), (342, 101, 570, 297), {"label": ["raccoon"] * 2}),
    # The images' headers have the size, and --label-column names the class.
    (BCCD, "cell_type", (640, 480), (78, 336, 184, 435), {"label": ["WBC", "RBC"]}),
    (WHEAT, None, (1024, 1024), (834, 222, 890, 258), {"source": ["usask_1"]}),
    (OPEN_IMAGES, None, None, (0.025, 0.714063, 0.276563, 0.948438), {
        "label": ["/m/01g317"] * 2, "Confidence": [1, 1], "IsTruncated": [1, 1],
        "Source": ["xclick"] * 2, "IsOccluded": [0, 0], "IsGroupOf": [0, 0],
    }),
])  # fmt: skip
def test_tables_as_they_are_found(
    tmp_path: Path, table: str, label: str | None, size: Any, box: Any, values: Any
) -> None:
    names = ["117.jpg"] if size is None else ["117.jpg", "118.jpg"]
    images = {f"images/{name}": picture(640, 480) for name in names}
    found = listing(write_files(tmp_path, {"t.csv": table, **images}) / "t.csv",
                    columns={"label": label})  # fmt: skip
    row = min(found.rows, key=lambda row: row["id"])
    assert row["x/objects/bbox"][-1] == fractions(*(size or (1, 1)), *box)
    assert {name: row[f"x/objects/{name}"] for name in values} == values
    assert (row["stated_size"], found.rejects) == (size and [size[1], size[0]], [])
    assert sorted(found.of("id")) == [(name,) for name in names]
    features = {one.name.removeprefix("objects/") for one in found.source.features}
    assert features == {"bbox", *values}
    assert {one.sequence for one in found.source.features} == {"objects"}
    assert found.source.label_paths_root == f"{tmp_path}/images"
    assert "csv with a row for each box (" in found.source.description


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
    Case(
        {"t.csv": text, "a.png": picture(), "b.png": picture()}, "t.csv",
        rows={"x/objects/bbox": [[fractions(WIDTH, HEIGHT, 4, 2, 12, 12)]]},
        rejects={"b.png": "bad_value: row 1: only some of"},
    ).check(tmp_path)  # fmt: skip


COLUMNS = "image,xmin,ymin,xmax,ymax,label"
GOOD = "4,2,12,12,cat"
ALL = {f"{name}.png": picture() for name in "abcd"}


def of_table(*lines: str, columns: str = COLUMNS, **expected: Any) -> Case:
    return Case({"t.csv": "\n".join([columns, *lines, ""]), **ALL}, "t.csv", **expected)


def rejected(text: str, *lines: str, more: str = "", image: str = "a.png") -> Case:
    """Return a table of which these rows reject an image, as a bad annotation of COCO does."""
    last = f"b.png,{GOOD}{',' * more.count(',')}"
    return of_table(
        *lines, last, columns=COLUMNS + more, rows={"id": ["b.png"]}, rejects={image: text}
    )


CASES = {
    "no number": rejected("bad_value: row 0: xmin is 'x', not a number",
                          "a.png,x,2,12,12,cat", f"a.png,{GOOD}"),
    "some values": rejected("bad_value: row 0: only some of xmin, ymin, xmax, ymax have a value",
                            "a.png,4,,12,12,cat"),
    "no class": rejected("bad_value: row 0: label has no class in UTF-8 for its box",
                         "a.png,4,2,12,12,"),
    "fractions": rejected(
        "bad_value: row 1: its box is a fraction of the image, and those of other rows are in "
        "pixels", f"a.png,{GOOD}", "a.png,.1,.1,.2,.3,cat"),
    "a missing file": rejected("missing_file: listed in the table, but there is no such file",
                               f"gone.png,{GOOD}", image="gone.png"),
    "no image": rejected("bad_value: row 0: the image column 'image' is empty", f",{GOOD}",
                         image=""),
    "splits": rejected("bad_value: its rows have several values of split, 'train' and 'test'",
                       f"a.png,{GOOD},train", f"a.png,{GOOD},test", more=",split"),
    "sizes": rejected("bad_value: its rows have several values of height, 20.0 and 40.0",
                      f"a.png,{GOOD},40,20", f"a.png,{GOOD},20,40", more=",width,height"),
    # A row without a box says that its image has none. A box without area is left out and listed.
    "no boxes": of_table(
        "a.png,,,,,nothing", "b.png,3,2,3,12,cat", "c.png,9,2,3,12,cat", "d.png,4,2,inf,12,cat",
        rows={"id": ["a.png", "b.png"], "x/objects/bbox": [[], []]},
        rejects={"b.png#1": "empty_box", "c.png": "bad_value", "d.png": "bad_value"},
    ),
    "two of one name": of_table(
        "a.png,cat,b,4,2,12,12,x", columns="image,label,class,xmin,ymin,xmax,ymax,bbox",
        error=UsageError("column 'bbox' would be the feature 'objects/bbox'")),
    "sizes of boxes": of_table(
        "a.png,4,2,12,12,8,10", columns="image,xmin,ymin,xmax,ymax,width,height",
        error=UsageError("the columns height and width hold heights and widths of boxes")),
    "no points": of_table(
        "a.png,4,2,40,20", columns="image,x,y,width,height",
        error=UsageError("'x', 'y' are no points of boxes: rename")),
    "corners or centers": of_table(
        "a.png,.4,.2,.2,.3", columns="image,x,y,width,height",
        error=BuildError("'x' and 'y' may be their corners or their")),
    "columns of a schema": of_table(
        f"a.png,{GOOD}", options={"kinds": {"xmin": FeatureKind.INT64}},
        rows={"x/xmin": [4], "label": ["cat"]}),
    "outlines": of_table("a.png,1,2,3,4,5,6", columns="image,x1,y1,x2,y2,x3,y3",
                         rows={"x/x1": [1], "x/y3": [6]}),
    # Classes of whole numbers stay numbers.
    "rows in several files": Case(
        {**{f"t-{n}.csv": f"{COLUMNS}\na.png,4,2,12,12,{label}\n"
            for n, label in enumerate((10, 9))}, "a.png": picture()},
        "t-*.csv", rows={"x/objects/label": [[10, 9]]},
    ),
}  # fmt: skip


@by_case(CASES)
def test_rows_of_boxes(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


@pytest.mark.parametrize("name", ["117.png", "117"])
def test_ids_in_place_of_paths(tmp_path: Path, name: str) -> None:
    files = {"t.csv": OPEN_IMAGES, name: picture()}
    Case(files, "t.csv", rows={"id": [name]}).check(tmp_path)


def test_a_table_of_labels(tmp_path: Path) -> None:
    request = SourceRequest(f"{write_files(tmp_path, {'t.csv': RACCOON})}/t.csv", "--labels")
    with pytest.raises(UsageError, match="give it as INPUT, with --image-root"):
        open_label_table(request, key="id", root=None, finder=Objects())


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
    objects: Mapping[str, list[tuple[str, int, int, int, int]]],
    form: str,
    has_size: bool,
    buckets: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
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
    table = f"t.{form}" if form in ("jsonl", "parquet") else "t.csv"
    files = {table: rows if table != "t.csv" else csv_of(rows), "c.json": coco(
        annotations=annotations)}  # fmt: skip
    root = write_files(tmp_path_factory.mktemp("boxes"), {**pictures("."), **files})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_rows, "_BUCKET_BITS", buckets)
        of_table = listing(root / table)
    of_coco = listing(root / "c.json")

    def sorted_objects(rows: Rows) -> list[Any]:
        return sorted(
            (row["id"], row["stated_size"], sorted(zip(
                row["x/objects/label"], map(tuple, row["x/objects/bbox"]), strict=True)))
            for row in rows
        )  # fmt: skip

    assert len(of_table.rows) == len(OBJECTS)
    assert sorted_objects(of_table.rows) == sorted_objects(of_coco.rows)
    assert len(of_table.rejects) == len(of_coco.rejects)


def structs_of(name: str, *, numbers: bool, as_lists: bool) -> Any:
    """Return the objects of an image as the pages of `datasets` write them."""
    items = [
        {"bbox": list(box), "category": CLASSES.index(label) if numbers else label, "area": 7.5}
        for label, *box in OBJECTS[name]
    ]
    if not as_lists:
        return items
    return {key: [item[key] for item in items] for key in ("bbox", "category", "area")}


def hub_table(names: tuple[str, ...], *, as_lists: bool) -> pa.Table:
    rows = [
        {"image": {"bytes": picture(), "path": f"{name}.png"},
         "objects": structs_of(name, numbers=True, as_lists=as_lists)}
        for name in OBJECTS
    ]  # fmt: skip
    label = {"names": list(names), "_type": "ClassLabel"} if names else {"dtype": "int64"}
    fields = {"bbox": [{"dtype": "float32"}], "category": label, "area": {"dtype": "float32"}}
    stated = {"feature": fields, "_type": "Sequence"} if as_lists else [fields]
    info = {"info": {"features": {"image": {"_type": "Image"}, "objects": stated}}}
    table = pa.Table.from_pylist(rows)
    return table.replace_schema_metadata({"huggingface": json.dumps(info)})


def metadata(ending: str, *, as_lists: bool) -> dict[str, Any]:
    rows = [
        {"file_name": f"{name}.png", "objects": structs_of(name, numbers=False, as_lists=as_lists)}
        for name in OBJECTS
    ]
    return {**pictures("."), f"metadata.{ending}": rows}


NUMBERS = [[CLASSES.index(label) for label in labels] for labels in LABELS.values()]


@pytest.mark.parametrize(("files", "at", "labels", "names"), [
    (metadata("jsonl", as_lists=True), "", [*LABELS.values()], ()),
    (metadata("parquet", as_lists=False), "", [*LABELS.values()], ()),
    ({"t.parquet": hub_table(CLASSES, as_lists=True)}, "t.parquet", [*LABELS.values()], CLASSES),
    ({"t.parquet": hub_table((), as_lists=False)}, "t.parquet", NUMBERS, ()),
])  # fmt: skip
def test_structs(tmp_path: Path, files: Any, at: str, labels: Any, names: Any) -> None:
    boxes = [[pytest.approx(box, abs=1e-6) for box in expected_boxes(name)] for name in OBJECTS]
    found = Case(files, at, rows={
        "x/objects/bbox": boxes, "x/objects/label": labels,
        "x/objects/area": [[7.5] * len(objects) for objects in labels],
        "stated_size": [[HEIGHT, WIDTH] if objects else None for objects in labels],
    }).listed(tmp_path)  # fmt: skip
    [feature] = [one for one in found.source.features if one.name == "objects/label"]
    assert feature.names == names


@pytest.mark.parametrize(("objects", "told"), [
    ({"bbox": [[4, 2, 8, 10]], "label": []}, "'label' has 0 values, and 'bbox' has 1"),
    ({"bbox": [[4, 2, 8]], "label": ["cat"]}, "bbox is [4, 2, 8], not [x, y, width, height]"),
    ({"bbox": [[0.1, 0.1, 0.5, 0.5]], "label": ["cat"]}, "must be [x, y, width, height] in pixels"),
    ({"bbox": [[4, 2, 8, 10]], "label": [None]}, "objects: label has no class"),
    ({"bbox": [[4, 2, 8, 10]], "label": [" "]}, "objects: label has no class"),
    ({"bbox": [[float("nan")] * 4], "label": ["cat"]}, "box a.png#0 is ymin=nan"),
])  # fmt: skip
def test_bad_structs(tmp_path: Path, objects: Any, told: str) -> None:
    good = {"bbox": [[4, 2, 8, 10]], "label": [" cat"]}
    rows = [{"image": "a.png", "objects": objects}, {"image": "b.png", "objects": good}]
    found = listing(write_files(tmp_path, {"t.jsonl": rows, **ALL}) / "t.jsonl")
    assert found.of("id", "x/objects/label") == [("b.png", ["cat"])]
    assert told in found.details["a.png"]


@pytest.mark.parametrize(("labels", "found"), [([1.0, 2.0], [[1, 2]]), ([1.5, 2.0], [])])
def test_classes_that_are_numbers(tmp_path: Path, labels: Any, found: Any) -> None:
    row = {"image": "a.png", "objects": {"bbox": [[4, 2, 8, 10]] * 2, "label": labels}}
    rejects = {} if found else {"a.png": "bad_value"}
    Case(
        {"t.jsonl": [row], **ALL}, "t.jsonl", rows={"x/objects/label": found}, rejects=rejects
    ).check(tmp_path)
