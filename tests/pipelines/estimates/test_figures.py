"""Estimates by hand: each figure of small builds, on every kind of runner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.pipelines.estimates.estimator import estimate_build
from shardwright.pipelines.estimates.work import (
    Figure,
    PlannedWork,
    TimedSample,
    Workers,
    workers_of,
)

MIB = 1 << 20
SAMPLE = TimedSample(in_store=True, num_timed=100, wall_seconds=0.5, cpu_seconds=0.2, cores=2)
LOCAL = PlannedWork(
    num_records=1000,
    shard_bytes=(12 * MIB, 4 * MIB),
    largest_records=700,
    bytes_read=16 * MIB,
    to_store=False,
    decodes=False,
    sample=SAMPLE,
    workers=Workers(is_local=True, machines=1, processes=1),
)
DATAFLOW = Workers(is_dataflow=True, machines=2, processes=4, threads=2)


def values(work: PlannedWork) -> dict[str, float]:
    return {figure.name: figure.value for figure in estimate_build(work).figures}


def test_a_local_build_from_a_store() -> None:
    estimate = estimate_build(LOCAL)
    assert values(LOCAL) == pytest.approx(
        {
            "bytes read": 16 * MIB,
            "bytes written": 16 * MIB,
            "image": 0.005,
            "CPU of image": 0.002,
            "shard": 3.5,
            "all": 5.0,
            "memory": 350e6 + 190 * 1000 + 64e6,
        }
    )
    assert (estimate.unknown, estimate.warning) == ([], "")


def test_the_times_of_an_image_follow_from_their_formulas() -> None:
    work = replace(
        LOCAL, sample=replace(SAMPLE, num_timed=1, wall_seconds=0.01, cpu_seconds=4.444e-3)
    )
    figures = {figure.name: figure for figure in estimate_build(work).figures}
    assert figures["image"].formula.startswith("0.01 s / 1 image ")
    assert figures["CPU of image"].formula.startswith("0.004444 s of CPU / 1 image ")


def test_a_store_to_write_to_and_a_spool() -> None:
    work = replace(LOCAL, to_store=True, sample=replace(SAMPLE, in_store=False))
    assert values(work)["memory"] == 350e6 + 190 * 1000 + 40e6
    work = replace(LOCAL, sample=replace(SAMPLE, spooled=1.0, num_timed=0))
    found = values(work)
    assert found["bytes spooled"] == 16 * MIB
    assert "time: INPUT must be unpacked first" in estimate_build(work).unknown
    assert {"image", "shard", "all"}.isdisjoint(found)


def test_dataflow() -> None:
    work = replace(LOCAL, num_records=3_600_000, workers=DATAFLOW)
    found = values(work)
    assert found["work"] == 7200
    assert found["all"] == 7200 / 8 / 0.5 + 240
    assert found["shard"] == 700 * 0.002  # of one process, by its CPU
    assert found["memory a worker"] == 4 * (250e6 + 2 * 64e6)
    hours = (7200 / 0.5 + 8 * 240) / 3600
    assert found["vCPU hours"] == pytest.approx(hours)
    assert found["bytes shuffled"] == 3.6e9
    decoding = values(replace(work, decodes=True))
    assert decoding["all"] == 7200 / 8 / 0.85 + 240


def test_what_is_unknown_is_left_out() -> None:
    workers = workers_of(["--runner=DataflowRunner"])
    estimate = estimate_build(replace(LOCAL, workers=workers))
    names = {figure.name for figure in estimate.figures}
    assert "all" not in names
    assert {"shard", "work", "vCPU hours"} <= names
    assert list(estimate.unknown) == [
        "time in all: give --max_num_workers and --worker_machine_type"
    ]
    flink = replace(LOCAL, workers=workers_of(["--runner=FlinkRunner", "--parallelism", "6"]))
    flink = replace(flink, workers=Workers(machines=6, processes=1))
    assert values(flink)["all"] == pytest.approx(1.4 / 0.5)  # the largest shard's
    many = replace(flink, num_records=10_000)
    assert values(many)["all"] == pytest.approx(20 / 6 / 0.5)
    nothing = replace(LOCAL, sample=TimedSample())
    assert list(estimate_build(nothing).unknown) == ["time: no image could be read"]
    assert list(values(nothing)) == ["bytes read", "bytes written", "memory"]


@pytest.mark.parametrize(("args", "machines", "processes", "threads"), [
    ("", None, None, 2),
    ("--max_num_workers=3 --worker_machine_type n2-standard-4", 3, 4, 2),
    ("--num_workers=5 --machine_type=n2-highcpu-16", 5, 16, 2),
    ("--number_of_worker_harness_threads=7 --max_num_workers=x", None, None, 7),
    ("--worker_machine_type=custom-4-extended", None, None, 2),
])  # fmt: skip
def test_workers_of_dataflow(
    args: str, machines: int | None, processes: int | None, threads: int
) -> None:
    workers = Workers(False, is_dataflow=True, machines=machines, processes=processes)
    found = workers_of(["--runner", "DataflowRunner", *args.split()])
    assert found == replace(workers, threads=threads)


def test_a_shard_of_over_five_minutes() -> None:
    """The advice makes a shard of five minutes."""
    slow = replace(LOCAL, sample=replace(SAMPLE, wall_seconds=50.0))  # 0.5 s an image
    assert estimate_build(slow).warning == (
        "the largest shard takes 5:50 of work, and a crash loses as much: --shard-size 11MB would "
        "take 5:00"
    )
    assert pytest.approx(11e6, rel=0.05) == 12 * MIB * 300 / 350
    just = replace(LOCAL, sample=replace(SAMPLE, wall_seconds=50.0), largest_records=600)
    assert estimate_build(just).warning == ""
    by_cpu = replace(slow, workers=DATAFLOW)
    assert estimate_build(by_cpu).warning == ""


@pytest.mark.parametrize(("value", "unit", "shown"), [
    (2e9, "bytes", "2.0 GB"),
    (3.14159, "hours", "3.14 h"),
    (7265.0, "seconds", "2:01:05"),
    (3.14159, "seconds", "3.14 s"),
    (0.000123, "seconds", "0.123 ms"),
])  # fmt: skip
def test_a_figure_is_shown(value: float, unit: str, shown: str) -> None:
    assert Figure("x", value, unit, "").shown == shown


def test_lines() -> None:
    lines = estimate_build(LOCAL).to_lines("FnApiRunner")
    assert lines[0] == "estimate for FnApiRunner:"
    told = [" ".join(line.split()) for line in lines]
    assert "shard 3.5 s = 700 records of the largest shard x image" in told
    assert len({line.index(" = ") for line in lines[1:]}) == 1
