"""A dataset in a store, for all tests of the cache."""

from __future__ import annotations

import pytest

from shardwright.storage.folder import Folder
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import SIZE, put_dataset


@pytest.fixture(scope="module")
def root(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of four shards of 1,000 bytes; not to be changed."""
    return put_dataset(s3_server, tmp_path_factory.mktemp("noise"), [SIZE] * 4)
