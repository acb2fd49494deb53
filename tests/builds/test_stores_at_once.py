"""Two builds of one OUTPUT at once end with one dataset, never with a mixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import store_builds as stores
from tests.support.build_helpers import (
    RunningBuild,
    before_shard,
    build,
    hashes_of,
    make_images,
    start_build,
    wait_for,
)
from tests.support.judge import judge
from tests.support.store_builds import assert_as_reference, build_between, by_store, error_of
from tests.support.store_places import Kind, Places

OPTIONS = ("--name", "x", "--records-per-shard", "4")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stores.make_reference(make_images(tmp_path_factory.mktemp("once") / "in", 32), *OPTIONS)


def assert_ended_or_stopped(running: RunningBuild) -> int:
    """Wait for a build that may find another one; return its exit code."""
    code = running.wait()
    assert code in (0, 1)
    if code:
        assert "build has" in error_of(running.said)
    else:
        assert "Traceback" not in running.said
        assert "error: " not in running.said
    return code


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("kind", "latency_msec"),
    [
        ("s3", 0),
        ("gs", 0),
        pytest.param("s3", 15, marks=pytest.mark.long),
        pytest.param("gs", 15, marks=pytest.mark.long),
    ],
)
def test_the_same_build_twice(
    images: Path, places: Places, tmp_path: Path, kind: Kind, latency_msec: int
) -> None:
    output = places.make(kind)
    with places.proxy(output, latency_msec=latency_msec) as (_, through):
        argv = (images, through.uri, *through.args, *OPTIONS)
        both = [start_build(tmp_path / f"stderr{number}", *argv) for number in range(2)]
        codes = [assert_ended_or_stopped(running) for running in both]
    assert 0 in codes
    assert_as_reference(output, images, tmp_path / "out")
    assert judge(output.uri, storage_options=output.storage_options).is_sound
    assert output.pending_uploads() == []


@pytest.mark.long_but_first
@pytest.mark.parametrize("kind", ["local", "s3", pytest.param("gs", marks=pytest.mark.long)])
def test_a_build_of_another_input_never_mixes_with_a_running_one(
    images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    """Of two builds with equal options and shard names, the later plan holds, the first fails."""
    output, other = places.make(kind), make_images(tmp_path / "in", 32, side=9)
    argv = (images, output.uri, *output.args, *OPTIONS, "--threads", "1")
    first = start_build(tmp_path / "stderr", *argv, waits=before_shard(2))
    wait_for(lambda: stores.num_files(output, "index/") >= 2, first)
    assert build_between(other, output, *OPTIONS) == 0
    first.go_on()
    assert first.wait() == 1
    assert f"has started in OUTPUT {output.uri}: this one stops" in error_of(first.said)
    assert judge(output.uri, storage_options=output.storage_options).is_sound
    assert build(other, tmp_path / "fresh", *OPTIONS) == 0
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(tmp_path / "fresh")


@pytest.mark.long
@by_store
def test_a_build_with_other_options_is_refused_while_one_runs(
    images: Path, places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    output = places.make(kind)
    argv = (images, output.uri, *output.args, *OPTIONS)
    first = start_build(tmp_path / "stderr", *argv, waits=before_shard(0))
    wait_for(lambda: "plan.json" in output.names(), first)
    assert build_between(images, output, *OPTIONS, "--seed", "1") == 1
    message = "holds an unfinished build with other settings (seed is 0 there and 1 here)"
    assert message in capfd.readouterr().err
    first.go_on()
    assert first.wait() == 0
    assert_as_reference(output, images, tmp_path / "out")
