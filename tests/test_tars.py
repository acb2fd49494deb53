"""Tar archives as INPUT: members in place, folders inside, links, damage, compression, and how many requests a store gets."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.errors import UsageError
from shardwright.storage import COUNTERS, StorageOptions
from tests.archive_files import TAR_MODES, list_tar, pack_tar, png, read_row
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.store_places import Places
from transforms.images import ImageFault
from transforms.inputs.archives import archive_source as archives
from transforms.inputs.archives.tar_members import is_tar_name, tar_stem
from transforms.inputs.archives.tars import TarSource
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.folders.folder_source import FolderSource
from transforms.inputs.input_files import expand_braces
from transforms.rejects import RejectReason


@pytest.mark.parametrize("ending", TAR_MODES)
def test_members_are_read_where_they_are(tmp_path: Path, ending: str) -> None:
    files = {
        f"./cat/{number}{'ü' * 90 * (number % 2)}.png": png(number) for number in range(5)
    }  # every other name is a long one
    path = pack_tar(tmp_path / f"a{ending}", files, TAR_MODES[ending])
    rows, rejects = list_tar(path, tmp_path / "spool", None)
    assert [row["id"] for row in rows] == [f"a{ending}/{name[2:]}" for name in files]
    assert [read_row(row) for row in rows] == list(files.values())
    assert [(row["label"], row["split"], row["row"]) for row in rows] == [
        ("cat", None, number) for number in range(5)
    ]
    assert (
        {row["uri"] for row in rows} == {str(path)}
        if ending == ".tar"
        else str(path) not in {row["uri"] for row in rows}
    )
    assert rejects == {}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_header(tmp_path: Path, kind: int) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=kind) as tar:
        info = tarfile.TarInfo("dir/" * 30 + "x.png")
        info.size = len(TINY_PNG)
        tar.addfile(info, io.BytesIO(TINY_PNG))
    rows, _ = list_tar(tmp_path / "a.tar")
    assert [(row["id"], read_row(row)) for row in rows] == [
        ("a.tar/" + "dir/" * 30 + "x.png", TINY_PNG)
    ]


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["cat/1.png", "dog/2.png"], [(None, "cat"), (None, "dog")]),
        (["1.png", "cat/2.png"], [(None, None), (None, "cat")]),
        (["photos/cat/1.png", "photos/dog/2.png"], [(None, "cat"), (None, "dog")]),
        (["photos/1.png", "photos/dog/2.png"], [(None, "photos"), (None, "photos")]),
        (["Train/cat/1.png", "val/dog/2.png"], [("train", "cat"), ("validation", "dog")]),
        (["train/1.png", "test/2.png"], [("train", None), ("test", None)]),
        (["photos/train/cat/1.png", "photos/test/dog/2.png"], [("train", "cat"), ("test", "dog")]),
        (["train/cat/1.png", "other/dog/2.png"], [(None, "train"), (None, "other")]),
        (["train/cat/1.png", "2.png"], [(None, "train"), (None, None)]),
    ],
)
def test_folders_inside_mean_what_they_mean_outside(
    tmp_path: Path, names: list[str], places: list[tuple[str | None, str | None]]
) -> None:
    path = pack_tar(tmp_path / "a.tar", dict.fromkeys(names, TINY_PNG))
    rows, _ = list_tar(path)
    assert [(row["split"], row["label"]) for row in rows] == places
    if not names[0].startswith(
        "photos"
    ):  # a folder that was packed with its name is the one thing that is not as in a folder
        outside = make_files(tmp_path / "out", *names)
        by_id = {row["id"]: row for row in rows_of(list_source(detect_source(str(outside), {})))}
        assert [(by_id[name]["split"], by_id[name]["label"]) for name in names] == places


def test_a_folder_that_only_some_images_are_in_is_no_wrapper_when_the_look_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack_tar(
        tmp_path / "a.tar",
        {f"cat/persian/{n}.png": TINY_PNG for n in range(5)} | {"dog/pug/1.png": TINY_PNG},
    )
    monkeypatch.setattr(archives, "LOOK_MEMBERS", 3)
    assert [row["label"] for row in list_tar(path)[0]] == ["cat"] * 5 + ["dog"]


def test_what_is_no_image(tmp_path: Path) -> None:
    files = {
        "a.png": TINY_PNG,
        ".hidden.png": TINY_PNG,
        "__MACOSX/a.png": TINY_PNG,
        "readme.txt": b"text",
        "photo": TINY_PNG,
        "empty.png": b"",
        "../out.png": TINY_PNG,
    }
    rows, rejects = list_tar(pack_tar(tmp_path / "a.tar", files))
    assert [row["id"] for row in rows] == ["a.tar/a.png", "a.tar/photo"]
    assert rejects == {
        "a.tar/.hidden.png": "other_file",
        "a.tar/__MACOSX/a.png": "other_file",
        "a.tar/readme.txt": "other_file",
        "a.tar/empty.png": "empty_file",
        "": "bad_id",
    }


def test_names_that_are_not_utf8_are_rejects(tmp_path: Path) -> None:
    with tarfile.open(
        tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1"
    ) as tar:
        info = tarfile.TarInfo("Löwe.png")
        info.size = len(TINY_PNG)
        tar.addfile(info, io.BytesIO(TINY_PNG))
    parts = list(list_source(detect_source(str(tmp_path / "a.tar"), {})))
    assert [(part.reason, part.uri) for part in rejects_of(parts)] == [
        (RejectReason.BAD_ID, f"{tmp_path}/a.tar#a.tar/L\\xf6we.png")
    ]


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_links_are_the_files_that_they_lead_to(tmp_path: Path, ending: str) -> None:
    links = {
        "dog/soft.png": (tarfile.SYMTYPE, "../cat/1.png"),
        "dog/hard.png": (tarfile.LNKTYPE, "./cat/1.png"),
        "dog/chain.png": (tarfile.SYMTYPE, "soft.png"),
        "dog/gone.png": (tarfile.SYMTYPE, "nowhere.png"),
        "dog/self.png": (tarfile.SYMTYPE, "self.png"),
        "latest": (tarfile.SYMTYPE, "cat"),
    }
    path = pack_tar(
        tmp_path / f"a{ending}",
        {"cat/1.png": png(1), "cat/2.png": png(2)},
        TAR_MODES[ending],
        links,
    )
    rows, rejects = list_tar(path, tmp_path / "spool")
    found = {
        str(row["id"]).removeprefix(f"a{ending}/"): (row["label"], read_row(row)) for row in rows
    }
    assert found == {
        "cat/1.png": ("cat", png(1)),
        "cat/2.png": ("cat", png(2)),
        **{f"dog/{name}.png": ("dog", png(1)) for name in ("soft", "hard", "chain")},
    }
    assert rejects == {
        f"a{ending}/dog/gone.png": "missing_file",
        f"a{ending}/dog/self.png": "missing_file",
        f"a{ending}/latest": "other_file",
    }


def test_special_members(tmp_path: Path) -> None:
    path = pack_tar(
        tmp_path / "a.tar",
        {"a.png": TINY_PNG},
        links={"pipe.png": (tarfile.FIFOTYPE, ""), "dir": (tarfile.DIRTYPE, "")},
    )
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("sparse.png")
        info.size, info.pax_headers = (
            512,
            {"GNU.sparse.map": "0,1", "GNU.sparse.size": "9", "GNU.sparse.name": "sparse.png"},
        )
        tar.addfile(info, io.BytesIO(b"\0" * 512))
    rows, rejects = list_tar(path)
    assert [row["id"] for row in rows] == ["a.tar/a.png"]
    assert rejects == {"a.tar/pipe.png": "unreadable", "a.tar/sparse.png": "unsupported_format"}


def test_an_archive_that_is_replaced_or_gone(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {"a.png": TINY_PNG})
    source = detect_source(str(path), {})
    row = rows_of(list_source(source))[0]
    pack_tar(path, {"b.png": TINY_PNG})
    os.utime(path, ns=(1, 1))
    with pytest.raises(ImageFault) as changed:
        read_row(row)
    assert changed.value.reason == RejectReason.CHANGED
    part = next(source.parts())
    path.unlink()
    assert [(part.id, part.reason) for part in rejects_of(source.list_part(part))] == [
        ("a.tar", RejectReason.MISSING_FILE)
    ]


def test_several_archives_are_several_parts(tmp_path: Path) -> None:
    for name in ("train-000.tar", "train-001.tar", "val-000.tar"):
        pack_tar(tmp_path / "in" / name, {f"cat/{name}.png": TINY_PNG})
    make_files(tmp_path / "in", "README.md", data=b"text")
    source = detect_source(str(tmp_path / "in"), {})
    assert isinstance(source, TarSource)
    assert [os.path.basename(part) for part in source.parts()] == [
        "train-000.tar",
        "train-001.tar",
        "val-000.tar",
    ]
    assert source.states_splits
    assert source.describe() == f"3 tar archives at {tmp_path}/in, splits by their names"
    rows = rows_of(list_source(source))
    assert [(row["id"], row["split"], row["label"]) for row in rows] == [
        ("train-000.tar/cat/train-000.tar.png", "train", "cat"),
        ("train-001.tar/cat/train-001.tar.png", "train", "cat"),
        ("val-000.tar/cat/val-000.tar.png", "validation", "cat"),
    ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("in/*.tar", 3),
        ("in/train-*.tar", 2),
        ("in/train-{000..001}.tar", 2),
        ("in/{train,val}-000.tar", 2),
        ("in/[tv]*-000.tar", 2),
        ("i?/val*", 1),
    ],
)
def test_wildcards_and_braces(tmp_path: Path, pattern: str, found: int) -> None:
    for name in ("train-000.tar", "train-001.tar", "val-000.tar"):
        pack_tar(tmp_path / "in" / name, {f"cat/{name}.png": TINY_PNG})
    source = detect_source(str(tmp_path / pattern), {})
    assert len(list(source.parts())) == len(rows_of(list_source(source))) == found


def test_what_is_told_of_wrong_inputs(tmp_path: Path) -> None:
    pack_tar(tmp_path / "a-000.tar", {"a.png": TINY_PNG})
    with pytest.raises(
        UsageError, match=r"names 3 files, and 2 are not there, such as .*a-001\.tar"
    ):
        detect_source(f"{tmp_path}/a-{{000..002}}.tar", {})
    with pytest.raises(
        UsageError, match=r"--label-column is for a table, and INPUT .* is made of tar archives"
    ):
        detect_source(f"{tmp_path}/a-000.tar", {"label": "x"})
    with pytest.raises(
        UsageError, match="has no tar archives: give one, a folder of them, or a wildcard"
    ):
        detect_source(str(make_files(tmp_path / "images", "a.png")), {}, input_format="tar")
    with pytest.raises(UsageError, match="must be unpacked, and there is no place for it"):
        list(
            list_source(
                detect_source(str(pack_tar(tmp_path / "b.tgz", {"a.png": TINY_PNG}, "w:gz")), {})
            )
        )


def test_images_beside_archives_are_what_a_folder_is_about(tmp_path: Path) -> None:
    pack_tar(tmp_path / "in" / "a.tar", {"a.png": TINY_PNG})
    make_files(tmp_path / "in", "b.png")
    assert isinstance(detect_source(str(tmp_path / "in"), {}), FolderSource)
    assert isinstance(detect_source(str(tmp_path / "in"), {}, input_format="tar"), TarSource)


def test_a_tar_of_any_name_can_be_forced(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "images.bin", {"cat/a.png": TINY_PNG})
    assert [row["id"] for row in list_tar(path)[0]] == ["images.bin/cat/a.png"]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.tar", "a"),
        ("b/a.TAR.GZ", "b/a"),
        ("a.b.tgz", "a.b"),
        ("a.tar.zst", "a"),
        ("a.zip", "a.zip"),
    ],
)
def test_names(name: str, stem: str) -> None:
    assert tar_stem(name) == stem
    assert is_tar_name(name) == (name != "a.zip")


def test_zstd(tmp_path: Path) -> None:
    plain = pack_tar(
        tmp_path / "a.tar", {f"{n}.png": png(n) for n in range(4)} | {"readme": b"x" * 5000}
    )
    (tmp_path / "b.tar.zst").write_bytes(
        pa.Codec("zstd").compress(plain.read_bytes(), asbytes=True)
    )
    rows, rejects = list_tar(tmp_path / "b.tar.zst", tmp_path / "spool")
    assert [read_row(row) for row in rows] == [png(n) for n in range(4)]
    assert rejects == {"b.tar.zst/readme": "other_file"}


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_an_archive_in_a_store(places: Places, tmp_path: Path, kind: str) -> None:
    place = places.make(kind)  # type: ignore[arg-type]
    options = StorageOptions.parse(
        [f"{key}={value}" for key, value in place.storage_options.items()]
    )
    files = {f"cat/{number}.png": png(number) for number in range(300)}
    place.put("a-000.tar", pack_tar(tmp_path / "a.tar", files).read_bytes())
    place.put("a-001.tar", pack_tar(tmp_path / "b.tar", {"cat/x.png": TINY_PNG}).read_bytes())
    place.put("notes.txt", b"")
    for uri in (place.uri, place.at("a-*.tar"), place.at("a-{000..001}.tar")):
        source = detect_source(uri, {}, storage=options)
        assert [part.rpartition("/")[2] for part in source.parts()] == ["a-000.tar", "a-001.tar"]
    before = COUNTERS.snapshot().get("requests", 0)
    rows = rows_of(source.list_part(next(source.parts())))
    assert [row["id"] for row in rows][:2] == ["a-000.tar/cat/0.png", "a-000.tar/cat/1.png"]
    assert len(rows) == 300
    assert COUNTERS.snapshot().get("requests", 0) - before <= 5


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("a-{08..11}", ["a-08", "a-09", "a-10", "a-11"]),
        ("a-{8..10}", ["a-8", "a-9", "a-10"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("a{,x}", ["a", "ax"]),
        ("{3..1}", []),
        ("{a}", ["{a}"]),
    ],
)
def test_braces(pattern: str, names: list[str]) -> None:
    assert expand_braces(pattern) == names


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "in" / "a.tar", {"a.png": TINY_PNG})
    os.rename(path, os.fsencode(tmp_path) + b"/in/\xf6.tar")
    with pytest.raises(UsageError, match="is not UTF-8: rename it"):
        detect_source(str(tmp_path / "in"), {})
