"""Stage new files of a finished dataset, and note the change of its manifest that they belong to.

New files are written to `DATASET/staged/`. If the manifest stays as it is, each is put in place by
itself. If it changes, `staged/changes.json` is written once all files are there: from then on the
change is made to its end, after a crash by the next command
(`shardwright.transforms.publish.republication.finish_change`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from shardwright.errors import MissingError, NotADatasetError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.erasures import ErasedRows
from shardwright.format.json_files import Count, read_json
from shardwright.format.manifest import write_json
from shardwright.storage.folder import Folder
from shardwright.transforms.promotion import remove_outputs

_PIECE_BYTES = 8 << 20
# Folders below `staged/`: records that were made again, and shards put together from two.
PARTS = ("fresh", "mended")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a dataset, all of whose new files are staged.

    Attributes:
        replaces: Content of the manifest that it replaces.
        shards: The new shards, by file name.
        files: All staged files.
        rejects: Number of rejects of the whole dataset by reason.
        removed: Files of the dataset that go.
        erased: Rows that the new shards lack, for the manifest.
        names: Numbers of class names and words, by feature, that become placeholders.
    """

    replaces: FileContent
    shards: tuple[str, ...]
    files: tuple[str, ...]
    rejects: Mapping[str, Count]
    removed: tuple[str, ...] = ()
    erased: tuple[ErasedRows, ...] = ()
    names: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def staged_folder(root: Folder) -> Folder:
    """Return the folder for new files of a dataset."""
    return root.below(naming.STAGED_DIR)


def discard_staged(root: Folder) -> None:
    """Remove all staged files: the change first, so that a partial removal is never made."""
    root.remove(naming.CHANGES)
    staged = staged_folder(root)
    for folder in (staged, *map(staged.below, PARTS)):
        remove_outputs(folder)
    staged.remove_empty()


def note_change(root: Folder, change: Change) -> None:
    """Note a change: its files are staged, so it is made to its end from now on."""
    erased = [each.to_json() for each in change.erased]
    write_json(root, naming.CHANGES, {**asdict(change), "erased": erased})


def read_change(root: Folder) -> Change | None:
    """Return the change that a stopped command has noted; None if the manifest is another one."""
    try:
        found = read_json(root, naming.CHANGES, Change)
        manifest = FileContent.of(root.read_bytes(naming.MANIFEST))
    except (MissingError, NotADatasetError):
        return None
    if found is None or found.replaces != manifest:
        return None
    return found if all(map(_may_be_staged, (*found.files, *found.removed))) else None


def _may_be_staged(name: str) -> bool:
    """Return whether a name is that of a file beside the manifest, in the dataset's folder."""
    return naming.is_build_output(name) and name != naming.MANIFEST


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
