"""List a prefix of an object store, by the rules for local folders (`local_folders`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.errors import ChangedError, DeniedError, MissingError
from shardwright.storage.addresses import key_problem, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange
from shardwright.storage.listing import ObjectRow, list_pages
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from transforms.inputs.file_rules import (
    MAGIC_BYTES,
    Problem,
    has_image_name,
    is_litter,
    magic_problem,
    place_of,
    size_problem,
)
from transforms.inputs.image_rows import ImageRow
from transforms.rejects import Reject, RejectReason


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
    for page in list_pages(client_for(store, options), prefix, keys):
        problems = [_problem(row.key[start:], row) for row in page]
        _look_into_others(store, page, problems, options)
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


def _problem(relative: str, row: ObjectRow) -> Problem | None:
    if not row.num_bytes and "." not in relative.rpartition("/")[2]:
        return RejectReason.OTHER_FILE, "stands for a folder"
    if any(is_litter(part) for part in relative.split("/") if part not in (".", "..")):
        return RejectReason.OTHER_FILE, "hidden, or left by an operating system"
    if problem := key_problem(row.key):
        return RejectReason.BAD_ID, f"the object {problem}"
    return size_problem(row.num_bytes)


def _look_into_others(
    store: str, page: Sequence[ObjectRow], problems: list[Problem | None], options: StorageOptions
) -> None:
    """Fill in the problems of objects without an image's name, going by their first bytes."""
    others = [
        place
        for place, row in enumerate(page)
        if problems[place] is None and not has_image_name(row.key)
    ]
    looks = map_reads(lambda place: _look(f"{store}/{page[place].key}", options), others)
    for place, problem in zip(others, looks, strict=True):
        problems[place] = problem


def _look(uri: str, options: StorageOptions) -> Problem | None:
    try:
        return magic_problem(files_of(uri, options).read_range(uri, 0, MAGIC_BYTES))
    except (MissingError, ChangedError, DeniedError) as error:
        return RejectReason.UNREADABLE, str(error)
