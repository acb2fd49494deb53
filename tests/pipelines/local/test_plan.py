"""A plan made in this process equals that of the graph: shards, digests, vocabularies, rejects."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from shardwright.errors import BuildError
from shardwright.pipelines.job.build import BuildJob, describe_job
from shardwright.pipelines.job.graph import PlanGraph, plan_graph
from shardwright.pipelines.local import build as local_build
from shardwright.pipelines.local import references as local_references
from shardwright.pipelines.local.build import LocalShards
from shardwright.pipelines.local.references import HeldBatches
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import unpack_rejects
from shardwright.transforms.rejects import rejects_in
from tests import ROOT
from tests.support.build_helpers import build, make_images
from tests.support.helpers import references, run_transform

SPLIT = "--split train=0.6,test=0.4"
COUNTS = "--split test=7,train=rest"
OPTIONS = [
    "",
    SPLIT,
    f"{SPLIT} --stratify --seed 3",
    COUNTS,
    f"{COUNTS} --stratify",
    f"{SPLIT} --duplicates drop",
    f"{SPLIT} --duplicates reject",
    f"{SPLIT} --near-duplicates report",
    f"{SPLIT} --near-duplicates drop --distance 8",
    f"{SPLIT} --near-duplicates reject --labels {{root}}/labels.csv --duplicates drop",
    "--split-ids test={root}/test.txt",
    f"{SPLIT} --split-ids test={{root}}/test.txt",
    f"{SPLIT} --labels {{root}}/labels.csv",
    f"{SPLIT} --labels {{root}}/labels.csv --labels-key stem",
    f"{SPLIT} --labels {{root}}/labels.csv --group-column part",
    f"{COUNTS} --labels {{root}}/labels.csv --group-column part --stratify",
    f"{SPLIT} --class-names {{root}}/names.txt",
    "--shard-size 4kB --encode jpeg --resize 8x8",
    f"{SPLIT} --shard-size 3kB",
    "--shard-size 1kB --shard-count-multiple-of 8",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images of 3 classes, two of them twice; a file that is none; and the files of options."""
    root = tmp_path_factory.mktemp("plans")
    images = make_images(root / "images", 40)
    for name in ("0000", "0003"):
        shutil.copy(images / "bird" / f"{name}.png", images / "cat" / f"again-{name}.png")
    (images / "notes.txt").write_text("no image")
    listed = ["bird/0000.png", "cat/0001.png", "cat/none.png"]
    (root / "test.txt").write_text("\n".join(listed))
    (root / "names.txt").write_text("cat\nbird\n")
    rows = [f"{path.relative_to(images)},{n % 4},g{n % 9},{n / 2}" for n, path in enumerate(
        sorted(images.rglob("*.png"))[3:]
    )]  # fmt: skip
    (root / "labels.csv").write_text("\n".join(["path,label,part,weight", *rows, "x.png,1,g,1"]))
    return root


class _Plan(beam.PTransform):
    def __init__(self, job: BuildJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, begin: beam.pvalue.PBegin) -> PlanGraph:
        return plan_graph(begin.pipeline, self._job)


def _key(reject: Any) -> tuple[str, ...]:
    return (reject.id, reject.uri, str(reject.reason), reject.detail)


def _job(root: Path, options: str) -> BuildJob:
    words = options.format(root=root).split()
    if "--shard-size" not in words:
        words += ["--records-per-shard", "4"]
    return describe_job(parse_options([str(root / "images"), str(root / "out"), *words]))


@pytest.mark.long_but_first
@pytest.mark.parametrize("options", OPTIONS)
def test_both_plans_are_equal(root: Path, options: str) -> None:
    job = _job(root, options)
    graph = run_transform(_Plan(job))
    local = LocalShards(job, with_plans=True)
    assert {plan.name: plan.digest for plan in local.plans()} == {
        plan.name: plan.digest for plan in graph.outputs["shards"]
    }
    (layout,), (vocabularies,) = graph.outputs["layout"], graph.outputs["vocabularies"]
    assert local.layout == layout
    assert local.vocabularies == vocabularies
    tables = map(unpack_rejects, local.rejects.packed)
    rejects = [reject for rows in tables for reject in rejects_in(rows)]
    assert sorted(map(_key, rejects)) == sorted(map(_key, graph.outputs["rejects"]))
    listed = sorted((number, rows.to_pylist()) for number, rows in local.near_duplicates)
    found = graph.outputs.get("near_duplicates", [])
    assert listed == sorted((number, rows.to_pylist()) for number, rows in found)
    assert LocalShards(job, with_plans=False).layout == layout


def test_small_buckets_in_a_file_make_the_same_plan(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(root, "")
    plain = LocalShards(job, with_plans=True)
    monkeypatch.setattr(local_references, "PLAIN_BYTES", 0)
    monkeypatch.setattr(local_build, "_BUCKET_BYTES", 100)
    filed = LocalShards(job, with_plans=True)
    assert filed.layout.cuts == plain.layout.cuts
    assert list(filed.plans()) == list(filed.plans()) == list(plain.plans())


def test_an_impossible_split_fails_as_in_the_graph(root: Path) -> None:
    with pytest.raises(BuildError, match="--split needs 900 records in test, but INPUT has 42"):
        LocalShards(_job(root, "--split test=900,train=rest"), with_plans=False)


@pytest.mark.parametrize("plain_bytes", [0, 500, 1 << 30])
def test_held_batches_come_back_once(plain_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_references, "PLAIN_BYTES", plain_bytes)
    some = [references([f"{n}/{row}" for row in range(3)]) for n in range(4)]
    held = HeldBatches()
    for batch in some:
        held.add(batch)
    assert list(held.read()) == list(held.read()) == some
    assert list(held.take()) == some
    assert list(held.take()) == []


@pytest.mark.long
def test_neither_a_plan_nor_a_finished_dataset_imports_beam(tmp_path: Path) -> None:
    images, output = make_images(tmp_path / "in", 3), tmp_path / "out"
    assert build(images, output) == 0
    script = (
        "import sys; from shardwright.pipelines.commands import build, plan; "
        "args = sys.argv[1:]; "
        "codes = plan.main(args), build.main(args); "
        "print(*codes, 'apache_beam' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(images), str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "would find everything up to date: 0 shards to write, 1 already" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 0 False"
    assert "up to date: the only shard was already written" in done.stderr


def test_shards_in_a_store_are_looked_up_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalShards(_job(root, ""), with_plans=True)
    met = threading.Barrier(local_build._LOOKUPS // 2)  # of 11 shards

    def find_nothing(*_: object, **__: object) -> None:
        met.wait(240)  # breaks if they are not asked for at once

    monkeypatch.setattr(local_build, "find_finished", find_nothing)
    plans = list(local.plans())[: met.parties]
    monkeypatch.setattr(local, "plans", lambda: iter(plans))
    states = list(local.states(Folder.at("s3://bucket/out"), unpublished=False))
    assert states == [(plan.name.shard, plan.digest, None) for plan in plans]


@pytest.mark.long
def test_a_missing_shard_of_a_finished_dataset_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned once, by the graph."""
    monkeypatch.delattr(local_build, "LocalShards")
    images, output = make_images(tmp_path / "in", 3), tmp_path / "pets"
    assert build(images, output, "--shard-count", "3") == 0
    (shard, *_) = sorted(output.glob("pets-train*"))
    before = shard.read_bytes()
    shard.unlink()
    assert build(images, output, "--shard-count", "3") == 0
    assert shard.read_bytes() == before
    assert "up to date" not in capsys.readouterr().err
