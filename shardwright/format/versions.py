"""Find the versions of a dataset that has grown, and read one.

Version 1 is the dataset as it was built, with its `manifest.json`. Each later version has a
manifest of its own, `versions/00002.json` and so on, which names the shards of all generations and
the rows that are no longer in the dataset. A version is committed by creating its file: of two
writers that create the same one, only one succeeds. No file of a version is written again, but
when `gc` or `erase` collects the version: then it says so, and its number is not used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from shardwright.errors import MissingError, NotADatasetError, UnsupportedError, UsageError
from shardwright.format import naming
from shardwright.format.manifest import MANIFEST_START, Manifest, read_manifest
from shardwright.storage.folder import Folder

LATEST = "latest"
VersionKey: TypeAlias = int | str
"""A version: its number, a day or time such as "2026-11-22" (its last version), or "latest"."""

_MOST_TRIES = 100  # to read the newest version, while others commit and collect
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def read_version(root: Folder, version: VersionKey = LATEST) -> Manifest:
    """Return the manifest of a version.

    Args:
        root: The dataset's folder.
        version: As `VersionKey`.

    Raises:
        NotADatasetError: There is no finished dataset, or the manifest is damaged.
        StorageError: The folder cannot be read.
        UsageError: There is no such version.
    """
    if version == LATEST:
        return _read_latest(root)
    newest = version_numbers(root)[-1]
    if type(version) is int:
        if not 1 <= version <= newest:
            there = f"versions 1 to {newest}" if newest > 1 else "version 1 only"
            raise UsageError(
                f"{root} has no version {version}, but {there}: see `shardwright log {root}`"
            )
        return _read(root, version, newest)
    if not isinstance(version, str):
        raise UsageError(f'version={version!r} must be a number, a day, or "{LATEST}"')
    until = _end_of(version)
    for found in _newest_first(root, newest):
        if created_at(found) < until:
            return found
    raise UsageError(f"{root} has no version of {version} or before: see `shardwright log {root}`")


def generation_folders(root: Folder) -> list[str]:
    """Return the folders of all later generations on disk, also of those that no version names.

    Raises:
        StorageError: The folder cannot be read.
    """
    below = (f"{naming.GENERATIONS_DIR}/{name}" for name in root.names(naming.GENERATIONS_DIR))
    return sorted(filter(naming.is_generation_folder, below))


def version_numbers(root: Folder) -> range:
    """Return the numbers of a dataset's versions, also of collected ones: 1, 2, 3 and so on.

    A dataset that has not grown takes one request. The numbers are counted, not looked at: a
    stranger may have named a file so that the newest number is a high one.

    Raises:
        StorageError: The folder cannot be read.
    """
    newest = _newest_probed(root) if root.is_on_web else max(later_numbers(root), default=1)
    return range(1, newest + 1)


def later_numbers(root: Folder) -> list[int]:
    """Return the numbers above 1 whose files are there, ascending.

    Raises:
        StorageError: The folder cannot be listed.
    """
    found = map(naming.version_number, root.names(naming.VERSIONS_DIR))
    return sorted(number for number in found if number is not None)


def _newest_probed(root: Folder) -> int:
    """Return the newest version on a web server, which cannot be listed, in at most 60 requests."""
    there, missing = 1, 2
    # Doubling, then halving: versions have no gaps, so the first number that is missing ends them.
    while missing <= naming.MAX_VERSION and _begins(root, missing):
        there, missing = missing, min(2 * missing, naming.MAX_VERSION + 1)
    while missing - there > 1:
        middle = (there + missing) // 2
        there, missing = (middle, missing) if _begins(root, middle) else (there, middle)
    return there


def _begins(root: Folder, number: int) -> bool:
    """Return whether a version's file is there: some servers answer any path with a page."""
    try:
        start = root.read_range(naming.version_file(number), 0, len(MANIFEST_START))
    except (MissingError, UnsupportedError):  # a page that stands for any path may have no ranges
        return False
    return start == MANIFEST_START


def number_of(manifest: Manifest) -> int:
    """Return the number of a version."""
    return manifest.history.get("version", 1)


def is_collected(manifest: Manifest) -> bool:
    """Return whether `gc` has removed a version: then only its file is left."""
    return bool(manifest.history.get("collected"))


def created_at(manifest: Manifest) -> datetime:
    """Return when a version was made; the start of time if it does not say."""
    told = manifest.history.get("created") or manifest.provenance.get("created", "")
    try:
        found = datetime.fromisoformat(told)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def read_versions(root: Folder) -> Iterator[Manifest]:
    """Yield all versions that are not collected, the newest first. Raises as `read_version`."""
    return _newest_first(root, version_numbers(root)[-1])


def _read_latest(root: Folder) -> Manifest:
    newest = version_numbers(root)[-1]
    for _ in range(_MOST_TRIES):
        with suppress(NotADatasetError):
            found = _read_file(root, newest, newest)
            if found is not None:
                return found
        # Others may have committed the next version and collected this one just now.
        before, newest = newest, version_numbers(root)[-1]
        # Nothing newer: the file is damaged or missing in truth, and `_read` says how.
        if newest == before:
            break
    return _read(root, newest, newest)


def _newest_first(root: Folder, newest: int) -> Iterator[Manifest]:
    for number in range(newest, 0, -1):
        found = _read_file(root, number, newest)
        if found is not None:
            yield found


def _read(root: Folder, number: int, newest: int) -> Manifest:
    found = _read_file(root, number, newest)
    if found is None:
        # "" is the folder of version 1's own shards.
        if number == 1 and any("" in later.folders for later in _newest_first(root, newest)):
            return read_manifest(root)  # fails: it was lost, because `gc` leaves it then
        raise UsageError(
            f"version {number} of {root} was removed by `shardwright gc`: "
            f"`shardwright log {root}` lists those that are left"
        )
    return found


def _read_file(root: Folder, number: int, newest: int) -> Manifest | None:
    """Return a version's manifest; None if it is collected."""
    if number == 1 < newest and root.num_bytes_of(naming.MANIFEST) is None:
        return None
    found = read_stated(root, number)
    return None if is_collected(found) else found


def read_stated(root: Folder, number: int) -> Manifest:
    """Return the manifest in the file of a version, also of a collected one.

    Raises:
        NotADatasetError: The file is missing or damaged, or is that of another version.
        StorageError: The folder cannot be read.
    """
    file = naming.version_file(number) if number > 1 else naming.MANIFEST
    found = read_manifest(root, file)
    stated = number_of(found)
    if stated != number:
        raise NotADatasetError(
            f"{root.path(file)} states version {stated}, but its name is that of version "
            f"{number}: it is a copy of another file; remove it, or copy version {number} again"
        )
    return found


def _end_of(version: str) -> datetime:
    """Return the first moment after a day or time, in UTC unless it states another zone."""
    try:
        found = datetime.fromisoformat(version)
    except ValueError as error:
        raise UsageError(
            f"version={version!r} must be a number, a day such as 2026-11-22, a time such as "
            f'2026-11-22T06:00, or "{LATEST}"'
        ) from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        # Versions state whole seconds, so one of this very second belongs to it.
        return found + (timedelta(days=1) if _DAY.fullmatch(version) else timedelta(seconds=1))
    except OverflowError:  # the last day that there is
        return datetime.max.replace(tzinfo=UTC)
