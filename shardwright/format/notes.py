"""Notes by which commands see what others are about to do with a version or a generation.

`gc` removes what it believes nobody needs, while another command may begin to need it: a pin of the
version, or the commit of the generation. Each writes its note first, and looks for that of the
other one then. So at least one of both finds out, and gives way; if both do, the next try succeeds.
The file of a pin is its own note.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from shardwright.format import naming
from shardwright.storage.folder import Folder

# A note is needed for seconds. One that a killed process has left counts no longer than this.
_LIFE_SECONDS = 24 * 3600


class Note(StrEnum):
    """The next action of the writer of a note."""

    COMMIT = "commit"
    REMOVE = "remove"


@contextmanager
def noted(root: Folder, note: Note, subjects: Iterable[int | str]) -> Iterator[None]:
    """Keep notes while the block runs.

    Args:
        root: The dataset's folder.
        note: What the block does.
        subjects: Numbers of versions, and folders of generations, that it does it with.

    Raises:
        StorageError: A note cannot be written or removed.
    """
    token = secrets.token_hex(4)
    names = [f"{_start(note, subject)}{token}{naming.TEMPORARY_SUFFIX}" for subject in subjects]
    try:
        for name in names:
            root.write_bytes(f"{naming.VERSIONS_DIR}/{name}", b"{}", sync=False)
        yield
    finally:
        root.remove_all([f"{naming.VERSIONS_DIR}/{name}" for name in names])


def is_noted(root: Folder, note: Note, subject: int | str) -> bool:
    """Return whether a process is about to do something with a version or a generation.

    Raises:
        StorageError: The notes cannot be listed.
    """
    start, since = _start(note, subject), time.time() - _LIFE_SECONDS
    found = root.stamps(naming.VERSIONS_DIR).items()
    return any(name.startswith(start) and stamp.modified > since for name, stamp in found)


def _start(note: Note, subject: int | str) -> str:
    """Return how the names of notes begin: no file of a version begins with a dot."""
    name = f"{subject:05d}" if isinstance(subject, int) else subject.rpartition("/")[2]
    return f".{name}.{note}-"
