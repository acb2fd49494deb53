"""Check later that what a receipt lists is gone: no record, index row or reject has its ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardwright.errors import ShardwrightError
from shardwright.format import naming
from shardwright.format.contents import content_of
from shardwright.format.versions import read_version
from shardwright.inspect.verify import verify_built
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.erasure.byte_search import ByteSearch
from shardwright.transforms.erasure.erase import (
    Findings,
    find_lost_names,
    look_through,
)
from shardwright.transforms.erasure.places import files_of, parts_of
from shardwright.transforms.erasure.receipt import Receipt
from shardwright.transforms.erasure.traces import finished_generations
from shardwright.transforms.erasure.wanted_ids import HashedIds

_READERS = 4


class Checked(NamedTuple):
    """The outcome of a check, in words without ids.

    Attributes:
        left: What is still there, or cannot be told because a file is broken.
        not_checked: Files of builds that have not ended, which may hold any record.
        not_searched: Number of ids that are not searched in bytes, because they occur by chance.
    """

    left: list[str]
    not_checked: list[str]
    not_searched: int = 0


def check_erased(root: Folder, receipt: Receipt) -> Checked:
    """Check that nothing of a receipt is left in its dataset.

    Every byte of every generation is read, as by `shardwright verify`: then the records of a shard
    are those of its index, in which the ids are looked up. Then all files are searched for the ids.

    Raises:
        BuildError: A build is replacing the dataset.
        NotADatasetError: There is no finished dataset.
        StorageError: The folder cannot be read.
    """
    left = []
    if receipt.ended is None:
        left.append("the receipt is that of a run that was stopped: run its command again")
    generations = finished_generations(root)
    if not generations:
        read_version(root)  # fails: there is no dataset
    for folder in generations:
        faults = verify_built(root.below(folder)).faults
        left += [f"{folder}/{fault}" if folder else str(fault) for fault in faults]
    leftovers: tuple[str, ...] = ()
    # Before the look by records, which may fail at a broken file.
    in_bytes = dict(_found_in_bytes(root, receipt))
    try:
        found = look_through(root, HashedIds(receipt.salt, receipt.hashes))
        leftovers = found.leftovers
        left += _told(found)
        for traces in found.traces:
            for path in traces.ids:
                # Named already, and more precisely.
                in_bytes.pop(path, None)
        for feature, names in sorted(find_lost_names(root, generations, receipt).items()):
            left.append(f"{feature} has {counted(len(names), 'name')} that only erased records had")
    except ShardwrightError as error:  # a broken file cannot be looked into
        left.append(str(error))
    left += (f"{path} has {number} of the ids in its bytes" for path, number in in_bytes.items())
    built = {
        f"{folder}/{name}" if folder else name
        for folder, manifest in generations.items()
        for name in (naming.MANIFEST, *manifest.file_names())
    }
    for path, content in receipt.before.items():
        # A build that was run again may have written a file of the same bytes, without the ids.
        if path not in built and content_of(root, path) == content:
            left.append(f"{path} has the bytes that it had before")
    return Checked(left, list(leftovers), len(receipt.hashes) - receipt.ends.ids)


def _found_in_bytes(root: Folder, receipt: Receipt) -> Iterator[tuple[str, int]]:
    """Yield the files that have ids in their bytes, and how many."""
    ids = HashedIds(receipt.salt, receipt.hashes)
    search = ByteSearch(receipt.salt, ids, receipt.ends)

    def count(path: str) -> tuple[str, int]:
        parts = parts_of(root, path, search.longest + 2)
        return path, len(
            {name for part, is_text in parts for name in search.find(part, is_text=is_text)}
        )

    for path, number in map_reads(count, files_of(root), _READERS):
        if number:
            yield path, number


def _told(found: Findings) -> Iterator[str]:
    for traces in found.traces:
        for path, ids in sorted(traces.ids.items()):
            yield f"{path} has {len(ids)} of the ids"
    for number in found.versions:
        yield f"version {number} does not name the shards as they are"
