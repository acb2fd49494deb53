"""List a prefix of an object store, by the rules for local folders (`local_folders`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.storage.addresses import key_problem, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange
from shardwright.storage.listing import ObjectRow, list_pages
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_rules import Problem, is_litter, place_of, size_problem
from shardwright.transforms.inputs.folders.other_objects import OtherObjects
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.rejects import Reject, RejectReason


def list_prefix(
    uri: str,
    split_folders: Sequence[str],
    options: StorageOptions,
    keys: KeyRange = ALL_KEYS,
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every object of a range below the prefix, in no order.

    Objects that stand for folders (no bytes, no dot in the name) are rejected as other files.
    """
    store, prefix = parse_address(uri)
    start = len(prefix) + 1 if prefix else 0
    others = OtherObjects(store, options)
    for page in list_pages(client_for(store, options), prefix, keys):
        problems = [_problem(row.key[start:], row) for row in page]
        others.look(page, problems)
        for row, problem in zip(page, problems, strict=True):
            relative, address = row.key[start:], f"{store}/{row.key}"
            if problem:
                yield Reject(relative, address, *problem)
            else:
                yield ImageRow(
                    relative,
                    address,
                    row.num_bytes,
                    row.etag or None,
                    *place_of(split_folders, relative),
                )
    yield from others.unread_images(uri)
    others.log_unread(uri)


def _problem(relative: str, row: ObjectRow) -> Problem | None:
    if not row.num_bytes and "." not in relative.rpartition("/")[2]:
        return RejectReason.OTHER_FILE, "stands for a folder"
    if any(is_litter(part) for part in relative.split("/") if part not in (".", "..")):
        return RejectReason.OTHER_FILE, "hidden, or left by an operating system"
    if problem := key_problem(row.key):
        return RejectReason.BAD_ID, f"the object {problem}"
    return size_problem(row.num_bytes)
