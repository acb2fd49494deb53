"""Stores with transient errors, and stores that fail for good in mid-build."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest

from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.options.build import parse_options
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support import store_builds as stores
from tests.support.buckets import Counted, timeout_for
from tests.support.build_helpers import before_shard, make_images, start_build, wait_for
from tests.support.store_builds import (
    Sources,
    assert_as_reference,
    build_between,
    by_store,
    error_of,
)
from tests.support.store_places import STORES, Kind, Place, Places

# What both stores do by the same code.
one_store = pytest.mark.parametrize("kind", ["s3", pytest.param("gs", marks=pytest.mark.long)])
OPTIONS = ("--name", "x", "--records-per-shard", "6")
# One request in six fails, for as long as they last.
EVERY_SIXTH = [
    fault
    for number in range(0, 300, 30)
    for fault in (
        Fault("status", skip=number),
        Fault("reset", skip=number + 5),
        Fault("status", skip=number + 10, status=500),
        Fault("truncate", skip=number + 15, at_byte=20),
        Fault("status", skip=number + 20, status=429, retry_after_sec=0),
        Fault("reset_after_upstream", skip=number + 25),
    )
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stores.make_reference(
        make_images(tmp_path_factory.mktemp("trouble") / "in", 60), *OPTIONS
    )


@pytest.fixture(scope="module")
def sources(images: Path, places: Places) -> Sources:
    return stores.fill_places(places, images, STORES)


@pytest.mark.long
@by_store
def test_a_store_that_fails_one_request_in_six(
    sources: Sources, images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    source, output, counted = sources[kind], places.make(kind), Counted()
    with places.proxy(source) as (reading, slowly), places.proxy(output) as (writing, through):
        reading.add(*EVERY_SIXTH)
        writing.add(*EVERY_SIXTH)
        options = parse_options([slowly.uri, through.uri, *slowly.args, *through.args, *OPTIONS])
        pipeline = beam.Pipeline("FnApiRunner")
        build_graph(pipeline, prepare_job(options))
        result = pipeline.run()
        result.wait_until_finish()
        hits = [sum(map(proxy.hits, set(EVERY_SIXTH))) for proxy in (reading, writing)]
        for proxy, number in zip((reading, writing), hits, strict=True):
            assert 0.12 < number / proxy.num_requests < 0.3
    assert_as_reference(output, images, tmp_path / "out")
    assert output.pending_uploads() == []

    retries = counted.retries
    assert retries["503"] > 3
    assert min(retries["500"], retries["429"]) > 1
    assert sum(retries.values()) >= 0.7 * sum(hits), (retries, hits)
    metrics = {row.key.metric.name: row.committed for row in result.metrics().query()["counters"]}
    reported = {name for name in metrics if name.startswith("storage_retries_")}
    assert reported <= {f"storage_retries_{kind}" for kind in retries}
    assert metrics["storage_retries_503"] > 0
    image_bytes = sum(path.stat().st_size for path in images.rglob("*.png"))
    assert metrics["storage_bytes_read"] >= image_bytes


@pytest.mark.long
@one_store
def test_stores_that_serve_only_so_many_requests_a_second(
    sources: Sources, images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    source, output = sources[kind], places.make(kind)
    # A slow machine may ask no store too often: two refusals come for certain.
    few = (Fault("status", 2, skip=20), Fault("status", None, beyond_per_second=40))
    with places.proxy(source) as (reading, slowly), places.proxy(output) as (writing, through):
        reading.add(*few)
        writing.add(*few)
        assert build_between(slowly, through, *OPTIONS) == 0
        assert reading.hits(few[0]) == writing.hits(few[0]) == 2
    assert_as_reference(output, images, tmp_path / "out")
    assert output.pending_uploads() == []


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        pytest.param("s3", Fault("status", None, skip=60), "returned 503", marks=pytest.mark.long),
        ("gs", Fault("status", None, skip=60), "returned 503"),
        ("s3", Fault("reset", None, skip=60), ""),
        pytest.param(
            "gs", Fault("stall", None, skip=60), "did not respond", marks=pytest.mark.long
        ),
        ("gs", Fault("status", None, skip=60, status=403), "access denied: these credentials may "),
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
    with places.proxy(output) as (proxy, _):
        proxy.add(fault)
        through = output.behind(proxy, deadline="2", read_timeout=timeout_for(fault))
        assert build_between(images, through, *OPTIONS) == 1
    assert said in error_of(capfd.readouterr().err)
    assert "manifest.json" not in output.names()
    assert build_between(images, output, *OPTIONS) == 0
    assert_as_reference(output, images, tmp_path / "out")


@pytest.mark.long
@one_store
def test_an_input_goes_away(sources: Sources, images: Path, tmp_path: Path, kind: Kind) -> None:
    """A store that fails altogether rejects no image, and the same command resumes later."""
    source, output = sources[kind], tmp_path / "out"
    assert source.server
    proxy = FaultProxy(source.server.endpoint)
    through = source.behind(proxy, deadline="2")
    argv = (through.uri, output, *through.args, *OPTIONS, "--threads", "1")
    running = start_build(tmp_path / "stderr", *argv, waits=before_shard(2))
    wait_for(lambda: len(list((output / "index").glob("train-*"))) >= 2, running)
    proxy.close()
    running.go_on()
    assert running.wait() == 1
    line = error_of(running.said)
    for part in (source.uri, f"no response from {proxy.endpoint}", "tried for"):
        assert part in line
    assert not list((output / "rejects").glob("*"))
    assert build_between(source, output, *OPTIONS) == 0
    assert_as_reference(Place(str(output)), images, tmp_path)


@pytest.mark.long
@by_store
def test_an_upload_whose_parts_fail_for_good_leaves_nothing(
    places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    images, output = make_images(tmp_path / "in", 3, side=1100), places.make(kind)
    with places.proxy(output) as (proxy, _):
        proxy.add(Fault("status", None, path_contains="partNumber="))
        through = output.behind(proxy, deadline="2")
        assert build_between(images, through, *OPTIONS) == 1
    assert "returned 503" in error_of(capfd.readouterr().err)
    assert output.pending_uploads() == []
    assert [name for name in output.names() if "tfrecord" in name] == []
