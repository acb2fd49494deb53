"""Small builds on a service that kills, stops and copies workers: 0 records lost, 0 doubled.

`make torture` repeats this with new seeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwright.errors import MissingError, NotADatasetError
from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from shardwright.transforms.promotion import finish_promotion
from shardwright.transforms.publish.publication import publish
from tests.support.build_helpers import hashes_of, make_images
from tests.support.cruel_service import Bundle, JobFailedError, Service
from tests.support.judge import judge
from tests.support.planned_builds import PlannedBuild

MAX_COMMANDS = 20
OPTIONS = ("--name", "x", "--shard-count", "4")
Hashes = dict[str, str]


class Builds:
    """A planned build into new folders, and into copies of a dataset of other images.

    Attributes:
        planned: It with `--if-exists resume`, and with `overwrite`.
        old: The dataset that the other one replaces.
        wanted: The hashes of its shards.
    """

    def __init__(self, root: Path) -> None:
        images = make_images(root / "in", 12)
        self.planned = [
            PlannedBuild.of(images, root / "out", *OPTIONS, "--if-exists", if_exists)
            for if_exists in ("resume", "overwrite")
        ]
        self.old = root / "old"
        others = PlannedBuild.of(make_images(root / "others", 10, side=9), self.old, *OPTIONS)
        others.run(undisturbed, self.old)
        self.planned[0].run(undisturbed, root / "out")
        self.wanted = hashes_of(root / "out")


def undisturbed(bundles: Sequence[Bundle]) -> list[Any]:
    return [bundle() for bundle in bundles]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    return Builds(tmp_path_factory.mktemp("lost_workers"))


@pytest.fixture
def service(rng: np.random.Generator) -> Iterator[Service]:
    service = Service(rng)
    yield service
    service.close()


def published(root: Path) -> Hashes | None:
    """Return the hashes of a sound dataset's shards, or None if there is no finished dataset."""
    try:
        faults = judge(str(root)).faults
    except NotADatasetError:
        return None
    assert faults == ()
    return hashes_of(root)


def run_job(service: Service, builds: Builds, output: Path, *, overwrites: bool) -> None:
    """Repeat a command until its job ends well; what it leaves is whole each time."""
    before = published(shutil.copytree(builds.old, output)) if overwrites else None
    for _ in range(MAX_COMMANDS):
        try:
            builds.planned[overwrites].run(service.run, output)
            break
        except JobFailedError:
            service.events["failed jobs"] += 1
            service.let_all_go_on()
            assert published(output) in (before, builds.wanted)
    # A late publisher may be at work for some milliseconds (docs/guarantees.md).
    service.let_all_go_on()
    assert published(output) == builds.wanted
    shutil.rmtree(output)


def run_jobs(service: Service, builds: Builds, folder: Path, number: int) -> None:
    for job in range(number):
        run_job(service, builds, folder / str(job), overwrites=job % 3 == 2)
    events = ", ".join(f"{count:,} {name}" for name, count in sorted(service.events.items()))
    print(f"{number:,} jobs, 0 lost, 0 doubled, 0 half-published: {events}")


@pytest.mark.long
@pytest.mark.weight(30)
def test_lost_workers_lose_nothing(service: Service, builds: Builds, tmp_path: Path) -> None:
    run_jobs(service, builds, tmp_path, 12)


def test_a_publisher_that_begins_too_late_ends_well(builds: Builds, tmp_path: Path) -> None:
    """It says that the files are in `next/`, after another one has removed that."""
    root = Folder(str(shutil.copytree(builds.old, tmp_path / "out")))
    builds.planned[True].run(undisturbed, tmp_path / "out")
    late = replace(read_manifest(root), folder=naming.NEXT_DIR).to_bytes()
    root.write_bytes(naming.MANIFEST, late)
    assert finish_promotion(root)
    assert published(tmp_path / "out") == builds.wanted
    root.write_bytes(naming.MANIFEST, late)
    root.remove(next(iter(builds.wanted)))
    with pytest.raises(MissingError):
        finish_promotion(root)


def test_what_a_publisher_leaves_too_late_is_not_put_in_place(
    builds: Builds, tmp_path: Path
) -> None:
    """It makes `next/` again, while one that has seen the manifest of the promotion goes on."""
    root = Folder(str(shutil.copytree(builds.old, tmp_path / "out")))
    builds.planned[True].run(undisturbed, tmp_path / "out")
    late = replace(read_manifest(root), folder=naming.NEXT_DIR)
    root.write_bytes(naming.MANIFEST, late.to_bytes())
    root.below(naming.NEXT_DIR).write_bytes(naming.STATS, b"of another time")
    assert finish_promotion(root)
    assert published(tmp_path / "out") == builds.wanted
    assert not (tmp_path / "out" / naming.NEXT_DIR).exists()


def test_a_publisher_that_another_one_overtakes_removes_nothing(
    builds: Builds, tmp_path: Path
) -> None:
    """The other one replaces the manifest after this one has seen that it says `next/`."""
    root = Folder(str(shutil.copytree(builds.old, tmp_path / "out")))
    builds.planned[True].run(undisturbed, tmp_path / "out")
    seen = [replace(read_manifest(root), folder=naming.NEXT_DIR).to_bytes()]

    class Overtaken(Folder):
        def read_bytes(self, name: str, *, max_bytes: int | None = None) -> bytes:
            is_first = seen and name == naming.MANIFEST
            return seen.pop() if is_first else super().read_bytes(name, max_bytes=max_bytes)

    finish_promotion(Overtaken(root.uri))
    assert not seen
    assert published(tmp_path / "out") == builds.wanted


@pytest.mark.parametrize("moment", [naming.STATS, naming.REPORT])
def test_a_publisher_that_comes_too_late_leaves_nothing(
    moment: str, builds: Builds, tmp_path: Path
) -> None:
    """The other one replaces the dataset while this one writes a file in `next/`."""
    output = shutil.copytree(builds.old, tmp_path / "out")
    others: list[Bundle] = []

    class Overtaken(Folder):
        def below(self, name: str) -> Folder:
            return Overtaken(self.path(name)) if name else self

        def write_bytes(self, name: str, data: bytes, *, sync: bool = True) -> None:
            if name == moment:
                others.pop()()
            super().write_bytes(name, data, sync=sync)

    def run(bundles: Sequence[Bundle]) -> list[Any]:
        bundle = bundles[0]
        if not isinstance(bundle, partial) or bundle.func is not publish:
            return undisturbed(bundles)
        others.append(bundle)
        shards, publication, *args = bundle.args
        return [publish(shards, replace(publication, root=Overtaken(str(output))), *args)]

    builds.planned[True].run(run, output)
    assert not others
    assert published(output) == builds.wanted
    assert not (output / naming.NEXT_DIR).exists()
