"""A history: some tasks at the same time, with faults and kills, and what must hold afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from shardwright.errors import ShardwrightError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.versions import number_of, read_versions, version_numbers
from shardwright.storage import clients
from shardwright.transforms.changes import known_files
from shardwright.transforms.promotion import files_of_dataset
from shardwright.transforms.write import shard_chunks
from tests.simulator.actors import (
    ROOT,
    Append,
    Build,
    Collect,
    Compact,
    Erase,
    Pin,
    Read,
    Repair,
    Task,
)
from tests.simulator.model import Image, Images, Model, bytes_of
from tests.simulator.scheduler import Actor, Killed, Scheduler
from tests.simulator.store import Requests, Store
from tests.support.judge import judge
from tests.support.turns import retry

NAMES = [f"{name}/{number}.png" for name in ("ant", "cat") for number in range(4)]
# The datasets that a kind of history begins with, as `History.grow_to` makes them.
_BEGINNINGS = {
    "grow": ("first", "second", "compacted"),
    "collect": ("second", "compacted"),
    "erase": ("first", "second", "compacted"),
    "build": ("", "first"),
    "repair": ("first", "added"),
}
_TRIES = 6
_DAY = 86400.0


def _forget_clients() -> None:
    """Let the process begin anew: what it has measured so far decides how it goes on."""
    clients._clients.clear()
    shard_chunks._read_ahead.cache_clear()
    known_files._open.cache_clear()


@dataclass
class State:
    """A dataset to begin with."""

    store: Store
    model: Model
    inputs: dict[str, Images]

    def copy(self) -> State:
        return State(self.store.copy(), self.model.copy(), dict(self.inputs))


class Simulation:
    """The histories of a process.

    Args:
        scheduler: Runs the actors.
        requests: The store that the code under test has.
    """

    def __init__(self, scheduler: Scheduler, requests: Requests) -> None:
        self._scheduler, self._requests = scheduler, requests
        self._states: dict[str, State] = {}

    def run(self, seed: int) -> None:
        """Run the history of a seed. Raises `AssertionError` if something does not hold."""
        random = Random(seed)
        kind = random.choices(list(_BEGINNINGS), (5, 4, 3, 2, 1))[0]
        begin = random.choice(_BEGINNINGS[kind])
        state = self._begun(begin).copy()
        History(self._scheduler, self._requests, state, random).run(kind)

    def _begun(self, name: str) -> State:
        """Return a dataset that has grown so far."""
        if name not in self._states:
            history = History(
                self._scheduler, self._requests, State(Store(), Model(), {}), Random(0)
            )
            history.grow_to(name)
            self._states[name] = history.state
        return self._states[name]


class History:
    """One history.

    Args:
        state: The dataset to begin with.
        random: Decides everything.
    """

    def __init__(
        self, scheduler: Scheduler, requests: Requests, state: State, random: Random
    ) -> None:
        self._scheduler, self._requests = scheduler, requests
        self.state, self._random = state, random
        self._model = state.model
        scheduler.start(random)
        requests.start(state.store, random)
        _forget_clients()
        requests.watch = self._watch
        self._tasks: dict[str, Task] = {}
        self._alone: Task | None = None

    def grow_to(self, name: str) -> None:
        """Make a dataset: its first version, its second one, or that after a compaction."""
        images = {each: number for number, each in enumerate(NAMES[1:])} | {"ant/own-one.png": 30}
        if name:
            self._alone_do(Append("one", self._put("one", images)))
        if name == "added":
            self._alone_do(Append("one", self._put("one", {**images, NAMES[0]: 40})))
        if name in ("second", "compacted"):
            self._alone_do(Append("one", self._put("one", {**images, NAMES[0]: 40, NAMES[1]: 41})))
        if name == "compacted":
            self._alone_do(Compact())

    def run(self, kind: str) -> None:
        tasks: list[Task] = getattr(self, f"_{kind}_tasks")()
        actors = [self._actor(number, task) for number, task in enumerate(tasks)]
        self._scheduler.run(actors)
        for actor in actors:
            if isinstance(actor.result, BaseException) and not isinstance(
                actor.result, (ShardwrightError, Killed)
            ):
                raise actor.result
        if any(isinstance(actor.result, Killed) for actor in actors):
            self._scheduler.now += 2 * _DAY  # until notes of the dead no longer count
        for actor, task in zip(actors, tasks, strict=True):
            if isinstance(actor.result, BaseException) and not isinstance(task, (Read, Build)):
                self._alone_do(task)
            if isinstance(task, Append):
                assert task.is_in(self._model), f"{actor.name} has ended, and is in no version"
        getattr(self, f"_check_{kind}")(tasks)

    def _actor(self, number: int, task: Task) -> Actor:
        name = f"{type(task).__name__}{number}"
        self._tasks[name] = task
        dies_after = self._random.randrange(150) if self._random.random() < 0.3 else -1
        return Actor(name, task, dies_after, self._random.choice((0.0, -3 * _DAY, 5 * _DAY)))

    def _alone_do(self, task: Task) -> None:
        """Do a task without others and faults: it must succeed, if need be once more."""
        self._alone = task
        retry(task, _TRIES)

    def _watch(self, key: str, data: bytes | None) -> None:
        """Check a change of the store, and note the version that it may commit."""
        current = self._scheduler.current
        task = self._alone if current is None else self._tasks[current.name]
        if data is None:
            if isinstance(task, Collect):
                self._check_unused(key)
            return
        folder, _, name = key.rpartition("/")
        # An erasure may remove a generation that is just being published, and is never committed;
        # of two overwriting builds one may move the files of the other (docs/guarantees.md).
        erases = any(isinstance(each, Erase) for each in self._tasks.values())
        if name == naming.MANIFEST and not erases and f"out/{naming.NEXT_DIR}" != folder:
            manifest = Manifest.from_json(json.loads(data))
            names = {} if manifest.folder else manifest.file_names()
            missing = {f"{folder}/{name}" for name in names} - self.state.store.objects.keys()
            assert not missing, f"{key} is there before {sorted(missing)}"
        number = naming.version_number(name) if folder == "out/versions" else None
        if key == "out/manifest.json" and isinstance(task, Append):
            number = 1
        if number is not None and number not in self._model.versions:
            self._note_commit(number, json.loads(data).get("history", {}), task)

    def _check_unused(self, key: str) -> None:
        """Check that a collection removes nothing of an append or compaction that runs."""
        committed = {folder for folders in self._model.folders.values() for folder in folders}
        for actor in self._scheduler.left:
            task = self._tasks[actor.name]
            if isinstance(task, (Append, Compact)) and task.folder not in {"", *committed}:
                assert not key.startswith(f"out/{task.folder}/"), f"{actor.name} writes {key}"

    def _note_commit(self, number: int, history: Mapping[str, Any], task: Task | None) -> None:
        model = self._model
        assert number == model.newest + 1, f"version {number} follows {model.newest}"
        adds = isinstance(task, Append)
        model.versions[number] = task.applied(model) if adds else model.versions[number - 1]
        model.folders[number] = history.get("generations", [""])

    # Inputs.

    def _put(self, source: str, seeds: Mapping[str, int]) -> Images:
        """Let an input hold these images and no others."""
        images = {name: Image(source, seed) for name, seed in seeds.items()}
        objects = self.state.store.objects
        for key in [key for key in objects if key.startswith(f"in/{source}/")]:
            self.state.store.remove(key)
        for name, image in images.items():
            self.state.store.put(f"in/{source}/{name}", bytes_of(name, image), 1.0)
        self.state.inputs[source] = images
        return images

    def _changed(self, source: str, without: frozenset[str] = frozenset()) -> Images:
        """Change an input at random."""
        random = self._random
        images = {name: one.seed for name, one in self.state.inputs.get(source, {}).items()}
        for name in random.sample(NAMES, random.randrange(1, 4)):
            images[name] = random.randrange(100)
        for name in random.sample(sorted(images), random.randrange(min(3, len(images)))):
            del images[name]
        images[f"ant/own-{source}.png"] = 30
        return self._put(source, {name: n for name, n in images.items() if name not in without})

    # Kinds of histories.

    def _append(self, source: str, without: frozenset[str] = frozenset()) -> Append:
        keep = source != "one" if self._random.random() < 0.7 else source == "one"
        return Append(source, self._changed(source, without), keep)

    def _grow_tasks(self) -> list[Task]:
        random, newest = self._random, self._model.newest
        one = self._append("one")
        others: list[Callable[[], Task]] = [
            lambda: self._append("two"),
            lambda: self._append("three"),
            lambda: Append("one", one.images, one.keep),  # the same command again
            Compact,
            Compact,
            lambda: Collect(random.randrange(1, 3)),
            lambda: Pin(self._model, random.randrange(1, newest + 1)),
            lambda: Read(self._model.check_read),
        ]
        return [one, *(make() for make in random.sample(others, random.randrange(1, 4)))]

    def _collect_tasks(self) -> list[Task]:
        pin = Pin(self._model, self._random.randrange(1, self._model.newest))
        others = [Compact(), Read(self._model.check_read), Collect(1)]
        return [Collect(1), pin, *others[: self._random.randrange(3)]]

    def _erase_tasks(self) -> list[Task]:
        random = self._random
        ids = frozenset(random.sample(NAMES, random.randrange(1, 4)))
        self._model.erased = set(ids)
        for source, images in self.state.inputs.items():
            self._put(source, {n: one.seed for n, one in images.items() if n not in ids})
        others: list[Callable[[], Task]] = [
            lambda: self._append("two", ids),
            lambda: self._append("one", ids),
            Compact,
            lambda: Read(self._model.check_read),
        ]
        return [Erase(ids), *(make() for make in random.sample(others, random.randrange(1, 3)))]

    def _build_tasks(self) -> list[Task]:
        random = self._random
        inputs = {source: self._changed(source) for source in ("one", "two")}
        how = random.choice(("overwrite", "resume")) if self._model.versions else "resume"
        tasks: list[Task] = [
            Build(source, images, how)
            for source, images in random.sample(sorted(inputs.items()), random.randrange(1, 3))
        ]
        if random.random() < 0.3:  # the same command again
            tasks.append(tasks[0])
        return [*tasks, Read(self._check_any)] if self._model.versions else tasks

    def _repair_tasks(self) -> list[Task]:
        random, objects = self._random, self.state.store.objects
        names = [key for key in sorted(objects)
                 if _may_be_mended(key, grown=self._model.newest > 1)]  # fmt: skip
        for key in random.sample(names, random.randrange(1, 4)):
            data = objects[key].data
            place = random.randrange(len(data))
            damaged = random.choice((data[:place], data[:place] + b"?" + data[place + 1 :], None))
            if damaged is None:
                self.state.store.remove(key)
            else:
                self.state.store.put(key, damaged, self._scheduler.now)
        return [Repair()]

    # What must hold.

    def _check_grow(self, tasks: Sequence[Task]) -> None:
        keeps = [task.keep for task in tasks if isinstance(task, Collect)]
        self._check_versions(min(keeps, default=None))
        if self._random.random() < 0.2:
            self._check_sound()
        if self._random.random() < 0.2:
            self._check_tidy()

    _check_collect = _check_grow

    def _check_sound(self) -> None:
        faults = judge(ROOT.uri).faults
        assert not faults, faults

    def _check_tidy(self) -> None:
        """Collect once more, and check that every file left is one that a version needs."""
        self._scheduler.now += 2 * _DAY
        self._alone_do(Collect(1))
        wanted = set()
        for version in read_versions(ROOT):
            for folder in version.folders:
                below = ROOT.below(folder)
                manifest = read_manifest(below)
                names = map(below.path, files_of_dataset(manifest))
                wanted |= {name.removeprefix("s3://sim/") for name in names}
            wanted |= {f"out/{naming.notice_file(version.name, split)}" for split in version.splits}
        left = {
            key
            for key in self.state.store.objects
            if key.startswith("out/")
            and not key.startswith(("out/versions/", "out/spool/"))
            and "/spool/" not in key
        }
        assert left <= wanted, f"files that no version needs: {sorted(left - wanted)}"

    def _check_versions(self, keep: int | None) -> None:
        newest = self._model.newest
        assert version_numbers(ROOT)[-1] == newest
        left = {number_of(version): version for version in read_versions(ROOT)}
        must = self._model.pinned | set(range(max(1, newest - (keep or newest) + 1), newest + 1))
        assert must <= left.keys(), f"versions {sorted(must - left.keys())} are gone"
        for number, version in left.items():
            self._model.check_version(ROOT, version, number)

    def _check_erase(self, tasks: Sequence[Task]) -> None:
        erasure = tasks[0]
        assert isinstance(erasure, Erase)
        self._check_versions(1)
        if self._random.random() < 0.2:
            erasure.check()
        gone = {
            bytes_of(name, images[name])
            for images in self._model.versions.values()
            for name in erasure.ids & images.keys()
        }
        store = self.state.store
        kept = {**{key: one.data for key, one in store.objects.items()}, **store.old}
        for key, data in kept.items():
            if str(key).lstrip("('").startswith("out/"):
                assert not any(image in data for image in gone), f"{key} has an erased image"

    def _check_any_of(self, tasks: Sequence[Task]) -> None:
        """Check the dataset of several builds at once; of different inputs it may be broken."""
        same = len({task.source for task in tasks if isinstance(task, Build)}) == 1
        try:
            self._alone_do(Read(self._check_any))
        except ShardwrightError:
            if same:
                raise
        if same:
            self._check_sound()

    def _check_any(self, _: int, found: Mapping[str, bytes]) -> None:
        """Check that a dataset is that of one input."""
        inputs = [*self._model.versions.values(), *self.state.inputs.values()]
        wanted = [{name: bytes_of(name, one) for name, one in each.items()} for each in inputs]
        assert found in wanted, "the dataset is that of no input"

    def _check_build(self, tasks: Sequence[Task]) -> None:
        if (
            "out/manifest.json" in self.state.store.objects
        ):  # of one of the inputs, whichever was first
            self._check_any_of(tasks)
        last = self._random.choice([task for task in tasks if isinstance(task, Build)])
        self._alone_do(Build(last.source, last.images, "overwrite"))
        self._model.versions = {1: last.images}
        self._check_versions(None)
        self._check_sound()

    def _check_repair(self, _: Sequence[Task]) -> None:
        repair = Repair()
        self._alone_do(repair)
        assert repair.is_sound, "a file is still broken"
        self._check_versions(None)
        self._check_sound()


def _may_be_mended(key: str, *, grown: bool) -> bool:
    """Return whether a repair can make a file again: INPUT has changed since, if it has grown."""
    from_plan = "/index/" in key or "/rejects/" in key or key.endswith("plan.json")
    of_versions = "/versions/" in key or "-of-00000" in key or key.endswith("manifest.json")
    return key.startswith("out/") and not of_versions and not (from_plan and grown)
