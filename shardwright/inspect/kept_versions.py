"""Find what the versions of a dataset and its pins need, and which of their files are faulty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.errors import NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.pins import pin_names, read_pin
from shardwright.format.superseded import changed_notices
from shardwright.format.versions import (
    generation_folders,
    is_collected,
    later_numbers,
    read_stated,
)
from shardwright.inspect.faults import DatasetFault
from shardwright.inspect.shard_check import NO_FAULTS_OF_FILES
from shardwright.sizes import counted
from shardwright.storage.folder import Folder


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """The versions of a dataset that `gc` has not removed.

    Attributes:
        versions: The later ones whose files are sound, ascending.
        has_first: The manifest of version 1 is there.
        faults: Faults of the files of versions and of pins.
        notes: The generations that no version names.
    """

    versions: tuple[Manifest, ...]
    has_first: bool = False
    faults: tuple[DatasetFault, ...] = ()
    notes: tuple[DatasetFault, ...] = ()

    @property
    def folders(self) -> list[str]:
        """The folders of the generations that they name, ordered; "" is the first one's."""
        named = {folder for version in self.versions for folder in version.folders}
        return sorted(named | ({""} if self.has_first else set()))


def find_kept(root: Folder) -> KeptVersions:
    """Look through the files of a dataset's versions, its pins and its generations.

    Raises:
        StorageError: A folder cannot be read.
    """
    has_first = root.num_bytes_of(naming.MANIFEST) is not None
    versions, faults, gone, last = [], [], set() if has_first else {1}, 1
    for number in later_numbers(root):
        if number > last + 1:
            what = (
                f"{counted(number - last - 1, 'version')} from it on are missing: copy them again"
            )
            faults.append(DatasetFault.of_file(naming.version_file(last + 1), what))
        last = number
        try:
            found = read_stated(root, number)
        except NO_FAULTS_OF_FILES:
            raise
        except (NotADatasetError, StorageError) as error:
            faults.append(DatasetFault.of_file(naming.version_file(number), str(error)))
            continue
        if is_collected(found):
            gone.add(number)
        else:
            versions.append(found)
    faults += _pin_faults(root, last, gone)
    if versions:
        changed = changed_notices(root, versions[-1].name, versions[-1].splits)
        faults += [DatasetFault.of_file(file, "its text has changed") for file in changed]
    kept = KeptVersions(tuple(versions), has_first)
    notes = [
        DatasetFault.of_file(folder, "no version names it: an append that goes on or was stopped")
        for folder in generation_folders(root)
        if folder not in kept.folders
    ]
    return KeptVersions(kept.versions, has_first, tuple(faults), tuple(notes))


def _pin_faults(root: Folder, newest: int, gone: set[int]) -> Iterator[DatasetFault]:
    """Yield the pins that are damaged, or hold and keep no version."""
    for name in pin_names(root):
        try:
            pin = read_pin(root, name)
        except NO_FAULTS_OF_FILES:
            raise
        except StorageError as error:
            yield DatasetFault.of_file(naming.pin_file(name), str(error))
            continue
        if pin is not None and pin.holds() and (pin.version > newest or pin.version in gone):
            what = f"version {pin.version}, which it keeps, is not there: remove it with --remove"
            yield DatasetFault.of_file(naming.pin_file(name), what)
