"""Keep records or decoded images after their first use, in memory or in an unnamed file."""

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
_DEFAULT_SHARE_OF_RAM = 0.5  # of free memory, the same share as tf.data's own budget
_NO_LIMIT = 1 << 60


class KeptRecords(Protocol):
    """A store of serialized examples by slot. Thread-safe."""

    def get(self, slot: int) -> bytes | None:
        """Return the example, or None if it is not kept yet."""

    def put(self, slot: int, example: bytes) -> None:
        """Keep an example. Two threads may keep the same one."""

    def forget(self) -> None:
        """Free the space, and keep nothing from now on."""


class RecordsInMemory:
    """Serialized examples in memory.

    Args:
        num_records: Number of slots.
    """

    def __init__(self, num_records: int) -> None:
        self._examples: list[bytes | None] | None = [None] * num_records

    def get(self, slot: int) -> bytes | None:
        # Once: `forget` may set it to None between a test and a use.
        examples = self._examples
        return None if examples is None else examples[slot]

    def put(self, slot: int, example: bytes) -> None:
        examples = self._examples
        if examples is not None:
            examples[slot] = example

    def forget(self) -> None:
        self._examples = None


class RecordsOnDisk:
    """Serialized examples in a file, in order of arrival. Takes 12 bytes of memory per record.

    Args:
        num_records: Number of slots.
        folder: Folder of the file, which has no name and is gone when the process ends.

    Raises:
        StorageError: The file cannot be created.
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
        # Outside the lock: the range belongs to this call alone.
        _write(self._file.fileno(), example, offset, self._folder)
        self._lengths[slot] = len(example)
        self._offsets[slot] = offset  # last: `get` runs without the lock, and tests this one

    def forget(self) -> None:
        with self._lock:
            self._is_over = True
        self._offsets[:] = -1
        os.ftruncate(self._file.fileno(), 0)  # not closed: another thread may be using it


class KeptImages:
    """Decoded images of one size, by slot. Thread-safe.

    Args:
        num_records: Number of slots.
        shape: (height, width, channels).
        place: "memory", or a folder for an unnamed file.
        dtype: Of the images.

    Raises:
        StorageError: The file cannot be created.
    """

    def __init__(
        self, num_records: int, shape: tuple[int, int, int], place: str, dtype: str = "uint8"
    ) -> None:
        self.dtype = np.dtype(dtype)
        self._kept = np.zeros(num_records, np.bool_)
        size = (num_records, *shape)
        # The system allocates the memory page by page, when an image is written.
        self._images: NDArray[Any] | None = (
            np.empty(size, dtype) if place == MEMORY else _map_file(place, size, self.dtype)
        )

    def has(self, slot: int) -> np.bool_:
        return np.bool_(self._kept[slot])

    def get(self, slot: int) -> NDArray[Any]:
        """Return an image for which `has` is true."""
        images = self._images
        if images is None:
            raise StorageError(
                f"image {slot} was dropped, because its dataset is no longer in use: load it again"
            )
        return images[slot]

    def put(self, slot: int, image: NDArray[Any], is_good: np.bool_) -> NDArray[Any]:
        """Keep an image if it is good, and return it."""
        images = self._images
        if is_good and images is not None:
            images[slot] = image
            self._kept[slot] = True  # last: other threads test it without a lock
        return image

    def forget(self) -> None:
        """Free the space, and keep nothing from now on."""
        # Before the marks: a thread that has seen a mark then gets an error, not other data.
        self._images = None
        self._kept = np.zeros(len(self._kept), np.bool_)


def check_room(what: str, num_bytes: int, place: str, ram_bytes: int | None) -> None:
    """Raise `UsageError` if the bytes to keep exceed the RAM budget or the folder's free space."""
    if place == MEMORY:
        budget = (
            ram_bytes if ram_bytes is not None else int(free_ram_bytes() * _DEFAULT_SHARE_OF_RAM)
        )
        stated = "ram_bytes=" if ram_bytes is not None else "half of the free memory, "
        if num_bytes > budget:
            raise UsageError(
                f"keep={what!r} needs {show_bytes(num_bytes)} of memory, more than "
                f"{stated}{show_bytes(budget)}: raise ram_bytes=, set keep_in= to a folder on a "
                "fast disk, or load a part of the split"
            )
        return
    if not os.path.isdir(place):
        raise UsageError(f"keep_in={place!r} must be {MEMORY!r}, or an existing folder")
    free = shutil.disk_usage(place).free
    if num_bytes > free:
        raise UsageError(
            f"keep={what!r} needs {show_bytes(num_bytes)} of disk, "
            f"but {place} has {show_bytes(free)} free: choose another folder"
        )


def free_ram_bytes() -> int:
    """Return the memory this process may still use, limited by the machine and its container."""
    # The machine's figure does not know of the container's limit, at which a process is killed.
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
    except OSError:  # the file does not exist on this system
        return ""


def _nameless_file(folder: str) -> Any:
    try:
        return tempfile.TemporaryFile(dir=folder, prefix="shardwright-")
    except OSError as error:
        raise _write_error(folder, error) from error


def _map_file(folder: str, size: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    with _nameless_file(folder) as file:
        try:
            # Allocate now: on a full disk, a write to the mapping would end in SIGBUS.
            os.posix_fallocate(file.fileno(), 0, math.prod(size) * dtype.itemsize or 1)
        except OSError as error:
            raise _write_error(folder, error) from error
        return np.memmap(file, dtype, "r+", shape=size)


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
        f"cannot write to keep_in={folder!r}: {error.strerror or error}: choose another disk"
    )
