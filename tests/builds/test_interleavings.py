"""Appends, compactions, collections and readers at the same time: no commit is lost.

`tests.simulator` does so in thousands of orders and with faults; here are real disks and stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.format import naming
from shardwright.format.notes import time_at
from shardwright.format.pins import add_pin
from shardwright.format.versions import number_of, read_version, read_versions
from shardwright.pipelines.commands.append import append_version
from shardwright.pipelines.commands.erase import erase
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.receipt import Receipt, find_left
from shardwright.transforms.versions.collect import collect, plan_collection
from tests.support.build_helpers import png_of
from tests.support.folder_patches import wrap_method
from tests.support.growing import Grown, Source
from tests.support.judge import judge
from tests.support.turns import Turns, before_requests, retry

LIMIT = ("--max-reject-fraction", "1")  # for what `Appender.added` leaves out
OPTIONS = ("--records-per-shard", "3", "--name", "grown", "--seed", "5", *LIMIT)
NAMES = [f"{name}/{number}.png" for name in ("ant", "cat") for number in range(6)]
_TRIES = 30  # a compaction fails as long as a collection of its own earlier try is under way

pytestmark = pytest.mark.weight(20)

State = dict[str, tuple[str, int]]
"""The source and the seed of each record, by id."""


@dataclass
class Appender:
    """A task that appends a folder to a dataset, again if another task has come between.

    Attributes:
        base: Number of the version that the last try began with.
    """

    grown: Grown
    source: Source
    keep: bool
    base: int = 0

    def __call__(self) -> None:
        retry(self._append, _TRIES)

    def _append(self) -> None:
        job = self.grown.prepare(self.source, *["--keep-missing"] * self.keep)
        assert job.known is not None
        self.base = number_of(job.known.base)
        append_version(job)

    @property
    def state(self) -> State:
        return {
            name: (self.source.folder.name, image.seed)
            for name, image in self.source.images.items()
        }

    def applied(self, base: State, current: State) -> State:
        """Return the records of a version that the task commits after `current`."""
        added, gone = self.added(base), set() if self.keep else base.keys() - self.state.keys()
        return {name: image for name, image in current.items() if name not in gone} | added

    def added(self, base: State) -> State:
        """Return the records that differ from a version, if they may replace those of its ids."""
        return {
            name: (folder, seed)
            for name, (folder, seed) in self.state.items()
            if base.get(name) != (folder, seed)
            and not (self.keep and name in base and base[name][0] != folder)
        }


@dataclass
class Compactor:
    """A task that compacts a dataset, again if another task has come between."""

    grown: Grown

    def __call__(self) -> None:
        retry(self.grown.compact, _TRIES)


@dataclass
class Collector:
    """A task that keeps the newest two versions."""

    grown: Grown

    def __call__(self) -> None:
        root = self.grown.root
        collect(root, plan_collection(root, 2, clock=partial(time_at, root)))


@dataclass
class Pinner:
    """A task that pins the version that was the newest before all tasks.

    Attributes:
        pinned: The version, if it was not removed before.
    """

    grown: Grown
    pinned: int | None = None

    def __call__(self) -> None:
        with suppress(UsageError):
            self.pinned = add_pin(self.grown.root, "pinned", 2).version


@dataclass
class Watcher:
    """A task that reads the newest version twice while others change the dataset."""

    grown: Grown
    found: list[tuple[int, dict[str, bytes]]] = field(default_factory=list)

    def __call__(self) -> None:
        for _ in range(2):
            retry(self._read, _TRIES)

    def _read(self) -> None:
        number = number_of(read_version(self.grown.root))
        self.found.append((number, images(self.grown, number)))


@dataclass
class Eraser:
    """A task that erases images."""

    grown: Grown
    ids: frozenset[str]

    def __call__(self) -> None:
        self.receipt = Receipt.begin(self.grown.root.uri, self.ids)
        retry(self._erase, _TRIES)

    def _erase(self) -> None:
        grown = self.grown
        if erase(grown.root, self.ids, self.receipt, lambda: None, stores=grown.stores):
            raise BuildError("the copy failed")


@contextmanager
def noting_commits() -> Iterator[dict[int, str]]:
    """Yield version -> name of the thread that has created it, of those inside the block."""
    commits: dict[int, str] = {}

    def noted(create: Callable[..., None]) -> Callable[..., None]:
        def run(root: Folder, name: str, data: bytes) -> None:
            create(root, name, data)
            number = naming.version_number(name.rpartition("/")[2])
            if number is not None:
                commits[number] = current_thread().name.partition("_")[0]

        return run

    with pytest.MonkeyPatch.context() as patch:
        wrap_method("create_bytes", noted, patch.setattr)
        yield commits


def appender(grown: Grown, folder: Path, rng: np.random.Generator) -> Appender:
    """Return an appender of a new folder with some of the images."""
    source = Source(folder)
    chosen = rng.choice(NAMES, rng.integers(3, 9), replace=False)
    own = f"ant/{folder.name}.png"  # so that each has an image to add
    source.change({own: 31, **{str(name): int(rng.integers(30)) for name in chosen}})
    return Appender(grown, source, keep=bool(rng.integers(2)))


def others(grown: Grown, folder: Path, rng: np.random.Generator) -> list[Callable[[], Any]]:
    """Return what runs beside an appender: other writers, and a reader."""
    another, compactor = appender(grown, folder, rng), Compactor(grown)
    collector = Collector(grown)
    writers: list[list[Callable[[], Any]]] = [
        [another],
        [compactor],
        [another, compactor],
        [compactor, Compactor(grown)],
        [another, collector, Pinner(grown)],
        [compactor, collector, Pinner(grown)],
        [another, compactor, collector, Collector(grown), Pinner(grown)],
    ]
    return [*writers[rng.integers(len(writers))], Watcher(grown)]


def begun(root: Folder, folder: Path, rng: np.random.Generator, new: str) -> tuple[Grown, State]:
    """Return a dataset of two versions, of which the second has a new image, and its records."""
    grown = Grown(root, OPTIONS)
    first = appender(grown, folder / "first", rng)
    grown.append(first.source)
    first.source.change({new: 50})
    grown.append(first.source)
    return grown, first.state


def follow(
    commits: dict[int, str], tasks: list[Callable[[], Any]], second: State
) -> dict[int, State]:
    """Return the records of each version from the second one on."""
    states = {2: second}
    for number, name in sorted(commits.items()):
        task, before = tasks[int(name)], states[number - 1]
        appends = isinstance(task, Appender)
        states[number] = task.applied(states[task.base], before) if appends else before
    return states


def check_interleaving(root: Folder, folder: Path, rng: np.random.Generator) -> None:
    """Let tasks take turns, and check each version and what was read."""
    grown, second = begun(root, folder, rng, "ant/0.png")
    tasks = [appender(grown, folder / "one", rng), *others(grown, folder / "other", rng)]
    with noting_commits() as commits:
        results = Turns(int(rng.integers(2**32))).run(tasks)
    assert not [result for result in results if isinstance(result, Exception)]
    states = follow(commits, tasks, second)
    assert list(states) == [2, *sorted(commits)]
    assert {int(name) for name in commits.values()} >= {
        number for number, task in enumerate(tasks) if isinstance(task, Appender)
    }
    seen = [one for task in tasks if isinstance(task, Watcher) for one in task.found]
    left = [number_of(version) for version in read_versions(root)]
    assert {task.pinned for task in tasks if isinstance(task, Pinner)} <= {None, *left}
    every = [*seen, *((number, images(grown, number)) for number in left if number > 1)]
    for number, found in every:
        wanted = {name: png_of(seed) for name, (_, seed) in states[number].items()}
        assert found == wanted, number
    assert not judge(root.uri, storage_options=root.options).faults


def images(grown: Grown, number: int) -> dict[str, bytes]:
    return {name: one.image for name, one in grown.records(version=number).items()}


def test_no_commit_is_lost_on_a_disk(tmp_path: Path, rng: np.random.Generator) -> None:
    check_interleaving(Folder(str(tmp_path / "out")), tmp_path, rng)


def check_erasure(root: Folder, folder: Path, rng: np.random.Generator) -> None:
    """Erase images while others append, compact and read: they are in no file afterwards."""
    grown, second = begun(root, folder, rng, "dog/0.png")
    ids = frozenset(map(str, rng.choice(NAMES, 4, replace=False)))
    another = appender(grown, folder / "one", rng)
    another.source.change(dict.fromkeys(ids) | {"dog/0.png": 51})
    eraser, watcher = Eraser(grown, ids), Watcher(grown)
    tasks: list[Callable[[], Any]] = [eraser, another, watcher]
    tasks += [Compactor(grown)] if rng.integers(2) else []
    with noting_commits() as commits:
        results = Turns(int(rng.integers(2**32))).run(tasks)
        for number, (task, result) in enumerate(zip(tasks, results, strict=True)):
            if isinstance(result, Exception):  # its generation was removed
                assert isinstance(result, ShardwrightError)
                with ThreadPoolExecutor(1, str(number)) as pool:
                    pool.submit(task).result()
    assert "1" in commits.values()
    states = follow(commits, tasks, second)
    for number, found in watcher.found:
        assert found in (_pngs(states[number], ids), _pngs(states[number], frozenset())), number
    newest = number_of(read_version(root))
    assert images(grown, newest) == _pngs(states[newest], ids)
    assert not list(find_left(root, eraser.receipt))
    assert not judge(root.uri, storage_options=root.options).faults


def _pngs(state: State, without: frozenset[str]) -> dict[str, bytes]:
    return {name: png_of(seed) for name, (_, seed) in state.items() if name not in without}


def test_an_erasure_beside_others(tmp_path: Path, rng: np.random.Generator) -> None:
    check_erasure(Folder(str(tmp_path / "out")), tmp_path, rng)


def check_collections_within(root: Folder, folder: Path, share: float) -> None:
    """Collect at this share of the requests of an append and a compaction."""
    rng = np.random.default_rng(7)
    grown, _ = begun(root, folder, rng, "ant/0.png")
    source = appender(grown, folder / "more", rng).source

    def gc() -> None:
        if current_thread() is main_thread() and rng.random() < share:
            assert not collect(root, plan_collection(root, 9, clock=partial(time_at, root))).files

    with before_requests(gc):
        assert number_of(grown.append(source, "--keep-missing")) == 3
        assert number_of(grown.compact()) == 4
    assert not [name for name in root.names(naming.VERSIONS_DIR) if name.startswith(".")]
    assert not judge(root.uri, storage_options=root.options).faults


def test_collections_within_an_append_and_a_compaction(tmp_path: Path) -> None:
    check_collections_within(Folder(str(tmp_path / "out")), tmp_path, share=1)
