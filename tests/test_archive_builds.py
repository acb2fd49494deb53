"""Whole builds of archives: the same records as of a folder, and what a stopped, repeated or changed build finds in the spool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipelines import plan_dataset
from shardwright.storage import StorageOptions
from shardwright.verify import verify
from tests.archive_files import built_records, files_below, pack_tar, pack_zip
from tests.build_helpers import build, make_images
from tests.helpers import rows_of
from tests.store_places import Places
from transforms.images import ImageFault
from transforms.inputs.detection import detect_source, list_source
from transforms.rejects import RejectReason
from transforms.writing.image_reads import Place as Picture
from transforms.writing.image_reads import read_remote_image

Record = tuple[str, str, bytes]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images") / "photos", 9)


@pytest.fixture(scope="module")
def wanted(images: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """What a build of the plain folder gives."""
    output = tmp_path_factory.mktemp("built") / "folder"
    assert build(images, output) == 0
    return built_records(output)


def samples(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same pictures as members of samples, their labels as text."""
    found = {}
    for number, (name, data) in enumerate(sorted(files.items())):
        found |= {f"{number:06d}.png": data, f"{number:06d}.cls": name.partition("/")[0].encode()}
    return found


FORMS: dict[str, Callable[[Path, Mapping[str, bytes]], Path]] = {
    "wrapped.tar": lambda path, files: pack_tar(
        path, {f"./photos/{name}": data for name, data in files.items()}
    ),
    "deflated.zip": lambda path, files: pack_zip(path, files, zipfile.ZIP_DEFLATED),
    "samples.tar": lambda path, files: pack_tar(path, samples(files)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_pictures_are_the_same_records(
    tmp_path: Path, images: Path, wanted: list[Record], form: str
) -> None:
    archive = FORMS[form](tmp_path / form, files_below(images))
    assert build(archive, tmp_path / "out") == 0
    assert built_records(tmp_path / "out") == wanted
    assert not verify(str(tmp_path / "out")).faults
    left = [path.suffix for path in (tmp_path / "out" / "spool").glob("*")]
    assert left == ([".parquet"] if form == "deflated.zip" else [])


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_archive_and_spool_in_a_store(
    places: Places, tmp_path: Path, images: Path, wanted: list[Record], kind: str
) -> None:
    place, output = places.make(kind), places.make(kind)  # type: ignore[arg-type]
    archive = pack_tar(tmp_path / "a.tgz", files_below(images), "w:gz")
    place.put("a.tgz", archive.read_bytes())
    assert build(place.at("a.tgz"), output.at("out"), *place.args, *output.args) == 0
    assert built_records(output.download(tmp_path / "there") / "out") == wanted
    spool = [name for name in output.names() if name.startswith("out/spool/")]
    assert [name.rpartition(".")[2] for name in spool] == ["parquet"]
    stamps = output.stamps()
    assert build(place.at("a.tgz"), output.at("out"), *place.args, *output.args) == 0
    assert output.stamps() == stamps


def test_an_archive_that_is_replaced_between_plan_and_write(
    places: Places, tmp_path: Path, images: Path
) -> None:
    place = places.make("s3")
    options = StorageOptions.parse(
        [f"{key}={value}" for key, value in place.storage_options.items()]
    )
    place.put("a.tar", pack_tar(tmp_path / "a.tar", files_below(images)).read_bytes())
    row = rows_of(list_source(detect_source(place.at("a.tar"), {}, storage=options)))[0]
    picture = Picture(row["uri"], row["offset"], row["num_bytes"], row["etag"])
    assert (
        read_remote_image(picture, options)
        == (images / row["id"].removeprefix("a.tar/")).read_bytes()
    )
    place.put(
        "a.tar",
        pack_tar(tmp_path / "b.tar", dict(reversed(files_below(images).items()))).read_bytes(),
    )
    with pytest.raises(ImageFault) as changed:
        read_remote_image(picture, options)
    assert changed.value.reason == RejectReason.CHANGED


def spoil(archive: Path) -> None:
    """Make what follows an archive's first bytes unreadable, so that only who does not read it again goes on; its time stays."""
    status = archive.stat()
    data = archive.read_bytes()
    archive.write_bytes(data[:64] + bytes(len(data) - 64))
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_stopped_build_does_not_read_the_archive_again(
    tmp_path: Path, images: Path, wanted: list[Record]
) -> None:
    files = files_below(images)
    archive = pack_tar(tmp_path / "a.tgz", files | {"cat/broken.png": b"no image"}, "w:gz")
    assert build(archive, tmp_path / "out", "--max-reject-fraction", "0") == 1
    assert sorted(path.suffix for path in (tmp_path / "out" / "spool").iterdir()) == [
        ".bin",
        ".parquet",
    ]
    spoil(archive)
    assert build(archive, tmp_path / "out", "--max-reject-fraction", "0.5") == 0
    assert built_records(tmp_path / "out") == wanted
    assert [path.suffix for path in (tmp_path / "out" / "spool").iterdir()] == [".parquet"]


def test_an_up_to_date_build_reads_nothing_and_a_lost_shard_is_made_again(
    tmp_path: Path, images: Path, wanted: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    archive = pack_tar(tmp_path / "a.tgz", files_below(images), "w:gz")
    output = tmp_path / "out"
    assert build(archive, output, "--shard-count", "2") == 0
    whole = archive.read_bytes()
    status = archive.stat()
    spoil(archive)
    assert build(archive, output, "--shard-count", "2") == 0
    assert "up to date" in capsys.readouterr().err
    archive.write_bytes(whole)
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))
    shard = sorted(output.glob("*.tfrecord-*"))[0]
    data = shard.read_bytes()
    shard.unlink()
    assert build(archive, output, "--shard-count", "2") == 0
    assert shard.read_bytes() == data
    assert build(archive, output, "--shard-count", "3", "--if-exists", "overwrite") == 0
    assert built_records(output) == wanted
    assert [path.suffix for path in (output / "spool").iterdir()] == [".parquet"]


_KILLED = """
import os, signal, sys
from shardwright.storage import NO_OPTIONS, Folder
from transforms.inputs.spool import spooled

def make(writer):
    writer.add(bytes(5 << 20))  # more than is collected before it is written
    os.kill(os.getpid(), signal.SIGKILL)
    yield

list(spooled(Folder(sys.argv[1]), sys.argv[2], "etag", NO_OPTIONS, make))
"""


def test_what_a_killed_build_leaves_counts_for_nothing(
    tmp_path: Path, images: Path, wanted: list[Record]
) -> None:
    archive = pack_tar(tmp_path / "a.tgz", files_below(images), "w:gz")
    spool = tmp_path / "out" / "spool"
    killed = subprocess.run([sys.executable, "-c", _KILLED, spool, archive], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = sorted(path.name for path in spool.iterdir())
    assert len(left) == 2
    assert all(name.startswith(".") and name.endswith(".tmp") for name in left)
    assert build(archive, tmp_path / "out") == 0
    assert built_records(tmp_path / "out") == wanted
    assert [path.suffix for path in spool.iterdir()] == [".parquet"]


def test_a_plan_writes_nothing_and_knows_what_a_build_would_do(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = pack_tar(tmp_path / "a.tgz", files_below(images), "w:gz")
    output = tmp_path / "out"

    def plan() -> dict[str, object]:
        assert plan_dataset.main([str(archive), str(output), "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    first = plan()
    assert (first["state"], first["num_records"]) == ("new", 9)
    assert not output.exists()
    assert build(archive, output) == 0
    assert plan()["state"] == "up_to_date"


def test_the_stock_writer_takes_archives_too(
    tmp_path: Path, images: Path, wanted: list[Record]
) -> None:
    archive = pack_zip(tmp_path / "a.zip", files_below(images), zipfile.ZIP_DEFLATED)
    assert build(archive, tmp_path / "out", "--writer", "beam") == 0
    assert built_records(tmp_path / "out") == wanted
    assert [path.suffix for path in (tmp_path / "out" / "spool").iterdir()] == [".parquet"]


@pytest.mark.parametrize(
    "options",
    [("--duplicates", "drop"), ("--encode", "png", "--resize", "4x4", "--shard-size", "1kB")],
)
def test_a_plan_that_looks_into_pictures_unpacks_again(
    tmp_path: Path, images: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_below(images)
    archive = pack_tar(
        tmp_path / "a.tgz", files | {"cat/twin.png": next(iter(files.values()))}, "w:gz"
    )
    assert build(archive, tmp_path / "out", *options, "--max-reject-fraction", "0.5") == 0
    records = built_records(tmp_path / "out")
    assert len(records) == (9 if "--duplicates" in options else 10)
    assert build(archive, tmp_path / "out", *options, "--max-reject-fraction", "0.5") == 0
    assert "up to date" in capsys.readouterr().err
    assert built_records(tmp_path / "out") == records
