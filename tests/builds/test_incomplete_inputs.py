"""Inputs that cannot be read to their end: the build fails, or goes on with what is accepted."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.pipelines.job.build import describe_job
from shardwright.pipelines.local.build import BuildState, plan_locally
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.formats import folders
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.reject_tally import RejectTally
from shardwright.transforms.rejects import Reject, incomplete, rejects_to_table
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, manifest_of, png_of, rejects_of
from tests.support.tfrecord_makers import example, write_records

CLASSES = ("cat", "dog", "eel")
NUM_IMAGES = 24


def images() -> dict[str, bytes]:
    return {f"{CLASSES[n % 3]}/{n}.png": png_of(n) + bytes(400) for n in range(NUM_IMAGES)}


def half_tar(folder: Path, ending: str = ".tar") -> Path:
    path = folder / f"photos{ending}"
    with tarfile.open(path, "w:gz" if ending == ".tgz" else "w") as archive:
        for name, data in images().items():
            file = folder / "unpacked" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data + os.urandom(2000))
            archive.add(file, name)
    os.truncate(path, path.stat().st_size // 2 + 100)
    return path


def half_tgz(folder: Path) -> Path:
    return half_tar(folder, ".tgz")


def flipped_tfrecord(folder: Path) -> Path:
    records = [example(image=data, label=name[:3].encode()) for name, data in images().items()]
    path = write_records(folder / "photos.tfrecord", records)
    data = bytearray(path.read_bytes())
    data[sum(len(record) + 16 for record in records[:12]) + 2] ^= 1
    path.write_bytes(data)
    return path


def zip_without_directory(folder: Path) -> Path:
    path = folder / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in images().items():
            archive.writestr(name, data)
    os.truncate(path, path.stat().st_size * 9 // 10)
    return path


def cut_parquet(folder: Path) -> Path:
    rows = pa.table({"image": list(images().values()), "label": ["cat"] * NUM_IMAGES})
    pq.write_table(rows, folder / "a.parquet")
    path = folder / "b.parquet"
    pq.write_table(rows, path)
    os.truncate(path, path.stat().st_size // 2)
    return path


MAKERS: list[tuple[Callable[[Path], Path], int]] = [
    (half_tar, 1), (half_tgz, 0), (flipped_tfrecord, 12), (zip_without_directory, 0),
    (cut_parquet, 0),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("make", "least"), MAKERS)
def test_an_incomplete_container_fails_the_build(
    tmp_path: Path, make: Callable[[Path], Path], least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = make(folder)
    source = folder if make is cut_parquet else path
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    out = tmp_path / "out"
    assert build(source, out) == 1
    told = capsys.readouterr().err
    assert f"{path}: " in told
    assert f"--accept-partial '{path}'" in told
    assert ("--class-names" in told) == (make is not zip_without_directory)
    (reject,) = read_rejects(Folder(str(out)), naming.FAILED_REJECTS)
    assert (reject.uri, str(reject.reason)) == (str(path), "incomplete")
    readable = int(reject.detail.split(": ")[-1].split()[0])
    assert least <= readable < NUM_IMAGES
    assert not list(out.glob("*.tfrecord*"))

    job = describe_job(parse_options([str(source), str(out)], "plan"))
    plan = plan_locally(job)
    assert plan.state == BuildState.FAILED
    assert str(path) in plan.reason
    if not readable and source == path:
        return
    pattern = f"{path.parent}/{path.stem[:1]}*{path.suffix}"
    assert build(source, out, "--accept-partial", pattern) == 1
    assert "would be learned from a part of INPUT" in capsys.readouterr().err
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CLASSES))
    assert build(source, out, "--accept-partial", pattern, "--class-names", names) == 0
    assert [row["reason"] for row in rejects_of(out)] == ["incomplete"]
    manifest = manifest_of(out)
    assert manifest["schema"]["class_names"] == list(CLASSES)


@pytest.mark.long
def test_a_folder_that_goes_away_takes_no_class_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it, all later labels would be renumbered."""
    source = tmp_path / "in"
    for name, data in images().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    scandir = os.scandir

    def deny(path: str) -> object:
        if str(path).endswith("/cat"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(folders.os, "scandir", deny)
    assert build(source, tmp_path / "out") == 1
    told = capsys.readouterr().err
    assert f"{source}/cat: cannot list the folder: Permission denied" in told
    assert f"--accept-partial '{source}/cat'" in told
    accepted = ["--accept-partial", f"{source}/cat"]
    assert build(source, tmp_path / "out", *accepted) == 1
    (tmp_path / "names.txt").write_text("\n".join(CLASSES))
    accepted += ["--class-names", str(tmp_path / "names.txt")]
    assert build(source, tmp_path / "out", *accepted) == 0
    assert manifest_of(tmp_path / "out")["schema"]["class_names"] == list(CLASSES)


@pytest.mark.parametrize("last", [
    'b.png,5" screen', '"b.png","x"', "b.png,", 'b.png,"two\nlines"', '"b.png",a"b',
])  # fmt: skip
def test_tables_with_closed_quotes(tmp_path: Path, last: str) -> None:
    make_images(tmp_path, 1)
    (tmp_path / "t.csv").write_text(f"image,note\na.png,z\n{last}")
    describe_job(parse_options([str(tmp_path / "t.csv"), str(tmp_path / "out")]))


def check(
    partial: PartialInputs, rejects: Sequence[Reject], vocabularies: Mapping[str, tuple[str, ...]]
) -> None:
    """Count the rejects in parts, as workers do, and check that INPUT is complete."""
    whole = RejectTally(partial)
    for reject in rejects[::-1]:
        part = RejectTally(partial)
        part.add(rejects_to_table([reject]))
        whole.add_all(part)
    whole.check_complete(vocabularies)


def test_acceptance_by_path_and_wildcard() -> None:
    rejects = [incomplete(f"{n}.tar", f"/in/{n}.tar", "cut", n) for n in range(5)]
    with pytest.raises(
        BuildError, match=r"/in/0.tar: cut; .*: 0 records.*; and 2 more\): repair .* '/in/2"
    ):
        check(PartialInputs(), rejects, {})
    with pytest.raises(BuildError, match=r"\(/in/4.tar: cut; .*: 4 rec.* '/in/4.tar'$"):
        check(PartialInputs(("/in/[0-3].tar",), ("label",)), rejects, {"label": ()})
    with pytest.raises(BuildError, match="class names of 'label' would be learned"):
        check(PartialInputs(("/in/*",), ("label",)), rejects, {"label": ("cat",)})
    check(PartialInputs(("/in/*",)), rejects, {"label": ("cat",)})
    check(PartialInputs(("/in/[x].tar",)), [incomplete("[x].tar", "/in/[x].tar", "cut", 0)], {})
    check(PartialInputs(learned=("label",)), [], {"label": ("cat",)})
