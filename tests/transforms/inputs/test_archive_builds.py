"""Builds of archives: the records of a folder, and a spool that is reused, resumed and removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shardwright.pipelines.commands import plan as plan_command
from shardwright.storage.folder import Folder
from tests.support.archive_files import built_records, files_below, pack_tar, pack_zip
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, png_of
from tests.support.listing_cases import listing, write_files
from tests.support.tfrecord_makers import example

Record = tuple[str, str, bytes]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images") / "photos", 9)


@pytest.fixture(scope="module")
def wanted(images: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Records of a build of the plain folder."""
    output = tmp_path_factory.mktemp("built") / "folder"
    assert build(images, output) == 0
    return built_records(output)


@pytest.fixture
def archive(images: Path, tmp_path: Path) -> Path:
    """A tar that must be unpacked."""
    return pack_tar(tmp_path / "a.tgz", files_below(images), "w:gz")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


def spooled(output: Path) -> list[str]:
    """Return the endings of the files of a dataset's spool."""
    return sorted(path.suffix for path in (output / "spool").glob("*"))


def rewrite(archive: Path, data: bytes) -> None:
    """Change an archive's content; its time of change stays."""
    status = archive.stat()
    archive.write_bytes(data)
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))


def spoil(archive: Path) -> None:
    """Make an archive unreadable but for its first bytes: a build that reads it again fails."""
    rewrite(archive, archive.read_bytes()[:64].ljust(archive.stat().st_size, b"\0"))


@pytest.mark.long
def test_a_stopped_build(tmp_path: Path, images: Path, wanted: list[Record], output: Path) -> None:
    files = files_below(images) | {"cat/broken.png": b"no image"}
    archive = pack_tar(tmp_path / "a.tgz", files, "w:gz")
    assert build(archive, output, "--max-reject-fraction", "0") == 1
    assert spooled(output) == [".bin", ".parquet"]
    spoil(archive)
    assert build(archive, output, "--max-reject-fraction", "0.5") == 0
    assert built_records(output) == wanted
    assert spooled(output) == [".parquet"]


@pytest.mark.long
def test_plan_build_and_builds_again(
    archive: Path, output: Path, wanted: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan writes nothing, an up-to-date build reads nothing, and a lost shard is made again."""
    command = (archive, output, "--shard-count", "2")

    def plan() -> tuple[str, int]:
        assert plan_command.main([*map(str, command), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return found["state"], found["num_records"]

    assert plan() == ("new", 9)
    assert not output.exists()
    assert build(*command) == 0
    assert plan()[0] == "up_to_date"
    whole = archive.read_bytes()
    spoil(archive)
    assert build(*command) == 0
    assert "up to date" in capsys.readouterr().err
    rewrite(archive, whole)
    shard = sorted(output.glob("*.tfrecord-*"))[0]
    data = shard.read_bytes()
    shard.unlink()
    assert build(*command) == 0
    assert shard.read_bytes() == data
    assert build(archive, output, "--shard-count", "3", "--if-exists", "overwrite") == 0
    assert built_records(output) == wanted
    assert spooled(output) == [".parquet"]


_KILLED = """
import os, signal, sys
from shardwright.storage.options import NO_OPTIONS; from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.spool import spooled

def make(writer):
    writer.add(bytes(5 << 20))  # more than is collected before it is written
    os.kill(os.getpid(), signal.SIGKILL)
    yield

list(spooled(Folder(sys.argv[1]), sys.argv[2], "etag", NO_OPTIONS, make))
"""


@pytest.mark.long
def test_a_killed_build(archive: Path, output: Path, wanted: list[Record]) -> None:
    spool = output / "spool"
    killed = subprocess.run([sys.executable, "-c", _KILLED, spool, archive], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = [path.name for path in spool.iterdir()]
    assert len(left) == 2
    assert all(name.startswith(".") and name.endswith(".tmp") for name in left)
    assert build(archive, output) == 0
    assert built_records(output) == wanted
    assert [path.suffix for path in spool.iterdir()] == [".parquet"]


@pytest.mark.long
def test_the_stock_writer(tmp_path: Path, images: Path, wanted: list[Record], output: Path) -> None:
    archive = pack_zip(tmp_path / "a.zip", files_below(images), zipfile.ZIP_DEFLATED)
    assert build(archive, output, "--writer", "beam") == 0
    assert built_records(output) == wanted
    assert spooled(output) == [".parquet"]


@pytest.mark.long
@pytest.mark.parametrize(("options", "number"), [
    (("--duplicates", "drop"), 9),
    (("--encode", "png", "--resize", "4x4", "--shard-size", "1kB"), 10),
])  # fmt: skip
def test_a_plan_that_looks_into_pictures_unpacks_again(
    tmp_path: Path, images: Path, output: Path, options: tuple[str, ...], number: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    files = files_below(images)
    twin = {"cat/twin.png": next(iter(files.values()))}
    archive = pack_tar(tmp_path / "a.tgz", files | twin, "w:gz")
    command = (archive, output, *options, "--max-reject-fraction", "0.5")
    assert build(*command) == 0
    records = built_records(output)
    assert len(records) == number
    assert build(*command) == 0
    assert "up to date" in capsys.readouterr().err
    assert built_records(output) == records


NUMBERS = [(row % 2, row % 3) for row in range(6)]
INPUTS: dict[str, Any] = {
    "in.tgz": {
        name: value
        for row, (a, b) in enumerate(NUMBERS)
        for name, value in ((f"{row}.png", png_of(row)), (f"{row}.json", {"a": a, "b": b}))
    },
    "in.record.gz": [example(image=png_of(row), a=a, b=b) for row, (a, b) in enumerate(NUMBERS)],
    "in.parquet": [{"image": png_of(row), "a": a, "b": b} for row, (a, b) in enumerate(NUMBERS)],
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_listing_of_other_options_is_not_taken(name: str, tmp_path: Path) -> None:
    """A build is stopped before its plan is written, and its user sees the wrong column."""
    write_files(tmp_path, {name: INPUTS[name]})
    for place, column in enumerate("ab"):
        spool = Folder(str(tmp_path / "spool"))
        found = listing(tmp_path / name, spool=spool, columns={"label": column})
        assert found.of("label") == [(str(numbers[place]),) for numbers in NUMBERS]
        assert len(spool.names()) == 2 + 2 * place
