"""Erase records from a dataset: the order of the steps, each of which can be repeated.

Every round looks through all generations on disk, also those that no version names, so that the
end of a run has seen what others have written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from shardwright.errors import BuildError, UsageError
from shardwright.format import naming
from shardwright.format.contents import FileContent, content_of
from shardwright.format.erasures import ErasedRows
from shardwright.format.manifest import Manifest, shard_contents, shard_of
from shardwright.format.parquet import parquet_bytes, read_rows
from shardwright.format.versions import number_of, read_version, read_versions
from shardwright.storage.folder import Folder
from shardwright.transforms.change_set import ChangeSet, finish_change
from shardwright.transforms.erasure.leftovers import find_leftovers, remove_leftovers
from shardwright.transforms.erasure.names import lost_names, names_of, numbers_of
from shardwright.transforms.erasure.receipt import Receipt
from shardwright.transforms.erasure.traces import (
    Traces,
    find_traces,
    finished_generations,
    is_made,
    without_near,
)
from shardwright.transforms.erasure.wanted_ids import HashedIds, WantedIds, named_by
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject, count_reasons
from shardwright.transforms.versions.present import Generations, present_version
from shardwright.transforms.write.rewritten_shards import listed_rejects

_MOST_ROUNDS = 5


@dataclass(frozen=True, eq=False)
class Findings:
    """The parts of a dataset that have to change.

    Attributes:
        traces: Generations that hold something of the ids.
        leftovers: Files of builds that have not ended.
        versions: Versions that do not name the shards as they are, by number, as they should be.
    """

    traces: tuple[Traces, ...]
    leftovers: tuple[str, ...]
    versions: Mapping[int, Manifest]

    @property
    def is_clean(self) -> bool:
        return not (self.traces or self.leftovers or self.versions)


def look_through(root: Folder, ids: WantedIds) -> Findings:
    """Return what a dataset holds of some ids, and of stopped runs.

    Raises:
        BuildError: A build is replacing the dataset.
        NotADatasetError: There is no finished dataset, or a manifest is damaged.
        StorageError: A file cannot be read.
    """
    read_version(root)
    finished = finished_generations(root)
    traces = [find_traces(root, folder, manifest, ids) for folder, manifest in finished.items()]
    versions = {}
    generations = Generations(root)
    for version in read_versions(root):
        present = present_version(root, version, generations)
        if present != version:
            versions[number_of(version)] = present
    # By what is found, not by rows: a shard may have a reject with the id and no record.
    found = tuple(each for each in traces if each.ids)
    return Findings(found, tuple(find_leftovers(root, finished)), versions)


def check_some_stay(root: Folder, look: Findings) -> None:
    """Check that the newest version keeps a record.

    Raises:
        UsageError: It does not.
    """
    newest = read_version(root)
    newest = look.versions.get(number_of(newest), newest)
    rows = {
        replace(name, folder=traces.folder): found
        for traces in look.traces
        for name, found in traces.rows.items()
    }
    lost = sum(
        # Rows that the version has lost before do not count: they are in the file, not in the
        # version.
        len(set(rows[name].tolist()).difference(info.removed_rows.tolist()))
        for name, info in newest.named_shards()
        if name in rows
    )
    if lost and lost == newest.num_records:
        raise UsageError(
            f"no record of {root} would be left: remove the dataset itself, with its caches and "
            "the old versions of its objects"
        )


class _Step(NamedTuple):
    """A step of a round: files as they are before it, and what it does."""

    before: Mapping[str, FileContent]
    run: Callable[[], None]


def erase(root: Folder, ids: WantedIds, receipt: Receipt, save: Callable[[], None]) -> None:
    """Take records out of all generations and versions, and remove what may hold them.

    A stopped run goes on when it is repeated with its receipt.

    Args:
        root: The dataset's folder.
        ids: The ids of the records.
        receipt: Gets all that is found and changed.
        save: Writes the receipt; called before each change.

    Raises:
        BuildError: Others write to the dataset all the time, or are replacing it.
        UsageError: The newest version would have no record left.
        StorageError: A file is damaged, or cannot be read or written.
    """
    for folder in finished_generations(root):
        # First: a generation of a stopped run may have its new shards in place and its old
        # manifest, which no look could read.
        finish_change(root.below(folder))
    for _ in range(_MOST_ROUNDS):
        look = look_through(root, ids)
        check_some_stay(root, look)
        # Noted before anything is changed: after a stop, the next run no longer finds what this one
        # has removed.
        for traces in look.traces:
            receipt.add_found(traces.ids)
            if not receipt.keeps_names:
                receipt.add_names(names_of(root, traces))
        receipt.add_numbers(_versions_with(root, look.traces), [one.folder for one in look.traces])
        is_done = True
        # Names come in a round of their own, once the records are gone: only then is it known which
        # names no record has.
        for step in _name_steps(root, receipt) if look.is_clean else _steps(root, look, ids):
            is_done = False
            # Before each step: a receipt must never lack a file that was changed.
            receipt.add_before(step.before)
            save()
            step.run()
        # A round without a step: nothing was left, also of what others have written during the
        # round before.
        if is_done:
            receipt.after = dict(_changed(root, receipt.before))
            receipt.before = {path: receipt.before[path] for path in receipt.after}
            return
    raise BuildError(f"others write to {root} all the time: stop them, and run this command again")


def _steps(root: Folder, look: Findings, ids: WantedIds) -> Iterable[_Step]:
    # Plans are among them, so a build that still runs stops before its files are rewritten under
    # it.
    if look.leftovers:
        # A file may go meanwhile, if its build still runs.
        found = {path: content_of(root, path) for path in look.leftovers}
        before = {path: content for path, content in found.items() if content is not None}
        yield _Step(before, partial(remove_leftovers, root, look.leftovers))
    for traces in look.traces:
        before = _contents_of(root, traces)
        yield _Step(before, partial(_rewrite_generation, root, traces, ids))
    for number, version in look.versions.items():
        yield _version_step(root, number, version)


def _rewrite_generation(root: Folder, traces: Traces, ids: WantedIds) -> None:
    """Write a generation's files again without some ids, and its manifest.

    Args:
        root: The dataset's folder.
        traces: What the generation holds of the ids. It has no staged files.
        ids: The ids.

    Raises:
        RecordFault: A record that stays is damaged.
        StorageError: A file cannot be read or written.
    """
    below, manifest = root.below(traces.folder), traces.manifest
    change = ChangeSet(below, manifest)

    def left_in(file: str) -> list[Reject]:
        """Return the rejects that stay in a file, and subtract the others from the counts.

        A reject that names an erased image as its original is the same picture, so it goes, too.
        """
        listed, made = listed_rejects(below, manifest, file), is_made(manifest)
        left = [reject for reject in listed if not named_by(reject, ids, is_made=made)]
        # The counts are of the whole dataset, of which this file is a part.
        change.rejects.subtract(count_reasons(listed))
        change.rejects.update(count_reasons(left))
        return left

    for name, rows in traces.rows.items():
        found = traces.ids.get(replace(name, folder=traces.folder).shard, ())
        change.rewrite(name, without=found, listed=left_in(name.rejects))
        if len(rows):
            content = shard_of(manifest, name).content
            change.erased.append(ErasedRows(name.shard, *content, rows.astype("<u4").tobytes()))
    for file in traces.lists:
        if file == naming.NEAR_DUPLICATES:
            data = parquet_bytes(without_near(read_rows(below, file), ids))
            change.staged.write_bytes(file, data)
            change.add(file, FileContent.of(data))
        elif file != naming.REPORT:  # made again, without its comparison with another dataset
            change.add(file, write_rejects(change.staged, file, left_in(file)))
    change.commit()


def _name_steps(root: Folder, receipt: Receipt) -> Iterable[_Step]:
    """Yield the steps that replace the names that only erased records had."""
    finished = finished_generations(root)
    versions = [each for each in read_versions(root) if number_of(each) > 1]
    lost = find_lost_names(root, finished, receipt)
    for folder, manifest in finished.items():
        if numbers := numbers_of(manifest.schema, lost):
            before = _contents_of(root, Traces(folder, manifest, {}, (), {}))
            change = ChangeSet(root.below(folder), manifest)
            yield _Step(before, partial(change.commit, names=numbers))
    for version in versions:
        if numbers := numbers_of(version.schema, lost):
            changed = replace(version, schema=version.schema.without_names(numbers))
            yield _version_step(root, number_of(version), changed)


def find_lost_names(
    root: Folder, finished: Mapping[str, Manifest], receipt: Receipt
) -> dict[str, set[str]]:
    """Return the names of a receipt that are still there, and that no record has.

    Raises: as `lost_names`.
    """
    if not receipt.names:
        return {}
    schemas = [each.schema for each in (*finished.values(), *read_versions(root))]
    return lost_names(root, finished, schemas, HashedIds(receipt.salt, receipt.names))


def _version_step(root: Folder, number: int, version: Manifest) -> _Step:
    path = naming.version_file(number)
    content = content_of(root, path)
    before = {path: content} if content is not None else {}
    return _Step(before, partial(root.write_bytes, path, version.to_bytes()))


def _versions_with(root: Folder, traces: Iterable[Traces]) -> list[int]:
    touched = {replace(name, folder=one.folder) for one in traces for name in one.rows}
    return [
        number_of(version)
        for version in read_versions(root)
        if not touched.isdisjoint(name for name, _ in version.named_shards())
    ]


def _contents_of(root: Folder, traces: Traces) -> dict[str, FileContent]:
    """Return the contents of the files of a generation that may change, by path."""
    manifest, below = traces.manifest, root.below(traces.folder)
    shards = {name.signals for name, _ in manifest.named_shards()}
    shards |= {name.rejects for name, _ in manifest.named_shards()}
    found = {path: content for path, content in manifest.files.items() if path not in shards}
    for name in traces.rows:
        found |= shard_contents(manifest, name)
    found[naming.MANIFEST] = FileContent.of(below.read_bytes(naming.MANIFEST))
    return {f"{traces.folder}/{path}" if traces.folder else path: found[path] for path in found}


def _changed(
    root: Folder, before: Mapping[str, FileContent]
) -> Iterable[tuple[str, FileContent | None]]:
    """Yield the files that are no longer as they were, with their contents."""
    stated: dict[str, FileContent] = {}
    for folder, manifest in finished_generations(root).items():
        prefix = f"{folder}/" if folder else ""
        stated |= {prefix + path: content for path, content in manifest.files.items()}
        stated |= {prefix + name.shard: info.content for name, info in manifest.named_shards()}
    for path, content in before.items():
        # From the manifests where they state it, because a shard of gigabytes would be read for its
        # checksum.
        after = stated[path] if path in stated else content_of(root, path)
        if after != content:
            yield path, after
