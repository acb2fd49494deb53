"""The statistics of a build, and `report.html`, which no manifest states and nothing checks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.errors import ShardwrightError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.report.data import ReportData, collect
from shardwright.report.page import report_html
from shardwright.report.pictures import Picture
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import check_owner
from shardwright.transforms.publish.found_statistics import sample_of, with_found
from shardwright.transforms.publish.picture_statistics import pictures_json
from shardwright.transforms.publish.publication import Companion, DatasetDraft

MAX_COMPARED = 200_000  # records of both datasets; above that only manifests are compared
_LOG = logging.getLogger("shardwright.publish")


class Report(Companion):
    """The companion that finds statistics, and writes the page of a published dataset.

    Args:
        against: The folder of a dataset whose differences it shows; None for those to the dataset
            that the build replaces, if it does.
    """

    def __init__(self, against: Folder | None = None) -> None:
        self._against = against
        self._pictures: Sequence[Picture] | None = None  # read once for both

    def describe(self, total: Mapping[str, Any]) -> Mapping[str, Any]:
        return pictures_json(total)

    def state(self, draft: DatasetDraft) -> Manifest:
        self._pictures = sample_of(draft.root, draft.manifest) if draft.is_new else None
        if self._pictures is None:
            return draft.manifest
        return with_found(draft.root, draft.manifest, self._pictures)

    def follow(self, draft: DatasetDraft) -> None:
        root, manifest = draft.root, draft.manifest
        if not draft.is_new and root.num_bytes_of(naming.REPORT) is not None:
            return
        older = self._against or draft.replaced
        page = report_bytes(root, manifest, older, self._pictures)
        try:
            check_owner(root, manifest.fingerprint)  # making it may take a while
            root.write_bytes(naming.REPORT, page)
        except StorageError as error:
            # A page that fails is no reason not to publish.
            told = "%s is not written (`shardwright report` does): %s"
            _LOG.warning(told, naming.REPORT, error)


def report_bytes(
    root: Folder, manifest: Manifest, old: Folder | None, pictures: Sequence[Picture] | None
) -> bytes:
    """Return the page of a finished dataset.

    A page that cannot be made as a whole says so and shows the manifest, because a finished build
    must not fail for it.

    Args:
        root: The folder that holds the dataset's shards and indexes.
        manifest: Its manifest.
        old: The folder of the dataset to compare with, such as the one that is replaced.
        pictures: The sample of its images, if it is read already.
    """
    try:
        difference = _difference(root, manifest, old)
        data = collect(root, manifest, pictures=pictures, difference=difference)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        _LOG.warning("%s has no pictures, because of %s", naming.REPORT, told)
        data = ReportData(manifest, fault=told)
    return report_html(data).encode()


def _difference(root: Folder, manifest: Manifest, older: Folder | None) -> dict[str, Any] | None:
    """Return the changes since an older dataset; None without one, or if it cannot be read."""
    if older is None:
        return None
    # Late, because most builds replace nothing.
    from shardwright.inspect.diff import OpenedDataset, compare, compare_manifests

    try:
        old, new = OpenedDataset.at(older), OpenedDataset(root, manifest)
        if old.manifest.num_records + manifest.num_records > MAX_COMPARED:
            return compare_manifests(old, new)
        return compare(old, new).summary
    except ShardwrightError:
        return None
