"""The content of a file as the manifest states it: its length and its checksum."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

import google_crc32c

from shardwright.format.json_files import Count, Crc32c
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

_BLOCK_BYTES = 1 << 20


class FileContent(NamedTuple):
    """A file's length in bytes and unmasked CRC32C."""

    num_bytes: Count
    crc32c: Crc32c

    @classmethod
    def of(cls, data: bytes) -> FileContent:
        """Return the content of a file with these bytes."""
        return cls(len(data), google_crc32c.value(data))

    def fault(self, stated: FileContent) -> str | None:
        """Return the difference of this content from the one in the manifest, or None."""
        if self.num_bytes != stated.num_bytes:
            found = counted(self.num_bytes, "byte")
            return f"the file has {found}, the manifest says {stated.num_bytes:,}"
        if self.crc32c != stated.crc32c:
            return (
                f"the file's crc32c is {self.crc32c:#010x}, the manifest says {stated.crc32c:#010x}"
            )
        return None


def content_of(root: Folder, path: str) -> FileContent | None:
    """Return the content of a file of any length; None if there is none.

    Raises:
        StorageError: It cannot be read.
    """
    num_bytes = root.num_bytes_of(path)
    if num_bytes is None:
        return None
    with root.local_copy(path) as file:
        return FileContent(num_bytes, file_crc32c(file))


def file_crc32c(file: BinaryIO) -> int:
    """Return the unmasked CRC32C of a file from its position on, in bounded memory."""
    crc32c = 0
    while block := file.read(_BLOCK_BYTES):
        crc32c = google_crc32c.extend(crc32c, block)
    return crc32c
