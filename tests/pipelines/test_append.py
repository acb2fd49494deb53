"""A build of additions: what it finds new, changed and gone, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.append import prepare_append
from pipelines.beam_running import run_pipeline
from pipelines.graphs import build_graph
from pipelines.job import BuildJob
from pipelines.local_build import build_here
from pipelines.options import parse_options
from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, make_images, png_of, reasons_of, record_ids
from transforms.changes.seen_records import outdated_rows

GENERATION = "generations/00001"


def append_job(images: Path, output: Path, *options: str) -> BuildJob:
    found = parse_options([str(images), str(output), *options])
    return prepare_append(found, read_manifest(Folder(str(output))), GENERATION)


def run_graph(job: BuildJob) -> None:
    run_pipeline(build_graph, job)


def splits_of(root: Path) -> dict[str, str]:
    """Return id -> split of every record."""
    from tests.support.build_helpers import index_of

    return {
        one: name.partition("-")[0]
        for name, table in index_of(root).items()
        for one in table["id"].to_pylist()
    }


@pytest.mark.parametrize("run", [build_here, run_graph])
def test_additions(tmp_path: Path, run: Callable[[BuildJob], None]) -> None:
    images, output = make_images(tmp_path / "in", 30), tmp_path / "pets"
    split = ("--split", "train=0.5,test=0.5", "--max-reject-fraction", "0.05")
    (images / "notes.txt").write_text("no image")
    assert build(images, output, *split) == 0
    before = splits_of(output)
    (images / "bird" / "0003.png").write_bytes(png_of(77))
    (images / "cat" / "0001.png").unlink()
    for name in ("ant/1.png", "zebra/2.png", "cat/3.png"):
        (images / name).parent.mkdir(exist_ok=True)
        (images / name).write_bytes(png_of(len(name)))
    (images / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    job = append_job(images, output, *split)
    run(job)
    added = output / GENERATION
    assert set(record_ids(added)) == {"bird/0003.png", "ant/1.png", "zebra/2.png", "cat/3.png"}
    assert splits_of(added)["bird/0003.png"] == before["bird/0003.png"]
    manifest = read_manifest(Folder(str(added)))
    assert manifest.schema.class_names == ("Löwe", "bird", "cat", "ant", "zebra")
    assert reasons_of(added) == {"notes.txt": "other_file", "cat/broken.png": "truncated"}
    assert job.known is not None
    seen = job.known.file.read_seen()
    assert (seen.num_unchanged, seen.num_changed) == (28, 1)
    old = read_manifest(Folder(str(output)))
    for keep_missing, gone in (
        (False, {"bird/0003.png", "cat/0001.png"}),
        (True, {"bird/0003.png"}),
    ):
        outdated = outdated_rows(old, seen, keep_missing=keep_missing)
        index = {
            name: __import__("pyarrow.parquet").parquet.read_table(output / name.sidecar)
            for name in outdated
        }
        assert {
            index[name]["id"][int(row)].as_py() for name, rows in outdated.items() for row in rows
        } == gone


@pytest.mark.parametrize("run", [build_here, run_graph])
def test_nothing(tmp_path: Path, run: Callable[[BuildJob], None]) -> None:
    images, output = make_images(tmp_path / "in", 5), tmp_path / "pets"
    assert build(images, output) == 0
    job = append_job(images, output)
    run(job)
    assert job.known is not None
    assert job.known.file.read_seen().num_unchanged == 5
