"""Builds of archives: the records of a folder, and a spool that is reused, resumed and removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.pipelines.commands import plan as plan_command
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import LocalShards
from shardwright.pipelines.options.build import parse_options
from tests.support.archive_files import built_records, files_below, pack_tar, pack_zip
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, png_of
from tests.support.tfrecord_makers import example, records_of, write_records

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


def as_webdataset(root: Path) -> Path:
    files: dict[str, bytes] = {}
    for row, (a, b) in enumerate(NUMBERS):
        files |= {f"{row}.png": png_of(row), f"{row}.json": json.dumps({"a": a, "b": b}).encode()}
    return pack_tar(root / "in.tgz", files, "w:gz")


def as_tfrecord(root: Path) -> Path:
    records = [example(image=png_of(row), a=a, b=b) for row, (a, b) in enumerate(NUMBERS)]
    return write_records(root / "in.tfrecord.gz", records, "GZIP")


def as_hub_parquet(root: Path) -> Path:
    columns: dict[str, list[object]] = {"image": [png_of(row) for row in range(6)]}
    columns |= {name: [one[place] for one in NUMBERS] for place, name in enumerate("ab")}
    pq.write_table(pa.table(columns), root / "in.parquet")
    return root / "in.parquet"


@pytest.mark.parametrize("make", [as_webdataset, as_tfrecord, as_hub_parquet])
def test_a_listing_of_other_options_is_not_taken(
    make: Callable[[Path], Path], tmp_path: Path, output: Path
) -> None:
    """A build is stopped before its plan is written, and its user sees the wrong column."""
    words = [str(make(tmp_path)), str(output), "--label-column"]
    LocalShards(prepare_job(parse_options([*words, "a"])), with_plans=True)
    assert ".parquet" in spooled(output)
    assert build(*words, "b") == 0
    order = {png_of(row): row for row in range(6)}
    found = {order[one["image"][0]]: one["label"][0] for one in records_of(output).values()}
    assert found == {row: b for row, (_, b) in enumerate(NUMBERS)}
