"""Datasets that grow, made by `sw.write` and `commit`: what an append does after its plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shardwright as sw
from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName, generation_folder
from shardwright.format.versions import number_of, read_version
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.commit import Operation, VersionChange, commit
from tests.support.build_helpers import png_of

CLASSES = ("a", "b", "c")
SCHEMA = image_classification().with_class_names(CLASSES)
Content = Mapping[str, int]
"""The seed of the picture by id; its label is the seed modulo 3."""


def write(content: Content, output: Path, **options: Any) -> None:
    """Write records as a dataset."""
    records = [
        {"id": name, "image": png_of(seed), "label": CLASSES[seed % 3]}
        for name, seed in content.items()
    ]
    options = {"records_per_shard": 4, "name": "grown", **options}
    sw.write(records, str(output), schema=SCHEMA, **options)


def append_change(
    root: Path, content: Content, removed: list[str], token: str, base: Manifest | None = None
) -> VersionChange:
    """Write a generation, and return the change that adds it."""
    base = base or read_version(Folder(str(root)))
    folder = generation_folder(number_of(base) + 1, token) if content else ""
    added = None
    if content:
        write(content, root / folder)
        added = read_manifest(Folder(str(root / folder)))
    outdated = _rows_of(root, base, {*removed, *content})
    return VersionChange(Operation.APPEND, base, folder=folder, added=added, outdated=outdated)


def _rows_of(root: Path, base: Manifest, ids: set[str]) -> dict[ShardName, NDArray[np.uint32]]:
    """Return the rows of the shards that have these ids, and are still in the dataset."""
    found = {}
    for name, info in base.named_shards():
        rows = read_index_of(Folder(str(root)), name, info, ["id"])["id"].to_pylist()
        gone = set(info.removed_rows.tolist())
        chosen = [row for row, key in enumerate(rows) if key in ids and row not in gone]
        if chosen:
            found[name] = np.array(chosen, np.uint32)
    return found


def append(root: Path, content: Content, removed: list[str] | None = None) -> Manifest:
    """Add and replace records, take others away, and return the new version."""
    change = append_change(root, content, removed or [], "x")
    return commit(Folder(str(root)), change)


def pictures_of(root: Path, **options: Any) -> dict[str, tuple[bytes, int]]:
    """Return (image, label) by id, as `sw.Reader` reads them; each id must come once."""
    rows = []
    with sw.Reader(
        str(root), "train", global_batch_size=3, epochs=1, remainder="keep", **options
    ) as reader:
        for batch in reader:
            rows += zip(batch["id"], batch["image"], batch["label"].tolist(), strict=True)
    found = {str(name): (bytes(image), label) for name, image, label in rows}
    assert len(found) == len(rows)
    return found


def wanted(content: Content) -> dict[str, tuple[bytes, int]]:
    """Return what `pictures_of` must return."""
    return {name: (png_of(seed), seed % 3) for name, seed in content.items()}
