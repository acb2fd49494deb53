"""Verify the versions of a dataset: their files, the generations that they name, and the pins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TypeVar

from shardwright.errors import NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.pins import pin_names, read_pin
from shardwright.format.superseded import changed_notices
from shardwright.format.versions import (
    generation_folders,
    is_collected,
    later_numbers,
    number_of,
    read_stated,
    read_version,
    version_numbers,
)
from shardwright.inspect.faults import NO_FAULTS_OF_FILES, Verification
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """The versions of a dataset that `gc` has not removed.

    Attributes:
        versions: The later ones whose files are sound, ascending.
        has_first: The manifest of version 1 is there.
        faults: Faults of the files of versions and of pins.
    """

    versions: tuple[Manifest, ...]
    has_first: bool = False
    faults: tuple[DatasetFault, ...] = ()

    @property
    def folders(self) -> list[str]:
        """The folders of the generations that they name, ordered; "" is the first one's."""
        named = {folder for version in self.versions for folder in version.folders}
        return sorted(named | ({""} if self.has_first else set()))


def find_kept(root: Folder) -> KeptVersions:
    """Look through the files of a dataset's versions, and its pins.

    Raises:
        StorageError: A folder cannot be read.
    """
    has_first = root.num_bytes_of(naming.MANIFEST) is not None
    faults, versions, gone, last = list[DatasetFault](), [], set() if has_first else {1}, 1
    for number in later_numbers(root):
        if number > last + 1:
            what = (
                f"{counted(number - last - 1, 'version')} from it on are missing: copy them again"
            )
            faults.append(DatasetFault.of_file(naming.version_file(last + 1), what))
        last = number
        found = _read(naming.version_file(number), partial(read_stated, root, number), faults)
        if found is not None and is_collected(found):
            gone.add(number)
        elif found is not None:
            versions.append(found)
    for name in pin_names(root):
        file = naming.pin_file(name)
        pin = _read(file, partial(read_pin, root, name), faults)
        if pin is not None and pin.holds() and (pin.version > last or pin.version in gone):
            what = f"version {pin.version}, which it keeps, is not there: remove it with --remove"
            faults.append(DatasetFault.of_file(file, what))
    for newest in versions[-1:]:
        changed = changed_notices(root, newest.name, newest.splits)
        faults += [DatasetFault.of_file(file, "its text has changed") for file in changed]
    return KeptVersions(tuple(versions), has_first, tuple(faults))


def _read(path: str, read: Callable[[], T], faults: list[DatasetFault]) -> T | None:
    """Return what a file holds; add its fault and return None if it is damaged."""
    try:
        return read()
    except NO_FAULTS_OF_FILES:
        raise
    except (NotADatasetError, StorageError) as error:
        faults.append(DatasetFault.of_file(path, str(error)))
        return None


def verify_versions(
    root: Folder, verify: Callable[[Folder], Verification], *, newest: bool = False
) -> Verification:
    """Check all versions of a dataset.

    Args:
        root: The dataset's folder.
        verify: Checks a dataset by the manifest in its folder.
        newest: Check the newest version alone.

    Raises:
        NotADatasetError: There is no finished dataset.
        StorageError: A folder cannot be read.
    """
    started = monotonic()
    if version_numbers(root)[-1] == 1:
        read_version(root)
        return verify(root)
    kept = KeptVersions((read_version(root),)) if newest else find_kept(root)
    found = {folder: _verified(root.below(folder), verify) for folder in kept.folders}
    if not newest and not all(each.is_sound for each in found.values()):
        kept = find_kept(root)  # `gc` may have removed versions meanwhile, with their files
        found = {folder: each for folder, each in found.items() if folder in kept.folders}
    faults = [_below(folder, fault) for folder, each in found.items() for fault in each.faults]
    sound = {folder for folder, each in found.items() if each.is_sound}
    notes = [_below(folder, note) for folder, each in found.items() for note in each.notes]
    unnamed = [] if newest else sorted({*generation_folders(root)} - {*kept.folders})
    what = "no version names it: an append that goes on or was stopped"
    return Verification(
        dataset=root.uri,
        num_shards=sum(each.num_shards for each in found.values()),
        num_records=sum(each.num_records for each in found.values()),
        num_bytes=sum(each.num_bytes for each in found.values()),
        seconds=monotonic() - started,
        faults=(*kept.faults, *faults, *version_faults(root, kept.versions, sound)),
        notes=(*notes, *(DatasetFault.of_file(each, what) for each in unnamed)),
        by=next((each.by for each in found.values() if each.by), "content"),
    )


def _verified(generation: Folder, verify: Callable[[Folder], Verification]) -> Verification:
    """Check a generation. A manifest that is missing or damaged is a fault."""
    try:
        read_stated(generation, 1)  # fails if it is that of a later version
        return verify(generation)
    except NotADatasetError as error:
        missing = generation.num_bytes_of(naming.MANIFEST) is None
        what = "the file is missing: copy it again" if missing else str(error)
        fault = DatasetFault.of_file(naming.MANIFEST, what)
        return Verification(generation.uri, 0, 0, 0, 0.0, (fault,), (), by="")


def _below(folder: str, fault: DatasetFault) -> DatasetFault:
    return replace(fault, file=f"{folder}/{fault.file}") if folder else fault


def version_faults(
    root: Folder, versions: Iterable[Manifest], sound: set[str]
) -> Iterator[DatasetFault]:
    """Yield the shards that versions state otherwise than the generations that hold them.

    Args:
        root: The dataset's folder.
        versions: The versions.
        sound: The folders of the generations without faults. A version with another is left out.
    """
    owns = {folder: dict(read_manifest(root.below(folder)).named_shards()) for folder in sound}
    for version in versions:
        for name, info in version.named_shards() if sound.issuperset(version.folders) else ():
            own = owns[info.folder].get(replace(name, folder=""))
            if own != replace(info, folder="", count=0, removed=b""):
                what = f"{name.shard} is not the shard of its generation"
                yield DatasetFault.of_file(naming.version_file(number_of(version)), what)
