"""Make the bytes of `report.html` for the dataset that is about to be published."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from shardwright.errors import ShardwrightError, StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.manifest import Manifest
from shardwright.report.data import ReportData, collect
from shardwright.report.page import report_html
from shardwright.report.pictures import Picture
from shardwright.storage.folder import Folder

MAX_COMPARED = 200_000  # records of both datasets; above that only manifests are compared
_LOG = logging.getLogger("shardwright.publish")


def report_bytes(
    root: Folder,
    manifest: Manifest,
    published: Manifest | None,
    old: Folder | None,
    pictures: Sequence[Picture] | None = None,
) -> bytes:
    """Return the page: that of the published dataset if nothing has changed, else a new one.

    A page that cannot be made as a whole has neither pictures nor image sizes, because a finished
    build must not fail for it.

    Args:
        root: The folder that holds the dataset's shards and indexes.
        manifest: Its manifest, with the files of rejects.
        published: The manifest in place, if it is that of the same dataset.
        old: The folder of the dataset to compare with, such as the one that is replaced.
        pictures: The sample, if it is read already.
    """
    kept = _published_page(root, published)
    if kept is not None:
        return kept
    try:
        page = report_html(
            collect(root, manifest, pictures=pictures, difference=_difference(root, manifest, old))
        )
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        _LOG.warning("%s has no pictures, because of %s", naming.REPORT, told)
        page = report_html(ReportData(manifest, can_decode=False))
    return page.encode()


def _published_page(root: Folder, published: Manifest | None) -> bytes | None:
    """Return the page in place; None if there is none, or if it is damaged."""
    stated = published.files.get(naming.REPORT) if published is not None else None
    if stated is None:
        return None
    try:
        data = root.read_bytes(naming.REPORT)
    except StorageError:
        return None
    return data if FileContent.of(data) == stated else None


def _difference(root: Folder, manifest: Manifest, older: Folder | None) -> dict[str, Any] | None:
    """Return the changes since an older dataset; None if there is none, or it cannot be read."""
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
