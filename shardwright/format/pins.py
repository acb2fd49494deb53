"""Pin versions of a dataset, so that `gc` keeps them for whoever reads them.

A pin is a small file, `versions/pins/NAME.json`, which anybody with the right to write can make for
readers that have none. It holds until its day has ended, in UTC, or until it is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated

from msgspec import Meta, Struct

from shardwright.errors import ExistsError, MissingError, StorageError, UsageError
from shardwright.format import naming
from shardwright.format.json_files import parse_json
from shardwright.format.manifest import is_intact, seal, time_text
from shardwright.format.notes import Note, is_noted
from shardwright.format.versions import LATEST, VersionKey, number_of, read_version
from shardwright.storage.folder import Folder

_MAX_BYTES = 4096
_SUFFIX = ".json"


class _PinFile(Struct):
    version: Annotated[int, Meta(ge=1)]
    created: str
    until: date | None


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin of a version.

    Attributes:
        name: Its name: letters, digits, - and _.
        version: Number of the version that it keeps.
        created: When it was made, an ISO time.
        until: The last day on which it holds, in UTC; None if it holds until it is removed.
    """

    name: str
    version: int
    created: str
    until: date | None = None

    def holds(self, now: datetime | None = None) -> bool:
        """Return whether the pin holds, now or at a time with a zone."""
        now = now or datetime.now(UTC)
        return self.until is None or now.astimezone(UTC).date() <= self.until

    def __str__(self) -> str:
        return self.name if self.until is None else f"{self.name}, until {self.until}"

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        until = None if self.until is None else self.until.isoformat()
        return seal({"version": self.version, "created": self.created, "until": until})


def read_pins(root: Folder) -> list[Pin]:
    """Return the pins of a dataset by name, also those that hold no longer.

    A web server cannot be listed: there are none on it.

    Raises:
        StorageError: They cannot be read, or one is damaged.
    """
    found = (read_pin(root, name) for name in pin_names(root))
    return [pin for pin in found if pin is not None]


def pin_names(root: Folder) -> list[str]:
    """Return the names of a dataset's pins. Raises `StorageError`."""
    names = [] if root.is_on_web else root.names(naming.PINS_DIR)
    return [
        name.removesuffix(_SUFFIX)
        for name in names
        if name.endswith(_SUFFIX) and not name.startswith(".")
    ]


def add_pin(root: Folder, name: str, version: VersionKey = LATEST, until: str | None = None) -> Pin:
    """Pin a version; a pin of the same version, or one that holds no longer, is replaced.

    Args:
        root: The dataset's folder.
        name: The name of the pin.
        version: The version, as `VersionKey`.
        until: The last day on which the pin holds, such as "2026-12-31", in UTC; None to hold until
            it is removed.

    Raises:
        NotADatasetError: There is no finished dataset.
        StorageError: The pin cannot be written, or the one of this name is damaged.
        UsageError: The name or the day is invalid, the version does not exist or `gc` removes it
            just now, or the name is that of a pin of another version.
    """
    _check_name(name)
    day = None if until is None else _day_of(until)
    number = number_of(read_version(root, version))
    created = time_text()
    pin, before = Pin(name, number, created, day), None
    try:
        root.create_bytes(naming.pin_file(name), pin.to_bytes())
    except ExistsError:
        before = read_pin(root, name)
        if before is not None and before.version != number and before.holds():
            raise UsageError(
                f"pin {name!r} of {root} keeps version {before.version}: pin version {number} "
                f"under another name, or first {_removal(root, name)}"
            ) from None
        root.write_bytes(naming.pin_file(name), pin.to_bytes())
    _check_kept(root, pin, before)
    return pin


def remove_pin(root: Folder, name: str) -> None:
    """Remove a pin, also a damaged one.

    Raises:
        StorageError: It cannot be removed.
        UsageError: There is no such pin.
    """
    _check_name(name)
    if name not in (there := pin_names(root)):
        raise UsageError(f"{root} has no pin {name!r}: its pins are {', '.join(there) or 'none'}")
    root.remove(naming.pin_file(name))


def _check_kept(root: Folder, pin: Pin, before: Pin | None) -> None:
    """Check that `gc` has not begun to remove the version before it could see the pin.

    First its note is looked for: without one, `gc` has either ended, and then the version is gone,
    or not begun, and then it will see the pin.
    """
    try:
        own = root.info(naming.pin_file(pin.name))
        now = 0.0 if own is None else own.modified
        leaving = is_noted(root, Note.REMOVE, pin.version, now=now)
        read_version(root, pin.version)
    except UsageError:
        leaving = True
    if not leaving:
        return
    if before is None:
        root.remove(naming.pin_file(pin.name))
    else:
        root.write_bytes(naming.pin_file(pin.name), before.to_bytes())
    raise UsageError(
        f"version {pin.version} of {root} is not pinned: `shardwright gc` is removing it, or was "
        f"killed while it did within the last day; `shardwright log {root}` lists the versions"
    )


def read_pin(root: Folder, name: str) -> Pin | None:
    """Return a pin, None if it was removed meanwhile. Raises as `read_pins`."""
    try:
        data = root.read_bytes(naming.pin_file(name), max_bytes=_MAX_BYTES)
    except MissingError:
        return None
    path = root.path(naming.pin_file(name))
    fix = f"{_removal(root, name)}, and pin the version again"
    found = parse_json(data, _PinFile, path, fix, error=StorageError)
    if not is_intact(data):
        raise StorageError(f"{path} is damaged (its checksum is wrong): {fix}")
    if not naming.is_pin_name(name):
        raise StorageError(f"{path} must have letters, digits, - and _ in its name only: {fix}")
    return Pin(name, found.version, found.created, found.until)


def _check_name(name: str) -> None:
    if not naming.is_pin_name(name):
        raise UsageError(
            f"the name of a pin must have 1 to 100 letters, digits, - or _, got {name!r}"
        )


def _day_of(until: str) -> date:
    try:
        day = date.fromisoformat(until)
    except ValueError as error:
        raise UsageError(f"until must be a day such as 2026-12-31, got {until!r}") from error
    if day < datetime.now(UTC).date():
        raise UsageError(f"until must be today or later, in UTC, got {until}")
    return day


def _removal(root: Folder, name: str) -> str:
    command = f"with `shardwright pin {root} {name} --remove`"
    return f"remove it {command}" if naming.is_pin_name(name) else "remove the file"
