"""The receipt of an erasure: what was asked for, found and ended, without any id."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, to_builtins

from shardwright.errors import StorageError, UsageError
from shardwright.format import naming
from shardwright.format.json_files import Count, parse_json, read_json
from shardwright.format.manifest import json_bytes, time_text
from shardwright.format.versions import generation_folders
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.findings import Found, tables_in
from shardwright.transforms.inputs.file_rules import decode_text


class Receipt(Struct, kw_only=True):
    """A receipt, which is written before anything is changed and completed afterwards.

    Attributes:
        dataset: The dataset's address.
        begun: The time in UTC, ISO 8601.
        ended: The same; None until the end.
        salt: Precedes each id in its hash.
        ids: SHA-256 of the salt and each id that was asked for, ascending.
        found: Those of the ids that were found.
        keeps_names: Class names and words stay that only erased records had.
        num_records: Records of the newest version that went.
        versions: Numbers of the versions that ended.
        pins: Names of the pins that ended.
        fingerprints: Those of the versions, by which caches know them.
        not_removed: What is still there or could not be looked at, and why.
    """

    dataset: str
    begun: str
    ended: str | None = None
    salt: str
    ids: list[str]
    found: list[str] = []
    keeps_names: bool = False
    num_records: Count = 0
    versions: list[int] = []
    pins: list[str] = []
    fingerprints: list[str] = []
    not_removed: list[str] = []

    @classmethod
    def begin(cls, dataset: str, ids: Collection[str], *, keeps_names: bool = False) -> Receipt:
        """Return the receipt of an erasure that begins now."""
        salt = secrets.token_hex(16)
        receipt = cls(
            dataset=dataset, begun=time_text(), salt=salt, ids=[], keeps_names=keeps_names
        )
        receipt.ids = sorted(map(receipt.hash_of, ids))
        return receipt

    def is_of(self, dataset: str, ids: Collection[str], *, keeps_names: bool) -> bool:
        """Return whether it is that of the same command."""
        there = (self.dataset, self.ids, self.keeps_names)
        return there == (dataset, sorted(map(self.hash_of, ids)), keeps_names)

    def hash_of(self, name: str) -> str:
        """Return the hash of an id."""
        return hashlib.sha256(f"{self.salt}{name}".encode()).hexdigest()

    def add(self, found: Found) -> None:
        """Note what was found, beside what an earlier try has found."""
        self.found = sorted({*self.found, *map(self.hash_of, found.ids)})
        self.num_records = max(self.num_records, found.num_records)

    def missing(self, ids: Iterable[str]) -> list[str]:
        """Return the ids that were not found, sorted, also not by a run that was stopped."""
        found = frozenset(self.found)
        return sorted(each for each in ids if self.hash_of(each) not in found)


def write_receipt(folder: Folder, name: str, receipt: Receipt) -> None:
    """Write a receipt, atomically. Raises `StorageError`."""
    folder.write_bytes(name, json_bytes(to_builtins(receipt)))


def read_receipt(folder: Folder, name: str) -> Receipt | None:
    """Return the receipt in a file, None if there is no such file.

    Raises:
        NotADatasetError: It holds something else.
        StorageError: It cannot be read.
    """
    return read_json(
        folder, name, Receipt, fix="give a receipt that `shardwright erase` has written"
    )


def find_left(root: Folder, receipt: Receipt) -> Iterator[str]:
    """Yield what a dataset still has of the ids of a receipt, in words without them.

    Looked into are the id columns of all tables in the dataset's folders, also of builds that have
    not ended.

    Raises:
        StorageError: A folder cannot be read.
    """
    if receipt.ended is None:
        yield "the receipt is that of a run that was stopped: run its command again"
    ids = frozenset(receipt.ids)
    for folder in ("", *generation_folders(root)):
        for beside in ("", naming.NEXT_DIR, *naming.STAGED_DIRS):
            below = root.below(f"{folder}/{beside}".strip("/"))
            try:
                for path, listed in tables_in(below, ("", *naming.SHARD_DIRS, naming.SPOOL_DIR)):
                    if number := sum(receipt.hash_of(each) in ids for each in listed):
                        yield f"{below.path(path)} has {number:,} of the ids"
            except StorageError as error:
                yield str(error)


def parse_ids(data: bytes, path: str) -> frozenset[str]:
    """Return the ids in a file: a JSON list if its name ends in `.json`, else one on each line.

    Empty lines do not count.

    Raises:
        UsageError: There is none, or the file is not UTF-8, or not such a list.
    """
    fix = 'write a JSON list of ids, such as ["a.png", "b.png"]'
    try:
        # Not `splitlines`, which also splits at characters that an id may have.
        ids = [line.removesuffix("\r") for line in decode_text(data).split("\n")]
        if path.endswith(".json"):
            ids = parse_json(data, list[str], f"--ids {path}", fix, error=UsageError)
        "".join(ids).encode()  # half of a surrogate pair is JSON, but no id that could be stored
    except UnicodeError as error:
        raise UsageError(f"--ids {path} cannot be read: {error}") from error
    if found := frozenset(ids) - {""}:
        return found
    raise UsageError(f"--ids {path} has no ids: write one on each line, or a list into a .json")
