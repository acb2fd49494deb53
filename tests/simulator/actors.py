"""The tasks of actors: what users start, by the functions that the commands call."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from shardwright.errors import StorageError, UsageError
from shardwright.format.notes import time_at
from shardwright.format.pins import add_pin, pin_names, remove_pin
from shardwright.format.versions import number_of, read_version
from shardwright.inspect.command_parts import EXIT_DONE
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.commands.compact import (
    build_copy,
    commit_copy,
    folder_for,
)
from shardwright.pipelines.commands.erase import erase
from shardwright.pipelines.commands.repair import _repair
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.reader.reader import Reader
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.receipt import (
    Receipt,
    find_left,
    read_receipt,
    write_receipt,
)
from shardwright.transforms.versions.collect import collect, plan_collection
from tests.simulator.model import Images, Model

BUCKET = "s3://sim"
ROOT = Folder(f"{BUCKET}/out")
OPTIONS = (
    "--records-per-shard", "3", "--name", "grown", "--seed", "5", "--check", "none",
    "--max-reject-fraction", "1",  # a record of another input stays, which makes a reject
)  # fmt: skip
_RECEIPTS = Folder(f"{BUCKET}/receipts")


class Task:
    """Something that a user starts, and starts again if it fails or is killed."""

    def __call__(self) -> None:
        """Do it once; raise a `ShardwrightError` if others are in the way."""
        raise NotImplementedError


@dataclass
class Append(Task):
    """An append of one input, or the first build.

    Attributes:
        source: The name of the input.
        images: What it holds.
        keep: Records that it does not have stay.
        base: Number of the version that it compares with; 0 for a build.
        folder: Where it writes.
    """

    source: str
    images: Images
    keep: bool = False
    base: int = 0
    folder: str = ""

    def __call__(self) -> None:
        words = [f"{BUCKET}/in/{self.source}", ROOT.uri, *OPTIONS, "--if-exists", "append"]
        job = prepare_version(parse_options([*words, *["--keep-missing"] * self.keep]))
        if job.known is None:
            self.base = 0
            build_here(job)
        else:
            self.base, self.folder = number_of(job.known.base), job.known.append.folder
            append_version(job, here=True)

    def applied(self, model: Model) -> Images:
        """Return the records of the version that it commits after the newest one."""
        base, there = model.versions.get(self.base, {}), model.folders.get(model.newest, ())
        added = {} if self.folder and self.folder in there else self._added(base)
        gone = set() if self.keep else base.keys() - self.images.keys()
        before = model.versions.get(model.newest, {})
        return {name: image for name, image in before.items() if name not in gone} | added

    def is_in(self, model: Model) -> bool:
        """Return whether a version has what it adds."""
        added = self._added(model.versions.get(self.base, {})).items()
        return any(added <= model.versions[number].items() for number in model.versions)

    def _added(self, base: Images) -> Images:
        return {
            name: image
            for name, image in self.images.items()
            if base.get(name) != image
            and not (self.keep and name in base and base[name].source != image.source)
        }


@dataclass
class Build(Task):
    """A build of one input, which resumes or overwrites."""

    source: str
    images: Images
    if_exists: str

    def __call__(self) -> None:
        words = [f"{BUCKET}/in/{self.source}", ROOT.uri, *OPTIONS, "--if-exists", self.if_exists]
        build_here(prepare_job(parse_options(words)))


@dataclass
class Compact(Task):
    """A compaction. `folder` is where it writes."""

    folder: str = ""

    def __call__(self) -> None:
        base = read_version(ROOT)
        if base.history and base.num_records:
            self.folder = folder_for(ROOT, base, "compact0")
            if build_copy(ROOT, base, self.folder, []) != EXIT_DONE:
                raise StorageError("the copy failed")
            commit_copy(ROOT, base, self.folder)


@dataclass
class Collect(Task):
    """A collection that keeps the newest versions."""

    keep: int

    def __call__(self) -> None:
        collect(ROOT, plan_collection(ROOT, self.keep, clock=partial(time_at, ROOT)))


@dataclass
class Pin(Task):
    """A pin of a version; of one that is gone it is removed."""

    model: Model
    version: int

    def __call__(self) -> None:
        name = f"pin{self.version}"
        try:
            add_pin(ROOT, name, self.version)
        except UsageError:
            if name in pin_names(ROOT):
                remove_pin(ROOT, name)
        else:
            self.model.pinned.add(self.version)


@dataclass
class Erase(Task):
    """An erasure with a receipt, which a repetition goes on with."""

    ids: frozenset[str]
    receipt: str = "receipt"

    def __call__(self) -> None:
        receipt = self._read_receipt() or Receipt.begin(ROOT.uri, self.ids)
        name = self.receipt

        def save() -> None:
            write_receipt(_RECEIPTS, name, receipt)

        if erase(ROOT, self.ids, receipt, save) != EXIT_DONE:
            raise StorageError("the copy failed")
        if receipt.not_removed:
            self.receipt = f"{name}again"
            raise StorageError(f"not removed: {receipt.not_removed}")

    def _read_receipt(self) -> Receipt | None:
        return read_receipt(_RECEIPTS, self.receipt)

    def check(self) -> None:
        """Check with the receipt that nothing is left."""
        receipt = self._read_receipt()
        assert receipt is not None
        left = list(find_left(ROOT, receipt))
        assert not left, left


@dataclass
class Repair(Task):
    """A repair.

    Attributes:
        is_sound: Nothing is broken any more.
    """

    is_sound: bool = False

    def __call__(self) -> None:
        words = Namespace(dataset=ROOT.uri, storage_option=[], input=None, json=True)
        self.is_sound = _repair(words, ()) == EXIT_DONE


@dataclass
class Read(Task):
    """A reader of a version, by default the newest one."""

    check: Callable[[int, Mapping[str, bytes]], None]
    version: int | str = "latest"

    def __call__(self) -> None:
        found: dict[str, bytes] = {}
        with (
            tempfile.TemporaryDirectory() as cache,
            Reader(
                ROOT.uri, "train", global_batch_size=2, epochs=1, remainder="keep", cache=cache,
                version=self.version,
            ) as reader,
        ):  # fmt: skip
            for batch in reader:
                for name, image in zip(batch["id"], batch["image"], strict=True):
                    assert str(name) not in found, f"{name} comes twice"
                    found[str(name)] = bytes(image)
            self.check(reader.options.version, found)
