"""A dataset that grows and is compacted on an engine: as the local runner's build of the images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import shardwright as sw
from shardwright.inspect.cli import main
from tests.engines.engine_builds import OPTIONS, build, shard_digests
from tests.engines.engine_images import make_engine_images
from tests.support.build_helpers import build as build_here


def check_growing(runner_args: Sequence[str], folder: Path, timeout: float) -> None:
    """Build, append, append nothing and compact, each as a command on an engine."""
    images, out, fresh = folder / "in", folder / "out", folder / "fresh"

    def run(*words: str | Path, command: str = "build") -> str:
        return build(runner_args, *words, command=command, timeout=timeout).log

    make_engine_images(images, 20)
    run(images, out, *OPTIONS)
    make_engine_images(images, 12, names=("new",))
    next(images.rglob("*.jpg")).unlink()
    grow = (images, out, *OPTIONS, "--if-exists", "append")
    assert "version 2: 31 records: 12 added, 1 taken away" in run(*grow)
    assert "nothing has changed: version 2 has 31 records" in run(*grow)
    run(out, command="compact")
    assert build_here(images, fresh, *OPTIONS) == 0
    dataset = sw.open(str(out))
    [generation] = dataset.history["generations"]
    assert dataset.history["version"] == 3
    assert shard_digests(out / generation, index=False) == shard_digests(fresh, index=False)
    assert main(["verify", str(out)]) == 0
