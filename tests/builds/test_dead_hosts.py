"""A table of URLs of several web servers, one of which does not respond."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shardwright.errors import UnreachableError
from shardwright.storage import clients
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from tests.servers.processes import free_port
from tests.support.build_helpers import build, make_images, manifest_of, reasons_of


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(make_images(tmp_path / "in", 9)))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("sized", [False, True])
def test_a_dead_host_rejects_its_images_only(
    tmp_path: Path, web: str, sized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "FIRST_CONTACT_SECONDS", 0.2)
    dead = f"http://127.0.0.1:{free_port()}"
    files = sorted((tmp_path / "in").rglob("*.png"))
    rows = [f"{web}/{file.relative_to(tmp_path / 'in')},{file.stat().st_size}" for file in files]
    rows += [f"{dead}/{number}.png,100" for number in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["path,size", *rows]))
    column = ["--size-column=size"] if sized else []
    started = time.monotonic()
    argv = [tmp_path / "t.csv", tmp_path / "out", "--max-reject-fraction=0.99", *column]
    assert build(*map(str, argv)) == 0
    assert time.monotonic() - started < 30
    reasons = reasons_of(tmp_path / "out")
    assert set(reasons.values()) == {"unreadable"}
    assert len(reasons) == 300
    assert manifest_of(tmp_path / "out")["splits"]["train"]["num_records"] == len(files)


def test_a_host_that_failed_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_CONTACT_SECONDS", 0.1)
    monkeypatch.setattr(clients, "REST_SECONDS", 0.5)
    client = clients.Client(f"http://127.0.0.1:{free_port()}", NO_OPTIONS)
    tries = []

    def fail() -> None:
        tries.append(1)
        client.objects.get("a.png")

    for _ in range(3):
        with pytest.raises(UnreachableError):
            client.call(f"{client.store}/a.png", "read", fail)
    before = len(tries)
    assert before <= 7
    time.sleep(0.6)
    with pytest.raises(UnreachableError):
        client.call(f"{client.store}/a.png", "read", fail)
    assert len(tries) > before


def test_a_dead_store_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only web servers that a table names may fail: INPUT, OUTPUT and buckets may not."""
    monkeypatch.setattr(clients, "FIRST_CONTACT_SECONDS", 0.2)
    dead = f"endpoint=http://127.0.0.1:{free_port()}"
    options = [f"--storage-option={one}" for one in (dead, "anonymous=true", "region=x")]
    assert StorageOptions.parse([dead])
    (tmp_path / "t.csv").write_text("path\ns3://bucket/a.png\n")
    assert build(tmp_path / "t.csv", tmp_path / "out", *options) == 1
    web = f"http://127.0.0.1:{free_port()}/x.tar"
    assert build(web, tmp_path / "out") != 0
