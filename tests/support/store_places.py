"""Places for whole builds: a local folder, or a prefix of a bucket on a test server.

Tests access a place with boto3 and google-cloud-storage, not with the client that builds use.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.servers.fault_proxy import FaultProxy
from tests.servers.processes import BINARIES
from tests.servers.store_server import StoreServer
from tests.support import object_stores

Kind = Literal["local", "s3", "gs"]
STORES: tuple[Kind, ...] = ("s3", "gs")
KINDS: tuple[Kind, ...] = ("local", *STORES)
PAIRS = [pair for pair in itertools.product(KINDS, repeat=2) if pair != ("local", "local")]
PAIR_IDS = [f"{source}-to-{output}" for source, output in PAIRS]
_PREFIX = "data sets/ü+%41&=#1"  # keys are no file names: clients must quote all this


@dataclass(frozen=True)
class Place:
    """A folder, local or not.

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
        """The start of every key below it."""
        return self.uri.split("/", 3)[3] + "/"

    @property
    def args(self) -> list[str]:
        """Options that hold for its bucket alone."""
        scope, options = "/".join(self.uri.split("/")[:3]), self.storage_options.items()
        settings = [f"{scope}:{key}={value}" for key, value in options]
        return [arg for setting in settings for arg in ("--storage-option", setting)]

    @property
    def storage_options(self) -> dict[str, str]:
        """The same for `shardwright.open`."""
        return dict(self.server.options) if self.server else {}

    def behind(self, proxy: FaultProxy, **options: str) -> Place:
        """Return the same place as reached through a proxy."""
        assert self.server is not None
        server = self.server.at(proxy.endpoint, **options)
        return replace(self, server=replace(server, endpoint=self.server.endpoint))

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
        if self.server is None:
            return Path(self.uri, name).read_bytes()
        return object_stores.get_object(self.server, self.at(name))

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
        """Return a local folder with the same files; this place itself if it is local."""
        if self.server is None:
            return Path(self.uri)
        folder.mkdir(parents=True)
        object_stores.download_folder(self.server, self.uri, folder)
        return folder

    def names(self) -> list[str]:
        """Return every file below it."""
        return sorted(self.stamps())

    def stamps(self) -> dict[str, tuple[Any, ...]]:
        """Return name -> values that change when a file is written again, even the same bytes."""
        if self.server is not None:
            found = object_stores.stamps_of(self.server, f"{self.uri}/")
            return {key.removeprefix(self.prefix): stamp for key, stamp in found.items()}
        found = {}
        for path in Path(self.uri).rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a running build renames its files
                if stat.S_ISREG((status := path.stat()).st_mode):
                    found[str(path.relative_to(self.uri))] = (status.st_ino, status.st_mtime_ns)
        return found

    def pending_uploads(self) -> list[str]:
        """Return the names of files whose upload is neither completed nor aborted."""
        assert self.server is not None
        return [key.removeprefix(self.prefix) for key in self.server.pending_uploads(self.bucket)]


class Places:
    """A maker of places, each a folder or bucket of its own; servers start at first use."""

    def __init__(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        self._request = request
        self._paths = tmp_path_factory

    def make(self, kind: Kind) -> Place:
        """Return an empty place."""
        if kind == "local":
            return Place(str(self._paths.mktemp("place") / "data"))
        server = self.server(kind)
        return Place(f"{kind}://{object_stores.new_bucket(server)}/{_PREFIX}", server)

    def server(self, kind: Kind) -> StoreServer:
        """Return the server of a kind; moto's S3 if versitygw is not built."""
        name = {"s3": "moto_server" if self.has_moto else "s3_server", "gs": "gcs_server"}[kind]
        server: StoreServer = self._request.getfixturevalue(name)
        return server

    @property
    def has_moto(self) -> bool:
        """True if moto serves S3, for want of versitygw."""
        return not os.access(BINARIES / "versitygw", os.X_OK)

    @contextmanager
    def proxy(
        self, place: Place, *, latency_msec: float = 0.0
    ) -> Iterator[tuple[FaultProxy, Place]]:
        """Yield a proxy before a place's server, and the place as reached through it."""
        assert place.server is not None
        with FaultProxy(place.server.endpoint, latency_msec=latency_msec) as proxy:
            yield proxy, place.behind(proxy)


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(request, tmp_path_factory)
