"""Places for whole builds: a local folder, or a prefix of a bucket on a test server, each as INPUT or as OUTPUT.

What a test puts there, changes and looks at goes by boto3 and google-cloud-storage, not by the client that the builds use.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import object_stores
from tests.fault_proxy import FaultProxy
from tests.servers.processes import BINARIES
from tests.servers.store_server import StoreServer

Kind = Literal["local", "s3", "gs"]
STORES: tuple[Kind, ...] = ("s3", "gs")
PAIRS: list[tuple[Kind, Kind]] = [
    pair
    for pair in itertools.product(("local", *STORES), repeat=2)
    if pair != ("local", "local")  # type: ignore[misc]
]
PAIR_IDS = [f"{source}-to-{output}" for source, output in PAIRS]
# What every client must quote in an address: keys are no file names.
_PREFIX = "data sets/ü+%41&=#1"


@dataclass(frozen=True)
class Place:
    """A folder, wherever it is.

    Attributes:
        uri: As a user writes it on the command line.
        server: Its store; None for a local folder.
    """

    uri: str
    server: StoreServer | None = None

    def __str__(self) -> str:
        return self.uri

    @property
    def bucket(self) -> str:
        return self.uri.split("/")[2]

    @property
    def prefix(self) -> str:
        """What every key below it begins with."""
        return self.uri.split("/", 3)[3] + "/"

    @property
    def args(self) -> list[str]:
        """Options that hold for its bucket alone."""
        if self.server is None:
            return []
        scope = f"{self.server.scheme}://{self.bucket}"
        return [
            arg
            for key, value in self.server.options.items()
            for arg in ("--storage-option", f"{scope}:{key}={value}")
        ]

    @property
    def storage_options(self) -> dict[str, str]:
        """The same for `shardwright.open`."""
        return dict(self.server.options) if self.server else {}

    def behind(self, proxy: FaultProxy, **options: str) -> Place:
        """The same place as reached through a proxy."""
        assert self.server is not None
        key = "endpoint" if self.server.scheme == "s3" else "base_url"
        return replace(
            self,
            server=replace(
                self.server, options={**self.server.options, key: proxy.endpoint, **options}
            ),
        )

    def at(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def put(self, name: str, data: bytes) -> None:
        if self.server is not None:
            object_stores.put_object(self.server, self.at(name), data)
            return
        path = Path(self.uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get(self, name: str) -> bytes:
        return (
            Path(self.uri, name).read_bytes()
            if self.server is None
            else object_stores.get_object(self.server, self.at(name))
        )

    def remove(self, name: str) -> None:
        if self.server is None:
            Path(self.uri, name).unlink()
        else:
            object_stores.delete_object(self.server, self.at(name))

    def fill(self, folder: Path) -> Place:
        """Copy every file of a local folder there."""
        if self.server is None:
            shutil.copytree(folder, self.uri, dirs_exist_ok=True)
        else:
            object_stores.upload_folder(self.server, folder, self.uri)
        return self

    def download(self, folder: Path) -> Path:
        """A local folder with what is there; this place itself where it is local."""
        if self.server is None:
            return Path(self.uri)
        folder.mkdir(parents=True)
        object_stores.download_folder(self.server, self.uri, folder)
        return folder

    def names(self) -> list[str]:
        """Every file below it."""
        return sorted(self.stamps())

    def stamps(self) -> dict[str, tuple[Any, ...]]:
        """What changes when a file is written again, even with the same bytes."""
        if self.server is None:
            found = {
                str(path.relative_to(self.uri)): path.stat()
                for path in Path(self.uri).rglob("*")
                if path.is_file()
            }
            return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}
        start = len(self.prefix)
        return {key[start:]: stamp for key, stamp in _listed(self.server, self.bucket, self.prefix)}

    def pending_uploads(self) -> list[str]:
        """Names of files whose upload was begun, and neither completed nor aborted."""
        assert self.server is not None
        return [key.removeprefix(self.prefix) for key in self.server.pending_uploads(self.bucket)]


def _listed(server: StoreServer, bucket: str, prefix: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if server.scheme == "s3":
        for page in (
            server.s3_client()
            .get_paginator("list_objects_v2")
            .paginate(Bucket=bucket, Prefix=prefix)
        ):
            yield from (
                (row["Key"], (row["ETag"], row["Size"], row["LastModified"]))
                for row in page.get("Contents", ())
            )
    else:
        for blob in server.gcs_client().list_blobs(bucket, prefix=prefix):
            yield blob.name, (blob.etag, blob.generation, blob.size, blob.updated)


class Places:
    """Makes places, each in a folder or bucket of its own; servers start when the first place of theirs is made."""

    def __init__(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        self._request = request
        self._paths = tmp_path_factory

    def make(self, kind: Kind) -> Place:
        """An empty place."""
        if kind == "local":
            return Place(str(self._paths.mktemp("place") / "data"))
        server = self.server(kind)
        return Place(f"{kind}://{object_stores.new_bucket(server)}/{_PREFIX}", server)

    def server(self, kind: Kind) -> StoreServer:
        """moto's S3 stands in where versitygw is not built."""
        has_versitygw = os.access(BINARIES / "versitygw", os.X_OK)
        name = {"s3": "s3_server" if has_versitygw else "moto_server", "gs": "gcs_server"}[kind]
        server: StoreServer = self._request.getfixturevalue(name)
        return server

    @contextmanager
    def proxy(
        self, place: Place, *, latency_msec: float = 0.0
    ) -> Iterator[tuple[FaultProxy, Place]]:
        """A proxy before a place's server, and the place as reached through it."""
        assert place.server is not None
        with FaultProxy(place.server.endpoint, latency_msec=latency_msec) as proxy:
            yield proxy, place.behind(proxy)


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(request, tmp_path_factory)
