"""Text of other programs: its encodings, in every file that a build reads, and names in zips."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.inputs.file_rules import decode_text, open_text
from tests.support import detection_makers as det
from tests.support.build_helpers import build_without_beam as build
from tests.support.helpers import TINY_PNG
from tests.support.listing_cases import listing, write_files

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")
texts = st.text().filter(lambda text: "\0" not in text[:4] and not text.startswith("\ufeff"))


@given(texts, st.sampled_from(ENCODINGS))
def test_a_text_is_read_back_whole_and_in_lines(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    assert decode_text(data) == text
    assert "".join(open_text(io.BytesIO(data))) == text


@pytest.mark.parametrize("data", [
    "é".encode("latin-1"), "狗".encode("gbk"), "狗".encode()[:2], b"\xff\xfea",
    "cat".encode("utf-32"),
    *("cat".encode(f"{name}-{end}") for name in ("utf-16", "utf-32") for end in ("le", "be")),
])  # fmt: skip
def test_other_encodings_have_a_fix(data: bytes) -> None:
    with pytest.raises(UnicodeError, match=r"^not UTF-8: save it as UTF-8 "):
        decode_text(data)
    with pytest.raises(UnicodeError):
        open_text(io.BytesIO(data)).read()


CSV = "image,label\na.png,狗\nb.png,鸟\n"
COCO = {
    "images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "狗"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}],
}  # fmt: skip
BOX, NAMES = "0 0.5 0.5 0.1 0.1\n", "狗\n鸟\n"
IMAGES = {"a.png": det.picture(), "b.png": det.picture()}
# INPUT's name, and its files: those that are not of bytes are written in an encoding.
INPUTS: dict[str, dict[str, Any]] = {
    "t.csv": {**IMAGES, "t.csv": CSV},
    "t.jsonl": {
        **IMAGES,
        "t.jsonl": '{"image": "a.png", "label": "狗"}\n{"image": "b.png", "label": "鸟"}\n',
    },
    "classes/t.csv": {
        **{f"classes/{name}": data for name, data in IMAGES.items()},
        "classes/t.csv": CSV.encode(), "names.txt": NAMES,
    },
    "coco": {
        "coco/a.png": det.picture(),
        "coco/instances_x.json": json.dumps(COCO, ensure_ascii=False),
    },
    "voc": {"voc/a.png": det.picture(), "voc/a.xml": det.voc_xml([("狗", 1, 1, 2, 2)])},
    "yolo": {"yolo/a.png": det.picture(), "yolo/a.txt": BOX, "yolo/data.yaml": "names: [狗, 鸟]\n"},
    "yolo2": {"yolo2/a.png": det.picture(), "yolo2/a.txt": BOX, "yolo2/classes.txt": NAMES},
    "x.tar": {"0.png": TINY_PNG, "0.cls": "狗", "1.png": TINY_PNG, "1.cls": "鸟"},
}  # fmt: skip


def build_in(root: Path, name: str, encoding: str, *options: str) -> int:
    files = {
        path: text if isinstance(text, bytes) else text.encode(encoding)
        for path, text in INPUTS[name].items()
    }
    write_files(root / "in", {name: files} if name == "x.tar" else files)
    more = ["--class-names", f"{root}/in/names.txt"] if "names.txt" in files else []
    return build(root / "in" / name, root / "out", *more, *options)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", INPUTS)
def test_class_names_of_every_input(tmp_path: Path, name: str, encoding: str) -> None:
    assert build_in(tmp_path, name, encoding) == 0
    names = (path.read_text() for path in (tmp_path / "out").glob("*.txt"))
    assert "狗" in "".join(names)


@pytest.mark.parametrize("name", INPUTS)
def test_another_encoding_ends_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    # A label file that cannot be read rejects its image only; here every one is such a file.
    assert build_in(tmp_path, name, "gbk", "--max-rejects", "0") != 0
    assert "not UTF-8: save it as UTF-8" in capsys.readouterr().err


def test_names_in_a_zip_without_a_flag_for_utf8(tmp_path: Path) -> None:
    names = {"abc/": "狗/".encode(), "xx/": b"\xe9//"}  # names of as many bytes
    write_files(tmp_path, {"x.zip": {f"{name}1.png": TINY_PNG for name in names}})
    data = (tmp_path / "x.zip").read_bytes()
    for name, other in names.items():
        data = data.replace(name.encode(), other)
    (tmp_path / "x.zip").write_bytes(data)
    found = listing(tmp_path / "x.zip")
    assert found.of("label") == [("狗",)]
    assert [str(reject.reason) for reject in found.rejects] == ["bad_id"]
