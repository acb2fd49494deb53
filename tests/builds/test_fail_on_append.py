"""`build --fail-on` for an append or an overwrite: compared with what was there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.errors import BuildError
from shardwright.format.versions import read_version, version_numbers
from shardwright.pipelines.commands import build
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.storage.folder import Folder
from tests.builds.test_append import APPEND, FIRST, OPTIONS, Images, first_build, put

GONE: Images = {name: seed for name, seed in FIRST.items() if name != "ant/1.png"}
NEW: Images = {**FIRST, "bee/0.png": 40, "bee/1.png": 41}
CHANGED: Images = {**FIRST, "cat/2.png": 42}
MIXED: Images = {**GONE, "cat/2.png": 42, "bee/0.png": 40}


def job_of(root: Path, limits: str, *options: str) -> BuildJob:
    argv = [str(root / "in"), str(root / "out"), *OPTIONS, *APPEND, "--fail-on", limits, *options]
    return prepare_version(parse_options(argv))


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    first_build(tmp_path / "in", tmp_path / "out")
    return tmp_path


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("images", "limits", "told"),
    [
        (GONE, "gone>0", "gone>0: 1"),
        (GONE, "gone>9%", "gone>9%: 10%"),
        (NEW, "new>1", "new>1: 2"),
        (NEW, "new>16%", "new>16%: 16.67%"),
        (NEW, "drift>0.15", "drift>0.15: 0.1667"),
        (CHANGED, "changed>0", "changed>0: 1"),
        (MIXED, "new>1,gone>0,changed>0,moved>0,rejects>0", "gone>0: 1; changed>0: 1"),
    ],
)
def test_an_append_is_compared_with_the_version_before(
    grown: Path, images: Images, limits: str, told: str
) -> None:
    put(images, grown / "in")
    with pytest.raises(BuildError) as raised:
        append_version(job_of(grown, limits))
    assert f"exceeds the limits of --fail-on ({told}), so it is not published" in str(raised.value)
    assert ("its shards stay in" in str(raised.value)) is (images is not GONE)
    assert list(version_numbers(Folder(str(grown / "out")))) == [1]
    assert not list(grown.glob("out/generations/*/manifest.json"))
    high = "new>9,gone>9,changed>90%,drift>0.9"
    folder = job_of(grown, high).append
    version = append_version(job_of(grown, high))
    assert version.num_records == len(images)
    if images is not GONE and folder is not None:  # the one whose shards are there
        assert folder.folder in version.history["generations"]


@pytest.mark.long
@pytest.mark.parametrize("images", [GONE, MIXED], ids=["only gone", "mixed"])
def test_a_graph_compares_as_this_process(grown: Path, images: Images) -> None:
    put(images, grown / "in")
    with pytest.raises(BuildError, match=r"limits of --fail-on \(gone>0: 1\)"):
        run_pipeline(build_graph, job_of(grown, "gone>0,new>1"))
    assert list(version_numbers(Folder(str(grown / "out")))) == [1]
    run_pipeline(build_graph, job_of(grown, "gone>1,new>1"))
    assert read_version(Folder(str(grown / "out"))).num_records == len(images)


def test_the_third_version_is_compared_with_the_second(grown: Path) -> None:
    put(NEW, grown / "in")
    append_version(job_of(grown, "new>2"))
    put(MIXED, grown / "in")
    with pytest.raises(BuildError, match=r"\(gone>0: 2; changed>0: 1\)"):
        append_version(job_of(grown, "gone>0,changed>0,new>0"))


def test_another_dataset_to_compare_an_append_with(grown: Path) -> None:
    put(NEW, grown / "in")
    build_here(prepare_job(parse_options([str(grown / "in"), str(grown / "old"), *OPTIONS])))
    put({**NEW, "bee/7.png": 3}, grown / "in")
    with pytest.raises(BuildError, match=r"\(new>0: 1\)"):
        append_version(job_of(grown, "new>0", "--against", str(grown / "old")))


def test_rejects_are_of_all_inputs(grown: Path) -> None:
    put(NEW, grown / "in")
    (grown / "in" / "bee" / "2.png").write_bytes(b"")
    with pytest.raises(BuildError, match=r"\(rejects>7%: 7\.692%\)"):
        append_version(job_of(grown, "rejects>7%", "--max-reject-fraction", "0.5"))
    append_version(job_of(grown, "rejects>8%", "--max-reject-fraction", "0.5"))


@pytest.mark.long
def test_an_overwrite_is_compared_with_the_dataset_that_it_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    put(FIRST, tmp_path / "in")
    options = [str(tmp_path / "in"), str(tmp_path / "out"), *OPTIONS, "--fail-on"]
    assert build.main([*options, "gone>0,drift>0.1"]) == 0
    assert "--fail-on drift, gone: there is no dataset to compare with: not check" in caplog.text
    put(MIXED, tmp_path / "in")
    overwrite = ("--if-exists", "overwrite")
    assert build.main([*options, "gone>0,changed>0,relabeled>0", *overwrite]) == 1
    assert "(gone>0: 1; changed>0: 1), so it is not published" in capsys.readouterr().err
    assert build.main([*options, "gone>1,changed>1,relabeled>0", *overwrite]) == 0
