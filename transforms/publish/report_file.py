"""Write `report.html` of the dataset that is about to be published.

The page has times, so two publishers of one dataset make different pages. Its last line says which
dataset it describes, so that the second publisher keeps the page of the first one. Otherwise it
could replace the page between the manifest of the first one and the copies of `promotion.py`. The
first one's manifest is kept, too.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import google_crc32c

from shardwright.errors import ExistsError, NotADatasetError, ShardwrightError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.report.data import ReportData, collect
from shardwright.report.page import report_html
from shardwright.report.pictures import Picture
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.found_statistics import without_found

MAX_COMPARED = 200_000  # records of both datasets; above that only manifests are compared
_LOG = logging.getLogger("shardwright.publish")


def place_report(
    root: Folder, manifest: Manifest, old: Folder | None, pictures: Sequence[Picture] | None
) -> bytes:
    """Return the dataset's page in `root`; put one there if there is none, or a damaged one.

    Args: as those of `report_bytes`.

    Raises:
        StorageError: The page cannot be written.
    """
    digest = digest_of(manifest)
    kept = _page_in_place(root, digest)
    if kept is not None:
        return kept
    page = report_bytes(root, manifest, old, pictures)
    try:
        # Not written over: another publisher's manifest may state that page already.
        root.create_bytes(naming.REPORT, page)
    except ExistsError:  # of another publisher, or damaged
        kept = _page_in_place(root, digest)
        if kept is not None:
            return kept
        root.write_bytes(naming.REPORT, page)
    return page


def report_bytes(
    root: Folder, manifest: Manifest, old: Folder | None, pictures: Sequence[Picture] | None
) -> bytes:
    """Return a new page.

    A page that cannot be made as a whole says so and shows the manifest, because a finished build
    must not fail for it.

    Args:
        root: The folder that holds the dataset's shards and indexes.
        manifest: Its manifest, with the files of rejects.
        old: The folder of the dataset to compare with, such as the one that is replaced.
        pictures: The sample of its images, if it is read already.
    """
    try:
        difference, older = _difference(root, manifest, old)
        data = collect(root, manifest, pictures=pictures, difference=difference, older=older)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        _LOG.warning("%s has no pictures, because of %s", naming.REPORT, told)
        data = ReportData(manifest, fault=told)
    return _with_seal(report_html(data).encode(), digest_of(manifest))


def _with_seal(page: bytes, digest: str) -> bytes:
    """Return a page whose last line has the dataset's digest, and the CRC32C of all above it."""
    return page + b"<!-- of dataset %s, crc32c %08x -->\n" % (
        digest.encode(),
        google_crc32c.value(page),
    )


def _page_in_place(root: Folder, digest: str) -> bytes | None:
    """Return the page in place; None if there is none, or a damaged one, or of other shards."""
    try:
        data = root.read_bytes(naming.REPORT)
    except StorageError:
        return None
    # A page without a seal loses its last byte here, and does not match below.
    page = data[: data.rfind(b"<!-- of dataset ")]
    return data if _with_seal(page, digest) == data else None


def _difference(
    root: Folder, manifest: Manifest, older: Folder | None
) -> tuple[dict[str, Any] | None, tuple[Folder, Manifest] | None]:
    """Return the changes since an older dataset, and that one; None if it cannot be read."""
    if older is None:
        return None, None
    # Late, because most builds replace nothing.
    from shardwright.inspect.diff import OpenedDataset, compare, compare_manifests

    try:
        old, new = OpenedDataset.at(older), OpenedDataset(root, manifest)
        if old.manifest.num_records + manifest.num_records > MAX_COMPARED:
            return compare_manifests(old, new), old
        return compare(old, new).summary, old
    except ShardwrightError:
        return None, None


def published_before(root: Folder, manifest: Manifest) -> Manifest | None:
    """Return the published manifest if it differs in provenance, shared images and files only."""
    try:
        found = read_manifest(root)
    except NotADatasetError:  # none, or damaged, so it is rewritten
        return None
    return found if _comparable(found) == _comparable(manifest) else None


def digest_of(manifest: Manifest) -> str:
    """Return the SHA-256 of a manifest without its provenance, shared images and files."""
    text = json.dumps(_comparable(manifest), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
