"""Check later that what a receipt lists is gone: no record, index row or reject has its ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardwright.errors import ShardwrightError
from shardwright.format.versions import read_version
from shardwright.inspect.verify import verify_built
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.erase import (
    Findings,
    content_of,
    find_lost_names,
    look_through,
)
from shardwright.transforms.erasure.receipt import Receipt
from shardwright.transforms.erasure.traces import finished_generations
from shardwright.transforms.erasure.wanted_ids import HashedIds


class Checked(NamedTuple):
    """The outcome of a check, in words without ids.

    Attributes:
        left: What is still there, or cannot be told because a file is broken.
        not_checked: Files of builds that have not ended, which may hold any record.
    """

    left: list[str]
    not_checked: list[str]


def check_erased(root: Folder, receipt: Receipt) -> Checked:
    """Check that nothing of a receipt is left in its dataset.

    Every byte of every generation is read, as by `shardwright verify`: then the records of a shard
    are those of its index, in which the ids are looked up.

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
    try:
        found = look_through(root, HashedIds(receipt.salt, receipt.hashes))
    except ShardwrightError as error:  # a broken file cannot be looked into
        return Checked([*left, str(error)], [])
    left += _told(found)
    for feature, names in sorted(find_lost_names(root, generations, receipt).items()):
        left.append(f"{feature} has {counted(len(names), 'name')} that only erased records had")
    for path, content in receipt.before.items():
        if content_of(root, path) == content:
            left.append(f"{path} has the bytes that it had before")
    return Checked(left, list(found.leftovers))


def _told(found: Findings) -> Iterator[str]:
    for traces in found.traces:
        for path, ids in sorted(traces.ids.items()):
            yield f"{path} has {len(ids)} of the ids"
    for number in found.versions:
        yield f"version {number} does not name the shards as they are"
