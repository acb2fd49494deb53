"""Two builds of one OUTPUT at once: one is told, or both end with the same dataset; never with a mixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.verify import verify
from tests.build_helpers import RunningBuild, build, hashes_of, make_images, start_build, wait_for
from tests.fault_proxy import Fault
from tests.store_places import STORES, Kind, Places

OPTIONS = ("--name", "x", "--records-per-shard", "4")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_images(tmp_path_factory.mktemp("once") / "in", 32)
    assert build(root, root.parent / "reference", *OPTIONS) == 0
    return root


def error_of(running: RunningBuild) -> str:
    assert "Traceback" not in running.said
    return next(
        (line for line in running.said.splitlines() if line.startswith("shardwright: error: ")), ""
    )


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("latency_msec", [0, 15])
def test_the_same_build_twice(
    images: Path, places: Places, tmp_path: Path, kind: Kind, latency_msec: int
) -> None:
    output = places.make(kind)
    with places.proxy(output, latency_msec=latency_msec) as (_, through):
        argv = (images, through.uri, *through.args, *OPTIONS)
        both = [start_build(tmp_path / f"stderr{number}", *argv) for number in range(2)]
        codes = [running.wait() for running in both]
    assert 0 in codes
    for running, code in zip(both, codes, strict=True):
        assert (code, bool(error_of(running))) in [(0, False), (1, True)]
        if code:
            assert "another build has" in error_of(running)
    root = output.download(tmp_path / "out")
    assert hashes_of(root) == hashes_of(images.parent / "reference")
    assert verify(output.uri, storage_options=output.storage_options).is_sound
    assert output.pending_uploads() == []


@pytest.mark.parametrize("kind", STORES)
def test_a_build_that_joins_one_of_the_same_input(
    images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    """The second goes on with what the first has finished by then, as after a kill; both write the same bytes."""
    output = places.make(kind)
    with places.proxy(output) as (proxy, through):
        proxy.add(Fault("latency", None, method="PUT", path_contains="index", latency_msec=150))
        first = start_build(tmp_path / "stderr", images, through.uri, *through.args, *OPTIONS)
        wait_for(lambda: sum(name.startswith("index/") for name in output.names()) >= 2, first)
        code = build(images, output.uri, *output.args, *OPTIONS)
        assert (first.wait(), code) in [(0, 0), (1, 0)]
        assert not first.process.exitcode or "another build has" in error_of(first)
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(images.parent / "reference")
    assert verify(output.uri, storage_options=output.storage_options).is_sound


@pytest.mark.parametrize("kind", ["local", *STORES])
def test_a_build_of_another_input_never_mixes_with_one_that_runs(
    images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    """The same options, as many shards of the same names, other images: the later plan holds, and the earlier build is told."""
    output, other = places.make(kind), make_images(tmp_path / "in", 32, side=9)
    source = places.make("s3").fill(images)
    with places.proxy(source) as (proxy, slowly):
        proxy.add(Fault("latency", None, path_contains=".png", latency_msec=150))
        first = start_build(
            tmp_path / "stderr",
            slowly.uri,
            output.uri,
            *slowly.args,
            *output.args,
            *OPTIONS,
            "--threads",
            "1",
        )
        wait_for(lambda: sum(name.startswith("index/") for name in output.names()) >= 2, first)
        assert build(other, output.uri, *output.args, *OPTIONS) == 0
        assert first.wait() == 1
    assert f"another build has begun at OUTPUT {output.uri} meanwhile" in error_of(first)
    assert verify(output.uri, storage_options=output.storage_options).is_sound
    assert build(other, tmp_path / "fresh", *OPTIONS) == 0
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(tmp_path / "fresh")


@pytest.mark.parametrize("kind", STORES)
def test_a_build_with_other_options_is_refused_by_one_that_runs(
    images: Path, places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    output = places.make(kind)
    with places.proxy(output, latency_msec=20) as (_, through):
        first = start_build(tmp_path / "stderr", images, through.uri, *through.args, *OPTIONS)
        wait_for(lambda: "plan.json" in output.names(), first)
        assert build(images, output.uri, *output.args, *OPTIONS, "--seed", "1") == 1
        assert (
            "holds an unfinished build with other settings (seed is 0 there and 1 here)"
            in capfd.readouterr().err
        )
        assert first.wait() == 0
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(images.parent / "reference")
