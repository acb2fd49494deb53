"""Zip archives as INPUT: stored members in place, compressed ones through the spool, and damage."""

from __future__ import annotations

import stat
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.storage.counters import COUNTERS
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.formats import zips
from tests.support.archive_files import pack_zip, png, read_row
from tests.support.helpers import TINY_PNG, make_files, rows_of
from tests.support.listings import Rows, detect, list_source, listed
from tests.support.random_tests import examples
from tests.support.store_places import STORES, Kind, Places

METHODS = {
    "stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}  # fmt: skip
FILES = {
    f"{label}/{number}.png": png(number) for number, label in enumerate(("cat", "dog", "Löwe"))
}


def list_zip(path: Path, spool: Path | None = None) -> tuple[Rows, dict[str, str]]:
    source = detect(str(path), {}, spool=spool and Folder(str(spool)))
    assert source.name == "zip"
    return listed(source)


@pytest.mark.parametrize("method", METHODS)
def test_members_are_read_back(tmp_path: Path, method: str) -> None:
    path = pack_zip(tmp_path / "a.zip", FILES, METHODS[method])
    rows, rejects = list_zip(path, tmp_path / "spool")
    assert [(row["id"], row["label"], read_row(row)) for row in rows] == [
        (f"a.zip/{name}", name.partition("/")[0], data) for name, data in FILES.items()
    ]
    assert ({row["uri"] for row in rows} == {str(path)}) == (method == "stored")
    assert (tmp_path / "spool").exists() == (method != "stored")
    assert rejects == {}


def test_stored_and_deflated_members_of_one_archive(tmp_path: Path) -> None:
    path = pack_zip(tmp_path / "a.zip", FILES)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/9.png", png(9))
    rows, _ = list_zip(path, tmp_path / "spool")
    assert [row["uri"] == str(path) for row in rows] == [True, True, True, False]
    assert [read_row(row) for row in rows] == [*FILES.values(), png(9)]


def test_local_headers_say_where_data_begins(tmp_path: Path) -> None:
    """Read an archive behind other data, whose two headers have extra fields of unequal length."""
    info = zipfile.ZipInfo("cat/1.png")
    info.extra = struct.pack("<HH5s", 0x5455, 5, b"\1\2\3\4\5")
    path = tmp_path / "a.zip"
    path.write_bytes(b"#!/bin/sh\n")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, png(1))
        archive.filelist[0].extra = b""  # of the central directory only
        archive.writestr("cat/2.png", png(2))
    assert [read_row(row) for row in list_zip(path)[0]] == [png(1), png(2)]


def test_zip64(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as zipped, zipped.open("1.png", "w", force_zip64=True) as file:
        file.write(png(1))
    assert [read_row(row) for row in list_zip(path)[0]] == [png(1)]


@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_members_that_can_be_no_record(tmp_path: Path, method: str) -> None:
    images = dict.fromkeys(("a.png", ".b.png", "e", "f.png", "bomb.png"), TINY_PNG)
    files = images | {"c.txt": b"text" * 9, "d.png": b""}
    path = pack_zip(tmp_path / "a.zip", files, METHODS[method])
    link = zipfile.ZipInfo("link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a", METHODS[method]) as archive:
        archive.writestr(link, b"a.png")
        archive.mkdir("folder")
    edit_directory(path, "f.png", flag_bits=1)
    edit_directory(path, "bomb.png", file_size=(1 << 30) + 1)
    rows, rejects = list_zip(path, tmp_path / "spool")
    assert [row["id"] for row in rows] == ["a.zip/a.png"]
    assert rejects == {
        "a.zip/e": "other_file",
        "a.zip/.b.png": "other_file", "a.zip/bomb.png": "too_large", "a.zip/c.txt": "other_file",
        "a.zip/d.png": "empty_file", "a.zip/f.png": "unsupported_format",
        "a.zip/link.png": "other_file",
    }  # fmt: skip


def test_damaged_members_leave_the_others_alone(tmp_path: Path) -> None:
    """Reject a changed byte, an understated size and an unknown method, each for its member."""
    files = {name: data * 50 for name, data in FILES.items()}
    files |= {"cat/liar.png": b"\0" * 100_000, "cat/odd.png": png(9)}
    path = pack_zip(tmp_path / "a.zip", files, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("dog/1.png").header_offset
    data = bytearray(path.read_bytes())
    data[start + 60] ^= 0xFF
    path.write_bytes(data)
    edit_directory(path, "cat/liar.png", file_size=100)
    edit_directory(path, "cat/odd.png", compress_type=93)
    rows, rejects = list_zip(path, tmp_path / "spool")
    assert [read_row(row) for row in rows] == [files["cat/0.png"], files["Löwe/2.png"]]
    assert rejects == {
        "a.zip/dog/1.png": "corrupt",
        "a.zip/cat/liar.png": "corrupt",
        "a.zip/cat/odd.png": "unsupported_format",
    }


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\3\4" + b"\0" * 100])
def test_a_file_that_is_no_zip_is_one_reject(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(data)
    assert list_zip(tmp_path / "a.zip") == ([], {"a.zip": "incomplete"})


@examples(25)
@given(
    place=st.integers(0, 600),
    bits=st.integers(1, 255),
    method=st.sampled_from(["stored", "deflated"]),
    cut=st.booleans(),
)
def test_damage_never_raises(place: int, bits: int, method: str, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pack_zip(Path(folder, "a.zip"), FILES, METHODS[method])
        data = bytearray(path.read_bytes())
        place = min(place, len(data) - 1)
        data[place] ^= bits
        path.write_bytes(data[:place] if cut else data)
        rows, rejects = list_zip(path, Path(folder, "spool"))
    assert len(rows) + len(rejects) <= 4
    assert not cut or (rows, rejects) == ([], {"a.zip": "incomplete"})


def test_a_folder_of_zips(tmp_path: Path) -> None:
    for name in ("test", "train"):
        pack_zip(tmp_path / "in" / f"{name}.zip", FILES)
    source = detect(str(tmp_path / "in"), {})
    assert source.description == f"2 zip archives at {tmp_path}/in, splits by their names"
    assert {(row["split"], row["label"]) for row in rows_of(list_source(source))} == {
        (split, label) for split in ("test", "train") for label in ("cat", "dog", "Löwe")
    }
    with pytest.raises(UsageError, match="has no zip archives"):
        detect(str(make_files(tmp_path / "images", "a.png")), {}, input_format="zip")


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_a_zip_in_a_store(
    places: Places, tmp_path: Path, kind: Kind, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zips, "_LOOKED_UP", 2)
    place = places.make(kind)
    data = pack_zip(tmp_path / "a.zip", FILES, METHODS[method]).read_bytes()
    place.put("a.zip", data)
    given: dict[str, Any] = {"storage": StorageOptions.of(place.storage_options)}
    given["spool"] = Folder(str(tmp_path / "spool"))
    rows = rows_of(list_source(detect(place.at("a.zip"), {}, **given)))
    assert [row["id"] for row in rows] == [f"a.zip/{name}" for name in FILES]
    before = COUNTERS.snapshot().get("bytes_read", 0)
    assert rows_of(list_source(detect(place.at("a.zip"), {}, **given))) == rows
    if method == "deflated":  # the second time, its directory is read, and no member
        assert [read_row(row) for row in rows] == list(FILES.values())
        assert COUNTERS.snapshot()["bytes_read"] - before <= 2 * len(data)
    else:
        assert {row["uri"] for row in rows} == {place.at("a.zip")}


def edit_directory(path: Path, name: str, **fields: int) -> None:
    """Change fields of a member in the central directory; data and local header stay."""
    places = {"flag_bits": (8, "<H"), "compress_type": (10, "<H"), "file_size": (24, "<I")}
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\1\2")
    while data[start + 46 : start + 46 + len(name)] != name.encode():
        start = data.index(b"PK\1\2", start + 4)
    for field, value in fields.items():
        offset, form = places[field]
        struct.pack_into(form, data, start + offset, value)
    path.write_bytes(data)
