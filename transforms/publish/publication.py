"""Publish a dataset from finished shards: companions first, then the manifest, and its page."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

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
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.plan_file import OutputFile
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import SplitInfo
from shardwright.format.stats_keys import RECORD_BYTES
from shardwright.format.versions import read_version
from shardwright.inspect.verify import listed_faults
from shardwright.report.pictures import Picture
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.seen_records import SeenRecords
from shardwright.transforms.output_state import Clearance, check_owner
from shardwright.transforms.plan.packing import Layout
from shardwright.transforms.promotion import promote, promoted, remove_outputs, remove_stale
from shardwright.transforms.publish.companions import companion_files, write_companions
from shardwright.transforms.publish.fail_on import NO_LIMITS, FailOn, Version, check_limits
from shardwright.transforms.publish.found_statistics import (
    sample_of,
    with_found,
    with_label_deviations,
    with_stats,
    without_found,
)
from shardwright.transforms.publish.near_duplicates import with_near_duplicates
from shardwright.transforms.publish.report_file import report_bytes
from shardwright.transforms.publish.written_shards import WrittenShards, with_timing
from shardwright.transforms.reject_files import naming_rejects
from shardwright.transforms.reject_limits import RejectLimits, check_class_rejects, check_rejects
from shardwright.transforms.versions.additions import Additions, Append, propose_versions

_LOG = logging.getLogger("shardwright.publish")


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
        fail_on: Limits of the finished dataset.
        append: The append of which these are the additions: none at all are nothing to publish.
    """

    root: Folder
    name: str
    version: str
    schema: ExampleSchema
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    limits: RejectLimits
    fail_on: FailOn = NO_LIMITS
    append: Append | None = None


def publish(
    shards: WrittenShards,
    publication: Publication,
    layout: Layout,
    clearance: Clearance,
    seen: SeenRecords | None = None,
) -> Manifest:
    """Write all companions, remove stale files, write the manifest, and then `report.html`.

    Then the dataset of an overwriting build replaces the old one. If nothing is added to a dataset,
    the folder is left empty instead. `seen` are the records of that dataset that INPUT has.

    Raises:
        BuildError: There are too many rejects, a limit of `--fail-on` is exceeded, a planned shard
            is missing or was replaced, or another build has taken over the output.
    """
    _check_complete(shards, layout)
    root = publication.root
    if publication.append and not layout.num_records:
        manifest = make_manifest(publication, shards, clearance)
        check_publication(publication, root, manifest, seen)
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
            if publication.append:  # if `gc` has removed the generation, that is the reason
                check_owner(root, clearance.fingerprint, unpublished=clearance.unpublished)
            raise
    _remove_spooled(root)
    return manifest


def check_publication(
    publication: Publication, root: Folder, manifest: Manifest, seen: SeenRecords | None
) -> None:
    """Check the limits of `--fail-on` before a manifest is written to a folder.

    Raises:
        ShardwrightError: As `check_limits`.
    """
    append, fail_on, own = publication.append, publication.fail_on, publication.root
    other = fail_on.against or (own if root != own else None)

    def versions() -> tuple[Version | None, Version]:
        old, new = None, (root, manifest)
        if append is not None and seen is not None:
            before, after = propose_versions(append, Additions.of(manifest, seen))
            old, new = (append.root, before), (append.root, after)
        return (old if other is None else (other, read_version(other))), new

    number = 0 if seen is None else seen.num_unchanged
    check_limits(fail_on, root, manifest, versions, num_unchanged=number)


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
    manifest = _with_estimate(make_manifest(publication, shards, clearance), shards, layout)
    limits, folder = publication.limits, clearance.folder
    num_records = manifest.num_records + clearance.num_unchanged
    stats = [split.stats for split in manifest.splits.values()]
    names = {*clearance.reject_files, *itertools.chain(*shards.examples.values())}
    with naming_rejects(root, sorted(names)):
        check_rejects(manifest.rejects, num_records, limits, are_checked=True)
        check_class_rejects(stats, manifest.schema.class_names, limits)
    replaces = root.num_bytes_of(naming.MANIFEST) is not None
    check_owner(root, clearance.fingerprint)
    # A repeated build keeps the manifest with its times, or each run would change a finished
    # dataset.
    published = _published_before(root, manifest)
    pictures = None
    if published is None:
        pictures = sample_of(root, manifest)
        manifest = with_found(root, with_timing(root, manifest), pictures)
    else:
        manifest = published
    if publication.settings.get("near_duplicates"):
        append = publication.append
        grown = None if append is None else (append.root, append.read_base())
        manifest = with_near_duplicates(root, manifest, clearance.near_duplicates, grown)
    replaced = publication.root if folder else None
    check_publication(publication, root, manifest, seen)
    files = {**clearance.reject_files, **shards.files}
    if naming.NEAR_DUPLICATES in manifest.files:
        files[naming.NEAR_DUPLICATES] = manifest.files[naming.NEAR_DUPLICATES]
    with suppress(MissingError):
        files[naming.PLAN] = FileContent.of(root.read_bytes(naming.PLAN))
    # Finding takes a while on large datasets, and another build may begin meanwhile, whose files
    # these steps would replace and remove.
    check_owner(root, clearance.fingerprint)
    files |= write_companions(root, companion_files(manifest), is_new=True)
    manifest = replace(manifest, files=files)
    # The files of lost workers, too, which then cannot put them in place any more.
    remove_stale(root, manifest)
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
    if manifest != published or root.num_bytes_of(naming.REPORT) is None:
        _write_report(root, manifest, publication.fail_on.against or replaced, pictures)
    return manifest


def _write_report(
    root: Folder, manifest: Manifest, old: Folder | None, pictures: Sequence[Picture] | None
) -> None:
    """Write the page of a published dataset; a page that fails is no reason not to publish.

    Raises:
        BuildError: Another build has taken over the output.
    """
    page = report_bytes(root, manifest, old, pictures)
    try:
        check_owner(root, manifest.fingerprint)  # making it may take a while
        root.write_bytes(naming.REPORT, page)
    except StorageError as error:
        _LOG.warning("%s is not written (`shardwright report` does): %s", naming.REPORT, error)


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
            shards.stats[split].to_json(),
        )
        for split, infos in sorted(shards.infos.items())
    }
    manifest = Manifest(
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
    return with_label_deviations(manifest)


def _with_estimate(manifest: Manifest, shards: WrittenShards, layout: Layout) -> Manifest:
    """Return the manifest with estimated and written bytes per stored record, if estimated."""
    if layout.estimate is None:
        return manifest
    told = {}
    for name, split in manifest.splits.items():
        planned = layout.cuts[name].num_records
        stored = planned - shards.rejects[name].total()
        sizes = {
            "estimated": round(layout.num_bytes[name] / max(planned, 1), 1),
            "written": round(split.num_bytes / max(stored, 1), 1),
        }
        told[name] = {RECORD_BYTES: sizes}
    return with_stats(manifest, told)


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
