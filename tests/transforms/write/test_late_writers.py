"""Two writers of one shard, one of which the runner has given up, and the publisher.

They take turns at their storage calls in a seeded order, and a writer may die at any of them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardwright.errors import BuildError, ShardwrightError, StorageError
from shardwright.format import naming
from shardwright.format.index import ShardSummary
from shardwright.format.manifest import Manifest, json_bytes
from shardwright.format.naming import ShardName
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder, Sink
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import Layout, ShardCuts, ShardPlan
from shardwright.transforms.publish.companions import TfdsFiles
from shardwright.transforms.publish.publication import Publication, publish
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.references import set_column
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.write import shard_writing
from shardwright.transforms.write.shard_writing import find_finished, write_records, write_shard
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob
from tests.support.build_helpers import leftovers_of, png_of, stamps_of
from tests.support.helpers import file_references
from tests.support.judge import judge

NAME = ShardName("tiny", "train", 0, 1)
NUM_IMAGES = 3
LAYOUT = Layout({"train": ShardCuts(NUM_IMAGES, 1)}, {"train": 1000}, {})
CLEARANCE = Clearance({"label": ("a",)}, "fingerprint", {}, unpublished=True)
SCHEMA = image_classification()
_CALLS = (
    "read_bytes", "write_bytes", "create_bytes", "remove", "num_bytes_of", "info", "files", "names",
)  # fmt: skip


class Killed(BaseException):
    """The death of an actor: nothing that it does afterwards has an effect."""


class Actor:
    """A thread that stops before each storage call until the scheduler lets it go on."""

    def __init__(self, work: Callable[[Folder], Any], root: Folder) -> None:
        self.result: Any = None
        self.is_done = self.is_killed = False
        self._reached, self._go = threading.Semaphore(0), threading.Semaphore(0)
        self._folder = SteppedFolder(root.uri)
        object.__setattr__(self._folder, "step", self._step)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Let the thread run to its next storage call."""
        self._go.release()
        assert self._reached.acquire(timeout=250), "an actor hangs"

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
    """A folder that waits for the scheduler before each call, and before a file is put in place."""

    @contextmanager
    def open_sink(self, name: str) -> Iterator[Sink]:
        self.step()  # type: ignore[attr-defined]
        with super().open_sink(name) as sink:
            yield sink
            self.step()  # type: ignore[attr-defined]


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


@pytest.fixture(scope="module")
def partly(plan: ShardPlan) -> ShardPlan:
    """The plan of a worker that cannot read an image."""
    uris = pa.array([*plan.references["uri"].to_pylist()[:-1], "/none.png"])
    return replace(plan, references=set_column(plan.references, "uri", uris))


def new_root(path: Path) -> Folder:
    """Return the folder of a build that has begun."""
    root = Folder(str(path))
    root.write_bytes(naming.PLAN, json_bytes({"fingerprint": CLEARANCE.fingerprint}))
    return root


def write(plan: ShardPlan, root: Folder, clearance: Clearance = CLEARANCE) -> ShardSummary:
    found = find_finished(root, plan, unpublished=clearance.unpublished)
    if found is not None:
        return found
    return write_shard(plan, make_job(root, clearance))[0]


def make_job(root: Folder, clearance: Clearance = CLEARANCE) -> WriteJob:
    return WriteJob(root, SCHEMA, StoredRecords("header", EncodeOptions()), threads=1).cleared(
        clearance
    )


def test_a_late_writer_leaves_a_finished_shard_as_it_is(
    plan: ShardPlan, partly: ShardPlan, tmp_path: Path
) -> None:
    root = new_root(tmp_path)
    finish = write_records(partly, make_job(root))
    summary = write(plan, root)
    before = {name: stamps_of(tmp_path)[name] for name in (NAME.shard, NAME.sidecar)}
    assert finish() == (summary, [])
    assert {name: stamps_of(tmp_path)[name] for name in before} == before


def test_a_late_writer_does_not_mend_a_published_dataset(
    plan: ShardPlan, partly: ShardPlan, tmp_path: Path
) -> None:
    """It has read an image that is a reject there."""
    root = new_root(tmp_path)
    finish = write_records(plan, make_job(root))
    publish_in(write(partly, root), root)
    with pytest.raises(BuildError, match="was published meanwhile"):
        finish()
    assert judge(str(tmp_path)).is_sound


def test_a_late_writer_does_not_write_where_an_overwriting_build_has_ended(
    plan: ShardPlan, tmp_path: Path
) -> None:
    """Its folder `next` is removed once the files are in OUTPUT."""
    root = new_root(tmp_path / naming.NEXT_DIR)
    finish = write_records(plan, make_job(root))
    root.remove(naming.PLAN)
    with pytest.raises(BuildError, match="the build has ended"):
        finish()
    assert leftovers_of(tmp_path) == []


def test_a_writer_whose_folder_is_removed_as_it_begins_says_why(
    plan: ShardPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc` removes its temporary file, after the plan."""
    root = new_root(tmp_path / "generations" / "00002-x")

    def fail(*_: object) -> None:
        root.remove(naming.PLAN)
        raise StorageError("cannot write")

    monkeypatch.setattr(Folder, "open_sink", fail)
    with pytest.raises(BuildError, match=r"plan\.json is gone, because `shardwright gc`"):
        write_records(plan, make_job(root))


def test_a_shard_that_is_not_as_written_is_not_published(plan: ShardPlan, tmp_path: Path) -> None:
    root = new_root(tmp_path)
    summary = write(plan, root)
    for name in (NAME.shard, NAME.sidecar):
        data = root.read_bytes(name)
        for change in (partial(root.remove, name), partial(root.write_bytes, name, data[:-1])):
            change()
            with pytest.raises(BuildError, match="run the build again"):
                publish_in(summary, root)
            assert not (tmp_path / naming.MANIFEST).exists()
        root.write_bytes(name, data)


def publish_in(summary: ShardSummary, root: Folder, clearance: Clearance = CLEARANCE) -> Manifest:
    publication = Publication(
        root, "tiny", "1.0.0", SCHEMA, {}, {}, RejectLimits(1.0), (TfdsFiles(),)
    )
    return publish(WrittenShards([summary]), publication, LAYOUT, clearance)


def build_again(plan: ShardPlan, root: Folder) -> None:
    unpublished = root.num_bytes_of(naming.MANIFEST) is None
    clearance = replace(CLEARANCE, unpublished=unpublished)
    publish_in(write(plan, root, clearance), root, clearance)


def run_interleaved(plans: Sequence[ShardPlan], root: Folder, seed: int) -> None:
    """Run two writers, and a publisher of the first summary, to their ends in a seeded order."""
    rng = random.Random(seed)
    writers = [Actor(partial(write, plan), root) for plan in plans]
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


def check_equal_writers(plan: ShardPlan, path: Path, seed: int) -> None:
    """Check that no order of two writers of the same bytes makes a bad dataset."""
    root = new_root(path)
    run_interleaved([plan, plan], root, seed)
    if root.num_bytes_of(naming.MANIFEST) is None:
        build_again(plan, root)
    assert judge(str(root)).faults == (), seed


def check_unequal_writers(plan: ShardPlan, partly: ShardPlan, path: Path, seed: int) -> bool:
    """Check that a dataset is sound, or that `verify` says so and the same command mends it."""
    root = new_root(path)
    run_interleaved([plan, partly], root, seed)
    was_sound = root.num_bytes_of(naming.MANIFEST) is None or judge(str(root)).is_sound
    build_again(plan, root)
    assert judge(str(root)).faults == (), seed
    return was_sound


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_two_writers_of_a_shard_make_no_bad_dataset(
    plan: ShardPlan, tmp_path: Path, first: int
) -> None:
    for seed in range(first, first + 20):
        check_equal_writers(plan, tmp_path / str(seed), seed)


@pytest.mark.long
def test_a_writer_that_reads_less_is_mended(
    plan: ShardPlan, partly: ShardPlan, tmp_path: Path
) -> None:
    for seed in range(20):
        check_unequal_writers(plan, partly, tmp_path / str(seed), seed)


@pytest.mark.weight(10)
def test_two_writers_of_a_shard_in_any_order(
    plan: ShardPlan, partly: ShardPlan, tmp_path: Path, rng: np.random.Generator
) -> None:
    for seed in map(int, rng.integers(1 << 32, size=5)):
        check_equal_writers(plan, tmp_path / str(seed), seed)
        check_unequal_writers(plan, partly, tmp_path / f"{seed} unequal", seed)
