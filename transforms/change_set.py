"""Change a finished dataset: stage new files, note the change, and make it to its end.

New files are written to `DATASET/staged/`. If the manifest stays as it is, each is put in place by
itself. If it changes, `staged/changes.json` is written once all files are there: from then on the
change is made to its end, after a crash by the next command (`finish_change`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shardwright.errors import MissingError, NotADatasetError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.erasures import ErasedRows
from shardwright.format.json_files import Count, read_json
from shardwright.format.manifest import Manifest, write_json
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.promotion import read_in_place, remove_outputs
from shardwright.transforms.publish.republication import republish
from shardwright.transforms.write.rewritten_shards import rewrite_shard

_PIECE_BYTES = 8 << 20


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


class ChangeSet:
    """The new files of a finished dataset, until they are in place.

    Args:
        root: The dataset's folder, without staged files.
        manifest: Its manifest.

    Attributes:
        staged: The folder for new files.
        rejects: Number of rejects of the whole dataset by reason, with the new files.
        erased: Rows that new shards lack, for the manifest.
    """

    def __init__(self, root: Folder, manifest: Manifest) -> None:
        self._root, self._manifest = root, manifest
        self.staged = root.below(naming.STAGED_DIR)
        self.rejects = Counter(manifest.rejects)
        self.erased: list[ErasedRows] = []
        self._shards: list[str] = []
        self._files: list[str] = []
        self._removed: list[str] = []

    def rewrite(self, name: ShardName, **how: Any) -> None:
        """Stage a shard with its index, rejects and signals; `how` as for `rewrite_shard`."""
        summary = rewrite_shard(self._root, self._manifest, name, to=self.staged, **how)
        self._shards.append(name.shard)
        self._files += [name.shard, name.sidecar]
        self.add(name.rejects, summary.reject_file)
        self.add(name.signals, summary.signals_file)

    def add(self, file: str, content: FileContent | None) -> None:
        """Add a staged file; without content, it leaves the dataset."""
        if content is not None:
            self._files.append(file)
        elif file in self._manifest.files:
            self._removed.append(file)

    def commit(self, names: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Note the change, and make it to its end: a crash in between does not undo it any more.

        Args:
            names: Numbers of class names and words, by feature, that become placeholders.
        """
        change = Change(
            # The manifest as it is now: the change is dropped if another command publishes before
            # it is noted.
            FileContent.of(self._root.read_bytes(naming.MANIFEST)),
            tuple(self._shards),
            tuple(self._files),
            {reason: count for reason, count in self.rejects.items() if count},
            tuple(self._removed),
            tuple(self.erased),
            names or {},
        )
        note_change(self._root, change)
        finish_change(self._root)


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
    # Of an earlier change that has come to its end, or of a dataset that was overwritten since.
    if found is None or found.replaces != manifest:
        return None
    # The note is in the dataset's folder, which may be a stranger's: its names must not lead to
    # other files.
    return found if all(map(_may_be_staged, (*found.files, *found.removed))) else None


def _may_be_staged(name: str) -> bool:
    """Return whether a name is that of a file beside the manifest, in the dataset's folder."""
    return naming.is_build_output(name) and name != naming.MANIFEST


def finish_change(root: Folder) -> bool:
    """Make a noted change of a dataset to its end, and discard any other staged files.

    Every step can be repeated, so a crash at any of them is made good by the next call.

    Args:
        root: The dataset's folder.

    Returns:
        True if there was a change.

    Raises:
        BuildError: Files of the dataset are in `next/`.
        NotADatasetError: The folder has no finished dataset.
        StorageError: A file cannot be read or written.
    """
    change = read_change(root)
    if change is not None:
        # The manifest before the change: it still states the old shards, whose statistics are
        # replaced.
        manifest = read_in_place(root)
        for name in change.files:
            # Copied, not moved, so that a repetition after a stop finds all of them.
            root.below(naming.STAGED_DIR).copy(name, root)
        root.remove_all(change.removed)
        # Last of all steps it writes the manifest. From then on `replaces` does not fit, and the
        # note is void.
        republish(root, _with_change(root, manifest, change), set(change.shards))
    discard_staged(root)
    return change is not None


def _with_change(root: Folder, manifest: Manifest, change: Change) -> Manifest:
    """Return the manifest with the files of a change that is in place, but for its shards."""
    files = {name: each for name, each in manifest.files.items() if name not in change.removed}
    for name in filter(naming.is_companion, change.files):
        files[name] = FileContent.of(root.read_bytes(name))
    return replace(
        manifest,
        schema=manifest.schema.without_names(change.names) if change.names else manifest.schema,
        rejects=dict(sorted(change.rejects.items())),
        files=files,
        erased=(*manifest.erased, *change.erased),
    )


def discard_staged(root: Folder) -> None:
    """Remove all staged files: the change first, so that a partial removal is never made."""
    root.remove(naming.CHANGES)
    for folder in naming.STAGED_DIRS:
        remove_outputs(root.below(folder))
    root.below(naming.STAGED_DIR).remove_empty()


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
