"""Tar and zip archives as INPUT: members in place or unpacked, damage, links and stores."""

from __future__ import annotations

import io
import os
import random
import stat
import struct
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import ImageFault, UsageError
from shardwright.storage import range_reader
from shardwright.storage.counters import COUNTERS
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.formats import archives, zips
from shardwright.transforms.inputs.formats.tars import TarSource, read_headers, tar_stem
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write.image_reads import ImageLocation as Picture
from shardwright.transforms.write.image_reads import read_remote_image
from tests.support.archive_files import TAR_MODES, pack_tar, pack_zip, png, read_row
from tests.support.helpers import TINY_PNG, rows_of
from tests.support.listing_cases import Case, Listing, by_case, listing
from tests.support.listings import columns_of, detect, list_source
from tests.support.random_tests import examples
from tests.support.store_places import STORES, Kind, Places

METHODS = {
    "stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}  # fmt: skip
FILES = {f"{label}/{number}.png": png(number) for number, label in enumerate(("cat", "Löwe"))}


def unpacked(path: Path) -> Listing:
    return listing(path, spool=Folder(f"{path.parent}/spool"))


def of_tar(path: Path) -> Listing:
    return listing(path, spool=Folder(f"{path.parent}/spool"), input_format="tar")


@pytest.mark.parametrize("kind", [*TAR_MODES, *METHODS])
def test_members_are_read_where_they_are_or_unpacked(tmp_path: Path, kind: str) -> None:
    # Every other name is a long one.
    files = {f"cat/{number}{'ü' * 90 * (number % 2)}.png": png(number) for number in range(5)}
    if kind in METHODS:
        path = pack_zip(tmp_path / "a.zip", files, METHODS[kind])
    else:
        dotted = {f"./{name}": data for name, data in files.items()}
        path = pack_tar(tmp_path / f"a{kind}", dotted, TAR_MODES[kind])
    found = unpacked(path)
    expected = [(f"{path.name}/{name}", "cat", None, n) for n, name in enumerate(files)]
    assert (found.of("id", "label", "split", "row"), found.reasons) == (expected, {})
    assert [read_row(row) for row in found.rows] == list(files.values())
    in_place = kind in (".tar", "stored")
    assert {row["uri"] == str(path) for row in found.rows} == {in_place}
    assert (tmp_path / "spool").exists() != in_place


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_header_format(tmp_path: Path, kind: int) -> None:
    """Read a tar of any name: its format is forced."""
    name = "dir/" * 30 + "x.png"
    found = of_tar(pack_tar(tmp_path / "a.bin", {name: TINY_PNG}, format=kind))
    assert [(row["id"], read_row(row)) for row in found.rows] == [(f"a.bin/{name}", TINY_PNG)]


def tar_of(*names: str) -> dict[str, dict[str, bytes]]:
    return {"a.tar": dict.fromkeys(names, TINY_PNG)}


THREE = {
    f"{name}.tar": {f"cat/{name}.png": TINY_PNG} for name in ("train-000", "train-001", "val-000")
}
ODD = {"odd/\udcf6.tar": {"a.png": TINY_PNG}}
CASES = {
    # Only an archive may hold its own folder.
    "its own folder": Case(
        tar_of("photos/cat/1.png", "photos/dog/2.png"), "a.tar", rows={"label": ["cat", "dog"]},
        source={"labels_are_names": True},
    ),
    "its own class": Case(
        tar_of("photos/1.png", "photos/dog/2.png"), "a.tar", rows={"label": ["photos"] * 2}
    ),
    "splits of its own folder": Case(
        tar_of("photos/train/cat/1.png", "photos/val/dog/2.png"), "a.tar",
        rows={"split": ["train", "validation"], "label": ["cat", "dog"]},
    ),
    "a class and an image beside it": Case(
        tar_of("1.png", "cat/2.png"), "a.tar", rows={"split": [None] * 2, "label": [None, "cat"]}
    ),
    "a wildcard": Case(
        THREE, "train-{000..001}.tar", rows={"split": ["train"] * 2, "label": ["cat"] * 2}
    ),
    "zips": Case(
        {"test.zip": FILES, "train.zip": FILES}, says="2 zip archives at FOLDER, splits by their",
        rows={"split": [*["test"] * 2, *["train"] * 2], "label": ["cat", "Löwe"] * 2},
    ),
    "forced": Case(
        {**THREE, "b.png": TINY_PNG}, options={"input_format": "tar"}, source={"name": "tar"}
    ),
    "missing": Case(
        THREE, "train-{000..002}.tar",
        error=UsageError(r"names 3 files, but 1 are missing, such as .*train-002\.tar"),
    ),
    "a column": Case(
        THREE, "val-000.tar", {"label": "x"},
        error=UsageError("--label-column needs a table, but INPUT .* is made of tar archives"),
    ),
    "no tars": Case(
        ["a.png"], options={"input_format": "tar"},
        error=UsageError("has no tar archives: give one, a folder of them, or a wildcard"),
    ),
    "no zips": Case(
        ["a.png"], options={"input_format": "zip"}, error=UsageError("has no zip archives")
    ),
    "no spool": Case(
        {"b.tgz": {"a.png": TINY_PNG}}, "b.tgz", options={"spool": None},
        error=UsageError("must be unpacked, which needs a folder"),
    ),
    "a name": Case(ODD, "odd", error=UsageError("is not UTF-8: rename it")),
    **{
        f"no archive {number}": Case(
            {name: data}, name, rows={"id": []}, rejects={name: "incomplete"},
            options={"input_format": name[2:]},
        )
        for number, (name, data) in enumerate([
            ("a.tar", b""), ("a.tar", b"x" * 2000), ("a.zip", b""), ("a.zip", b"PK\3\4" + bytes(99))
        ])
    },
}  # fmt: skip


@by_case(CASES)
def test_folders_inside_and_inputs(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_a_folder_of_the_first_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"cat/persian/{n}.png" for n in range(5)), "dog/pug/1.png"]
    path = pack_tar(tmp_path / "a.tar", dict.fromkeys(names, TINY_PNG))
    monkeypatch.setattr(archives, "LOOK_MEMBERS", 3)
    assert [row["label"] for row in of_tar(path).rows] == ["cat"] * 5 + ["dog"]


def test_tar_members_that_are_no_images(tmp_path: Path) -> None:
    names = ("a.png", ".hidden.png", "__MACOSX/a.png", "photo", "../out.png")
    files = dict.fromkeys(names, TINY_PNG) | {"readme.txt": b"text", "empty.png": b""}
    links = {
        "pipe.png": (tarfile.FIFOTYPE, ""), "dir": (tarfile.DIRTYPE, ""),
        "soft.png": (tarfile.SYMTYPE, "../1.png"), "hard.png": (tarfile.LNKTYPE, "a.png"),
        "latest": (tarfile.SYMTYPE, "cat"),
    }  # fmt: skip
    path = pack_tar(tmp_path / "a.tar", files, links=links)
    sparse = {"map": "0,1", "size": "9", "name": "sparse.png"}
    info = tarfile.TarInfo("sparse.png")
    info.size = 512
    info.pax_headers = {f"GNU.sparse.{name}": value for name, value in sparse.items()}
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"\0" * 512))
    found = of_tar(path)
    assert found.of("id") == [("a.tar/a.png",)]
    assert found.reasons == {
        **dict.fromkeys(
            [f"a.tar/{name}" for name in (*names[1:4], "readme.txt", "latest")], "other_file"
        ),
        "a.tar/empty.png": "empty_file", "": "bad_id", "a.tar/pipe.png": "unreadable",
        **dict.fromkeys(
            [f"a.tar/{name}.png" for name in ("sparse", "soft", "hard")], "unsupported_format"
        ),
    }  # fmt: skip
    fix = "pack the archive with tar --dereference --hard-dereference"
    for name, target in (("soft.png", "../1.png"), ("hard.png", "a.png"), ("latest", "cat")):
        assert found.details[f"a.tar/{name}"].endswith(f": a link to {target!r}: {fix}")


def test_names_that_are_missing_or_not_utf8_are_rejects(tmp_path: Path) -> None:
    files = {"a.png": TINY_PNG, ".": TINY_PNG, "Löwe.png": TINY_PNG}
    form = {"format": tarfile.GNU_FORMAT, "encoding": "latin-1"}
    path = pack_tar(tmp_path / "a.tar", files, **form)
    assert [(reject.reason, reject.uri) for reject in of_tar(path).rejects] == [
        (RejectReason.BAD_ID, f"{path}#a.tar/"), (RejectReason.BAD_ID, f"{path}#a.tar/L\\xf6we.png")
    ]  # fmt: skip


def test_an_archive_that_is_replaced_or_gone(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {"a.png": TINY_PNG})
    source, [row], _ = vars(of_tar(path)).values()
    pack_tar(path, {"b.png": TINY_PNG})
    os.utime(path, ns=(1, 1))
    with pytest.raises(ImageFault) as changed:
        read_row(row)
    assert changed.value.reason == RejectReason.CHANGED
    path.unlink()
    [reject] = list_source(source)
    assert (reject.id, reject.reason) == ("a.tar", RejectReason.INCOMPLETE)


def test_names() -> None:
    names = ("a.tar", "b/a.TAR.GZ", "a.b.tgz", "a.tar.zst", "a.zip")
    assert [tar_stem(name) for name in names] == ["a", "b/a", "a.b", "a", "a.zip"]
    assert [name for name in names if not TarSource.is_name(name)] == ["a.zip"]


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.bz2", ".txz", ".tar.zst"])
def test_a_cut_tar_gives_the_members_before_the_cut(tmp_path: Path, ending: str) -> None:
    noise = random.Random(1)
    files = {f"{number}.png": TINY_PNG + noise.randbytes(350_000) for number in range(6)}
    path = pack_tar(tmp_path / f"a{ending}", files, TAR_MODES.get(ending, "w"))
    if ending == ".tar.zst":
        path.write_bytes(pa.Codec("zstd").compress(path.read_bytes(), asbytes=True))
        assert [read_row(row) for row in unpacked(path).rows] == list(files.values())
    os.truncate(path, path.stat().st_size * 2 // 3)
    found = unpacked(path)
    assert found.reasons == {f"a{ending}": "incomplete"}
    assert 2 <= len(found.rows) <= 4  # compressors give what they have at the end of a block
    assert [read_row(row) for row in found.rows] == list(files.values())[: len(found.rows)]


@examples(25)
@given(cut=st.integers(0, 5 * 1024 + 1024), flip=st.one_of(st.none(), st.integers(0, 5 * 1024 - 1)))
def test_damage_of_a_tar_never_raises_and_is_always_listed(cut: int, flip: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pack_tar(Path(folder, "a.tar"), {f"{n}.png": png(n) for n in range(5)})
        data = bytearray(path.read_bytes()[: 6 * 1024])
        if flip is not None:
            data[flip] ^= 0xFF
        path.write_bytes(data[:cut])
        found = of_tar(path)
    in_header = flip is not None and flip < cut and flip % 1024 < 512
    if cut < 5 * 1024 + 512 or in_header:
        assert found.rejects or flip is not None
        assert len(found.rows) <= 5
    else:
        assert (len(found.rows), found.rejects) == (5, [])
    if flip is None:
        assert len(found.rows) == min(5, max(0, (cut - 512 - len(png(0))) // 1024 + 1))
        assert ("a.tar" in found.reasons) == (cut < 5 * 1024 + 512)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_header_that_claims_too_much(tmp_path: Path, kind: bytes) -> None:
    bomb = tarfile.TarInfo("bomb")
    bomb.type, bomb.size = kind, 1 << 30
    info = tarfile.TarInfo("a.png")
    info.size = len(TINY_PNG)
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        tar.addfile(info, io.BytesIO(TINY_PNG))
        tar.fileobj.write(bomb.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
    found = unpacked(tmp_path / "a.tgz")
    assert (len(found.rows), found.reasons) == (1, {"a.tgz": "incomplete"})


def test_a_member_larger_than_an_image_may_be_is_not_unpacked(tmp_path: Path) -> None:
    info = tarfile.TarInfo("huge.png")
    info.size = (1 << 30) + 1
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, -(-(512 + info.size) // 512) * 512 + 1024)  # a hole, which takes no disk
    assert of_tar(path).reasons == {"a.tar/huge.png": "too_large"}


def test_headers_are_not_all_kept(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {f"{n}.png": TINY_PNG for n in range(50)})
    headers = read_headers(str(path), StorageOptions(), path.stat().st_size, None)
    assert max(len(tar.members) for tar, _ in headers) == 0  # type: ignore[attr-defined]


def test_few_requests_and_bytes_for_headers_between_large_members(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "SKIPPED_BYTES", 4096)
    monkeypatch.setattr(range_reader, "BUFFER_BYTES", 32768)
    place = places.make("s3")
    options = StorageOptions.of(place.storage_options)
    # 1 MB in all of the small ones.
    for size, count, requests, num_bytes in ((100_000, 20, 22, 22 << 12), (500, 1000, 37, 2 << 20)):
        files = {f"{n}.png": TINY_PNG.ljust(size) for n in range(count)}
        data = pack_tar(tmp_path / "a.tar", files).read_bytes()
        place.put("a.tar", data)
        before = COUNTERS.snapshot()
        with TarSource.open(place.at("a.tar"), options, len(data), False) as found:
            assert len(list(found.members)) == count
        after = COUNTERS.snapshot()
        assert after["requests"] - before.get("requests", 0) <= requests
        assert after["bytes_read"] - before.get("bytes_read", 0) <= num_bytes


@pytest.mark.parametrize("kind", STORES)
def test_a_tar_in_a_store(places: Places, tmp_path: Path, kind: Kind) -> None:
    place = places.make(kind)
    options = StorageOptions.of(place.storage_options)
    files = {f"cat/{number}.png": png(number) for number in range(300)}
    data = pack_tar(tmp_path / "a.tar", files).read_bytes()
    for name, content in (("a-000.tar", data), ("a-001.tar", data), ("notes.txt", b"")):
        place.put(name, content)
    for uri in (place.uri, place.at("a-*.tar"), place.at("a-{000..001}.tar")):
        source = detect(uri, {}, storage=options)
        parts = [part.rpartition("/")[2] for part in source.parts()]
        assert parts == ["a-000.tar", "a-001.tar"]
    before = COUNTERS.snapshot().get("requests", 0)
    rows = rows_of(source.list_part(next(source.parts())))
    assert COUNTERS.snapshot().get("requests", 0) - before <= 5
    assert [row["id"] for row in rows] == [f"a-000.tar/{name}" for name in files]
    (location,) = columns_of(rows[7:8], "uri", "offset", "num_bytes", "etag")
    assert read_remote_image(Picture(*location), options) == png(7)
    place.put("a-000.tar", data[::-1])
    with pytest.raises(ImageFault) as replaced:
        read_remote_image(Picture(*location), options)
    assert replaced.value.reason == RejectReason.CHANGED


def test_local_headers_say_where_data_begins(tmp_path: Path) -> None:
    """Read a zip behind other data, with extra fields of unequal length, zip64 and two methods."""
    info = zipfile.ZipInfo("cat/1.png")
    info.extra = struct.pack("<HH5s", 0x5455, 5, b"\1\2\3\4\5")
    path = tmp_path / "a.zip"
    path.write_bytes(b"#!/bin/sh\n")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, png(1))
        archive.filelist[0].extra = b""  # of the central directory only
        archive.writestr("cat/2.png", png(2))
        with archive.open("cat/3.png", "w", force_zip64=True) as file:
            file.write(png(3))
        archive.writestr("cat/4.png", png(4), zipfile.ZIP_DEFLATED)
    rows = unpacked(path).rows
    assert [read_row(row) for row in rows] == [png(number) for number in range(1, 5)]
    assert [row["uri"] == str(path) for row in rows] == [True, True, True, False]


@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_zip_members_that_can_be_no_record(tmp_path: Path, method: str) -> None:
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
    found = unpacked(path)
    assert found.of("id") == [("a.zip/a.png",)]
    assert found.reasons == {
        **dict.fromkeys(
            [f"a.zip/{name}" for name in ("e", ".b.png", "c.txt", "link.png")], "other_file"
        ),
        "a.zip/bomb.png": "too_large", "a.zip/d.png": "empty_file",
        "a.zip/f.png": "unsupported_format",
    }  # fmt: skip


def test_damaged_zip_members_leave_the_others_alone(tmp_path: Path) -> None:
    """Reject a changed byte, an understated size and an unknown method, each for its member."""
    files = {name: data * 50 for name, data in FILES.items()} | {"dog/1.png": png(7) * 50}
    files |= {"cat/liar.png": b"\0" * 100_000, "cat/odd.png": png(9)}
    path = pack_zip(tmp_path / "a.zip", files, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("dog/1.png").header_offset
    data = bytearray(path.read_bytes())
    data[start + 60] ^= 0xFF
    path.write_bytes(data)
    edit_directory(path, "cat/liar.png", file_size=100)
    edit_directory(path, "cat/odd.png", compress_type=93)
    found = unpacked(path)
    assert [read_row(row) for row in found.rows] == list(files.values())[:2]
    assert found.reasons == {
        "a.zip/dog/1.png": "corrupt",
        "a.zip/cat/liar.png": "corrupt",
        "a.zip/cat/odd.png": "unsupported_format",
    }


@examples(25)
@given(
    place=st.integers(0, 600),
    bits=st.integers(1, 255),
    method=st.sampled_from(["stored", "deflated"]),
    cut=st.booleans(),
)
def test_damage_of_a_zip_never_raises(place: int, bits: int, method: str, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pack_zip(Path(folder, "a.zip"), FILES, METHODS[method])
        data = bytearray(path.read_bytes())
        place = min(place, len(data) - 1)
        data[place] ^= bits
        path.write_bytes(data[:place] if cut else data)
        found = unpacked(path)
    assert len(found.rows) + len(found.rejects) <= 3
    assert not cut or (found.rows, found.reasons) == ([], {"a.zip": "incomplete"})


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("method", ["stored", "deflated"])
def test_a_zip_in_a_store(
    places: Places, tmp_path: Path, kind: Kind, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zips, "_LOOKED_UP", 2)
    place, files = places.make(kind), {**FILES, "dog/3.png": png(3)}
    data = pack_zip(tmp_path / "a.zip", files, METHODS[method]).read_bytes()
    place.put("a.zip", data)
    given: dict[str, Any] = {"storage": StorageOptions.of(place.storage_options)}
    given["spool"] = Folder(str(tmp_path / "spool"))
    rows = listing(place.at("a.zip"), **given).rows
    assert [row["id"] for row in rows] == [f"a.zip/{name}" for name in files]
    before = COUNTERS.snapshot().get("bytes_read", 0)
    assert listing(place.at("a.zip"), **given).rows == rows
    if method == "deflated":  # the second time, its directory is read, and no member
        assert [read_row(row) for row in rows] == list(files.values())
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
