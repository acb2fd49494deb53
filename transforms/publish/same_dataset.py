"""Tell whether two manifests are of the same dataset, whoever published it, and when."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from shardwright.errors import NotADatasetError
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.found_statistics import without_found


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
