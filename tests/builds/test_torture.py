"""Builds that are killed at random moments, and stores that fail at random requests.

Each ends, after the same command has run again, with the bytes of an undisturbed build, and no look
at OUTPUT in between finds a mixture. `make torture` repeats these tests with new seeds.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from shardwright.errors import NotADatasetError
from tests.servers.fault_proxy import Fault
from tests.support import store_builds as stores
from tests.support.build_helpers import (
    build,
    hashes_of,
    leftovers_of,
    make_images,
    rejects_of,
    start_build,
    wait_for,
)
from tests.support.judge import judge
from tests.support.store_builds import build_between
from tests.support.store_places import Kind, Place, Places

pytestmark = [pytest.mark.long, pytest.mark.weight(15)]
NUM_SHARDS = 8
OPTIONS = ("--name", "x", "--shard-count", str(NUM_SHARDS))
SLOW = (*OPTIONS, "--encode", "png", "--threads", "1")
STATUSES = (403, 429, 500, 503)
Hashes = dict[str, str]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("torture")
    return stores.make_reference(make_images(root / "in", 64, side=120), *SLOW)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of other images whose shards have the same names."""
    root = tmp_path_factory.mktemp("old")
    assert build(make_images(root / "in", 40), root / "out", *SLOW) == 0
    return root / "out"


def kill(images: Path, root: Path, rng: np.random.Generator, *options: str) -> None:
    """Start a build, and kill it a moment after it has finished a random number of shards."""
    number, moment_sec = rng.integers(NUM_SHARDS + 1), rng.exponential(0.1)
    running = start_build(root.with_suffix(".stderr"), images, root, *SLOW, *options)
    wait_for(lambda: len(sidecars_of(root)) >= number or not running.process.is_alive())
    time.sleep(moment_sec)
    with contextlib.suppress(ProcessLookupError):  # it has ended
        running.signal(signal.SIGKILL)
    assert running.wait() in (0, -signal.SIGKILL), running.said


def sidecars_of(root: Path) -> list[Path]:
    return [path for path in (root / "index").glob("*.parquet") if path.name[0] != "."]


def published(root: Path) -> Hashes | None:
    """Return the hashes of a sound dataset's shards, or None if there is no finished dataset."""
    try:
        faults = judge(str(root)).faults
    except NotADatasetError:
        return None
    assert faults == ()
    return hashes_of(root)


def rejects_at(output: Place) -> Mapping[str, int]:
    """Return the rejects of a published dataset; none if there is no finished dataset."""
    try:
        return stores.manifest_at(output).rejects
    except NotADatasetError:
        return {}


def test_builds_killed_at_any_moment(
    images: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    wanted = hashes_of(images.parent / "reference")
    root = tmp_path / "out"
    for _ in range(rng.integers(1, 4)):
        kill(images, root, rng)
        assert published(root) in (None, wanted)
    assert build(images, root, *SLOW) == 0
    assert published(root) == wanted
    assert (leftovers_of(root), rejects_of(root)) == ([], [])


def test_overwrites_killed_at_any_moment(
    images: Path, old: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    wanted, there = hashes_of(images.parent / "reference"), hashes_of(old)
    root = Path(shutil.copytree(old, tmp_path / "out"))
    for _ in range(rng.integers(1, 3)):
        kill(images, root, rng, "--if-exists", "overwrite")
        assert published(root) in (None, there, wanted)
    assert build(images, root, *SLOW, "--if-exists", "overwrite") == 0
    assert published(root) == wanted
    assert leftovers_of(root) == []


def random_fault(rng: np.random.Generator) -> Fault:
    """Return a fault that hits some requests after some that pass."""
    skip, times = int(rng.integers(120)), int(rng.integers(1, 9))
    at_byte = int(rng.integers(2000))
    kinds = (
        Fault("status", times, skip=skip, status=int(rng.choice(STATUSES))),
        Fault("reset", times, skip=skip),
        Fault("reset", times, skip=skip, at_byte=at_byte),
        Fault("reset", times, skip=skip, at_byte=at_byte, upload=True),
        Fault("truncate", times, skip=skip, at_byte=at_byte),
        Fault("stall", 1, skip=skip),
        Fault("reset_after_upstream", times, skip=skip),
    )
    return kinds[int(rng.integers(len(kinds)))]


@stores.by_store
def test_stores_that_fail_at_random(
    images: Path, places: Places, tmp_path: Path, kind: Kind, rng: np.random.Generator
) -> None:
    source, output = places.make(kind).fill(images), places.make(kind)
    with places.proxy(source) as (reading, _), places.proxy(output) as (writing, _):
        for proxy in (reading, writing):
            proxy.add(*(random_fault(rng) for _ in range(rng.integers(1, 5))))
        limits = {"deadline": "3", "read_timeout": "1"}
        slowly, through = source.behind(reading, **limits), output.behind(writing, **limits)
        assert build_between(slowly, through, *SLOW) in (0, 1)
    # A published dataset keeps its rejects, such as images that a 403 was about, until then.
    again = ("--if-exists", "overwrite") if rejects_at(output) else ()
    assert build_between(source, output, *SLOW, *again) == 0
    root = stores.assert_as_reference(output, images, tmp_path / "copy")
    assert published(root) is not None
    assert (rejects_of(root), output.pending_uploads()) == ([], [])
