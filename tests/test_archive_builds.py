"""Whole builds of archives: the same records as of a folder, and what a stopped, repeated or changed build finds in the spool."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipelines import plan_dataset
from shardwright.storage import StorageOptions
from shardwright.verify import verify
from tests.archive_files import built_records, files_below, pack_tar, pack_zip
from tests.build_helpers import COMMAND, build, make_images
from tests.helpers import rows_of
from tests.store_places import Places
from transforms.image_reads import Place as Picture
from transforms.image_reads import read_remote_image
from transforms.images import ImageFault
from transforms.inputs.detection import detect_source, list_source
from transforms.rejects import RejectReason

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
    "plain.tar": pack_tar,
    "wrapped.tar": lambda path, files: pack_tar(path, {f"./photos/{name}": data for name, data in files.items()}),
    "gzip.tgz": lambda path, files: pack_tar(path, files, "w:gz"),
    "stored.zip": pack_zip,
    "deflated.zip": lambda path, files: pack_zip(path, files, zipfile.ZIP_DEFLATED),
    "samples.tar": lambda path, files: pack_tar(path, samples(files)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_pictures_are_the_same_records(tmp_path: Path, images: Path, wanted: list[Record], form: str) -> None:
    archive = FORMS[form](tmp_path / form, files_below(images))
    assert build(archive, tmp_path / "out") == 0
    assert built_records(tmp_path / "out") == wanted
    assert not verify(str(tmp_path / "out")).faults
    left = [path.suffix for path in (tmp_path / "out" / "spool").glob("*")]
    assert left == ([".parquet"] if form in ("gzip.tgz", "deflated.zip") else [])


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_archive_and_spool_in_a_store(places: Places, tmp_path: Path, images: Path, wanted: list[Record], kind: str) -> None:
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


def test_an_archive_that_is_replaced_between_plan_and_write(places: Places, tmp_path: Path, images: Path) -> None:
    place = places.make("s3")
    options = StorageOptions.parse([f"{key}={value}" for key, value in place.storage_options.items()])
    place.put("a.tar", pack_tar(tmp_path / "a.tar", files_below(images)).read_bytes())
    row = rows_of(list_source(detect_source(place.at("a.tar"), {}, storage=options)))[0]
    picture = Picture(row["uri"], row["offset"], row["num_bytes"], row["etag"])
    assert read_remote_image(picture, options) == (images / row["id"].removeprefix("a.tar/")).read_bytes()
    place.put("a.tar", pack_tar(tmp_path / "b.tar", dict(reversed(files_below(images).items()))).read_bytes())
    with pytest.raises(ImageFault) as changed:
        read_remote_image(picture, options)
    assert changed.value.reason == RejectReason.CHANGED


def spoil(archive: Path) -> None:
    """Make what follows an archive's first bytes unreadable, so that only who does not read it again goes on; its time stays."""
    status = archive.stat()
    data = archive.read_bytes()
    archive.write_bytes(data[:64] + bytes(len(data) - 64))
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_stopped_build_does_not_read_the_archive_again(tmp_path: Path, images: Path, wanted: list[Record]) -> None:
    files = files_below(images)
    archive = pack_tar(tmp_path / "a.tgz", files | {"cat/broken.png": b"no image"}, "w:gz")
    assert build(archive, tmp_path / "out", "--max-reject-fraction", "0") == 1
    assert sorted(path.suffix for path in (tmp_path / "out" / "spool").iterdir()) == [".bin", ".parquet"]
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


def test_a_build_that_is_killed_while_it_spools(tmp_path: Path) -> None:
    noise = random.Random(1)
    archive = pack_tar(tmp_path / "a.tbz2", {f"cat/{number}.png": noise.randbytes(1 << 20) for number in range(24)}, "w:bz2")  # slow
    output = tmp_path / "out"
    process = subprocess.Popen([COMMAND, "build", archive, output], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size for path in output.glob("spool/.*.bin.*.tmp")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not list(output.glob("spool/*.parquet"))
    images = make_images(tmp_path / "photos", 6)
    pack_tar(archive, files_below(images), "w:bz2")
    assert build(archive, output) == 0
    assert len(built_records(output)) == 6
    assert [path.suffix for path in (output / "spool").iterdir()] == [".parquet"]


def test_a_plan_writes_nothing_and_knows_what_a_build_would_do(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_stock_writer_takes_archives_too(tmp_path: Path, images: Path, wanted: list[Record]) -> None:
    archive = pack_zip(tmp_path / "a.zip", files_below(images), zipfile.ZIP_DEFLATED)
    assert build(archive, tmp_path / "out", "--writer", "beam") == 0
    assert built_records(tmp_path / "out") == wanted
    assert [path.suffix for path in (tmp_path / "out" / "spool").iterdir()] == [".parquet"]
