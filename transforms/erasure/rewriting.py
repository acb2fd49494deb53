"""Rewrite the shards and lists of a generation without some ids, by a noted change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.erasures import ErasedRows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.parquet import read_rows
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.traces import (
    Traces,
    is_made,
    without_near,
)
from shardwright.transforms.erasure.wanted_ids import WantedIds, named_by
from shardwright.transforms.publish.republication import finish_change
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject, count_reasons
from shardwright.transforms.staged_files import Change, note_change, staged_folder
from shardwright.transforms.write.rewritten_shards import listed_rejects, rewrite_shard


def rewrite_generation(root: Folder, traces: Traces, ids: WantedIds) -> None:
    """Write a generation's files again without some ids, and its manifest.

    A stop leaves it as it was, or with a noted change that the next call of `finish_change` ends.

    Args:
        root: The dataset's folder.
        traces: What the generation holds of the ids. It has no staged files.
        ids: The ids.

    Raises:
        RecordFault: A record that stays is damaged.
        StorageError: A file cannot be read or written.
    """
    below = root.below(traces.folder)
    staging = _Staging(below, traces.manifest, ids)
    for name in traces.rows:
        staging.add_shard(name, traces)
    for file in traces.lists:
        staging.add_list(file)
    note_change(below, staging.change())
    finish_change(below)


def replace_names(
    below: Folder, manifest: Manifest, numbers: Mapping[str, tuple[int, ...]]
) -> None:
    """Replace class names and words of a generation by placeholders.

    Args:
        below: The generation's folder.
        manifest: Its manifest.
        numbers: The numbers of the names, by feature.

    Raises:
        StorageError: A file cannot be read or written.
    """
    replaced = FileContent.of(below.read_bytes(naming.MANIFEST))
    note_change(below, Change(replaced, (), (), manifest.rejects, names=numbers))
    finish_change(below)


class _Staging:
    """The new files of a generation.

    Args:
        below: The generation's folder.
        manifest: Its manifest.
        ids: The ids that its new files do not have.
    """

    def __init__(self, below: Folder, manifest: Manifest, ids: WantedIds) -> None:
        self._below, self._manifest, self._ids = below, manifest, ids
        self._staged = staged_folder(below)
        self._rejects = Counter(manifest.rejects)
        self._shards: list[str] = []
        self._files: list[str] = []
        self._removed: list[str] = []
        self._erased: list[ErasedRows] = []

    def add_shard(self, name: ShardName, traces: Traces) -> None:
        """Write a shard, its index, its rejects and its signals."""
        path, rows = (f"{traces.folder}/" if traces.folder else "") + name.shard, traces.rows[name]
        summary = rewrite_shard(
            self._below,
            self._manifest,
            name,
            to=self._staged,
            without=traces.ids.get(path, ()),
            listed=self._left_in(name.rejects),
        )
        self._shards.append(name.shard)
        self._files += [name.shard, name.sidecar]
        for file, content in (
            (name.rejects, summary.reject_file),
            (name.signals, summary.signals_file),
        ):
            self._note(file, is_left=content is not None)
        if len(rows):
            before = self._manifest.splits[name.split].shards[name.index].content
            self._erased.append(ErasedRows(name.shard, *before, rows.astype("<u4").tobytes()))

    def add_list(self, file: str) -> None:
        """Write a file of rejects that is of no shard, or the list of near-duplicates.

        The page is always made again, without its comparison with another dataset.
        """
        if file == naming.REPORT:
            return
        if file == naming.NEAR_DUPLICATES:
            buffer = pa.BufferOutputStream()
            rows = without_near(read_rows(self._below, naming.NEAR_DUPLICATES), self._ids)
            pq.write_table(rows, buffer, compression="zstd")
            self._staged.write_bytes(file, buffer.getvalue().to_pybytes())
            self._files.append(file)
        else:
            content = write_rejects(self._staged, file, self._left_in(file))
            self._note(file, is_left=content is not None)

    def change(self) -> Change:
        """Return the change that puts these files in place."""
        replaced = FileContent.of(self._below.read_bytes(naming.MANIFEST))
        return Change(
            replaced,
            tuple(self._shards),
            tuple(self._files),
            {reason: count for reason, count in self._rejects.items() if count},
            tuple(self._removed),
            tuple(self._erased),
        )

    def _note(self, file: str, *, is_left: bool) -> None:
        if is_left:
            self._files.append(file)
        elif file in self._manifest.files:
            self._removed.append(file)

    def _left_in(self, file: str) -> list[Reject]:
        """Return the rejects that stay in a file, and subtract the others from the counts.

        A reject that names an erased image as its original is the same picture, so it goes, too.
        """
        listed = listed_rejects(self._below, self._manifest, file)
        made = is_made(self._manifest)
        left = [reject for reject in listed if not named_by(reject, self._ids, is_made=made)]
        self._rejects.subtract(count_reasons(listed))
        self._rejects.update(count_reasons(left))
        return left
