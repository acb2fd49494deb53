"""Shards of generations, as they are now."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.errors import BuildError
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.present import Generations
from tests.support.cached_datasets import write_dataset


@pytest.mark.parametrize(("split", "index"), [("train", 3), ("train", 4), ("test", 0)])
def test_a_shard_that_a_generation_does_not_have(split: str, index: int, tmp_path: Path) -> None:
    """A version file that somebody has changed may name one."""
    write_dataset(tmp_path / "data", [100] * 3)
    generations = Generations(Folder(str(tmp_path / "data")))
    assert generations.info(ShardName("noise", "train", 2, 3)).num_records == 1
    with pytest.raises(BuildError, match=f"-{split}.* is not in its generation's manifest"):
        generations.info(ShardName("noise", split, index, 5))
