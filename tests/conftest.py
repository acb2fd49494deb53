"""Fixtures of several test files. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from tests.buckets import bucket, gcs_bucket, moto_bucket, proxy, s3_bucket, s3_proxy  # noqa: F401 - fixtures
from tests.object_stores import gcs_server, moto_server, s3_server  # noqa: F401 - fixtures
from tests.store_places import places  # noqa: F401 - a fixture

# Beam makes hundreds of argument parsers a build, and each argument asks for the terminal's size and looks for translations: a
# sixth of a small build's time. Here the environment answers, with what they would find.
_SIZE = shutil.get_terminal_size()
os.environ.update({"COLUMNS": str(_SIZE.columns), "LINES": str(_SIZE.lines), "LANGUAGE": "C"})

# An example's time is that of all that the machine does meanwhile, and other tests run beside it.
settings.register_profile("beside others", deadline=None)
settings.load_profile("beside others")


@pytest.fixture(scope="session")
def zoo_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with 36 images, and one file that is none."""
    from tests.damage import write_images

    root = write_images(tmp_path_factory.mktemp("zoo") / "images")
    (root / "ape" / "empty.png").write_bytes(b"")
    return root


@pytest.fixture(scope="session")
def zoo(zoo_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of those images, `zoo`, with the splits train and test in shards of 10 records; not to be changed."""
    from tests.damage import build

    options = ("--split", "train=0.8,test=0.2", "--records-per-shard", "10", "--max-reject-fraction", "0.5")
    return build(zoo_images, tmp_path_factory.mktemp("built") / "zoo", *options)


@pytest.fixture
def dataset(zoo: Path, tmp_path: Path) -> Path:
    """A copy of `zoo` that a test may damage."""
    return Path(shutil.copytree(zoo, tmp_path / "copy"))
