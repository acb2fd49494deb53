"""Builds whose process dies over an image, and the same command again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import build_helpers as builds
from tests.support.build_helpers import build, leftovers_of, make_images, manifest_of, start_build

NUM_IMAGES = 12
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
OPTIONS = (
    *("--name", "tiny", "--shard-count", "1", "--max-reject-fraction", "0.5"),
    *("--transform", "tests.support.user_transforms:crash"),
)


@pytest.mark.long
@pytest.mark.parametrize(
    "again",
    [
        pytest.param((), id="local"),
        pytest.param(PROCESSES, marks=pytest.mark.long, id="multi_processing"),
    ],
)
def test_the_same_command_rejects_the_images_that_ended_the_build(
    tmp_path: Path, again: tuple[str, ...]
) -> None:
    images, out = make_images(tmp_path / "in", NUM_IMAGES), tmp_path / "out"
    died = start_build(tmp_path / "stderr", images, out, *OPTIONS)
    assert died.wait() == -signal.SIGSEGV
    builds.wait_for(lambda: "run the same command again to resume" in died.said)
    assert build(images, out, *OPTIONS, *again) == 0
    manifest = manifest_of(out)
    assert manifest["rejects"] == {"crashed": 2}
    assert manifest["splits"]["train"]["num_records"] == NUM_IMAGES - 2
    assert leftovers_of(out) == []


@pytest.mark.long
def test_a_function_that_ends_the_process_well_fails_the_build(tmp_path: Path) -> None:
    images, out = make_images(tmp_path / "in", NUM_IMAGES), tmp_path / "out"
    options = (*OPTIONS[:-1], "tests.support.user_transforms:end")
    assert start_build(tmp_path / "stderr", images, out, *options).wait() == 1
    assert build(images, out, *options) == 0
    assert manifest_of(out)["rejects"] == {"crashed": 1}


@pytest.mark.long
def test_an_image_that_crashes_in_the_sample_of_sizes(tmp_path: Path) -> None:
    """The first death is in the sample, and the second one in a shard."""
    images, out = make_images(tmp_path / "in", NUM_IMAGES), tmp_path / "out"
    options = [option for option in OPTIONS if option not in ("--shard-count", "1")]
    for _ in range(2):
        died = start_build(tmp_path / "stderr", images, out, *options)
        assert died.wait() == -signal.SIGSEGV
    assert build(images, out, *options) == 0
    assert manifest_of(out)["rejects"] == {"crashed": 2}
    assert leftovers_of(out) == []


@pytest.mark.long
def test_a_worker_process_that_dies_ends_the_build(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in", NUM_IMAGES)
    running = start_build(tmp_path / "stderr", images, tmp_path / "out", *OPTIONS, *PROCESSES)
    assert running.wait() == 1
    assert "error: a worker process died" in running.said
