"""Two writers of one shard, one of which the runner has given up, and the publisher.

They take turns at their storage calls in a seeded order, and a writer may die at any of them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.image_classification import image_classification
from shardwright.errors import BuildError, ShardwrightError
from shardwright.format import naming
from shardwright.format.index import ShardSummary
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder, Sink
from tests.support.build_helpers import png_of, stamps_of
from tests.support.helpers import file_references
from transforms.images.options import EncodeOptions
from transforms.output_state import Clearance
from transforms.plan.packing import Layout, ShardCuts
from transforms.plan.shard_plans import ShardPlan
from transforms.publish.publication import Publication, publish
from transforms.references import set_column
from transforms.write import shard_writing
from transforms.write.shard_writing import find_finished, write_records, write_shard
from transforms.write.write_job import WriteJob

NAME = ShardName("tiny", "train", 0, 1)
NUM_IMAGES = 3
LAYOUT = Layout({"train": ShardCuts(NUM_IMAGES, 1)}, {"train": 1000}, {})
CLEARANCE = Clearance({"label": ("a",)}, "fingerprint", {}, retry=True)
SCHEMA = image_classification()
_CALLS = ("read_bytes", "write_bytes", "create_bytes", "remove", "num_bytes_of", "stated", "names")


class Killed(BaseException):
    """The death of an actor: nothing that it does afterwards has an effect."""


class Actor:
    """A thread that stops before each storage call until the scheduler lets it go on."""

    def __init__(self, work: Callable[[Folder], Any], root: Path) -> None:
        self.result: Any = None
        self.is_done = self.is_killed = False
        self._reached, self._go = threading.Semaphore(0), threading.Semaphore(0)
        self._folder = SteppedFolder(str(root))
        object.__setattr__(self._folder, "step", self._step)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Let the thread run to its next storage call."""
        self._go.release()
        assert self._reached.acquire(timeout=30), "an actor hangs"

    def _run(self, work: Callable[[Folder], Any]) -> None:
        self._go.acquire()
        try:
            self.result = work(self._folder)
        except (ShardwrightError, Killed) as error:
            self.result = error
        self.is_done = True
        self._reached.release()

    def _step(self) -> None:
        if threading.current_thread() is not self._thread:
            return
        if not self.is_killed:
            self._reached.release()
            self._go.acquire()
        if self.is_killed:
            raise Killed


class SteppedFolder(Folder):
    """A folder that waits for the scheduler before each call."""

    @contextmanager
    def open_sink(self, name: str) -> Iterator[Sink]:
        self.step()  # type: ignore[attr-defined]
        with super().open_sink(name) as sink:
            yield sink


def _stepped(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.step()
        return getattr(Folder, name)(self, *args, **kwargs)

    return call


for _name in _CALLS:
    setattr(SteppedFolder, _name, _stepped(_name))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ShardPlan:
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{number}.png" for number in range(NUM_IMAGES)]
    for number, path in enumerate(paths):
        path.write_bytes(png_of(number))
    return ShardPlan.make(NAME, file_references(paths, labelled=True), b"s")


@pytest.fixture(autouse=True)
def alone_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no child process after a death, which takes half a second."""
    monkeypatch.setattr(shard_writing, "make_alone", shard_writing.make_chunks)


def write(plan: ShardPlan, root: Folder) -> ShardSummary:
    found = find_finished(root, plan, retry=True)
    if found is not None:
        return found
    return write_shard(plan, make_job(root))[0]


def make_job(root: Folder) -> WriteJob:
    schema = SCHEMA.with_class_names(("a",))
    return WriteJob(root, schema, "header", EncodeOptions(), threads=1, unpublished=True)


def test_a_late_writer_leaves_a_finished_shard_and_a_published_dataset_as_they_are(
    plan: ShardPlan, tmp_path: Path
) -> None:
    """It could not read an image that the other writer has read."""
    uris = pa.array([*plan.references["uri"].to_pylist()[:-1], "/none.png"])
    other = replace(plan, references=set_column(plan.references, "uri", uris))
    late, root = make_job(Folder(str(tmp_path))), Folder(str(tmp_path))
    finish = write_records(other, late)
    summary = write(plan, root)
    before = {name: stamps_of(tmp_path)[name] for name in (NAME.shard, NAME.sidecar)}
    assert finish() == (summary, [])
    assert stamps_of(tmp_path) == before
    finish = write_records(other, late)
    publish_in(summary, root)
    root.remove(plan.name.sidecar)
    with pytest.raises(BuildError, match="was published meanwhile"):
        finish()


def test_a_shard_that_is_not_as_written_is_not_published(plan: ShardPlan, tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    summary = write(plan, root)
    for name in (NAME.shard, NAME.sidecar):
        data = root.read_bytes(name)
        for change in (partial(root.remove, name), partial(root.write_bytes, name, data[:-1])):
            change()
            with pytest.raises(BuildError, match="was replaced or removed"):
                publish_in(summary, root)
            assert not (tmp_path / naming.MANIFEST).exists()
        root.write_bytes(name, data)


def publish_in(summary: ShardSummary, root: Folder) -> Manifest:
    publication = Publication(root, "tiny", "1.0.0", SCHEMA, {}, {}, max_reject_fraction=1.0)
    return publish(publication, [summary], LAYOUT, CLEARANCE)


def run_interleaved(plan: ShardPlan, root: Path, seed: int) -> None:
    """Run two writers, and a publisher of the first summary, to their ends in a seeded order."""
    rng = random.Random(seed)
    writers = [Actor(partial(write, plan), root) for _ in range(2)]
    actors, mortal = list(writers), rng.choice([*writers, None])
    # A late writer takes its last steps when the dataset is published.
    speeds, published = {writer: rng.choice([1, 10]) for writer in writers}, False
    while actors:
        actor = rng.choices(actors, [speeds.get(actor, 10) for actor in actors])[0]
        if actor is mortal and rng.random() < 0.1:
            actor.is_killed = True
        actor.advance()
        if actor.is_done:
            actors.remove(actor)
            if isinstance(actor.result, ShardSummary) and not published:
                published = True
                actors.append(Actor(partial(publish_in, actor.result), root))


def check(plan: ShardPlan, root: Path, seed: int) -> None:
    run_interleaved(plan, root, seed)
    folder = Folder(str(root))
    if not (root / naming.MANIFEST).exists():  # the same command again
        publish_in(write(plan, folder), folder)
    assert verify(str(root)).faults == (), seed


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_two_writers_of_a_shard_make_no_bad_dataset(
    plan: ShardPlan, tmp_path: Path, first: int
) -> None:
    for seed in range(first, first + 20):
        check(plan, tmp_path / str(seed), seed)


@pytest.mark.long
def test_two_writers_of_a_shard_in_a_thousand_orders(plan: ShardPlan, tmp_path: Path) -> None:
    for seed in range(1000, 2000):
        check(plan, tmp_path / str(seed), seed)
