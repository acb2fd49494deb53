"""The receipt of an erasure: what was asked for, found and ended, without any id."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from msgspec import Struct, to_builtins

from shardwright.errors import StorageError, UsageError
from shardwright.format import naming
from shardwright.format.json_files import Count, load_json, read_json
from shardwright.format.manifest import Manifest, json_bytes, time_text
from shardwright.format.versions import generation_folders, later_numbers, read_stated
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.findings import Found, finished_generations, texts_in
from shardwright.transforms.inputs.foreign_text import decode_text

_NOT_REACHED = (
    {"what": "INPUT", "why": "its images are the user's: an append adds them again"},
    {"what": "other datasets and copies", "why": "such as OUTPUTs that copied this dataset"},
    {"what": "backups and snapshots", "why": "of disks and stores: they are not visible here"},
    {"what": "unfinished uploads", "why": "left to a lifecycle rule (docs/stores.md)"},
)


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
        names: Hashes of the names that went, as "FEATURE=NAME".
        num_records: Records of the newest version that went.
        versions: Numbers of the versions that ended.
        pins: Names of the pins that ended.
        fingerprints: Those of the versions, by which caches know them.
        caches: Caches that held files of the dataset, and their number of files and bytes.
        old_versions: Number of earlier versions of objects that a versioned bucket kept.
        not_removed: What is still there or could not be looked at, and why.
        not_reached: What no erasure reaches, and why.
    """

    receipt: Literal["erasure"] = "erasure"
    format_version: Literal[2] = 2
    dataset: str
    begun: str
    ended: str | None = None
    salt: str
    ids: list[str]
    found: list[str] = []
    keeps_names: bool = False
    names: list[str] = []
    num_records: Count = 0
    versions: list[int] = []
    pins: list[str] = []
    fingerprints: list[str] = []
    caches: dict[str, dict[str, Count]] = {}
    old_versions: Count = 0
    not_removed: list[dict[str, str]] = []
    not_reached: tuple[dict[str, str], ...] = _NOT_REACHED

    @classmethod
    def begin(cls, dataset: str, ids: Collection[str], *, keeps_names: bool = False) -> Receipt:
        """Return the receipt of an erasure that begins now."""
        salt, begun = secrets.token_hex(16), time_text()
        hashes = sorted(_hash_of(salt, each) for each in ids)
        return cls(dataset=dataset, begun=begun, salt=salt, ids=hashes, keeps_names=keeps_names)

    def is_of(self, dataset: str, ids: Collection[str], *, keeps_names: bool) -> bool:
        """Return whether it is that of the same command."""
        there = (self.dataset, self.ids, self.keeps_names)
        return there == (dataset, sorted(map(self.hash_of, ids)), keeps_names)

    def hash_of(self, name: str) -> str:
        """Return the hash of an id or a name."""
        return _hash_of(self.salt, name)

    def add(self, newest: Manifest, found: Found) -> None:
        """Note what was found, beside what an earlier try has found."""
        self.found = sorted({*self.found, *map(self.hash_of, found.ids)})
        self.num_records = max(self.num_records, found.num_records)
        gone = [
            f"{feature.name}={newest.schema.names_of(feature)[number]}"
            for feature in newest.schema.features
            for number in found.names.get(feature.name, ())
        ]
        self.names = sorted({*self.names, *map(self.hash_of, gone)})

    def missing(self, ids: Iterable[str]) -> list[str]:
        """Return the ids that were not found, sorted, also not by a run that was stopped."""
        found = frozenset(self.found)
        return sorted(each for each in ids if self.hash_of(each) not in found)


def _hash_of(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}{name}".encode("utf-8", "surrogatepass")).hexdigest()


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
    """Yield what a dataset still has of the ids and names of a receipt, in words without them.

    Looked into are all indexes, lists and pages in the dataset's folders, also of builds that have
    not ended, and the names in all manifests.

    Raises:
        BuildError: A build is replacing the dataset.
        StorageError: A folder or a manifest cannot be read.
    """
    if receipt.ended is None:
        yield "the receipt is that of a run that was stopped: run its command again"
    ids, names = frozenset(receipt.ids), frozenset(receipt.names)
    beside = ("", naming.NEXT_DIR, *naming.STAGED_DIRS)
    for place in (
        f"{one}/{part}".strip("/") for one in ("", *generation_folders(root)) for part in beside
    ):
        below = root.below(place)
        for path in naming.build_outputs(below, ("", *naming.SHARD_DIRS, naming.SPOOL_DIR)):
            if path.endswith((".parquet", ".html")):
                try:
                    number = sum(receipt.hash_of(text) in ids for text in texts_in(below, path))
                except StorageError as error:
                    yield str(error)
                else:
                    if number:
                        yield f"{place}/{path} has {number:,} of the ids".lstrip("/")
    manifests = {naming.version_file(n): read_stated(root, n) for n in later_numbers(root)}
    manifests |= {
        f"{folder}/{naming.MANIFEST}".lstrip("/"): each
        for folder, each in finished_generations(root).items()
    }
    for path, manifest in manifests.items() if names else ():
        schema = manifest.schema
        texts = (f"{one.name}={name}" for one in schema.features for name in schema.names_of(one))
        if number := sum(receipt.hash_of(text) in names for text in texts):
            yield f"{path} has {number:,} of the names that only erased records had"


def parse_ids(data: bytes, path: str) -> frozenset[str]:
    """Return the ids in a file: a JSON list if its name ends in `.json`, else one on each line.

    Empty lines do not count.

    Raises:
        UsageError: There is none, or the file is not UTF-8, or not such a list.
    """
    found = _listed(data, path) if path.endswith(".json") else _on_lines(data, path)
    if not found:
        raise UsageError(f"--ids {path} has no ids: write one on each line, or a list into a .json")
    return found


def _on_lines(data: bytes, path: str) -> frozenset[str]:
    try:
        # Not `splitlines`, which also splits at characters that an id may have.
        lines = decode_text(data).split("\n")
    except UnicodeError as error:
        raise UsageError(f"--ids {path} is {error}") from error
    return frozenset(line.removesuffix("\r") for line in lines) - {""}


def _listed(data: bytes, path: str) -> frozenset[str]:
    try:
        found = load_json(decode_text(data).encode())
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError("it holds something else")
        for each in found:
            # Half of a surrogate pair is JSON, but no id that could be stored.
            each.encode()
    except ValueError as error:
        raise UsageError(
            f'--ids {path} must be a JSON list of ids, such as ["a.png", "b.png"]: {error}'
        ) from error
    return frozenset(found) - {""}
