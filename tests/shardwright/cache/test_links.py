"""Links in a cache lead nowhere: its files heal, or an error names the link."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from shardwright.cache.manifests import forget_dataset
from shardwright.cache.shards import ShardCache
from shardwright.errors import LinkError
from shardwright.storage.folder import Folder
from tests.support.cached_datasets import NAMES, SIZE, at, content
from tests.support.repairs import state_of

SHARD, INDEX = NAMES[0].shard, NAMES[0].sidecar
# The place of a link, and whether an error names it.
LINKS = {
    "": False,  # the cache's own folder
    "lock": True,
    "CACHEDIR.TAG": False,
    "DATASET": True,
    "DATASET/manifest.json": False,
    "DATASET/BUILD": True,
    f"DATASET/BUILD/{SHARD}": False,
    f"DATASET/BUILD/{SHARD}.part": True,
    "DATASET/BUILD/index": True,
    f"DATASET/BUILD/{INDEX}": False,
    "DATASET/BUILD/generations": False,
    "DATASET/old": False,
}


@pytest.mark.parametrize("link", LINKS)
def test_no_link_in_a_cache_is_followed(link: str, root: Folder, tmp_path: Path) -> None:
    own, outside = tmp_path / "cache", tmp_path / "outside"
    with ShardCache(root, at(own)) as cache:
        for name in NAMES:
            content(cache, name)
            cache.index(name)
    build = next(path.parent for path in own.rglob(SHARD))
    if link.endswith(".part"):  # a download that was stopped
        (build / SHARD).rename(build / f"{SHARD}.part")
    path = link.replace("BUILD", build.name).replace("DATASET", build.parent.name)
    shutil.copytree(own, outside)
    _put_link(own / path if path else own, outside / path)
    (build / NAMES[3].shard).unlink()  # so that it is downloaded again
    before = state_of(outside)
    if LINKS[link]:
        with pytest.raises(LinkError) as no:
            _use(root, own)
        assert str(no.value).startswith(f"{own / path} is a link")
    else:
        _use(root, own)
    if link:
        with suppress(LinkError):
            forget_dataset(str(own), root, ())
        assert state_of(outside) == before


def _put_link(path: Path, to: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(to if to.exists() else to.parent)


def _use(root: Folder, folder: Path) -> None:
    """Read everything, in a cache that has room for two shards only."""
    with ShardCache(root, at(folder, 2 * SIZE + 20_000)) as cache:
        for name in NAMES:
            assert content(cache, name) == root.read_bytes(name.shard)
            assert cache.index(name).num_rows == 1
        for path in folder.rglob("*.tfrecord-00000-of-00004"):
            assert not os.path.islink(path)
