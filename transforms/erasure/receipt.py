"""The receipt of an erasure: what was asked, found, replaced and left, without any id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct, to_builtins

from shardwright.format.contents import FileContent
from shardwright.format.json_files import Count, read_json
from shardwright.format.manifest import json_bytes, time_text
from shardwright.format.manifest_check import ContentFile
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.byte_search import NO_ENDS, Ends
from shardwright.transforms.erasure.wanted_ids import hash_of, new_salt

_KIND = "erasure"
NOT_REACHED = (
    {"what": "INPUT", "why": "its images are the user's: an append adds them again"},
    {"what": "other datasets and copies", "why": "such as OUTPUTs that copied this dataset"},
    {"what": "backups and snapshots", "why": "of disks and stores: they are not visible here"},
    {
        "what": "unfinished uploads",
        "why": "left to a lifecycle rule (docs/stores.md)",
    },
)
KEPT_NAMES = {
    "what": "names of classes and words that only erased records had",
    "why": "--keep-names",
}


@dataclass
class Receipt:
    """A receipt, which is written before anything is changed and completed afterwards.

    Attributes:
        dataset: The dataset's address.
        salt: As of `hash_of`.
        hashes: The hashes of the ids that were asked for.
        ends: What `--verify` needs to search bytes for the ids.
        keeps_names: Class names and words stay that only erased records had.
        names: Hashes of the names that the records had (`erasure.names`).
        begun: The time in UTC, ISO 8601.
        ended: The same; None until the end.
        found: Hashes of the ids that were found, by path below the dataset.
        made: Hashes of the ids of further records that went for an id, by its hash: `--transform`
            had made them of it.
        before: Contents of the files that were to be changed or removed, by path.
        after: Their contents at the end; None for a file that is gone.
        versions: Numbers of the versions that named shards with the records.
        generations: Folders that held something of the ids.
        caches: Caches that held files of the dataset, and their number of files and bytes.
        old_versions: Objects of a versioned bucket whose earlier versions were removed, and how
            many.
        not_removed: What is still there, and why.
        not_checked: What could not be looked at, and why.
    """

    dataset: str
    salt: str
    hashes: frozenset[str]
    begun: str
    ended: str | None = None
    found: dict[str, list[str]] = field(default_factory=dict)
    made: dict[str, list[str]] = field(default_factory=dict)
    before: dict[str, FileContent] = field(default_factory=dict)
    after: dict[str, FileContent | None] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)
    generations: list[str] = field(default_factory=list)
    caches: dict[str, dict[str, int]] = field(default_factory=dict)
    old_versions: dict[str, int] = field(default_factory=dict)
    not_removed: list[dict[str, str]] = field(default_factory=list)
    not_checked: list[dict[str, str]] = field(default_factory=list)
    ends: Ends = NO_ENDS
    keeps_names: bool = False
    names: frozenset[str] = frozenset()

    @classmethod
    def begin(cls, dataset: str, ids: Collection[str], *, keeps_names: bool = False) -> Receipt:
        """Return the receipt of an erasure that begins now."""
        salt = new_salt()
        hashes = frozenset(hash_of(salt, each) for each in ids)
        ends = Ends.of(salt, ids)
        return cls(dataset, salt, hashes, time_text(), ends=ends, keeps_names=keeps_names)

    def is_of(self, dataset: str, ids: Collection[str], *, keeps_names: bool) -> bool:
        """Return whether it is that of the same command."""
        hashes = frozenset(hash_of(self.salt, each) for each in ids)
        there = (self.dataset, self.hashes, self.keeps_names)
        return there == (dataset, hashes, keeps_names)

    def add_found(self, found: Mapping[str, Mapping[str, Collection[str]]]) -> None:
        """Note ids that were found, by path, each with those for which it goes."""
        for path, ids in found.items():
            pairs = [(name, each) for name, asked in ids.items() for each in asked]
            hashes = {hash_of(self.salt, each) for _, each in pairs}
            self.found[path] = sorted(hashes.union(self.found.get(path, ())))
            for name, asked in pairs:
                if name != asked:
                    key, one = hash_of(self.salt, asked), hash_of(self.salt, name)
                    self.made[key] = sorted({one, *self.made.get(key, ())})

    def add_names(self, keys: Iterable[str]) -> None:
        """Note class names and words of the records that go, by their keys."""
        self.names |= {hash_of(self.salt, key) for key in set(keys)}

    def missing(self, ids: Iterable[str]) -> list[str]:
        """Return the ids that were not found, sorted, also not by a run that was stopped."""
        found = {each for hashes in self.found.values() for each in hashes}
        return sorted(each for each in ids if hash_of(self.salt, each) not in found)

    def add_numbers(self, versions: Iterable[int], generations: Iterable[str]) -> None:
        """Note versions and generations that are changed."""
        self.versions = sorted({*self.versions, *versions})
        self.generations = sorted({*self.generations, *generations})

    def add_before(self, contents: Mapping[str, FileContent]) -> None:
        """Note files as they are before a change; a file keeps its first content."""
        # The content before the first change: a repeated run sees files that are half done.
        self.before = {**contents, **self.before}

    @property
    def num_found(self) -> int:
        """Number of the ids that were found anywhere."""
        return len({each for hashes in self.found.values() for each in hashes})

    def shard_bytes(self) -> tuple[int, int]:
        """Return the bytes of the shards that were changed, before and after."""
        shards = [path for path in self.after if ShardName.parse(path.rpartition("/")[2])]
        after = (self.after[path] for path in shards)
        return sum(self.before[path].num_bytes for path in shards), _sum_bytes(after)

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as JSON."""
        places: dict[str, list[str]] = {each: [] for each in sorted(self.hashes)}
        for path, hashes in sorted(self.found.items()):
            # Of ids that were asked for: what `--transform` made of them is beside them, in `made`.
            for each in hashes:
                places[each].append(path)
        touched, rewritten = self.shard_bytes()
        return {
            "receipt": _KIND,
            "format_version": 1,
            "dataset": self.dataset,
            "begun": self.begun,
            "ended": self.ended,
            "asked": {"ids": len(self.hashes), "found": self.num_found},
            "salt": self.salt,
            "hash": "SHA-256 of the salt and the id, in UTF-8",
            "ids": [
                {"sha256": each, "found_in": paths, "made_of_it": self.made.get(each, [])}
                for each, paths in places.items()
            ],
            "versions": self.versions,
            "generations": self.generations,
            "bytes": {
                "shards_before": touched,
                "shards_after": rewritten,
                "all_after": _sum_bytes(self.after.values()),
            },
            "objects": [
                {"path": path, "before": content._asdict(), "after": after and after._asdict()}
                for path, content in sorted(self.before.items())
                for after in [self.after.get(path)]
            ],
            "search": to_builtins(self.ends),
            "names": {"kept": self.keeps_names, "sha256": sorted(self.names)},
            "caches": self.caches,
            "old_versions_removed": self.old_versions,
            "not_removed": self.not_removed,
            "not_checked": self.not_checked,
            "not_reached": [*NOT_REACHED, *([KEPT_NAMES] if self.keeps_names else [])],
        }


class _Id(Struct):
    sha256: str
    found_in: list[str]
    made_of_it: list[str] = []


class _Object(Struct):
    path: str
    before: ContentFile
    after: ContentFile | None


class _Names(Struct, frozen=True):
    kept: bool = False
    sha256: frozenset[str] = frozenset()


class _ReceiptFile(Struct):
    """A receipt as JSON, without what follows from the rest."""

    receipt: Literal["erasure"]
    format_version: Literal[1]
    dataset: str
    begun: str
    ended: str | None
    salt: str
    ids: list[_Id]
    versions: list[int]
    generations: list[str]
    objects: list[_Object]
    caches: dict[str, dict[str, Count]]
    old_versions_removed: dict[str, Count]
    not_removed: list[dict[str, str]]
    not_checked: list[dict[str, str]]
    # One of an earlier release has neither.
    search: Ends = NO_ENDS
    names: _Names = _Names()

    def opened(self) -> Receipt:
        found: dict[str, list[str]] = {}
        for each in self.ids:
            for path in each.found_in:
                found.setdefault(path, []).append(each.sha256)
        return Receipt(
            self.dataset,
            self.salt,
            frozenset(each.sha256 for each in self.ids),
            self.begun,
            self.ended,
            found,
            {each.sha256: each.made_of_it for each in self.ids},
            {each.path: each.before.content for each in self.objects},
            {
                each.path: None if each.after is None else each.after.content
                for each in self.objects
                if self.ended is not None
            },
            self.versions,
            self.generations,
            self.caches,
            self.old_versions_removed,
            self.not_removed,
            self.not_checked,
            self.search,
            self.names.kept,
            self.names.sha256,
        )


def write_receipt(folder: Folder, name: str, receipt: Receipt) -> None:
    """Write a receipt, atomically. Raises `StorageError`."""
    folder.write_bytes(name, json_bytes(receipt.to_json()))


def read_receipt(folder: Folder, name: str) -> Receipt | None:
    """Return the receipt in a file, None if there is no such file.

    Raises:
        NotADatasetError: It holds something else.
        StorageError: It cannot be read.
    """
    fix = "give a receipt that `shardwright erase` has written"
    found = read_json(folder, name, _ReceiptFile, fix=fix)
    return None if found is None else found.opened()


def _sum_bytes(contents: Iterable[FileContent | None]) -> int:
    return sum(content.num_bytes for content in contents if content is not None)
