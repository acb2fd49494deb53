"""Fixtures of the engine tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engines.engine_builds import LOCAL, OPTIONS, build
from tests.engines.engine_images import make_engine_images
from tests.engines.flink_cluster import flink, flink_cluster  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from tests.engines.dataflow_jobs import Cloud


@pytest.fixture(scope="session")
def engine_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with 60 PNG and JPEG files; not to be changed."""
    return make_engine_images(tmp_path_factory.mktemp("engine") / "images")


@pytest.fixture(scope="session")
def local_dataset(engine_images: Path) -> Path:
    """The local runner's dataset of them with OPTIONS, which every engine's must equal."""
    build(LOCAL, engine_images, engine_images.parent / "local", *OPTIONS)
    return engine_images.parent / "local"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Dataflow whose jobs are not run: they stay as they are until a test ends them."""
    from tests.engines.dataflow_jobs import start_cloud
    from tests.servers.processes import ServerMissingError

    try:
        with start_cloud(tmp_path_factory.mktemp("cloud"), None) as cloud:
            yield cloud
    except ServerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def source(cloud: Cloud, engine_images: Path) -> str:
    """The engine images, in the cloud's store."""
    return cloud.upload(engine_images, "images")
