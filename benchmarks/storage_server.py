"""The object stores that `storage.py` measures against: real servers on this machine, what is in them, and a long line before them.

versitygw serves S3 and tests/servers/gcs serves GCS, each a process of its own over a folder. `Stores.line` puts a proxy before one, which
passes requests on later (tests/servers/gcs/latency). All three are built by `make servers`.
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

from shardwright.storage import StorageOptions
from shardwright.storage.clients import client_for
from shardwright.storage.listing import list_pages

sys.path.append(str(page.REPO))  # the servers are the tests' own

from tests.servers.processes import BINARIES, start_gcs, start_versitygw
from tests.servers.store_server import StoreServer

PHOTOS_BUCKET, OUT_BUCKET = "photos", "out"
S3, GCS = "s3", "gs"
SERVERS = {S3: "versitygw", GCS: "gcs-server"}  # the names of their processes
PROXY = "latency-proxy"


@dataclass(frozen=True)
class Endpoint:
    """A store as a client sees it: as it is, or at the end of a long line."""

    scheme: str
    url: str
    options: dict[str, str]

    def env(self) -> dict[str, str]:
        """What tells every client where it is and how to log in."""
        if self.scheme == GCS:
            return {"STORAGE_EMULATOR_HOST": self.url}
        keys = {
            "AWS_ACCESS_KEY_ID": self.options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": self.options["secret_access_key"],
        }
        return {**keys, "AWS_REGION": self.options["region"], "AWS_ENDPOINT_URL": self.url}


class Stores:
    """Both servers with their folders, running as long as the block lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, StoreServer] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stores:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.servers[S3] = self._stack.enter_context(start_versitygw(self.folder / "s3"))
        # No token is asked for, because gcsfs and Beam have no way to give one to an emulator.
        self.servers[GCS] = self._stack.enter_context(start_gcs(self.folder / "gcs", token=None))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_bucket(self, name: str) -> None:
        """Bucket and objects, behind the server's back: requests for each would take minutes."""
        shutil.rmtree(self.bucket_folder(name))

    def bucket_folder(self, name: str) -> Path:
        """Where versitygw keeps a bucket: as files, with their etags as attributes."""
        return self.folder / "s3" / "buckets" / name

    @contextlib.contextmanager
    def line(self, scheme: str, msec: int) -> Iterator[Endpoint]:
        """The store with `msec` added to each request; 0 is the server itself, without the proxy."""
        server = self.servers[scheme]
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(proxied(server.endpoint, msec)) if msec else server.endpoint
            changed = {
                key: url if value == server.endpoint else value
                for key, value in server.options.items()
            }
            yield Endpoint(scheme, url, changed)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by the name of the process."""
        found = cpu_seconds_of_children()
        return {name: found.get(name, 0.0) for name in (*SERVERS.values(), PROXY)}


@contextlib.contextmanager
def proxied(endpoint: str, msec: int) -> Iterator[str]:
    """The URL of a proxy before an endpoint that adds `msec` to each request."""
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
    """obstore's client, to fill a bucket quickly."""
    from obstore.store import GCSStore, S3Store

    options: Any = {key: value for key, value in server.options.items() if key != "allow_http"}
    store = S3Store if server.scheme == S3 else GCSStore
    return store(bucket, config=options, client_options={"allow_http": True})


def put_photos(stores: Stores, photos: PhotoSet) -> dict[str, list[dict[str, object]]]:
    """Uploads the photos to both stores; the rows (key, num_bytes, etag) of each as a build lists them."""
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
        rows[scheme] = [row._asdict() for rows_of_page in pages for row in rows_of_page]
    return rows


def _putter(put: Callable[..., object], client: Any, folder: Path) -> Callable[[Path], object]:
    return lambda path: put(
        client, path.relative_to(folder).as_posix(), path.read_bytes(), use_multipart=False
    )


def link_bucket(stores: Stores, name: str, rows: Sequence[dict[str, object]], files: int) -> int:
    """A bucket of `files` objects of S3, further names of the photos behind their servers' back; its bytes."""
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
    """A bucket of S3 with `keys` objects in `folders` folders, or in none: only their names are wanted."""
    target = stores.bucket_folder(name)
    stores.servers[S3].make_bucket(name)
    for folder in range(folders):
        (target / f"class_{folder:03d}").mkdir()
    for number in range(keys):
        parent = f"{target}/class_{number % folders:03d}" if folders else str(target)
        path = f"{parent}/img_{number:07d}.jpg"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.setxattr(path, "user.etag", b'"%032x"' % number)  # where versitygw keeps it


def write_rows(path: Path, rows: Sequence[dict[str, object]], count: int) -> Path:
    """The objects a client is to read, in order; all again where there are not so many."""
    repeated = [rows[number % len(rows)] for number in range(count)]
    path.write_text(json.dumps(repeated))
    return path


def server_versions() -> str:
    """What serves, for the page."""
    versitygw = (BINARIES.parent / "versitygw.version").read_text().strip().rpartition("@")[2]
    module = (page.REPO / "tests" / "servers" / "gcs" / "go.mod").read_text()
    found = re.search(r"fsouza/fake-gcs-server (v\S+)", module)
    return f"- Servers: versitygw {versitygw} (S3), fake-gcs-server {found[1] if found else ''} with what obstore needs (GCS)"
