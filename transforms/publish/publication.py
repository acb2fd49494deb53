"""Publish a dataset from finished shards: its companions first, then the manifest.

What is optional hangs on two seams that `Publication` lists: a `PublishCheck` can stop a build, and
a `Companion` adds statistics and files.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from shardwright.errors import (
    BuildError,
    ExistsError,
    MissingError,
    NotADatasetError,
    ShardwrightError,
    StorageError,
)
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.json_files import MAX_BYTES, read_json
from shardwright.format.listed_files import listed_faults
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.plan_file import OutputFile
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import SplitInfo
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import Clearance, SeenRecords, check_owner
from shardwright.transforms.plan.packing import Layout
from shardwright.transforms.promotion import promote, promoted, remove_outputs, stale_files
from shardwright.transforms.publish.statistics import as_published, without_found
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.reject_files import naming_rejects
from shardwright.transforms.reject_limits import RejectLimits, check_rejects


@dataclass(frozen=True, slots=True)
class DatasetDraft:
    """A dataset whose shards are finished, before and just after its manifest is written.

    Attributes:
        root: The folder that holds the shards: the dataset's, or `next/` in it.
        dataset: The dataset's folder.
        manifest: The manifest, with what companions have stated so far.
        seen: The records of a dataset that grows which INPUT has; None for other builds.
        is_new: The manifest is not published yet; else it has all statistics, which stay.
        near_duplicates: As in `Clearance`.
    """

    root: Folder
    dataset: Folder
    manifest: Manifest
    seen: SeenRecords | None = None
    is_new: bool = True
    near_duplicates: tuple[str, ...] = ()

    @property
    def replaced(self) -> Folder | None:
        """The folder of the dataset that this one replaces, if it is built beside one."""
        return self.dataset if self.dataset != self.root else None


PublishCheck: TypeAlias = Callable[[DatasetDraft], None]
"""Called before the manifest is written; raises a `ShardwrightError` to stop the build."""


class Companion:
    """A part of a dataset beside its shards. A method that a class leaves out adds nothing."""

    def describe(self, total: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return statistics that follow from the sums over a split's shards (`add_part`)."""

    def state(self, draft: DatasetDraft) -> Manifest:
        """Return the manifest with statistics, before it is checked and written.

        Raises:
            StorageError: A file of the dataset cannot be read.
        """
        return draft.manifest

    def files(self, manifest: Manifest) -> Mapping[str, bytes] | None:
        """Return files that follow from the manifest alone, by name, to be written before it."""

    def follow(self, draft: DatasetDraft) -> None:
        """Write what nothing waits for, once the dataset is published.

        Raises:
            BuildError: Another build has taken over the output.
        """


@dataclass(frozen=True, slots=True)
class Publication:
    """The inputs of publishing besides the shards.

    Attributes:
        root: The dataset's folder.
        name: The dataset's name.
        version: The user's version.
        schema: The features, without learned vocabularies.
        settings: The options that decide the shards' bytes.
        provenance: The dataset's origin.
        limits: The rejects that the build accepts.
        companions: What is published with it, in the order in which they state it.
        checks: Asked in turn, once that is known.
        grows: The shards are additions to a dataset: none at all are nothing to publish.
    """

    root: Folder
    name: str
    version: str
    schema: ExampleSchema
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    limits: RejectLimits
    companions: Sequence[Companion] = ()
    checks: Sequence[PublishCheck] = ()
    grows: bool = False

    def describe(self, total: Mapping[str, Any]) -> dict[str, Any]:
        """Return the statistics that companions add to those of every dataset."""
        found: dict[str, Any] = {}
        for companion in self.companions:
            found.update(companion.describe(total) or {})
        return found

    def check(self, root: Folder, manifest: Manifest, seen: SeenRecords | None) -> None:
        """Ask all checks; `root` holds the shards. Raises `ShardwrightError` as they do."""
        for check in self.checks:
            check(DatasetDraft(root, self.root, manifest, seen))


def publish(
    shards: WrittenShards,
    publication: Publication,
    layout: Layout,
    clearance: Clearance,
    seen: SeenRecords | None = None,
) -> Manifest:
    """Write all companions, remove stale files, write the manifest, and then what follows it.

    Then the dataset of an overwriting build replaces the old one. If nothing is added to a dataset,
    the folder is left empty instead. `seen` are the records of that dataset that INPUT has.

    Raises:
        BuildError: There are too many rejects, a check fails, a planned shard is missing or was
            replaced, or another build has taken over the output.
    """
    _check_complete(shards, layout)
    root = publication.root
    if publication.grows and not layout.num_records:
        manifest = make_manifest(publication, shards, clearance)
        publication.check(root, manifest, seen)
        # Before files are removed: they may be of another build by now.
        check_owner(root, clearance.fingerprint)
        remove_outputs(root)
        return manifest
    if clearance.folder:
        manifest = _replace(publication, shards, layout, clearance)
    else:
        try:
            manifest = _publish_in(root, publication, shards, layout, clearance, seen)
        except StorageError:
            if publication.grows:  # if `gc` has removed the generation, that is the reason
                check_owner(root, clearance.fingerprint, unpublished=clearance.unpublished)
            raise
    _remove_spooled(root)
    return manifest


def _replace(
    publication: Publication, shards: WrittenShards, layout: Layout, clearance: Clearance
) -> Manifest:
    """Publish beside a dataset, and replace that, unless another worker does both before."""
    root, fingerprint = publication.root, clearance.fingerprint
    beside = root.below(clearance.folder)
    if read_json(beside, naming.PLAN, OutputFile) is None:  # a repeated call
        return promoted(root, fingerprint)
    try:
        _publish_in(beside, publication, shards, layout, clearance)
        check_owner(beside, fingerprint)
        return promote(root, fingerprint)
    except ShardwrightError:
        # The plan goes when a promotion ends, so without it another worker has done all this.
        if read_json(beside, naming.PLAN, OutputFile) is not None:
            raise
        remove_outputs(beside)  # written after the other one had moved the shards
        beside.remove_empty()
        return promoted(root, fingerprint)


def _publish_in(
    root: Folder,
    publication: Publication,
    shards: WrittenShards,
    layout: Layout,
    clearance: Clearance,
    seen: SeenRecords | None = None,
) -> Manifest:
    manifest = make_manifest(publication, shards, clearance)
    limits = publication.limits
    num_records = manifest.num_records + clearance.num_unchanged
    names = {*clearance.reject_files, *itertools.chain(*shards.examples.values())}
    with naming_rejects(root, sorted(names)):
        check_rejects(manifest.rejects, num_records, limits, are_checked=True)
    replaces = root.num_bytes_of(naming.MANIFEST) is not None
    check_owner(root, clearance.fingerprint)
    # A repeated build keeps the manifest with its times, or each run would change a finished
    # dataset.
    published = _published_before(root, manifest)
    draft = DatasetDraft(
        *(root, publication.root, published or manifest, seen),
        is_new=published is None,
        near_duplicates=clearance.near_duplicates,
    )
    for companion in publication.companions:
        draft = replace(draft, manifest=companion.state(draft))
    manifest = draft.manifest
    publication.check(root, manifest, seen)
    files = {**clearance.reject_files, **shards.files}
    if naming.NEAR_DUPLICATES in manifest.files:
        files[naming.NEAR_DUPLICATES] = manifest.files[naming.NEAR_DUPLICATES]
    with suppress(MissingError):
        files[naming.PLAN] = FileContent.of(root.read_bytes(naming.PLAN))
    # Finding takes a while on large datasets, and another build may begin meanwhile, whose files
    # these steps would replace and remove.
    check_owner(root, clearance.fingerprint)
    files |= _write_companions(root, publication, manifest)
    manifest = replace(manifest, files=files)
    # The files of lost workers, too, which then cannot put them in place any more.
    stale = stale_files(root, manifest)
    # After the list: a build that takes over writes its plan first, so none of its files is in it.
    check_owner(root, clearance.fingerprint)
    root.remove_all(stale)
    # A worker that its runner gave up may have changed or removed one meanwhile.
    for fault in listed_faults(root, manifest):
        raise BuildError(
            f"{root}: {fault}; another worker or build has changed it: run the build again"
        )
    # Again: else one that has taken over meanwhile would write into a published dataset.
    check_owner(root, clearance.fingerprint)
    if manifest != published and not _commit(root, manifest, replaces=replaces):
        # Once more, now with the manifest that was first, whose times and sample stay.
        return _publish_in(root, publication, shards, layout, clearance, seen)
    for companion in publication.companions:
        companion.follow(replace(draft, manifest=manifest, is_new=manifest != published))
    return manifest


def _write_companions(
    root: Folder, publication: Publication, manifest: Manifest
) -> dict[str, FileContent]:
    """Write the companions' files, and return their contents by name."""
    files: dict[str, bytes] = {}
    for companion in publication.companions:
        files.update(companion.files(manifest) or {})
    # At once: each of them waits for a disk, or twice for a store.
    with ThreadPoolExecutor(len(files) or 1) as pool:
        for _ in pool.map(lambda file: root.write_if_new(*file), files.items()):
            pass
    return {name: FileContent.of(data) for name, data in files.items()}


def _commit(root: Folder, manifest: Manifest, *, replaces: bool) -> bool:
    """Write the manifest. Of two builds of the same output, only the first can publish.

    Returns:
        False if a build of the same plan was first: its times and sample are kept.

    Raises:
        BuildError: A build of another plan was first, or the manifest is too long.
    """
    data = manifest.to_bytes()
    if len(data) > MAX_BYTES:
        raise BuildError(
            f"the manifest would have {len(data):,} bytes, but readers open at most {MAX_BYTES:,}: "
            "use fewer shards or smaller vocabularies"
        )
    # `--if-exists overwrite` has checked that this is its dataset; nothing there is anybody else's.
    if replaces:
        root.write_bytes(naming.MANIFEST, data)
        return True
    try:
        root.create_bytes(naming.MANIFEST, data)
    except ExistsError as error:
        if _published_before(root, manifest) is not None:
            return False
        raise BuildError(
            f"another build has published a dataset at {root}: "
            "run this build again to compare with it"
        ) from error
    return True


def _published_before(root: Folder, manifest: Manifest) -> Manifest | None:
    """Return the published manifest if it differs in provenance, shared images and files only."""
    try:
        found = read_manifest(root)
    except NotADatasetError:  # none, or damaged, so it is rewritten
        return None
    return found if _comparable(found) == _comparable(manifest) else None


def _comparable(manifest: Manifest) -> dict[str, Any]:
    splits = {
        name: replace(
            split,
            stats=without_found(split.stats),
            # Those of copied objects are not in the sidecars.
            shards=tuple(replace(shard, etag=None) for shard in split.shards),
        )
        for name, split in manifest.splits.items()
    }
    return replace(manifest, splits=splits, provenance={}, files={}).to_json()


def make_manifest(
    publication: Publication, shards: WrittenShards, clearance: Clearance
) -> Manifest:
    """Return the manifest of these shards."""
    rejects = sum(shards.rejects.values(), Counter(clearance.rejects))
    splits = {
        split: SplitInfo(
            split,
            tuple(sorted(infos, key=lambda info: info.index)),
            {**as_published(total := shards.stats[split]), **publication.describe(total)},
        )
        for split, infos in sorted(shards.infos.items())
    }
    return Manifest(
        name=publication.name,
        version=publication.version,
        schema=publication.schema.with_vocabularies(clearance.vocabularies),
        splits=splits,
        rejects=dict(sorted(rejects.items())),
        num_inputs=sum(split.num_records for split in splits.values()) + rejects.total(),
        settings=publication.settings,
        fingerprint=clearance.fingerprint,
        provenance=publication.provenance,
    )


def _check_complete(shards: WrittenShards, layout: Layout) -> None:
    infos = [(split, info.index) for split, infos in shards.infos.items() for info in infos]
    written = set(infos)
    planned = {
        (split, index) for split, cuts in layout.cuts.items() for index in range(cuts.num_shards)
    }
    # Also by number: a runner that delivers a summary twice would count its records twice.
    if written != planned or len(infos) != len(planned):
        missing = sorted(planned - written)[:3]
        raise BuildError(
            f"{len(infos)} shards were written, but {len(planned)} are planned "
            f"(missing: {missing}): run the build again"
        )


def _remove_spooled(root: Folder) -> None:
    """Remove spooled bytes once all shards are written; a later build reuses the listings."""
    kept = (".parquet", naming.HASHES_SUFFIX)
    names = (name for name in root.names(naming.SPOOL_DIR) if not name.endswith(kept))
    root.remove_all([f"{naming.SPOOL_DIR}/{name}" for name in names])
