"""The object stores of `storage.py`: real servers on this machine, their contents, and latency.

versitygw serves S3 and tests/servers/gcs serves GCS, each in its own process from a folder.
`Stores.line` starts a proxy that delays requests (tests/servers/gcs/latency). `make servers` builds
all three.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page
from measure import cpu_seconds_of_children
from photos import PhotoSet

from shardwright.storage.clients import client_for
from shardwright.storage.listing import list_pages
from shardwright.storage.options import StorageOptions

sys.path.append(str(page.REPO))  # for the servers of the tests

from tests.servers.processes import BINARIES, start_gcs, start_versitygw
from tests.servers.store_server import StoreServer

PHOTOS_BUCKET, OUT_BUCKET = "photos", "out"
S3, GCS = "s3", "gs"
SERVERS = {S3: "versitygw", GCS: "gcs-server"}  # names of the processes
PROXY = "latency-proxy"


@dataclass(frozen=True)
class Endpoint:
    """The address of a store for a client, either the server or the delaying proxy."""

    scheme: str
    url: str
    options: dict[str, str]

    def env(self) -> dict[str, str]:
        """Return environment variables with the address and the credentials for every client."""
        if self.scheme == GCS:
            return {"STORAGE_EMULATOR_HOST": self.url}
        keys = {
            "AWS_ACCESS_KEY_ID": self.options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": self.options["secret_access_key"],
        }
        return {**keys, "AWS_REGION": self.options["region"], "AWS_ENDPOINT_URL": self.url}


class Stores:
    """Both servers with their folders, running until the block ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, StoreServer] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stores:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.servers[S3] = self._stack.enter_context(start_versitygw(self.folder / "s3"))
        # Without a token, because gcsfs and Beam cannot send one to an emulator.
        self.servers[GCS] = self._stack.enter_context(start_gcs(self.folder / "gcs", token=None))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_bucket(self, name: str) -> None:
        """Delete a bucket from the server's disk: requests for each object would take minutes."""
        shutil.rmtree(self.bucket_folder(name))

    def bucket_folder(self, name: str) -> Path:
        """Return versitygw's folder of a bucket: files, with their etags as attributes."""
        return self.folder / "s3" / "buckets" / name

    @contextlib.contextmanager
    def line(self, scheme: str, msec: int) -> Iterator[Endpoint]:
        """Yield the store with `msec` added to each request; with 0 there is no proxy."""
        server = self.servers[scheme]
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(proxied(server.endpoint, msec)) if msec else server.endpoint
            changed = {
                key: url if value == server.endpoint else value
                for key, value in server.options.items()
            }
            yield Endpoint(scheme, url, changed)

    def cpu_s(self) -> dict[str, float]:
        """Return process name -> CPU seconds so far."""
        found = cpu_seconds_of_children()
        return {name: found.get(name, 0.0) for name in (*SERVERS.values(), PROXY)}


@contextlib.contextmanager
def proxied(endpoint: str, msec: int) -> Iterator[str]:
    """Yield the URL of a proxy for an endpoint that adds `msec` to each request."""
    words = [
        str(BINARIES / PROXY),
        "-upstream",
        endpoint.removeprefix("http://"),
        "-msec",
        str(msec),
    ]
    if not os.access(words[0], os.X_OK):
        sys.exit(f"{PROXY} is not built: run `make servers` (it needs Go)")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def client_of(server: StoreServer, bucket: str) -> Any:
    """Return obstore's client, to fill a bucket quickly."""
    from obstore.store import GCSStore, S3Store

    options: Any = {key: value for key, value in server.options.items() if key != "allow_http"}
    store = S3Store if server.scheme == S3 else GCSStore
    return store(bucket, config=options, client_options={"allow_http": True})


def put_photos(stores: Stores, photos: PhotoSet) -> dict[str, list[dict[str, object]]]:
    """Upload the photos to both stores; return scheme -> listed rows (key, num_bytes, etag)."""
    import obstore

    paths = sorted(photos.folder.rglob("*.jpg"))
    rows = {}
    for scheme, server in stores.servers.items():
        server.make_bucket(PHOTOS_BUCKET)
        server.make_bucket(OUT_BUCKET)
        client = client_of(server, PHOTOS_BUCKET)
        put = _putter(obstore.put, client, photos.folder)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(put, paths))
        pages = list_pages(
            client_for(f"{scheme}://{PHOTOS_BUCKET}", StorageOptions.of(dict(server.options))), ""
        )
        rows[scheme] = [
            {"key": row.key, "num_bytes": row.num_bytes, "etag": row.etag}
            for rows_of_page in pages
            for row in rows_of_page
        ]
    return rows


def _putter(put: Callable[..., object], client: Any, folder: Path) -> Callable[[Path], object]:
    return lambda path: put(
        client, path.relative_to(folder).as_posix(), path.read_bytes(), use_multipart=False
    )


def link_bucket(stores: Stores, name: str, rows: Sequence[dict[str, object]], files: int) -> int:
    """Make an S3 bucket of `files` hard links to the photos, on disk; return its bytes."""
    source, target = stores.bucket_folder(PHOTOS_BUCKET), stores.bucket_folder(name)
    stores.servers[S3].make_bucket(name)
    num_bytes = 0
    for number in range(files):
        row = rows[number % len(rows)]
        class_name, photo = str(row["key"]).split("/")
        (target / class_name).mkdir(exist_ok=True)
        os.link(
            source / class_name / photo, target / class_name / f"r{number // len(rows):03d}_{photo}"
        )
        num_bytes += int(str(row["num_bytes"]))
    return num_bytes


def make_empty_objects(stores: Stores, name: str, keys: int, folders: int) -> None:
    """Make an S3 bucket of empty objects, `keys` in number, in `folders` folders or in none."""
    target = stores.bucket_folder(name)
    stores.servers[S3].make_bucket(name)
    for folder in range(folders):
        (target / f"class_{folder:03d}").mkdir()
    for number in range(keys):
        parent = f"{target}/class_{number % folders:03d}" if folders else str(target)
        path = f"{parent}/img_{number:07d}.jpg"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.setxattr(path, "user.etag", b'"%032x"' % number)  # versitygw's attribute


def write_rows(path: Path, rows: Sequence[dict[str, object]], count: int) -> Path:
    """Write the objects that a client reads, in order, repeated up to `count`."""
    repeated = [rows[number % len(rows)] for number in range(count)]
    path.write_text(json.dumps(repeated))
    return path


def server_versions() -> str:
    """Return a line about the servers."""
    versitygw = (BINARIES.parent / "versitygw.version").read_text().strip().rpartition("@")[2]
    module = (page.REPO / "tests" / "servers" / "gcs" / "go.mod").read_text()
    found = re.search(r"fsouza/fake-gcs-server (v\S+)", module)
    return (
        f"Servers: versitygw {versitygw} (S3), fake-gcs-server {found[1] if found else ''} "
        "with what obstore needs (GCS)"
    )
