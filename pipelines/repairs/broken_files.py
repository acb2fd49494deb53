"""The broken files of a dataset, what each is repaired from, and what became of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent, content_of
from shardwright.format.manifest import Manifest, shard_contents
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.inspect.faults import DatasetFault
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines

_SHOWN = 10  # lost records of a shard in the text


@dataclass(frozen=True, slots=True)
class BrokenShard:
    """A shard with broken files.

    Attributes:
        name: The shard.
        info: Its entry in the manifest.
        files: The broken ones of the shard, its index, its rejects and its signals, by path.
    """

    name: ShardName
    info: ShardInfo
    files: frozenset[str]

    @property
    def has_index(self) -> bool:
        """True if its index says which records it holds, and nothing but these is broken."""
        return self.files.isdisjoint((self.name.sidecar, self.name.rejects))


@dataclass(frozen=True, slots=True)
class BrokenFiles:
    """The broken files of a dataset.

    Attributes:
        shards: Shards with broken files.
        from_manifest: Companions that follow from the manifest alone.
        report: The report is broken, which follows from the manifest and the shards.
        from_plan: Files that follow from the plan of the build, which INPUT decides.
        others: Faults that no repair can mend.
    """

    shards: tuple[BrokenShard, ...]
    from_manifest: tuple[str, ...]
    report: bool
    from_plan: tuple[str, ...]
    others: tuple[DatasetFault, ...]


def find_broken(root: Folder, manifest: Manifest, faults: Iterable[DatasetFault]) -> BrokenFiles:
    """Return the broken files of a dataset with these faults.

    Args:
        root: The folder of its files.
        manifest: Its manifest.
        faults: The faults that `verify` found. A record that does not fit its index is a fault of
            either, so the files of such a shard are compared with the manifest.

    Raises:
        StorageError: A file cannot be read.
    """
    # Late, because it takes longer to import than `repair --help` takes.
    from shardwright.transforms.publish.companions import companion_files

    by_file: dict[str, DatasetFault] = {}
    for fault in faults:
        # The first fault of a file tells most: others often follow from it.
        by_file.setdefault(fault.file, fault)
    shards = []
    for name, info in manifest.named_shards():
        wrong = _wrong_files(root, manifest, name, by_file)
        if wrong:
            shards.append(BrokenShard(name, info, wrong))
            # They are repaired together, and belong to no other group.
            for path in _paths_of(name):
                by_file.pop(path, None)
    plan = tuple(filter(_is_of_plan, by_file))
    if plan or any(shard.name.rejects in shard.files for shard in shards):
        by_file.pop(naming.REJECTS_DIR, None)  # their sum, which follows
    derived = companion_files(manifest).keys()
    others = by_file.keys() - derived - {naming.REPORT, *plan}
    return BrokenFiles(
        shards=tuple(shards),
        from_manifest=tuple(name for name in by_file if name in derived),
        report=naming.REPORT in by_file,
        from_plan=plan,
        others=tuple(by_file[name] for name in sorted(others)),
    )


def _paths_of(name: ShardName) -> tuple[str, ...]:
    return name.shard, name.sidecar, name.rejects, name.signals


def _wrong_files(
    root: Folder, manifest: Manifest, name: ShardName, faults: Collection[str]
) -> frozenset[str]:
    """Return the broken files of a shard, given the files that faults name."""
    named = [path for path in _paths_of(name) if path in faults]
    stated = shard_contents(manifest, name)
    # All files of the shard if one is named: a fault may be that two of them do not fit.
    wrong = {path for path in stated if named and _is_wrong(root, path, stated[path])}
    return frozenset(wrong | {path for path in named if path not in stated})


def _is_of_plan(name: str) -> bool:
    plan_rejects = naming.PLAN_REJECTS.removesuffix("parquet")
    return name in (naming.PLAN, naming.NEAR_DUPLICATES) or name.startswith(plan_rejects)


def _is_wrong(root: Folder, path: str, stated: FileContent) -> bool:
    """Return whether a file has not the content that the manifest states."""
    try:
        return root.num_bytes_of(path) != stated.num_bytes or content_of(root, path) != stated
    except (OSError, StorageError):  # such as of a bad sector
        return True


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A record that is damaged and cannot be made again.

    Attributes:
        id: Its id.
        uri: The location of its image at the time of the build.
        why: The reason why its source is of no use.
    """

    id: str
    uri: str
    why: str

    def __str__(self) -> str:
        return f"{self.id} ({self.why})"


@dataclass(slots=True)
class Outcome:
    """The files that a repair mended, and those that it did not.

    Attributes:
        repaired: Files with the content that the manifest states.
        renewed: Files with new content, which the manifest states now.
        failed: Why a file is still broken, by file.
    """

    repaired: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def to_text(self, dataset: str) -> str:
        """Return one line per file, and a summary."""
        lines = [f"{name}: repaired" for name in self.repaired]
        lines += [
            f"{name}: made anew; the manifest states its new content" for name in self.renewed
        ]
        lines += [f"{name}: NOT repaired: {why}" for name, why in self.failed.items()]
        done = counted(len(self.repaired) + len(self.renewed), "file")
        summary = f"{dataset}: {done} repaired"
        if self.failed:
            summary += f", {counted(len(self.failed), 'file')} still broken"
        return join_lines([*lines, summary])

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {"repaired": self.repaired, "renewed": self.renewed, "failed": self.failed}


def show_records(records: list[LostRecord]) -> str:
    """Return the first records for a message."""
    shown = ", ".join(map(str, records[:_SHOWN]))
    return shown + (f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else "")
