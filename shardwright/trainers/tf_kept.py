"""What is kept of records once they have been read or decoded: in memory, or in a nameless file that goes with its process."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import StorageError, UsageError
from shardwright.sizes import show_bytes

MEMORY = "memory"
RECORDS, IMAGES = "records", "images"
_DEFAULT_SHARE_OF_RAM = 0.5  # of what is free; tf.data's own budget is half of it, too
_NO_LIMIT = 1 << 60


class KeptRecords(Protocol):
    """Serialized examples by slot. Any thread may ask."""

    def get(self, slot: int) -> bytes | None:
        """The example, None where it is not kept yet."""

    def put(self, slot: int, example: bytes) -> None:
        """Keep one. Two threads may keep the same one."""

    def forget(self) -> None:
        """Give back the room, and keep nothing from now on."""


class RecordsInMemory:
    """Serialized examples as they are.

    Args:
        num_records: How many there are.
    """

    def __init__(self, num_records: int) -> None:
        self._examples: list[bytes | None] | None = [None] * num_records

    def get(self, slot: int) -> bytes | None:
        examples = self._examples
        return None if examples is None else examples[slot]

    def put(self, slot: int, example: bytes) -> None:
        examples = self._examples
        if examples is not None:
            examples[slot] = example

    def forget(self) -> None:
        self._examples = None


class RecordsOnDisk:
    """Serialized examples in a file, one after another as they come; 12 bytes of memory a record.

    Args:
        num_records: How many there are.
        folder: Where the file is. It has no name there, and is gone when its process ends.

    Raises:
        StorageError: No file can be made there.
    """

    def __init__(self, num_records: int, folder: str) -> None:
        self._file = _nameless_file(folder)
        self._folder = folder
        self._offsets = np.full(num_records, -1, np.int64)
        self._lengths = np.zeros(num_records, np.uint32)
        self._end = 0
        self._is_over = False
        self._lock = threading.Lock()

    def get(self, slot: int) -> bytes | None:
        offset = int(self._offsets[slot])
        return (
            None if offset < 0 else os.pread(self._file.fileno(), int(self._lengths[slot]), offset)
        )

    def put(self, slot: int, example: bytes) -> None:
        with self._lock:
            if self._is_over:
                return
            offset, self._end = self._end, self._end + len(example)
        _write(self._file.fileno(), example, offset, self._folder)
        self._lengths[slot] = len(example)
        self._offsets[slot] = offset  # last: whoever sees it finds the rest

    def forget(self) -> None:
        with self._lock:
            self._is_over = True
        self._offsets[:] = -1
        os.ftruncate(self._file.fileno(), 0)  # and not closed: another thread may be using it


class KeptImages:
    """Decoded images of one size, by slot. Any thread may ask.

    Args:
        num_records: How many there are.
        shape: (height, width, channels), uint8.
        place: "memory", or a folder for a nameless file.

    Raises:
        StorageError: No file can be made there.
    """

    def __init__(self, num_records: int, shape: tuple[int, int, int], place: str) -> None:
        self._kept = np.zeros(num_records, np.bool_)
        size = (num_records, *shape)
        # Memory is taken from the system as it is filled.
        self._images: NDArray[np.uint8] | None = (
            np.empty(size, np.uint8) if place == MEMORY else _map_file(place, size)
        )

    def has(self, slot: int) -> np.bool_:
        return np.bool_(self._kept[slot])

    def get(self, slot: int) -> NDArray[np.uint8]:
        """An image that is kept."""
        images = self._images
        if images is None:
            raise StorageError(
                f"image {slot} is not kept any more, because its dataset is not used any more: load it again"
            )
        return images[slot]

    def put(self, slot: int, image: NDArray[np.uint8], is_good: np.bool_) -> NDArray[np.uint8]:
        """Keep an image, if it is one; it is given back."""
        images = self._images
        if is_good and images is not None:
            images[slot] = image
            self._kept[slot] = True  # last: whoever sees it finds the pixels
        return image

    def forget(self) -> None:
        """As of `KeptRecords`."""
        self._images = None
        self._kept = np.zeros(len(self._kept), np.bool_)


def check_room(what: str, num_bytes: int, place: str, ram_bytes: int | None) -> None:
    """Raises `UsageError` where what is to be kept fits neither the RAM budget nor, of a folder, its disk."""
    if place == MEMORY:
        budget = (
            ram_bytes if ram_bytes is not None else int(free_ram_bytes() * _DEFAULT_SHARE_OF_RAM)
        )
        stated = "ram_bytes=" if ram_bytes is not None else "half of the memory that is free, "
        if num_bytes > budget:
            raise UsageError(
                f"keep={what!r} needs {show_bytes(num_bytes)} of memory, more than {stated}{show_bytes(budget)}: give a larger ram_bytes=, "
                "keep_in= a folder on a fast disk, or a part of the split"
            )
        return
    if not os.path.isdir(place):
        raise UsageError(f"keep_in={place!r} must be {MEMORY!r}, or a folder that is there")
    free = shutil.disk_usage(place).free
    if num_bytes > free:
        raise UsageError(
            f"keep={what!r} needs {show_bytes(num_bytes)} of disk, and {place} has {show_bytes(free)} free: choose another folder"
        )


def free_ram_bytes() -> int:
    """Memory that this process may still take: of the machine, or of the container that it runs in."""
    return min(_machine_free_bytes(), *_container_free_bytes())


def _machine_free_bytes() -> int:
    text = _read("/proc/meminfo")
    found = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return (
        int(found[0]) * 1024 if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )


def _container_free_bytes() -> Sequence[int]:
    limit, used = (
        _read("/sys/fs/cgroup/memory.max").strip(),
        _read("/sys/fs/cgroup/memory.current").strip(),
    )
    return [int(limit) - int(used) if limit.isdigit() and used.isdigit() else _NO_LIMIT]


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:  # not on this system
        return ""


def _nameless_file(folder: str) -> Any:
    try:
        return tempfile.TemporaryFile(dir=folder, prefix="shardwright-")
    except OSError as error:
        raise _write_error(folder, error) from error


def _map_file(folder: str, size: tuple[int, ...]) -> NDArray[np.uint8]:
    with _nameless_file(folder) as file:
        try:
            os.posix_fallocate(
                file.fileno(), 0, math.prod(size) or 1
            )  # a full disk is told now, and not by SIGBUS
        except OSError as error:
            raise _write_error(folder, error) from error
        return np.memmap(file, np.uint8, "r+", shape=size)


def _write(descriptor: int, data: bytes, offset: int, folder: str) -> None:
    view = memoryview(data)
    try:
        while view:
            count = os.pwrite(descriptor, view, offset)
            view, offset = view[count:], offset + count
    except OSError as error:
        raise _write_error(folder, error) from error


def _write_error(folder: str, error: OSError) -> StorageError:
    return StorageError(
        f"keep_in={folder!r} cannot be written: {error.strerror or error}: give a folder on another disk"
    )
