"""Staged files: made beside a dataset, and put in place once they are compared."""

from __future__ import annotations

from shardwright.format import naming
from shardwright.storage.folder import Folder
from shardwright.transforms.promotion import remove_outputs

_PIECE_BYTES = 8 << 20


def put_in_place(folder: Folder, name: str, root: Folder) -> None:
    """Put a staged file into the dataset, atomically.

    In a store it is uploaded again, because the etag of a large object that the store copies is not
    that of the same upload, which the manifest has.
    """
    if not root.is_remote:
        folder.copy(name, root)
        return
    with folder.local_copy(name) as file, root.open_sink(name) as sink:
        while piece := file.read(_PIECE_BYTES):
            sink.write([piece])


def discard_staged(root: Folder) -> None:
    """Remove all staged files."""
    for folder in naming.STAGED_DIRS:
        remove_outputs(root.below(folder))
    root.below(naming.STAGED_DIR).remove_empty()
