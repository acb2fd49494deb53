"""Tar archives as INPUT: members in place, folders inside, links, compression and stores."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import ImageFault, UsageError
from shardwright.storage.counters import COUNTERS
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.formats import archives
from shardwright.transforms.inputs.formats.tars import TarSource, tar_stem
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write.image_reads import ImageLocation as Picture
from shardwright.transforms.write.image_reads import read_remote_image
from tests.support.archive_files import TAR_MODES, list_tar, pack_tar, png, read_row
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listings import columns_of, details_of, detect, list_source, listed
from tests.support.store_places import STORES, Kind, Places


@pytest.mark.parametrize("ending", TAR_MODES)
def test_members_are_read_where_they_are(tmp_path: Path, ending: str) -> None:
    # Every other name is a long one.
    files = {f"./cat/{number}{'ü' * 90 * (number % 2)}.png": png(number) for number in range(5)}
    path = pack_tar(tmp_path / f"a{ending}", files, TAR_MODES[ending])
    rows, rejects = list_tar(path, tmp_path / "spool", None)
    assert [row["id"] for row in rows] == [f"a{ending}/{name[2:]}" for name in files]
    assert [read_row(row) for row in rows] == list(files.values())
    assert columns_of(rows, "label", "split", "row") == [("cat", None, n) for n in range(5)]
    assert {row["uri"] == str(path) for row in rows} == {ending == ".tar"}
    assert rejects == {}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_header_format(tmp_path: Path, kind: int) -> None:
    """Read a tar of any name: its format is forced."""
    name = "dir/" * 30 + "x.png"
    rows, _ = list_tar(pack_tar(tmp_path / "a.bin", {name: TINY_PNG}, format=kind))
    assert [(row["id"], read_row(row)) for row in rows] == [(f"a.bin/{name}", TINY_PNG)]


@pytest.mark.parametrize(("names", "places"), [
    (["cat/1.png", "dog/2.png"], [(None, "cat"), (None, "dog")]),
    (["1.png", "cat/2.png"], [(None, None), (None, "cat")]),
    (["photos/cat/1.png", "photos/dog/2.png"], [(None, "cat"), (None, "dog")]),
    (["photos/1.png", "photos/dog/2.png"], [(None, "photos"), (None, "photos")]),
    (["Train/cat/1.png", "val/dog/2.png"], [("train", "cat"), ("validation", "dog")]),
    (["train/1.png", "test/2.png"], [("train", None), ("test", None)]),
    (["photos/train/cat/1.png", "photos/test/dog/2.png"], [("train", "cat"), ("test", "dog")]),
])  # fmt: skip
def test_folders_inside_and_outside(tmp_path: Path, names: list[str], places: list[object]) -> None:
    rows, _ = list_tar(pack_tar(tmp_path / "a.tar", dict.fromkeys(names, TINY_PNG)))
    assert columns_of(rows, "split", "label") == places
    if not names[0].startswith("photos"):  # only an archive may hold its own folder
        outside, _ = listed(detect(str(make_files(tmp_path / "out", *names)), {}))
        found = {row["id"]: (row["split"], row["label"]) for row in outside}
        assert [found[name] for name in names] == places


def test_a_folder_of_the_first_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"cat/persian/{n}.png" for n in range(5)), "dog/pug/1.png"]
    path = pack_tar(tmp_path / "a.tar", dict.fromkeys(names, TINY_PNG))
    monkeypatch.setattr(archives, "LOOK_MEMBERS", 3)
    assert [row["label"] for row in list_tar(path)[0]] == ["cat"] * 5 + ["dog"]


def test_members_that_are_no_images(tmp_path: Path) -> None:
    names = ("a.png", ".hidden.png", "__MACOSX/a.png", "photo", "../out.png")
    files = dict.fromkeys(names, TINY_PNG) | {"readme.txt": b"text", "empty.png": b""}
    links = {"pipe.png": (tarfile.FIFOTYPE, ""), "dir": (tarfile.DIRTYPE, "")}
    path = pack_tar(tmp_path / "a.tar", files, links=links)
    sparse = {"map": "0,1", "size": "9", "name": "sparse.png"}
    info = tarfile.TarInfo("sparse.png")
    info.size = 512
    info.pax_headers = {f"GNU.sparse.{name}": value for name, value in sparse.items()}
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"\0" * 512))
    rows, rejects = list_tar(path)
    assert [row["id"] for row in rows] == ["a.tar/a.png"]
    assert rejects == {
        "a.tar/photo": "other_file",
        "a.tar/.hidden.png": "other_file", "a.tar/__MACOSX/a.png": "other_file",
        "a.tar/readme.txt": "other_file", "a.tar/empty.png": "empty_file", "": "bad_id",
        "a.tar/pipe.png": "unreadable", "a.tar/sparse.png": "unsupported_format",
    }  # fmt: skip


def test_names_that_are_missing_or_not_utf8_are_rejects(tmp_path: Path) -> None:
    form = {"format": tarfile.GNU_FORMAT, "encoding": "latin-1"}
    files = {"a.png": TINY_PNG, ".": TINY_PNG, "Löwe.png": TINY_PNG}
    path = pack_tar(tmp_path / "a.tar", files, **form)
    rejects = rejects_of(list_source(detect(str(path), {})))
    assert [reject.reason for reject in rejects] == [RejectReason.BAD_ID] * 2
    assert rejects[1].uri == f"{path}#a.tar/L\\xf6we.png"


def test_links_are_rejects(tmp_path: Path) -> None:
    links = {
        "dog/soft.png": (tarfile.SYMTYPE, "../cat/1.png"),
        "dog/hard.png": (tarfile.LNKTYPE, "cat/1.png"),
        "latest": (tarfile.SYMTYPE, "cat"),
    }
    path = pack_tar(tmp_path / "a.tar", {"cat/1.png": png(1)}, links=links)
    fix = "pack the archive with tar --dereference --hard-dereference"
    assert details_of(detect(str(path), {})) == {
        "a.tar/dog/soft.png": ("unsupported_format", f"a link to '../cat/1.png': {fix}"),
        "a.tar/dog/hard.png": ("unsupported_format", f"a link to 'cat/1.png': {fix}"),
        "a.tar/latest": ("other_file", f"a link to 'cat': {fix}"),
    }


def test_an_archive_that_is_replaced_or_gone(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {"a.png": TINY_PNG})
    source = detect(str(path), {})
    row = rows_of(list_source(source))[0]
    pack_tar(path, {"b.png": TINY_PNG})
    os.utime(path, ns=(1, 1))
    with pytest.raises(ImageFault) as changed:
        read_row(row)
    assert changed.value.reason == RejectReason.CHANGED
    path.unlink()
    assert listed(source) == ([], {"a.tar": "incomplete"})


def pack_three(folder: Path) -> Path:
    for name in ("train-000.tar", "train-001.tar", "val-000.tar"):
        pack_tar(folder / name, {f"cat/{name}.png": TINY_PNG})
    return folder


@pytest.mark.parametrize(("pattern", "found"), [
    ("in/*.tar", 3), ("in/train-*.tar", 2), ("in/train-{000..001}.tar", 2),
    ("in/{train,val}-000.tar", 2), ("in/[tv]*-000.tar", 2), ("i?/val*", 1),
])  # fmt: skip
def test_wildcards_and_braces(tmp_path: Path, pattern: str, found: int) -> None:
    pack_three(tmp_path / "in")
    source = detect(str(tmp_path / pattern), {})
    assert len(list(source.parts())) == len(rows_of(list_source(source))) == found


def test_images_beside_archives_are_what_a_folder_is_about(tmp_path: Path) -> None:
    make_files(pack_three(tmp_path), "b.png")
    assert detect(str(tmp_path), {}).name == "folder"
    assert detect(str(tmp_path), {}, input_format="tar").name == "tar"


@pytest.mark.parametrize(("uri", "columns", "options", "told"), [
    ("a-{000..002}.tar", {}, {}, r"names 3 files, but 2 are missing, such as .*a-001\.tar"),
    ("a-000.tar", {"label": "x"}, {},
     "--label-column needs a table, but INPUT .* is made of tar archives"),
    ("images", {}, {"input_format": "tar"},
     "has no tar archives: give one, a folder of them, or a wildcard"),
    ("b.tgz", {}, {}, "must be unpacked, which needs a folder"),
    ("odd", {}, {}, "is not UTF-8: rename it"),
])  # fmt: skip
def test_invalid_inputs(
    tmp_path: Path, uri: str, columns: dict[str, str], options: Any, told: str
) -> None:
    pack_tar(tmp_path / "a-000.tar", {"a.png": TINY_PNG})
    pack_tar(tmp_path / "b.tgz", {"a.png": TINY_PNG}, "w:gz")
    pack_tar(tmp_path / "odd" / "\udcf6.tar", {"a.png": TINY_PNG})
    make_files(tmp_path / "images", "a.png")
    with pytest.raises(UsageError, match=told):
        list(list_source(detect(f"{tmp_path}/{uri}", columns, **options)))


def test_names() -> None:
    names = ("a.tar", "b/a.TAR.GZ", "a.b.tgz", "a.tar.zst", "a.zip")
    assert [tar_stem(name) for name in names] == ["a", "b/a", "a.b", "a", "a.zip"]
    assert [name for name in names if not TarSource.is_name(name)] == ["a.zip"]


@pytest.mark.parametrize("size", [5000, 50])
def test_zstd(tmp_path: Path, size: int) -> None:
    """Members are read from a stream that cannot seek; a cut one gives those before the cut."""
    files = {f"{n}.png": png(n) for n in range(4)} | {"readme": b"x" * 5000}
    plain = pack_tar(tmp_path / "a.tar", files).read_bytes()
    whole = pa.Codec("zstd").compress(plain, asbytes=True)
    (tmp_path / "b.tar.zst").write_bytes(whole[: len(whole) * size // 5000])
    rows, rejects = list_tar(tmp_path / "b.tar.zst", tmp_path / "spool")
    if size == 50:
        assert (rows, rejects) == ([], {"b.tar.zst": "incomplete"})
    else:
        assert [read_row(row) for row in rows] == [png(n) for n in range(4)]
        assert rejects == {"b.tar.zst/readme": "other_file"}


@pytest.mark.parametrize("kind", STORES)
def test_an_archive_in_a_store(places: Places, tmp_path: Path, kind: Kind) -> None:
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
    assert [row["id"] for row in rows[:2]] == ["a-000.tar/cat/0.png", "a-000.tar/cat/1.png"]
    assert len(rows) == 300
    assert COUNTERS.snapshot().get("requests", 0) - before <= 5
    (location,) = columns_of(rows[7:8], "uri", "offset", "num_bytes", "etag")
    assert read_remote_image(Picture(*location), options) == png(7)
    place.put("a-000.tar", data[::-1])
    with pytest.raises(ImageFault) as replaced:
        read_remote_image(Picture(*location), options)
    assert replaced.value.reason == RejectReason.CHANGED
