"""Tar archives as INPUT: members in place, folders inside, links, damage, compression, and how many requests a store gets."""

from __future__ import annotations

import io
import os
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.storage import COUNTERS, Folder, StorageOptions
from tests.archive_files import pack_tar, png
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.store_places import Places
from transforms.image_reads import Place, read_local_image
from transforms.images import ImageFault
from transforms.inputs import archives, header_reads
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.folders import FolderSource
from transforms.inputs.tar_members import TarReader, is_tar_name, tar_stem
from transforms.inputs.tars import TarSource
from transforms.rejects import RejectReason

Rows = list[dict[str, object]]
MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".txz": "w:xz"}


def listed(path: Path | str, spool: Path | None = None, input_format: str | None = "tar") -> tuple[Rows, dict[str, str]]:
    """Rows, and reason by id, of INPUT."""
    source = detect_source(str(path), {}, input_format=input_format, spool=spool and Folder(str(spool)))
    parts = list(list_source(source))
    return rows_of(parts), {reject.id: str(reject.reason) for reject in rejects_of(parts)}


def read(row: Mapping[str, object]) -> bytes:
    return read_local_image(Place(row["uri"], row["offset"], row["num_bytes"], row["etag"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", MODES)
def test_members_are_read_where_they_are(tmp_path: Path, ending: str) -> None:
    files = {f"./cat/{number}{'ü' * 90 * (number % 2)}.png": png(number) for number in range(5)}  # every other name is a long one
    path = pack_tar(tmp_path / f"a{ending}", files, MODES[ending])
    rows, rejects = listed(path, tmp_path / "spool", None)
    assert [row["id"] for row in rows] == [f"a{ending}/{name[2:]}" for name in files]
    assert [read(row) for row in rows] == list(files.values())
    assert [(row["label"], row["split"], row["row"]) for row in rows] == [("cat", None, number) for number in range(5)]
    assert {row["uri"] for row in rows} == {str(path)} if ending == ".tar" else str(path) not in {row["uri"] for row in rows}
    assert rejects == {}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_header(tmp_path: Path, kind: int) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=kind) as tar:
        info = tarfile.TarInfo("dir/" * 30 + "x.png")
        info.size = len(TINY_PNG)
        tar.addfile(info, io.BytesIO(TINY_PNG))
    rows, _ = listed(tmp_path / "a.tar")
    assert [(row["id"], read(row)) for row in rows] == [("a.tar/" + "dir/" * 30 + "x.png", TINY_PNG)]


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
def test_folders_inside_mean_what_they_mean_outside(tmp_path: Path, names: list[str], places: list[tuple[str | None, str | None]]) -> None:
    path = pack_tar(tmp_path / "a.tar", dict.fromkeys(names, TINY_PNG))
    rows, _ = listed(path)
    assert [(row["split"], row["label"]) for row in rows] == places
    if not names[0].startswith("photos"):  # a folder that was packed with its name is the one thing that is not as in a folder
        outside = make_files(tmp_path / "out", *names)
        by_id = {row["id"]: row for row in rows_of(list_source(detect_source(str(outside), {})))}
        assert [(by_id[name]["split"], by_id[name]["label"]) for name in names] == places


def test_a_folder_that_only_some_images_are_in_is_no_wrapper_when_the_look_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack_tar(tmp_path / "a.tar", {f"cat/persian/{n}.png": TINY_PNG for n in range(5)} | {"dog/pug/1.png": TINY_PNG})
    monkeypatch.setattr(archives, "LOOK_MEMBERS", 3)
    assert [row["label"] for row in listed(path)[0]] == ["cat"] * 5 + ["dog"]


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
    rows, rejects = listed(pack_tar(tmp_path / "a.tar", files))
    assert [row["id"] for row in rows] == ["a.tar/a.png", "a.tar/photo"]
    assert rejects == {
        "a.tar/.hidden.png": "other_file",
        "a.tar/__MACOSX/a.png": "other_file",
        "a.tar/readme.txt": "other_file",
        "a.tar/empty.png": "empty_file",
        "": "bad_id",
    }


def test_names_that_are_not_utf8_are_rejects(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        info = tarfile.TarInfo("Löwe.png")
        info.size = len(TINY_PNG)
        tar.addfile(info, io.BytesIO(TINY_PNG))
    parts = list(list_source(detect_source(str(tmp_path / "a.tar"), {})))
    assert [(part.reason, part.uri) for part in rejects_of(parts)] == [(RejectReason.BAD_ID, f"{tmp_path}/a.tar#a.tar/L\\xf6we.png")]


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
    path = pack_tar(tmp_path / f"a{ending}", {"cat/1.png": png(1), "cat/2.png": png(2)}, MODES[ending], links)
    rows, rejects = listed(path, tmp_path / "spool")
    found = {str(row["id"]).removeprefix(f"a{ending}/"): (row["label"], read(row)) for row in rows}
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
    path = pack_tar(tmp_path / "a.tar", {"a.png": TINY_PNG}, links={"pipe.png": (tarfile.FIFOTYPE, ""), "dir": (tarfile.DIRTYPE, "")})
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("sparse.png")
        info.size, info.pax_headers = 512, {"GNU.sparse.map": "0,1", "GNU.sparse.size": "9", "GNU.sparse.name": "sparse.png"}
        tar.addfile(info, io.BytesIO(b"\0" * 512))
    rows, rejects = listed(path)
    assert [row["id"] for row in rows] == ["a.tar/a.png"]
    assert rejects == {"a.tar/pipe.png": "unreadable", "a.tar/sparse.png": "unsupported_format"}


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.bz2", ".txz"])
def test_what_can_be_read_of_a_cut_archive_is_given(tmp_path: Path, ending: str) -> None:
    noise = random.Random(1)
    files = {f"{number}.png": TINY_PNG + noise.randbytes(350_000) for number in range(6)}
    path = pack_tar(tmp_path / f"a{ending}", files, MODES[ending])
    os.truncate(path, path.stat().st_size * 2 // 3)
    rows, rejects = listed(path, tmp_path / "spool")
    assert rejects == {f"a{ending}": "truncated"}
    assert 2 <= len(rows) <= 4  # compressors give what they have at the end of a block
    assert [read(row) for row in rows] == list(files.values())[: len(rows)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 5 * 1024 + 1024), flip=st.one_of(st.none(), st.integers(0, 5 * 1024 - 1)))
def test_damage_never_raises_and_never_goes_untold(tmp_path: Path, cut: int, flip: int | None) -> None:
    path = pack_tar(tmp_path / "a.tar", {f"{number}.png": png(number) for number in range(5)})
    data = bytearray(path.read_bytes()[: 6 * 1024])
    if flip is not None:
        data[flip] ^= 0xFF
    path.write_bytes(data[:cut])
    rows, rejects = listed(path)
    in_header = flip is not None and flip < cut and flip % 1024 < 512
    if cut < 5 * 1024 + 512 or in_header:
        assert rejects or flip is not None
        assert len(rows) <= 5
    else:
        assert len(rows) == 5
        assert rejects == {}
    if flip is None:
        assert len(rows) == min(5, max(0, (cut - 512 - len(png(0))) // 1024 + 1))
        assert ("a.tar" in rejects) == (cut < 5 * 1024 + 512)


def test_a_header_that_claims_too_much(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tgz", {"a.png": TINY_PNG}, "w:gz")
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
        bomb = tarfile.TarInfo("bomb")
        bomb.type, bomb.size = kind, 1 << 30
        with tarfile.open(path, "w:gz") as tar:
            info = tarfile.TarInfo("a.png")
            info.size = len(TINY_PNG)
            tar.addfile(info, io.BytesIO(TINY_PNG))
            tar.fileobj.write(bomb.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
        rows, rejects = listed(path, tmp_path / "spool")
        assert len(rows) == 1
        assert rejects == {"a.tgz": "corrupt"}


def test_a_member_of_more_than_an_image_may_have_is_not_unpacked(tmp_path: Path) -> None:
    info = tarfile.TarInfo("huge.png")
    info.size = (1 << 30) + 1
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, info.size + 2048)  # a hole, which takes no disk
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate(-(-(512 + info.size) // 512) * 512 + 1024)
    assert listed(path) == ([], {"a.tar/huge.png": "too_large"})


@pytest.mark.parametrize("data", [b"", b"no tar at all", b"x" * 2000])
def test_a_file_that_is_no_tar_is_one_reject(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    rows, rejects = listed(tmp_path / "a.tar")
    assert rows == []
    assert set(rejects) == {"a.tar"}


def test_an_archive_that_is_replaced_or_gone(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {"a.png": TINY_PNG})
    source = detect_source(str(path), {})
    row = rows_of(list_source(source))[0]
    pack_tar(path, {"b.png": TINY_PNG})
    os.utime(path, ns=(1, 1))
    with pytest.raises(ImageFault) as changed:
        read(row)
    assert changed.value.reason == RejectReason.CHANGED
    part = next(source.parts())
    path.unlink()
    assert [(part.id, part.reason) for part in rejects_of(source.list_part(part))] == [("a.tar", RejectReason.MISSING_FILE)]


def test_several_archives_are_several_parts(tmp_path: Path) -> None:
    for name in ("train-000.tar", "train-001.tar", "val-000.tar"):
        pack_tar(tmp_path / "in" / name, {f"cat/{name}.png": TINY_PNG})
    make_files(tmp_path / "in", "README.md", data=b"text")
    source = detect_source(str(tmp_path / "in"), {})
    assert isinstance(source, TarSource)
    assert [os.path.basename(part) for part in source.parts()] == ["train-000.tar", "train-001.tar", "val-000.tar"]
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
    with pytest.raises(UsageError, match=r"names 3 files, and 2 are not there, such as .*a-001\.tar"):
        detect_source(f"{tmp_path}/a-{{000..002}}.tar", {})
    with pytest.raises(UsageError, match=r"--label-column is for a table, and INPUT .* is made of tar archives"):
        detect_source(f"{tmp_path}/a-000.tar", {"label": "x"})
    with pytest.raises(UsageError, match="has no tar archives: give one, a folder of them, or a wildcard"):
        detect_source(str(make_files(tmp_path / "images", "a.png")), {}, input_format="tar")
    with pytest.raises(UsageError, match="must be unpacked, and there is no place for it"):
        list(list_source(detect_source(str(pack_tar(tmp_path / "b.tgz", {"a.png": TINY_PNG}, "w:gz")), {})))


def test_images_beside_archives_are_what_a_folder_is_about(tmp_path: Path) -> None:
    pack_tar(tmp_path / "in" / "a.tar", {"a.png": TINY_PNG})
    make_files(tmp_path / "in", "b.png")
    assert isinstance(detect_source(str(tmp_path / "in"), {}), FolderSource)
    assert isinstance(detect_source(str(tmp_path / "in"), {}, input_format="tar"), TarSource)


def test_a_tar_of_any_name_can_be_forced(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "images.bin", {"cat/a.png": TINY_PNG})
    assert [row["id"] for row in listed(path)[0]] == ["images.bin/cat/a.png"]


@pytest.mark.parametrize(
    ("name", "stem"), [("a.tar", "a"), ("b/a.TAR.GZ", "b/a"), ("a.b.tgz", "a.b"), ("a.tar.zst", "a"), ("a.zip", "a.zip")]
)
def test_names(name: str, stem: str) -> None:
    assert tar_stem(name) == stem
    assert is_tar_name(name) == (name != "a.zip")


def test_zstd(tmp_path: Path) -> None:
    plain = pack_tar(tmp_path / "a.tar", {f"{n}.png": png(n) for n in range(4)} | {"readme": b"x" * 5000})
    (tmp_path / "b.tar.zst").write_bytes(pa.Codec("zstd").compress(plain.read_bytes(), asbytes=True))
    rows, rejects = listed(tmp_path / "b.tar.zst", tmp_path / "spool")
    assert [read(row) for row in rows] == [png(n) for n in range(4)]
    assert rejects == {"b.tar.zst/readme": "other_file"}


def test_headers_are_not_all_kept(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {f"{n}.png": TINY_PNG for n in range(50)})
    reader = TarReader(str(path), StorageOptions.parse([]), path.stat().st_size)
    kept = [len(tar.members) for tar, _ in reader._headers()]  # type: ignore[attr-defined]
    assert max(kept) == 0


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_an_archive_in_a_store(places: Places, tmp_path: Path, kind: str) -> None:
    place = places.make(kind)  # type: ignore[arg-type]
    options = StorageOptions.parse([f"{key}={value}" for key, value in place.storage_options.items()])
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


def test_few_requests_and_bytes_for_headers_between_large_members(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_reads, "READ_AHEAD_BYTES", 4096)
    monkeypatch.setattr(header_reads, "MAX_READ_BYTES", 32768)
    place = places.make("s3")
    options = StorageOptions.parse([f"{key}={value}" for key, value in place.storage_options.items()])

    def cost(name: str, size: int, count: int) -> tuple[int, int]:
        place.put(name, pack_tar(tmp_path / name, {f"{n}.png": TINY_PNG.ljust(size) for n in range(count)}).read_bytes())
        reader = TarReader(place.at(name), options, (tmp_path / name).stat().st_size)
        before = COUNTERS.snapshot()
        assert len(list(reader.members())) == count
        after = COUNTERS.snapshot()
        return tuple(after.get(key, 0) - before.get(key, 0) for key in ("requests", "bytes_read"))  # type: ignore[return-value]

    requests, num_bytes = cost("large.tar", 100_000, 20)
    assert requests <= 20 + 2
    assert num_bytes <= 22 * 4096
    requests, _ = cost("small.tar", 500, 1000)  # 1 MB in all
    assert requests <= 1_024_000 // 32768 + 6
