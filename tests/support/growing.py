"""A folder of images, the dataset that follows it, and what each version of it must hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import shardwright as sw
from shardwright.errors import BuildError
from shardwright.format.manifest import Manifest
from shardwright.format.versions import read_version
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.commands.compact import (
    build_copy,
    commit_copy,
    folder_for,
)
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.support.build_helpers import png_of


class Image(NamedTuple):
    """An image: the seed of its picture, a number by which two files of it differ, its caption."""

    seed: int
    written: int
    caption: int = 0


Images = Mapping[str, Image]
"""The images by id, `CLASS/NUMBER.png`."""


class Record(NamedTuple):
    """A record as a reader sees it."""

    image: bytes
    class_name: str
    split: str
    caption: str = ""


@dataclass
class Source:
    """A folder of images.

    Attributes:
        folder: Its place.
        captions: A table beside it has a caption for each image.
        images: What it holds.
    """

    folder: Path
    captions: bool = False
    images: dict[str, Image] = field(default_factory=dict)
    _num_written: int = 0

    def change(self, changes: Mapping[str, int | None]) -> None:
        """Write images by their seeds; None removes one. The same seed leaves a file untouched.

        A negative number is the new caption of an image that is there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, seed in changes.items():
            path, old = self.folder / name, self.images.get(name)
            if seed is not None and seed < 0:
                if old is not None and self.captions:
                    self.images[name] = old._replace(caption=-seed)
            elif seed is None:
                path.unlink(missing_ok=True)
                self.images.pop(name, None)
            elif old is None or old.seed != seed:
                self._num_written += 1
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(png_of(seed))
                # Two writes in the same tick of the clock would look like one.
                os.utime(path, ns=(0, 10**18 + 10**9 * self._num_written))
                self.images[name] = Image(seed, self._num_written)
        if self.captions:
            lines = (
                f"{name},{_class_of(name)},{one.caption}\n" for name, one in self.images.items()
            )
            self.table.write_text("id,label,caption\n" + "".join(lines))

    @property
    def table(self) -> Path:
        """The table of captions."""
        return self.folder.with_suffix(".csv")


@dataclass(frozen=True)
class Grown:
    """A dataset that grows.

    Attributes:
        root: Its folder.
        options: Of each build.
    """

    root: Folder
    options: tuple[str, ...]

    def prepare(self, source: Source, *more: str) -> BuildJob:
        """Return the job of an append, or of the first build."""
        argv = [str(source.folder), self.root.uri, *self.options, "--if-exists", "append"]
        argv += ["--labels", str(source.table)] if source.captions else []
        return prepare_version(parse_options([*argv, *self.store_words(), *more]))

    def append(self, source: Source, *more: str) -> Manifest:
        """Append, or build if there is no dataset yet, and return the newest version."""
        job = self.prepare(source, *more)
        if job.known is not None:
            return append_version(job)
        build_here(job)
        return read_version(self.root)

    def compact(self) -> Manifest:
        """Compact if there is more than one generation, and return the newest version."""
        base = read_version(self.root)
        if base.history and base.num_records:
            folder = folder_for(self.root, base, "compact0")
            if build_copy(self.root, base, folder, self.store_words()):
                raise BuildError("the copy failed")
            commit_copy(self.root, base, folder)
        return read_version(self.root)

    def store_words(self) -> list[str]:
        return [word for value in self.stores for word in ("--storage-option", value)]

    @property
    def stores(self) -> list[str]:
        return [f"{key}={value}" for _, key, value in self.root.options.settings]

    def records(self, **reading: Any) -> dict[str, Record]:
        """Return the records of a version by id; each must come once."""
        reading = {"storage_options": self.root.options, **reading}
        dataset = sw.open(self.root.uri, **reading)
        names = dataset.class_names
        found: dict[str, Record] = {}
        for split in (name for name, held in dataset.splits.items() if held.num_records):
            with sw.Reader(
                self.root.uri, split, global_batch_size=5, epochs=1, remainder="keep", **reading
            ) as reader:
                for batch in reader:
                    add_batch(found, batch, names, split)
        return found


def add_batch(
    found: dict[str, Record], batch: Mapping[str, Any], names: tuple[str, ...], split: str
) -> None:
    """Add the records of a batch; none may be there already."""
    captions = batch.get("caption", [""] * len(batch["id"]))
    for name, image, label, caption in zip(
        batch["id"], batch["image"], batch["label"].tolist(), captions, strict=True
    ):
        assert str(name) not in found, f"{name} comes twice"
        found[str(name)] = Record(bytes(image), names[label], split, str(caption))


def wanted(
    images: Images, splits: Mapping[str, str], *, captions: bool = False
) -> dict[str, Record]:
    """Return the records of images."""
    return {
        name: Record(
            png_of(image.seed),
            _class_of(name),
            splits[name],
            str(image.caption) if captions else "",
        )
        for name, image in images.items()
    }


def _class_of(name: str) -> str:
    return name.partition("/")[0]
