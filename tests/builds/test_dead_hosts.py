"""A table of URLs of several web servers, one of which does not respond."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shardwright.errors import UnreachableError
from shardwright.storage import clients
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from tests.support.buckets import Counted, PauseClock
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


@pytest.fixture
def dead() -> Iterator[str]:
    """The endpoint of a port that this process holds, and that accepts no connection."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PauseClock:
    return PauseClock(monkeypatch)


@pytest.mark.long_but_first
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("sized", [False, True])
def test_a_dead_host_rejects_its_images_only(
    tmp_path: Path, web: str, dead: str, sized: bool
) -> None:
    """Only calls under way try the host, 7 times each; later ones, while it rests, do not."""
    files = sorted((tmp_path / "in").rglob("*.png"))
    rows = [f"{web}/{file.relative_to(tmp_path / 'in')},{file.stat().st_size}" for file in files]
    rows += [f"{dead}/{number}.png,100" for number in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["path,size", *rows]))
    column = ["--size-column=size"] if sized else []
    counted = Counted()
    argv = [tmp_path / "t.csv", tmp_path / "out", "--max-reject-fraction=0.99", *column]
    assert build(*map(str, argv)) == 0
    assert counted.all["requests"] < len(rows)
    reasons = reasons_of(tmp_path / "out")
    assert set(reasons.values()) == {"unreadable"}
    assert len(reasons) == 300
    assert manifest_of(tmp_path / "out")["splits"]["train"]["num_records"] == len(files)


def test_a_host_that_failed_is_left_alone_for_a_while(dead: str, clock: PauseClock) -> None:
    client = clients.Client(dead, NO_OPTIONS)
    tries = []

    def fail() -> None:
        tries.append(1)
        client.objects.get("a.png")

    for _ in range(3):
        with pytest.raises(UnreachableError):
            client.call(f"{client.store}/a.png", "read", fail)
    before = len(tries)
    assert before <= 7
    clock.now += clients.REST_SECONDS
    with pytest.raises(UnreachableError):
        client.call(f"{client.store}/a.png", "read", fail)
    assert len(tries) > before


@pytest.mark.usefixtures("clock")
def test_a_dead_store_fails_the_build(tmp_path: Path, dead: str) -> None:
    """Only web servers that a table names may fail: INPUT, OUTPUT and buckets may not."""
    endpoint = f"endpoint={dead}"
    options = [f"--storage-option={one}" for one in (endpoint, "anonymous=true", "region=x")]
    assert StorageOptions.parse([endpoint])
    (tmp_path / "t.csv").write_text("path\ns3://bucket/a.png\n")
    assert build(tmp_path / "t.csv", tmp_path / "out", *options) == 1
    assert build(f"{dead}/x.tar", tmp_path / "out") != 0
