"""Zip archives as INPUT: stored members in place, compressed ones through the spool, and what is wrong with some."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.storage import COUNTERS, Folder, StorageOptions
from tests.archive_files import pack_zip, png, read_row
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.store_places import Places
from transforms.inputs.archives import zips
from transforms.inputs.archives.zips import ZipSource
from transforms.inputs.detection import detect_source, list_source

METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflated": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}
FILES = {
    f"{label}/{number}.png": png(number) for number, label in enumerate(("cat", "dog", "Löwe"))
}


def listed(path: Path, spool: Path | None = None) -> tuple[list[dict[str, object]], dict[str, str]]:
    source = detect_source(str(path), {}, spool=spool and Folder(str(spool)))
    assert isinstance(source, ZipSource)
    parts = list(list_source(source))
    return rows_of(parts), {reject.id: str(reject.reason) for reject in rejects_of(parts)}


@pytest.mark.parametrize("method", METHODS)
def test_members_are_read_back(tmp_path: Path, method: str) -> None:
    path = pack_zip(tmp_path / "a.zip", FILES, METHODS[method])
    rows, rejects = listed(path, tmp_path / "spool")
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
    rows, _ = listed(path, tmp_path / "spool")
    assert [row["uri"] == str(path) for row in rows] == [True, True, True, False]
    assert [read_row(row) for row in rows] == [*FILES.values(), png(9)]


def test_local_headers_say_where_data_begins(tmp_path: Path) -> None:
    """Extra fields of the two headers differ in length, as Info-ZIP writes them, and something may stand before the archive."""
    info = zipfile.ZipInfo("cat/1.png")
    info.extra = struct.pack("<HH5s", 0x5455, 5, b"\1\2\3\4\5")
    path = tmp_path / "a.zip"
    path.write_bytes(b"#!/bin/sh\n")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, png(1))
        archive.filelist[0].extra = b""  # of the central directory only
        archive.writestr("cat/2.png", png(2))
    assert [read_row(row) for row in listed(path)[0]] == [png(1), png(2)]


def test_zip64(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with (
        zipfile.ZipFile(path, "w") as archive,
        archive.open("cat/1.png", "w", force_zip64=True) as file,
    ):
        file.write(png(1))
    assert [read_row(row) for row in listed(path)[0]] == [png(1)]


@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_members_that_can_be_no_record(tmp_path: Path, method: str) -> None:
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w", METHODS[method]) as archive:
        for name, data in {
            "a.png": TINY_PNG,
            ".b.png": TINY_PNG,
            "c.txt": b"text" * 9,
            "d.png": b"",
            "e": TINY_PNG,
            "f.png": TINY_PNG,
        }.items():
            archive.writestr(name, data)
        archive.writestr(link, b"a.png")
        archive.mkdir("folder")
    edit_directory(path, "f.png", flag_bits=1)
    rows, rejects = listed(path, tmp_path / "spool")
    assert [row["id"] for row in rows] == ["a.zip/a.png", "a.zip/e"]
    assert rejects == {
        "a.zip/.b.png": "other_file",
        "a.zip/c.txt": "other_file",
        "a.zip/d.png": "empty_file",
        "a.zip/f.png": "unsupported_format",
        "a.zip/link.png": "other_file",
    }


@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_a_bomb_is_not_unpacked(tmp_path: Path, method: str) -> None:
    path = pack_zip(
        tmp_path / "a.zip", {"a.png": TINY_PNG, "bomb.png": b"\0" * 100_000}, METHODS[method]
    )
    edit_directory(path, "bomb.png", file_size=(1 << 30) + 1)
    rows, rejects = listed(path, tmp_path / "spool")
    assert [row["id"] for row in rows] == ["a.zip/a.png"]
    assert rejects == {"a.zip/bomb.png": "too_large"}


def test_a_member_that_holds_more_than_it_claims(tmp_path: Path) -> None:
    path = pack_zip(
        tmp_path / "a.zip", {"liar.png": b"\0" * 100_000, "a.png": TINY_PNG}, zipfile.ZIP_DEFLATED
    )
    edit_directory(path, "liar.png", file_size=100)
    rows, rejects = listed(path, tmp_path / "spool")
    assert [read_row(row) for row in rows] == [TINY_PNG]
    assert rejects == {"a.zip/liar.png": "corrupt"}


def test_an_unknown_method(tmp_path: Path) -> None:
    path = pack_zip(tmp_path / "a.zip", FILES, zipfile.ZIP_DEFLATED)
    edit_directory(path, "dog/1.png", compress_type=93)
    rows, rejects = listed(path, tmp_path / "spool")
    assert len(rows) == 2
    assert rejects == {"a.zip/dog/1.png": "unsupported_format"}


def test_a_damaged_member_says_nothing_of_the_others(tmp_path: Path) -> None:
    path = pack_zip(
        tmp_path / "a.zip", {name: data * 50 for name, data in FILES.items()}, zipfile.ZIP_DEFLATED
    )
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("dog/1.png").header_offset
    data = bytearray(path.read_bytes())
    data[start + 60] ^= 0xFF
    path.write_bytes(data)
    rows, rejects = listed(path, tmp_path / "spool")
    assert [read_row(row) for row in rows] == [FILES["cat/0.png"] * 50, FILES["Löwe/2.png"] * 50]
    assert rejects == {"a.zip/dog/1.png": "corrupt"}


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\3\4" + b"\0" * 100])
def test_a_file_that_is_no_zip_is_one_reject(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(data)
    assert listed(tmp_path / "a.zip") == ([], {"a.zip": "truncated"})


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    place=st.integers(0, 600),
    bits=st.integers(1, 255),
    method=st.sampled_from(["stored", "deflated"]),
    cut=st.booleans(),
)
def test_damage_never_raises(tmp_path: Path, place: int, bits: int, method: str, cut: bool) -> None:
    path = pack_zip(tmp_path / "a.zip", FILES, METHODS[method])
    data = bytearray(path.read_bytes())
    place = min(place, len(data) - 1)
    data[place] ^= bits
    path.write_bytes(data[:place] if cut else data)
    os.utime(path, ns=(place, bits))
    rows, rejects = listed(path, tmp_path / f"spool-{place}-{bits}-{method}-{cut}")
    assert len(rows) + len(rejects) <= 4
    assert not cut or (rows, rejects) == ([], {"a.zip": "truncated"})


def test_a_folder_of_zips(tmp_path: Path) -> None:
    for name in ("test", "train"):
        pack_zip(
            tmp_path / "in" / f"{name}.zip"
            if (tmp_path / "in").mkdir(exist_ok=True) is None
            else tmp_path,
            FILES,
        )
    source = detect_source(str(tmp_path / "in"), {})
    assert source.describe() == f"2 zip archives at {tmp_path}/in, splits by their names"
    assert {(row["split"], row["label"]) for row in rows_of(list_source(source))} == {
        (split, label) for split in ("test", "train") for label in ("cat", "dog", "Löwe")
    }
    with pytest.raises(UsageError, match="has no zip archives"):
        detect_source(str(make_files(tmp_path / "images", "a.png")), {}, input_format="zip")


@pytest.mark.parametrize("kind", ["s3", "gs"])
@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_a_zip_in_a_store(
    places: Places, tmp_path: Path, kind: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zips, "_LOOKED_UP", 2)
    place = places.make(kind)  # type: ignore[arg-type]
    options = StorageOptions.parse(
        [f"{key}={value}" for key, value in place.storage_options.items()]
    )
    place.put("a.zip", pack_zip(tmp_path / "a.zip", FILES, METHODS[method]).read_bytes())
    spool = Folder(str(tmp_path / "spool"))
    rows = []
    for _ in range(2):
        before = COUNTERS.snapshot().get("bytes_read", 0)
        rows.append(
            rows_of(list_source(detect_source(place.at("a.zip"), {}, storage=options, spool=spool)))
        )
    assert [row["id"] for row in rows[0]] == [f"a.zip/{name}" for name in FILES]
    assert rows[0] == rows[1]
    if method == "deflated":
        assert [read_row(row) for row in rows[0]] == list(FILES.values())
        assert (
            COUNTERS.snapshot()["bytes_read"] - before <= 2 * (tmp_path / "a.zip").stat().st_size
        )  # its directory, and no member
    else:
        assert {row["uri"] for row in rows[0]} == {place.at("a.zip")}


def edit_directory(path: Path, name: str, **fields: int) -> None:
    """Change what the central directory says of a member; the data and the local header stay."""
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\1\2")
    while data[start + 46 : start + 46 + len(name)] != name.encode():
        start = data.index(b"PK\1\2", start + 4)
    for field, value in fields.items():
        offset, form = {
            "flag_bits": (8, "<H"),
            "compress_type": (10, "<H"),
            "file_size": (24, "<I"),
        }[field]
        struct.pack_into(form, data, start + offset, value)
    path.write_bytes(data)
