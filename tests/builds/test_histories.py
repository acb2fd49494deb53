"""Any history of a dataset that grows: each version holds what its folder held, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwright as sw
from shardwright.errors import ShardwrightError, UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.notes import Note
from shardwright.format.versions import number_of, read_version, read_versions
from shardwright.inspect.command_parts import EXIT_DONE
from shardwright.pipelines.commands.erase import erase
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.receipt import Receipt, find_left
from shardwright.transforms.versions.collect import collect, plan_collection
from tests.support.growing import Grown, Image, Record, Source, add_batch, wanted
from tests.support.judge import judge
from tests.support.kills import killed
from tests.support.random_tests import examples

OPTIONS = ("--records-per-shard", "3", "--name", "grown", "--seed", "5")
SPLITS = {
    "one": (),
    "hashed": ("--split", "train=0.6,test=0.4"),
    "stratified": ("--split", "train=0.6,test=0.4", "--stratify"),
    "counted": ("--split", "train=rest,test=1"),
}
FIRST = {f"{name}/{number}.png": number for number in range(4) for name in ("ant", "cat")}


@dataclass(frozen=True)
class Step:
    """A step of a history.

    Attributes:
        changes: Changes of the folder before it, as `Source.change`.
        action: "append", "keep" (with --keep-missing), "compact", "erase" (of the images that
            `changes` names, which leave the folder, too), or "gc1", "gc2" and so on.
        dies_after: Number of changes of files until it is killed; None to let it end.
    """

    changes: dict[str, int | None]
    action: str
    dies_after: int | None = None


@dataclass
class History:
    """A dataset with all that its versions must hold.

    Attributes:
        grown: The dataset.
        source: Its folder of images.
        images: Number of a version that can be read -> its images.
        splits: Number of a version -> split of each record.
    """

    grown: Grown
    source: Source
    images: dict[int, dict[str, Image]] = field(default_factory=dict)
    splits: dict[int, dict[str, str]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.images)

    def run(self, step: Step) -> None:
        """Do a step, which a kill may end at any moment, and check the outcome."""
        if step.action == "erase":
            self.erase(step)
            return
        self.source.change(step.changes)
        images = self._after(step.action)
        with self.reading():
            if step.dies_after is None:
                self._finish(step.action, images)
            else:
                self._die(step, images)
        self.check(self.newest)

    def erase(self, step: Step) -> None:
        """Erase images, after which all earlier versions end; a run that is killed is repeated."""
        ids, newest = frozenset(step.changes), self.images[self.newest]
        root = self.grown.root
        receipt = Receipt.begin(root.uri, ids)
        if newest and not newest.keys() - ids:
            with pytest.raises(UsageError):
                erase(root, ids, receipt, lambda: None)
            return
        self.source.change(dict.fromkeys(ids))
        # The note of a commit that was killed counts for an hour.
        for note in Path(root.uri, naming.VERSIONS_DIR).glob(f".*.{Note.COMMIT}-*"):
            os.utime(note, (0, 0))
        with killed(-1 if step.dies_after is None else step.dies_after):
            erase(root, ids, receipt, lambda: None)
        receipt.ended = None
        assert erase(root, ids, receipt, lambda: None) == EXIT_DONE
        assert not list(find_left(root, receipt))
        if receipt.found:
            number = number_of(read_version(root))
            images, splits = self.images[self.newest], self.splits[self.newest]
            self.images = {number: {n: one for n, one in images.items() if n not in ids}}
            self.splits[number] = {n: one for n, one in splits.items() if n not in ids}
        for number in self.images:
            self.check(number)

    def _finish(self, action: str, images: dict[str, Image]) -> None:
        before = self.images[self.newest]
        if action.startswith("gc"):
            self._collect(int(action[2:]))
            return
        if action in ("append", "keep") and not self.source.images:
            with pytest.raises(ShardwrightError):
                self._do(action)
            return
        version = self._do(action)
        is_new = self._note(images)
        if action == "compact":
            return
        assert is_new == (images != before)
        if is_new:
            added = sum(before.get(name) != image for name, image in images.items())
            removed = sum(images.get(name) != image for name, image in before.items())
            assert (version.history["added"], version.history["removed"]) == (added, removed)

    def _die(self, step: Step, images: dict[str, Image]) -> None:
        assert step.dies_after is not None
        with killed(step.dies_after):
            try:
                self._do(step.action)
            except ShardwrightError:
                assert not self.source.images
        left = {number_of(version) for version in read_versions(self.grown.root)}
        if step.action.startswith("gc"):
            keep = int(step.action[2:])
            assert set(sorted(self.images)[-keep:]) <= left
            self._forget(left)
        else:
            self._note(images)

    def _do(self, action: str) -> Manifest:
        if action == "compact":
            return self.grown.compact()
        if action.startswith("gc"):
            root = self.grown.root
            collect(root, plan_collection(root, int(action[2:])))
            return read_version(root)
        return self.grown.append(self.source, *(["--keep-missing"] if action == "keep" else []))

    def _after(self, action: str) -> dict[str, Image]:
        """Return the images after an action."""
        before = self.images[self.newest]
        if action == "append":
            return dict(self.source.images)
        return before | self.source.images if action == "keep" else before

    def _collect(self, keep: int) -> None:
        self._do(f"gc{keep}")
        left = {number_of(version) for version in read_versions(self.grown.root)}
        kept = set(sorted(self.images)[-keep:])
        assert kept <= left <= kept | {1}
        self._forget(left)

    def _forget(self, left: set[int]) -> None:
        self.images = {number: self.images[number] for number in left}

    def _note(self, images: dict[str, Image]) -> bool:
        """Note the newest version, if it is new, with these images."""
        number = number_of(read_version(self.grown.root))
        if number == self.newest:
            return False
        assert number == self.newest + 1
        before, self.images[number] = self.splits[self.newest], images
        found = {name: record.split for name, record in self.grown.records().items()}
        # Those that stay keep their split; a new one may be in any, and an old one, too, if no
        # version between has it.
        self.splits[number] = {name: before.get(name, found.get(name, "")) for name in images}
        return True

    def check(self, number: int) -> None:
        """Check a version: its records, and what it says about them."""
        self.check_records(number, self.grown.records(version=number))
        dataset = sw.open(self.grown.root.uri, version=number)
        images, splits = self.images[number], self.splits[number]
        assert dataset.num_records == len(images)
        held = {name for name, split in dataset.splits.items() if split.num_records}
        assert held == set(splits.values())
        for split in held:
            labels = [name.partition("/")[0] for name in images if splits[name] == split]
            counts = {name: labels.count(name) for name in dataset.class_names}
            assert dataset.class_counts(split) == counts
            assert dataset.splits[split].stats["width"]["count"] == len(labels)
        older = sw.open(self.grown.root.uri, version=min(self.images)).class_names
        assert dataset.class_names[: len(older)] == older

    def check_records(self, number: int, found: dict[str, Record]) -> None:
        assert found == wanted(self.images[number], self.splits[number], captions=True)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read the newest version, half of it before the block and the rest after it."""
        number, found = self.newest, dict[str, Record]()
        dataset = sw.open(self.grown.root.uri)
        opened = []
        for split in (name for name, held in dataset.splits.items() if held.num_records):
            reader = sw.Reader(
                self.grown.root.uri, split, global_batch_size=2,
                epochs=1, remainder="keep",
            )  # fmt: skip
            batches = iter(reader)
            add_batch(found, next(batches), dataset.class_names, split)
            opened.append((split, reader, batches))
        yield
        for split, reader, batches in opened:
            with reader:
                for batch in batches:
                    add_batch(found, batch, dataset.class_names, split)
        self.check_records(number, found)

    def end(self) -> None:
        """Let the dataset follow the folder, and check all that there is."""
        self.source.change({"ant/0.png": 77, "cat/1.png": -9})
        self.run(Step({}, "append"))
        for number in self.images:
            self.check(number)
        assert not judge(self.grown.root.uri).faults


def begun(folder: Path, *options: str) -> History:
    """Return a dataset of one version, of `FIRST`."""
    source, grown = (
        Source(folder / "in", captions=True),
        Grown(Folder(str(folder / "out")), (*OPTIONS, *options)),
    )
    source.change(FIRST)
    grown.append(source)
    splits = {name: record.split for name, record in grown.records().items()}
    history = History(grown, source, {1: dict(source.images)}, {1: splits})
    history.check(1)
    return history


NAMES = st.sampled_from(
    [f"{name}/{number}.png" for name in ("ant", "bee", "cat") for number in range(5)]
)
CHANGES = st.dictionaries(NAMES, st.none() | st.integers(-3, 30), max_size=6)
EVERY: dict[str, int | None] = dict.fromkeys(FIRST)
ACTIONS = st.sampled_from(
    ["append"] * 4 + ["keep", "compact", "compact", "erase", "gc1", "gc2", "gc3"]
)
STEPS = st.builds(
    Step,
    CHANGES | CHANGES | CHANGES | st.builds(lambda changes: EVERY | changes, CHANGES),
    ACTIONS,
    st.none() | st.none() | st.integers(0, 45),
)


@pytest.mark.long
@examples(2, weight=20)
@given(split=st.sampled_from(sorted(SPLITS)), steps=st.lists(STEPS, min_size=1, max_size=6))
def test_any_history_ends_as_the_folder(
    split: str, steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Any = tmp_path_factory.mktemp("history")
    history = begun(folder, *SPLITS[split])
    for step in steps:
        history.run(step)
    history.end()
