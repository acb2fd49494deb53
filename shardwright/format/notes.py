"""Notes by which commands see what others do, or are about to do, with a version or a generation.

`gc` removes what it believes nobody needs, while another command may begin to need it: a pin of the
version, or the commit of the generation. Each writes its note first, and looks for that of the
other one then. So at least one of the two sees the other's note and backs off; if both do, the next
try succeeds. The file of a pin is its own note. A build needs none: its files are young.

Clocks of machines may be days apart. So the age of a note is the time from it to the newest note:
both are stamped by the disk or store, and whoever looks has just written a note of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import count

from shardwright.format import naming
from shardwright.storage.addresses import TEMPORARY_SUFFIX, is_temporary
from shardwright.storage.folder import Folder


class Note(StrEnum):
    """The present or next action of the writer of a note."""

    COMMIT = "commit"
    REMOVE = "remove"


# Of notes that killed processes have left. A commit needs its own for seconds to minutes.
_LIFE_SECONDS = {Note.COMMIT: 3600, Note.REMOVE: 24 * 3600}
END_COMMIT = (
    ", or was killed when it did: let it end or run it again, or wait an hour, and run this "
    "command again"
)
"""The end of an error about a commit under way."""


@contextmanager
def noted(
    root: Folder, note: Note, subjects: Iterable[int | str]
) -> Iterator[dict[int | str, str]]:
    """Keep notes while the block runs, and yield the path of each by its subject.

    Args:
        root: The dataset's folder.
        note: What the block does.
        subjects: Numbers of versions, and folders of generations, that it does it with.

    Raises:
        StorageError: A note cannot be written or removed.
    """
    # Named before the first is written, so that `finally` removes those that were written before an
    # error.
    paths = {
        subject: f"{naming.VERSIONS_DIR}/{_start(note, subject)}{secrets.token_hex(4)}"
        f"{TEMPORARY_SUFFIX}"
        for subject in subjects
    }
    try:
        for path in paths.values():
            # Not synced: after a crash of the machine its writer is gone, and the note needs not
            # count.
            root.write_bytes(path, b"{}", sync=False)
        yield paths
    finally:
        root.remove_all(list(paths.values()))


def is_noted(root: Folder, note: Note, subject: int | str | None, *, now: float = 0.0) -> bool:
    """Return whether a process does, or is about to do, something with a version or a generation.

    Args:
        root: The dataset's folder.
        note: What the process does.
        subject: The version or the generation; None for any.
        now: A time by the clock of the disk or store; needed without a note of one's own.

    Raises:
        StorageError: The notes cannot be listed.
    """
    notes = _notes_in(root)
    start = "" if subject is None else _start(note, subject)
    found = [when for name, when in notes.items() if name.startswith(start) and f".{note}-" in name]
    # The newest note stands for the time of now: the caller has just written one.
    since = max(now, *notes.values(), 0.0) - _LIFE_SECONDS[note]
    return max(found, default=since) > since


def free_generation(root: Folder, number: int, token: str, *, may_be_finished: bool) -> str:
    """Return the folder for what a version adds: the same one in every try with the same token.

    So a try resumes. A folder that `gc` or `erase` removes now, or did when it was killed, is left
    out.

    Args:
        root: The dataset's folder.
        number: Number of the version.
        token: As in `naming.generation_folder`.
        may_be_finished: Return also one that an earlier try has finished.

    Raises:
        StorageError: The notes or the folder cannot be listed.
    """
    names = (f"{token}x{again}" if again else token for again in count())
    folders = (naming.generation_folder(number, name) for name in names)
    return next(
        folder
        for folder in folders
        if (may_be_finished or root.num_bytes_of(f"{folder}/{naming.MANIFEST}") is None)
        and not is_noted(root, Note.REMOVE, folder)
    )


def remove_dead_notes(root: Folder) -> None:
    """Remove the notes that killed processes have left, and that count no longer.

    Raises:
        StorageError: The notes cannot be listed or removed.
    """
    notes = _notes_in(root)
    old = max(notes.values(), default=0.0) - max(_LIFE_SECONDS.values())
    root.remove_all([f"{naming.VERSIONS_DIR}/{name}" for name, when in notes.items() if when < old])


def time_at(root: Folder) -> float:
    """Return the time by the clock of the disk or store, in seconds since 1970 (UTC).

    It is that of a listing: stores may state whole seconds for a single object.

    Raises:
        StorageError: A note cannot be written, listed or removed.
    """
    with noted(root, Note.REMOVE, ["time"]) as paths:
        return root.files(naming.VERSIONS_DIR)[paths["time"].rpartition("/")[2]].modified


def _notes_in(root: Folder) -> dict[str, float]:
    """Return when each note was written, by its name."""
    stamps = root.files(naming.VERSIONS_DIR).items()
    return {name: one.modified for name, one in stamps if is_temporary(name)}


def _start(note: Note, subject: int | str) -> str:
    """Return how the names of notes begin: no file of a version begins with a dot."""
    name = f"{subject:05d}" if isinstance(subject, int) else subject.rpartition("/")[2]
    return f".{name}.{note}-"
