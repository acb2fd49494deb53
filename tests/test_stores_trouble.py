"""Stores that fail now and then, and stores that fail for good in mid-build."""

from __future__ import annotations

import time
from pathlib import Path

import apache_beam as beam
import pytest

from pipelines.graphs import build_graph
from pipelines.job import prepare_job
from pipelines.options import parse_options
from shardwright.storage import COUNTERS
from tests.build_helpers import build, hashes_of, make_images, start_build, wait_for
from tests.fault_proxy import Fault, FaultProxy
from tests.store_places import STORES, Kind, Place, Places

OPTIONS = ("--name", "x", "--records-per-shard", "6")
# One request in six fails, for as long as they last.
EVERY_SIXTH = [
    fault
    for number in range(0, 60, 6)
    for fault in (
        Fault("status", skip=5 * number),
        Fault("reset", skip=5 * number + 5),
        Fault("status", skip=5 * number + 10, status=500),
        Fault("truncate", skip=5 * number + 15, at_byte=20),
        Fault("status", skip=5 * number + 20, status=429, retry_after_sec=0),
        Fault("reset_after_upstream", skip=5 * number + 25),
    )
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_images(tmp_path_factory.mktemp("trouble") / "in", 60)
    assert build(root, root.parent / "reference", *OPTIONS) == 0
    return root


@pytest.fixture(scope="module")
def sources(images: Path, places: Places) -> dict[Kind, Place]:
    return {kind: places.make(kind).fill(images) for kind in STORES}


def last_error(said: str) -> str:
    """The one line that tells of a failure."""
    assert "Traceback" not in said
    (line,) = (line for line in said.splitlines() if line.startswith("shardwright: error: "))
    assert line == said.splitlines()[-1]
    return line


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_fails_one_request_in_six(
    sources: dict[Kind, Place], images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    source, output = sources[kind], places.make(kind)
    before = COUNTERS.snapshot()
    with places.proxy(source) as (reading, slowly), places.proxy(output) as (writing, through):
        reading.add(*EVERY_SIXTH)
        writing.add(*EVERY_SIXTH)
        options = parse_options([slowly.uri, through.uri, *slowly.args, *through.args, *OPTIONS])
        pipeline = beam.Pipeline("FnApiRunner")
        build_graph(pipeline, prepare_job(options))
        result = pipeline.run()
        result.wait_until_finish()
        hits = {proxy: sum(map(proxy.hits, set(EVERY_SIXTH))) for proxy in (reading, writing)}
        for proxy, number in hits.items():
            assert 0.12 < number / proxy.num_requests < 0.3
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(images.parent / "reference")
    assert output.pending_uploads() == []

    counted = {name: number - before.get(name, 0) for name, number in COUNTERS.snapshot().items()}
    retries = {name: number for name, number in counted.items() if name.startswith("retries_")}
    assert retries["retries_503"] > 3
    assert retries["retries_500"] > 1
    assert retries["retries_429"] > 1
    assert sum(retries.values()) >= 0.7 * sum(hits.values()), (retries, hits)
    metrics = {row.key.metric.name: row.committed for row in result.metrics().query()["counters"]}
    reported = {
        name: number for name, number in metrics.items() if name.startswith("storage_retries_")
    }
    assert set(reported) <= {f"storage_{name}" for name in retries}
    assert reported["storage_retries_503"] > 0
    assert metrics["storage_bytes_read"] >= sum(
        path.stat().st_size for path in images.rglob("*.png")
    )


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        ("s3", Fault("status", None), "answers 503"),
        ("gs", Fault("status", None), "answers 503"),
        ("s3", Fault("reset", None), ""),
        ("gs", Fault("stall", None), "is silent"),
        ("gs", Fault("status", None, status=403), "access denied: these credentials may not "),
    ],
    ids=["s3-503", "gs-503", "s3-reset", "gs-stall", "gs-403"],
)
def test_an_output_that_stops_working(
    images: Path,
    places: Places,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    fault: Fault,
    said: str,
) -> None:
    output = places.make(kind)
    with FaultProxy(output.server.endpoint) as proxy:  # type: ignore[union-attr]
        through = output.behind(proxy, deadline="2", read_timeout="1")
        proxy.add(Fault(**{**fields_of(fault), "skip": 60}))
        started = time.monotonic()
        assert build(images, through.uri, *through.args, *OPTIONS) == 1
        assert time.monotonic() - started < 20
    assert said in last_error(capfd.readouterr().err)
    before = output.stamps()
    assert "manifest.json" not in before
    assert build(images, output.uri, *output.args, *OPTIONS) == 0
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(images.parent / "reference")


def fields_of(fault: Fault) -> dict[str, object]:
    return {name: getattr(fault, name) for name in fault.__dataclass_fields__ if name != "_"}


@pytest.mark.parametrize("kind", STORES)
def test_an_input_whose_server_goes_away(
    sources: dict[Kind, Place], images: Path, tmp_path: Path, kind: Kind
) -> None:
    """A store that fails altogether is nobody's reject, and the same command goes on when it is back."""
    source, output = sources[kind], tmp_path / "out"
    proxy = FaultProxy(source.server.endpoint)  # type: ignore[union-attr]
    proxy.add(
        Fault("latency", None, path_contains=".png" if kind == "s3" else "%2Epng", latency_msec=30)
    )
    through = source.behind(proxy, deadline="2")
    running = start_build(
        tmp_path / "stderr", through.uri, output, *through.args, *OPTIONS, "--threads", "1"
    )
    wait_for(lambda: len(list((output / "index").glob("train-*"))) >= 2, running)
    proxy.close()
    started = time.monotonic()
    assert running.wait() == 1
    assert time.monotonic() - started < 10
    line = last_error(running.said)
    assert source.uri in line
    assert f"nobody answers at {proxy.endpoint}" in line
    assert "tried for" in line
    assert not list((output / "rejects").glob("*"))
    assert build(source.uri, output, *source.args, *OPTIONS) == 0
    assert hashes_of(output) == hashes_of(images.parent / "reference")


@pytest.mark.parametrize("kind", STORES)
def test_parts_of_an_upload_that_are_refused_for_good(
    places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    images, output = make_images(tmp_path / "in", 3, side=1100), places.make(kind)
    with places.proxy(output) as (proxy, _):
        proxy.add(Fault("status", None, path_contains="partNumber="))
        through = output.behind(proxy, deadline="2")
        started = time.monotonic()
        assert build(images, through.uri, *through.args, *OPTIONS) == 1
        assert time.monotonic() - started < 15
    assert "answers 503" in last_error(capfd.readouterr().err)
    assert output.pending_uploads() == []
    assert [name for name in output.names() if "tfrecord" in name] == []
