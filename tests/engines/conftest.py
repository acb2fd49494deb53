"""Fixtures of the engine tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.engine_builds import LOCAL, OPTIONS, build
from tests.engines.engine_images import make_engine_images
from tests.engines.flink_cluster import flink, flink_cluster  # noqa: F401 - fixtures


@pytest.fixture(scope="session")
def engine_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with 60 PNG and JPEG files; not to be changed."""
    return make_engine_images(tmp_path_factory.mktemp("engine") / "images")


@pytest.fixture(scope="session")
def local_dataset(engine_images: Path) -> Path:
    """What the local runner makes of them with OPTIONS: what every engine's dataset must be equal to."""
    build(LOCAL, engine_images, engine_images.parent / "local", *OPTIONS)
    return engine_images.parent / "local"
