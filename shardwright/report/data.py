"""Collect what a report shows from a dataset's files; reads a bounded part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright.errors import StorageError
from shardwright.format.manifest import Manifest
from shardwright.inspect.sample import choose_sample, sample_size
from shardwright.report.paired import NearPair, leaked_ids, pictures_of, read_near_pairs
from shardwright.report.pictures import Picture, read_pictures
from shardwright.report.reject_rows import RejectedInput, read_rejects
from shardwright.report.sampled_rows import SplitRows, read_rows
from shardwright.report.thumbnails import can_decode
from shardwright.storage.folder import Folder


@dataclass(frozen=True)
class ReportData:
    """The content of a report.

    Attributes:
        manifest: The dataset.
        splits: Index rows of each split.
        pictures: The sample that is shown.
        near: Some near-duplicates.
        paired: The pictures of duplicates, near-duplicates and changes, by id.
        rejects: Examples of each reason.
        difference: The summary of `shardwright diff` against another dataset, or None.
        replaced: The pictures of the other dataset that are gone or changed, by id.
        can_decode: False if no decoder is installed, so that there are no pictures.
        fault: The error for which only the manifest is shown; "" without one.
    """

    manifest: Manifest
    splits: Sequence[SplitRows] = ()
    pictures: Sequence[Picture] = ()
    near: Sequence[NearPair] = ()
    paired: Mapping[str, Picture] = field(default_factory=dict)
    rejects: Sequence[RejectedInput] = ()
    difference: Mapping[str, Any] | None = None
    replaced: Mapping[str, Picture] = field(default_factory=dict)
    can_decode: bool = True
    fault: str = ""


def collect(
    root: Folder,
    manifest: Manifest,
    *,
    pictures: Sequence[Picture] | None = None,
    difference: Mapping[str, Any] | None = None,
    older: tuple[Folder, Manifest] | None = None,
) -> ReportData:
    """Return what the report of a dataset shows.

    Args:
        root: The folder of its files.
        manifest: Its manifest; reads the files of rejects that it lists.
        pictures: The sample, if it is read already; None to read `sample_pictures`.
        difference: The summary of `compare` against another dataset.
        older: The folder and the manifest of that dataset.

    Raises:
        StorageError: An index or a file of rejects cannot be read.
    """
    splits = read_rows(root, manifest)
    decodes = can_decode()
    near = read_near_pairs(root, manifest)
    changed: Mapping[str, list[str]] = (difference or {}).get("examples", {})
    ids = {*leaked_ids(manifest), *(pair.keeper for pair in near), *(pair.id for pair in near)}
    ids.update(found for change, some in changed.items() if change != "gone" for found in some)
    return ReportData(
        manifest,
        splits,
        sample_pictures(root, manifest) if pictures is None else pictures,
        near,
        pictures_of(root, manifest, ids) if decodes else {},
        read_rejects(root, manifest) if manifest.rejects else [],
        difference,
        _replaced_pictures(older, changed) if older and decodes else {},
        decodes,
    )


def _replaced_pictures(
    older: tuple[Folder, Manifest], changed: Mapping[str, list[str]]
) -> Mapping[str, Picture]:
    ids = {*changed.get("gone", []), *changed.get("changed", [])}
    try:
        return pictures_of(older[0].below(older[1].folder), older[1], ids)
    except StorageError:  # what is gone need not be readable
        return {}


def sample_pictures(root: Folder, manifest: Manifest, number: int | None = None) -> list[Picture]:
    """Return the pictures of a sample; [] without images, or if no decoder is installed.

    Args:
        root: The folder of the dataset's files.
        manifest: Its manifest.
        number: Number of records; None for one in 1,000, at least 64, at most 2,000.

    Raises:
        StorageError: An index or a shard cannot be read.
    """
    if manifest.schema.image is None or not can_decode():
        return []
    wanted = sample_size(manifest.num_records) if number is None else number
    return read_pictures(root, manifest, choose_sample(root, manifest, wanted) if wanted else [])
