#!/usr/bin/env python
"""One client doing one thing with a store, in a process of its own: `storage.py` starts it and reads the line of JSON it prints.

  read CLIENT    the objects of --rows (see storage_reads.py)
  list CLIENT    every key of the bucket
  upload CLIENT  one object of --num-bytes, from a stream

The client is made, and does the same once in small, before the clock starts: imports and first connections are not measured. Beam's
pipelines have a start of their own each time; a pipeline on two objects is measured, too, and taken off.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from storage_reads import READERS, Place, beam_options, boto3_client, google_bucket

_FEW = 2
_PIECE_BYTES = 80_000
_PIECES = 50  # a chunk of a shard: 4 MB in 50 records


def _memory_bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1]) * 1024


def timed(operation: Callable[[], int]) -> dict[str, float]:
    """What an operation took: its result, wall and CPU seconds, and how much the memory grew at its peak (RSS, in bytes)."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    before = _memory_bytes("VmRSS")
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    result = operation()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {
        "result": result,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "growth_bytes": _memory_bytes("VmHWM") - before,
    }


def run_read(name: str, place: Place, args: argparse.Namespace) -> dict[str, float]:
    rows = json.loads(args.rows.read_text())
    read = READERS[place.scheme][name](place)
    read(rows[:_FEW])
    base = {"wall_s": 0.0, "cpu_s": 0.0}
    if name.startswith("beam"):
        few = timed(lambda: read(rows[:_FEW]))
        base = {"count": _FEW, **{key: few[key] for key in base}}
    found = timed(lambda: read(rows))
    if found["result"] != (expected := sum(row["num_bytes"] for row in rows)):
        raise SystemExit(f"{name} read {found['result']} bytes of {expected}")
    found["count"] = len(rows)
    return {**found, **{key: found[key] - base[key] for key in base}}


def _list_shardwright(place: Place) -> Callable[[], int]:
    from shardwright.storage import StorageOptions
    from shardwright.storage.clients import client_for
    from shardwright.storage.listing import list_pages

    client = client_for(f"{place.scheme}://{place.bucket}", StorageOptions.of(place.options))
    return lambda: sum(map(len, list_pages(client, "")))


def _list_boto3(place: Place) -> Callable[[], int]:
    client = boto3_client(place)
    pages = client.get_paginator("list_objects_v2")
    return lambda: sum(
        len(page.get("Contents", ())) for page in pages.paginate(Bucket=place.bucket)
    )


def _list_beam(place: Place) -> Callable[[], int]:
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    FileSystems.set_options(PipelineOptions(beam_options(place)))
    return lambda: sum(
        len(found.metadata_list)
        for found in FileSystems.match([f"{place.scheme}://{place.bucket}/**"])
    )


LISTERS = {
    "shardwright": _list_shardwright,
    "boto3-paginator": _list_boto3,
    "beam-match": _list_beam,
}


def run_list(name: str, place: Place, args: argparse.Namespace) -> dict[str, float]:
    LISTERS[name](Place(place.scheme, args.warm_bucket, place.options))()
    found = timed(LISTERS[name](place))
    return {**found, "count": found["result"]}


class _Stream(io.RawIOBase):
    """Bytes without an end in sight, none of them kept: as a shard is, when it is written."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = self._left = num_bytes
        self._piece = bytes(range(256)) * (_PIECE_BYTES // 256 + 1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True  # Google's client asks where it is

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._left = self._num_bytes - (
            offset
            + {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._num_bytes}[whence]
        )
        return self.tell()

    def tell(self) -> int:
        return self._num_bytes - self._left

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._left, len(self._piece))
        buffer[:size] = self._piece[:size]
        self._left -= size
        return size


def _chunks(num_bytes: int) -> Iterator[list[bytes]]:
    """The same as a build's threads give them to a sink: chunks of records."""
    stream = io.BufferedReader(_Stream(num_bytes))
    while pieces := [piece for _ in range(_PIECES) if (piece := stream.read(_PIECE_BYTES))]:
        yield pieces


def _upload_shardwright(place: Place, key: str, num_bytes: int) -> None:
    from shardwright.storage import Folder, StorageOptions

    folder = Folder.at(f"{place.scheme}://{place.bucket}", StorageOptions.of(place.options))
    with folder.open_sink(key) as sink:
        for pieces in _chunks(num_bytes):
            sink.write(pieces)


def _upload_boto3(place: Place, key: str, num_bytes: int) -> None:
    boto3_client(place).upload_fileobj(io.BufferedReader(_Stream(num_bytes)), place.bucket, key)


def _upload_google(place: Place, key: str, num_bytes: int) -> None:
    blob = google_bucket(place).blob(
        key, chunk_size=8 << 20
    )  # resumable, in requests of as much as our parts
    blob.upload_from_file(io.BufferedReader(_Stream(num_bytes)), size=num_bytes)


UPLOADERS = {
    "shardwright": _upload_shardwright,
    "boto3-transfer": _upload_boto3,
    "google-resumable": _upload_google,
}


def run_upload(name: str, place: Place, args: argparse.Namespace) -> dict[str, float]:
    UPLOADERS[name](place, "warm", _PIECE_BYTES)

    def upload() -> int:
        UPLOADERS[name](place, f"{name}.tfrecord", args.num_bytes)
        return int(args.num_bytes)

    return {**timed(upload), "count": 1}


_TASKS = {"read": run_read, "list": run_list, "upload": run_upload}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("task", choices=_TASKS)
    add("client")
    add("--scheme", choices=READERS, required=True)
    add("--bucket", required=True)
    add(
        "--options",
        type=json.loads,
        required=True,
        help="storage options as JSON, by obstore's names",
    )
    add("--rows", type=Path, help="read: JSON of the objects to read")
    add("--warm-bucket", help="list: another bucket, listed before")
    add("--num-bytes", type=int, default=150_000_000, help="upload (default %(default)s)")
    args = parser.parse_args()
    place = Place(args.scheme, args.bucket, args.options)
    print(json.dumps(_TASKS[args.task](args.client, place, args)))


if __name__ == "__main__":
    main()
