"""Text of other programs: its encodings, in every file that a build reads, and names in zips."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.inputs.file_rules import decode_text, open_text
from tests.support import detection_makers as det
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import manifest_of, reasons_of
from tests.support.helpers import TINY_PNG

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


Encode = Callable[[str], bytes]


def csv_table(root: Path, encode: Encode) -> list[str]:
    (root / "t.csv").write_bytes(encode("image,label\na.png,狗\nb.png,鸟\n"))
    return [f"{root}/t.csv"]


def json_lines(root: Path, encode: Encode) -> list[str]:
    rows = ({"image": "a.png", "label": "狗"}, {"image": "b.png", "label": "鸟"})
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (root / "t.jsonl").write_bytes(encode("\n".join(lines)))
    return [f"{root}/t.jsonl"]


def class_names(root: Path, encode: Encode) -> list[str]:
    (root / "names.txt").write_bytes(encode("鸟\n狗\n"))
    (root / "t.csv").write_text("image,label\na.png,狗\nb.png,鸟\n")
    return [f"{root}/t.csv", "--class-names", f"{root}/names.txt"]


def coco(root: Path, encode: Encode) -> list[str]:
    content = {
        "images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "狗"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}],
    }  # fmt: skip
    (root / "instances_x.json").write_bytes(encode(json.dumps(content, ensure_ascii=False)))
    return [str(root)]


def voc(root: Path, encode: Encode) -> list[str]:
    (root / "b.png").unlink()
    (root / "a.xml").write_bytes(encode(det.voc_xml([("狗", 1, 1, 2, 2)])))
    return [str(root)]


def yolo(root: Path, encode: Encode) -> list[str]:
    (root / "a.txt").write_bytes(encode("0 0.5 0.5 0.1 0.1\n"))
    (root / "data.yaml").write_bytes(encode("names: [狗, 鸟]\n"))
    return [str(root)]


def classes_txt(root: Path, encode: Encode) -> list[str]:
    (root / "a.txt").write_bytes(encode("0 0.5 0.5 0.1 0.1\n"))
    (root / "classes.txt").write_bytes(encode("狗\n鸟\n"))
    return [str(root)]


def webdataset(root: Path, encode: Encode) -> list[str]:
    members = {"0.png": TINY_PNG, "0.cls": encode("狗"), "1.png": TINY_PNG, "1.cls": encode("鸟")}
    pack_tar(root / "x.tar", members)
    return [f"{root}/x.tar"]


INPUTS = (csv_table, json_lines, class_names, coco, voc, yolo, classes_txt, webdataset)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("make", INPUTS)
def test_class_names_of_every_input(
    tmp_path: Path, make: Callable[[Path, Encode], list[str]], encoding: str
) -> None:
    det.write(tmp_path / "in", {"a.png": det.picture(), "b.png": det.picture()})
    argv = make(tmp_path / "in", lambda text: text.encode(encoding))
    assert build(*argv, tmp_path / "out", "--max-reject-fraction", "0.5") == 0
    names = (path.read_text() for path in (tmp_path / "out").glob("*.txt"))
    assert "狗" in "".join(names)


@pytest.mark.parametrize("make", INPUTS)
def test_another_encoding_ends_the_build(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path, Encode], list[str]],
) -> None:
    det.write(tmp_path / "in", {"a.png": det.picture(), "b.png": det.picture()})
    argv = make(tmp_path / "in", lambda text: text.encode("gbk"))
    # A label file that cannot be read rejects its image only; here every one is such a file.
    assert build(*argv, tmp_path / "out", "--max-rejects", "0") != 0
    assert "not UTF-8: save it as UTF-8" in capsys.readouterr().err


def test_names_in_a_zip_without_a_flag_for_utf8(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("狗/1.png", "xx/1.png"):  # both have names of as many bytes
            archive.writestr(name.replace("狗", "abc"), TINY_PNG)
    data = (
        path.read_bytes()
        .replace(b"abc/", "狗/".encode())
        .replace(b"xx/", "é/".encode("latin-1") + b"/")
    )
    path.write_bytes(data)
    assert build(path, tmp_path / "out") == 0
    assert manifest_of(tmp_path / "out")["num_records"] == 1
    assert list(reasons_of(tmp_path / "out").values()) == ["bad_id"]
