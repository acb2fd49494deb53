"""An append as one Beam graph, which commits by itself: a template's job has no other process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pytest

from shardwright.errors import BuildError
from shardwright.format.versions import version_numbers
from shardwright.inspect.cli import main as shardwright
from shardwright.pipelines.commands.append import prepare_version
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.commit_version import CommitVersion
from tests.builds.test_append import (
    APPEND,
    CHANGED,
    FIRST,
    OPTIONS,
    Images,
    first_build,
    named,
    put,
    wanted,
)
from tests.support.appended import added_by
from tests.support.build_helpers import stamps_of

GONE: Images = {name: seed for name, seed in FIRST.items() if not name.startswith("ant")}
CASES = {"new, changed and gone": CHANGED, "only gone": GONE, "nothing": FIRST}


def job_of(root: Path, images: Images, *more: str) -> BuildJob:
    """Return the job of an append to FIRST."""
    first_build(root / "in", root / "out")
    put(images, root / "in")
    options = [str(root / "in"), str(root / "out"), *OPTIONS, *APPEND, *more]
    return prepare_version(parse_options(options))


@pytest.mark.long_but_first
@pytest.mark.parametrize("images", CASES.values(), ids=CASES)
def test_a_graph_commits_by_itself(tmp_path: Path, images: Images) -> None:
    out = tmp_path / "out"
    job = job_of(tmp_path, images)
    run_pipeline(build_graph, job)
    assert named(out) == wanted(images)
    assert shardwright(["verify", str(out)]) == 0
    has_changed = images is not FIRST
    assert list(version_numbers(Folder(str(out)))) == [1, 2][: 1 + has_changed]
    assert len(list(out.glob("generations/*/manifest.json"))) == (images is CHANGED)
    assert (out / "generations").exists() == (images is CHANGED)
    assert not list(out.rglob("spool"))


def test_a_base_that_was_replaced_meanwhile(tmp_path: Path) -> None:
    """Its number is the same, and so are the names of its shards."""
    append = job_of(tmp_path, CHANGED).append
    assert append is not None
    assert append.read_base().fingerprint == append.fingerprint
    (tmp_path / "ids").write_text(next(iter(FIRST)))
    words = ["--ids", str(tmp_path / "ids"), "--receipt", str(tmp_path / "receipt"), "--yes"]
    assert shardwright(["erase", str(tmp_path / "out"), *words]) == 0
    with pytest.raises(BuildError, match="was replaced meanwhile: run this command again"):
        append.read_base()


@pytest.mark.long
def test_a_graph_keeps_what_is_missing(tmp_path: Path) -> None:
    run_pipeline(build_graph, job_of(tmp_path, CHANGED, "--keep-missing"))
    assert named(tmp_path / "out") == wanted(FIRST | CHANGED)


def test_nothing_changed_writes_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path, FIRST)
    before = {
        name: at
        for name, at in stamps_of(tmp_path / "out").items()
        if "spool" not in name  # known records
    }
    run_pipeline(build_graph, job)
    assert stamps_of(tmp_path / "out") == before


@pytest.mark.parametrize("images", CASES.values(), ids=CASES)
def test_a_commit_that_runs_twice(tmp_path: Path, images: Images) -> None:
    """Runners repeat a bundle whose worker they have lost."""
    job = job_of(tmp_path, images)
    additions, append = added_by(job), job.append
    assert append is not None
    found = additions.manifest or replace(append.read_base(), splits={})

    def commit_twice(pipeline: beam.Pipeline, _: BuildJob) -> None:
        seen = pipeline | "Seen" >> beam.Create([additions.seen])
        _ = pipeline | beam.Create([found] * 2) | CommitVersion(append, seen=seen)

    run_pipeline(commit_twice, job)
    assert named(tmp_path / "out") == wanted(images)
    assert len(version_numbers(Folder(str(tmp_path / "out")))) == 1 + (images is not FIRST)
