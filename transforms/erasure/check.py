"""Check later that what a receipt lists is gone: no record, index row or reject has its ids."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.errors import ShardwrightError
from shardwright.inspect.verify import verify_built
from shardwright.storage.folder import Folder
from transforms.erasure.erase import content_of, look_through
from transforms.erasure.leftovers import is_dataset_file
from transforms.erasure.receipt import Receipt
from transforms.erasure.traces import finished_generations
from transforms.erasure.wanted_ids import HashedIds


def find_left(root: Folder, receipt: Receipt) -> Iterator[str]:
    """Yield everything of a receipt that is still in its dataset, in words, without ids.

    Every byte of every generation is read, as by `shardwright verify`: then the records of a shard
    are those of its index, in which the ids are looked up.

    Raises:
        BuildError: A build is replacing the dataset.
        NotADatasetError: There is no finished dataset.
        StorageError: The folder cannot be read.
    """
    if receipt.ended is None:
        yield "the receipt is that of a run that was stopped: run its command again"
    for folder in finished_generations(root):
        faults = verify_built(root.below(folder)).faults
        yield from (f"{folder}/{fault}" if folder else str(fault) for fault in faults)
    try:
        look = look_through(root, HashedIds(receipt.salt, receipt.hashes))
    except ShardwrightError as error:  # a broken file cannot be looked into
        yield str(error)
        return
    for traces in look.traces:
        for path, ids in sorted(traces.ids.items()):
            yield f"{path} has {len(ids)} of the ids"
    for path in look.leftovers:
        yield f"{path} is of a build that has not ended, which may hold any record"
    for number in look.versions:
        yield f"version {number} does not name the shards as they are"
    for path, content in receipt.before.items():
        if is_dataset_file(path) and content_of(root, path) == content:
            yield f"{path} has the bytes that it had before"
