#!/usr/bin/env python
"""List a flat prefix of many keys, each page delayed (`make bench-listing`).

The server is another process on this machine that speaks S3's ListObjectsV2. It computes the keys
of a page, 00000000.jpg and so on, instead of storing them. Prints the seconds, keys per second, CPU
and peak memory of `list_pages`, and the requests and the CPU of the server. Client and server share
the cores. Exit code 1 if keys are missing or the listing takes longer than the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from measure import measure

MAX_WALL_S = 90
_PAGE, _PREFIX = 1000, "photos/"
_LIST = """
import sys
from shardwright.storage.clients import client_for
from shardwright.storage.listing import list_pages
from shardwright.storage.options import StorageOptions
options = {"endpoint": sys.argv[1], "access_key_id": "a", "secret_access_key": "b", "region": "r"}
client = client_for("s3://bucket", StorageOptions.of(options))
print(sum(map(len, list_pages(client, "photos"))))
"""
_ROW = (
    "<Contents><Key>{}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>"
    '"9b2cf535f27731c974343645a3985328"</ETag><Size>81920</Size></Contents>'
)


class Store:
    """A server of `num_keys` keys that answers each request `seconds` later."""

    def __init__(self, num_keys: int, seconds: float) -> None:
        self._num_keys, self._seconds = num_keys, seconds
        self._row = _ROW.format(f"{_PREFIX}%08d.jpg")
        self.requests = 0

    def page(self, target: str) -> bytes:
        """Return the answer to a request of a page."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        start = int(query["continuation-token"]) if "continuation-token" in query else 0
        if start == 0 and "start-after" in query:
            every = range(self._num_keys)
            start = bisect_right(every, query["start-after"], key=f"{_PREFIX}{{:08d}}.jpg".format)
        stop = min(start + _PAGE, self._num_keys)
        more = f"<NextContinuationToken>{stop}</NextContinuationToken>"
        rows = (self._row * (stop - start)) % tuple(range(start, stop))
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name>'
            f"<IsTruncated>{str(stop < self._num_keys).lower()}</IsTruncated>"
            f"{more if stop < self._num_keys else ''}{rows}</ListBucketResult>"
        ).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                await asyncio.sleep(self._seconds)
                body = self.page(head.split(b" ", 2)[1].decode())
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()


async def run_server(store: Store) -> None:
    """Print the port, serve until standard input ends, and print the number of requests."""
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(store.requests)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--msec", type=int, default=30, help="milliseconds before each answer")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(run_server(Store(args.keys, args.msec / 1000)))
        return 0
    words = ["--serve", "--keys", str(args.keys), "--msec", str(args.msec)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, __file__, *words], **pipes) as server,
    ):
        endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        usage = measure([sys.executable, "-c", _LIST, endpoint], log=Path(folder) / "log")
        found = int(usage.stdout.read_text())
        ticks = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        requests = int(server.communicate("")[0])
    print(
        f"{found:,} keys, {args.msec} ms a page: {usage.wall_s:.1f} s "
        f"({found / usage.wall_s:,.0f} keys/s), CPU {usage.cpu_s:.1f} s, "
        f"RSS {usage.peak_rss_bytes / 1e6:.0f} MB; server: {requests:,} requests, "
        f"CPU {sum(map(int, ticks)) / 100:.1f} s"
    )
    return 0 if found == args.keys and usage.wall_s <= MAX_WALL_S else 1


if __name__ == "__main__":
    sys.exit(main())
