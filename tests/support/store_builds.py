"""Builds between local folders and stores: pairs of places, and the same steps of several tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from shardwright.format.manifest import Manifest, read_manifest
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.support.build_helpers import build, hashes_of
from tests.support.store_places import KINDS, PAIRS, STORES, Kind, Place, Places

Pair = tuple[Kind, Kind]
Sources = dict[Kind, Place]
# Each kind of place is read once and written once; the other pairs are long.
FEW_PAIRS: list[Pair] = [("local", "s3"), ("s3", "gs"), ("gs", "local")]
by_pair = pytest.mark.parametrize(
    "pair",
    [pytest.param(pair, marks=[pytest.mark.long] * (pair not in FEW_PAIRS)) for pair in PAIRS],
    ids="-to-".join,
)
by_store = pytest.mark.parametrize("kind", STORES)


def fill_places(places: Places, folder: Path, kinds: Sequence[Kind] = KINDS) -> Sources:
    """Copy a folder to a new place of each kind."""
    return {kind: places.make(kind).fill(folder) for kind in kinds}


def build_between(source: Place | Path, output: Place | Path, *options: str | Path) -> int:
    """Build in this process, with the storage options of both places; return the exit code."""
    args = [arg for place in (source, output) if isinstance(place, Place) for arg in place.args]
    return build(str(source), str(output), *args, *options)


def make_reference(images: Path, *options: str | Path) -> Path:
    """Build the images into the folder `reference` beside them; return the images."""
    assert build(images, images.parent / "reference", *options) == 0
    return images


def assert_as_reference(output: Place, images: Path, copy: Path) -> Path:
    """Check that a dataset has the shards of the reference; return a local copy of it."""
    root = output.download(copy)
    assert hashes_of(root) == hashes_of(images.parent / "reference")
    return root


def num_files(output: Place, text: str) -> int:
    """Return how many files have this text in their name, while a build may remove others."""
    if output.server:
        return sum(text in name for name in output.names())
    return sum(text in str(path.relative_to(output.uri)) for path in Path(output.uri).rglob("*.*"))


def manifest_at(output: Place) -> Manifest:
    return read_manifest(Folder.at(output.uri, StorageOptions.of(output.storage_options)))


def error_of(said: str) -> str:
    """Return the one error in a build's output: its last line, without a traceback."""
    assert "Traceback" not in said
    [line] = [line for line in said.splitlines() if line.startswith("shardwright: error: ")]
    assert line == said.splitlines()[-1]
    return line
