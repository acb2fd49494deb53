"""Verify the versions of a dataset: their files, the generations that they name, and the pins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from time import monotonic

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
    kept = KeptVersions(tuple(versions), has_first, tuple(faults))
    what = "no version names it: an append that goes on or was stopped"
    unnamed = [folder for folder in generation_folders(root) if folder not in kept.folders]
    return replace(kept, notes=tuple(DatasetFault.of_file(each, what) for each in unnamed))


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
    found = [(folder, _verified(root.below(folder), verify)) for folder in kept.folders]
    if not newest and not all(each.is_sound for _, each in found):
        kept = find_kept(root)  # `gc` may have removed versions meanwhile, with their files
        found = [(folder, each) for folder, each in found if folder in kept.folders]
    faults = [_below(folder, fault) for folder, each in found for fault in each.faults]
    sound = {folder for folder, each in found if each.is_sound}
    notes = [_below(folder, note) for folder, each in found for note in each.notes]
    return Verification(
        dataset=root.uri,
        num_shards=sum(each.num_shards for _, each in found),
        num_records=sum(each.num_records for _, each in found),
        num_bytes=sum(each.num_bytes for _, each in found),
        seconds=monotonic() - started,
        faults=(*kept.faults, *faults, *version_faults(root, kept.versions, sound)),
        notes=(*notes, *kept.notes),
        by=next((each.by for _, each in found if each.by), "content"),
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
    manifests: dict[str, Manifest] = {}
    for version in versions:
        if not sound.issuperset(version.folders):
            continue
        for folder in version.folders:
            if folder not in manifests:
                manifests[folder] = read_manifest(root.below(folder))
        owns = {folder: dict(manifests[folder].named_shards()) for folder in version.folders}
        for name, info in version.named_shards():
            there = owns[info.folder].get(replace(name, folder=""))
            if there is None or there != replace(info, folder="", count=0, removed=b""):
                what = f"{name.shard} is not the shard of its generation"
                yield DatasetFault.of_file(naming.version_file(number_of(version)), what)
