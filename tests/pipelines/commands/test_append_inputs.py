"""Additions of every input format, and the same ones in the graph and in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from shardwright.pipelines.commands.append import prepare_append
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.job.graph import PlanGraph, plan_graph
from shardwright.pipelines.local.build import LocalShards, build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.transforms.reject_files import unpack_rejects
from shardwright.transforms.rejects import rejects_in
from tests.support.appended import (
    GENERATION,
    HALVES,
    ROUGH,
    add_images,
    added_by,
    append_job,
    job_of,
    manifest_of,
    splits_of,
)
from tests.support.build_helpers import make_images, png_of
from tests.support.helpers import run_transform
from tests.support.input_forms import FORMS, PICTURES, Form
from tests.support.store_places import Place, Places

# Their files are written by TensorFlow, whose import takes as long as all other tests here.
_LONG = {"tfrecord": [pytest.mark.long]}


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=_LONG.get(form.name, ()), id=form.name) for form in FORMS]
)
def test_unchanged_inputs_of_all_formats(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path / "data")
    check_unchanged(form, Place(str(tmp_path / "data")), tmp_path / "out")


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form.name in ("class-folders", "csv", "tar.gz")], ids=str
)
def test_unchanged_inputs_in_a_store(form: Form, places: Places, tmp_path: Path) -> None:
    form.write(tmp_path / "data")
    check_unchanged(form, places.make("s3").fill(tmp_path / "data"), tmp_path / "out")


def check_unchanged(form: Form, source: Place, output: Path) -> None:
    words = [option.replace("{root}", str(source)) for option in (*form.options, *source.args)]
    argv = [source.at(form.input), str(output), *words]
    build_here(prepare_job(parse_options(argv)))
    added = added_by(prepare_append(parse_options(argv), manifest_of(output), GENERATION))
    assert added.manifest is None
    assert added.seen.num_unchanged == len(PICTURES)


@pytest.mark.parametrize(
    ("name", "touched", "changed"),
    [
        ("class-folders", "in/cat/0.png", 1),
        ("csv", "in/images/3.png", 1),
        ("csv", "in/t.csv", 0),
        ("tar", "in.tar", 8),
        ("tar.gz", "in.tar.gz", 8),
        ("webdataset", "in/test-000000.tar", 2),
        pytest.param("tfrecord", "in/zoo-test.tfrecord-00000-of-00001", 2, marks=_LONG["tfrecord"]),
    ],
)
def test_changed_files(name: str, touched: str, changed: int, tmp_path: Path) -> None:
    """A changed container counts as a change of all of its records."""
    (form,) = (form for form in FORMS if form.name == name)
    form.write(tmp_path / "data")
    argv = [str(tmp_path / "data" / form.input), str(tmp_path / "out"), *form.options]
    build_here(prepare_job(parse_options(argv)))
    os.utime(tmp_path / "data" / touched, (1, 1))
    job = prepare_append(parse_options(argv), manifest_of(tmp_path / "out"), GENERATION)
    added = added_by(job)
    assert (added.seen.num_changed, added.seen.num_unchanged) == (changed, 8 - changed)
    assert (added.manifest.num_records if added.manifest else 0) == changed


class _Plan(beam.PTransform):
    def __init__(self, job: BuildJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, begin: beam.pvalue.PBegin) -> PlanGraph:
        return plan_graph(begin.pipeline, self._job)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "options",
    [
        f"{HALVES} --stratify",
        "--split test=7,train=rest",
        "--split-ids test={root}/test.txt",
        f"{HALVES} --split-ids test={{root}}/test.txt --duplicates drop",
        f"{HALVES} --labels {{root}}/labels.csv --group-column part --near-duplicates report",
    ],
)
def test_both_planners_find_the_same(tmp_path: Path, options: str) -> None:
    images, output = make_images(tmp_path / "images", 20), tmp_path / "out"
    (tmp_path / "test.txt").write_text("bird/0000.png\ncat/0001.png\ncat/none.png\ncat/0022.png")
    rows = [f"{name}/{n:04d}.png,c{n % 3},g{n % 9}" for n in range(24) for name in ("bird", "cat")]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label,part", *rows]))
    options = f"{options.format(root=tmp_path)} {ROUGH}"
    if "--split-ids" in options and HALVES not in options:
        options += " --split train"
    build_here(job_of(images, output, options))
    before = splits_of(output)
    add_images(images, 20, 21, 22, 23)
    (images / "bird" / "0003.png").write_bytes(png_of(0))
    os.utime(images / "cat" / "0001.png", (1, 1))
    (images / "cat" / "0004.png").unlink()
    job = append_job(images, output, options)
    graph = run_transform(_Plan(job))
    local = LocalShards(job, with_plans=True)
    plans = {plan.name: plan for plan in local.plans()}
    assert {name: plan.digest for name, plan in plans.items()} == {
        plan.name: plan.digest for plan in graph.outputs["shards"]
    }
    assert [local.layout] == graph.outputs["layout"]
    assert [local.vocabularies] == graph.outputs["vocabularies"]
    assert local.seen is not None
    (seen,) = graph.outputs["seen"]
    assert (seen.unchanged == local.seen.unchanged).all()
    assert (seen.changed == local.seen.changed).all()
    tables = map(unpack_rejects, local.rejects.packed)
    rejects = [reject for rows in tables for reject in rejects_in(rows)]
    assert sorted(map(_key, rejects)) == sorted(map(_key, graph.outputs["rejects"]))
    planned = {
        one: name.split
        for name, plan in plans.items()
        for one in plan.references.column("id").to_pylist()
    }
    assert len(planned) == (5 if "drop" in options else 6)  # one is now another's duplicate
    assert planned.items() >= {(one, before[one]) for one in planned.keys() & before.keys()}
    if "--split-ids" in options:
        assert planned["cat/0022.png"] == "test"
        assert [one.id for one in rejects if str(one.reason) == "unused_id"] == ["cat/none.png"]
    if "=rest" in options:
        assert {planned[one] for one in planned.keys() - before.keys()} == {"train"}


def _key(reject: Any) -> tuple[str, ...]:
    return (reject.id, reject.uri, str(reject.reason), reject.detail)
