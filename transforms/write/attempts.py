"""Note an attempt to make records of some images, so that a retry knows if its process died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardwright.errors import MissingError
from shardwright.storage.folder import Folder


def has_died(root: Folder, note: str, digest: str) -> bool:
    """Return whether an earlier attempt at images with this digest died, or is still at work."""
    try:
        # Of another plan, the note says nothing about these images.
        return root.read_bytes(note) == digest.encode()
    except MissingError:
        return False


@contextmanager
def noted_attempt(root: Folder, note: str, digest: str) -> Iterator[None]:
    """Note an attempt in OUTPUT, in a file with this name, during the block.

    Any exception removes the note, too: only the death of this process leaves it there.
    """
    # Not synced to disk: it must survive this process, not a power failure.
    root.write_bytes(note, digest.encode(), sync=False)
    try:
        yield
    finally:
        root.remove(note)
