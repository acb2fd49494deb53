"""Count the records that a system wrote, so that a run that lost images does not count.

Files are walked header by header, without reading the images and without the libraries under test:
a TFRecord is length, crc, payload, crc; a tar member is a 512-byte header and padded content.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from measure import RunFailedError

_TAR_BLOCK = 512
_TAR_FILE_TYPES = (b"0", b"\0")


def _tfrecord_sizes(path: Path) -> Iterator[int]:
    """Yield the payload size of each record. Raises RunFailedError if the last one is cut off."""
    with open(path, "rb") as file:
        end, at = os.fstat(file.fileno()).st_size, 0
        while at < end:
            head = os.pread(file.fileno(), 8, at)
            # The padding turns a truncated length into an absurd one.
            (size,) = struct.unpack("<Q", head.ljust(8, b"\xff"))
            at += 8 + 4 + size + 4
            if at > end:
                raise RunFailedError(f"{path.name}: the last record is cut off")
            yield size


def _tar_sizes(path: Path) -> Iterator[int]:
    """Yield the size of each image in a tar file, but not of links, folders and label files."""
    with open(path, "rb") as file:
        at = 0
        while (head := os.pread(file.fileno(), _TAR_BLOCK, at)).strip(b"\0"):
            size = int(head[124:136].rstrip(b"\0 "), 8)
            name = head[:100].rstrip(b"\0")
            if head[156:157] in _TAR_FILE_TYPES and name.endswith(b".jpg"):
                yield size
            at += _TAR_BLOCK + -(-size // _TAR_BLOCK) * _TAR_BLOCK
        if at >= os.fstat(file.fileno()).st_size:
            raise RunFailedError(f"{path.name}: no end mark, the archive is cut off")


def check_output(system: str, out: Path, *, files: int, num_bytes: int) -> None:
    """Raise RunFailedError unless OUT holds one record per file and at least the images' bytes."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file()]
    sizes: list[int] = []
    for path in paths:
        if path.suffix == ".tar":
            sizes.extend(_tar_sizes(path))
        elif ".tfrecord" in path.name and path.suffix not in (".json", ".parquet"):
            sizes.extend(_tfrecord_sizes(path))
    if len(sizes) != files or sum(sizes) < num_bytes:
        raise RunFailedError(
            f"{system}: found {len(sizes)} records of {sum(sizes)} bytes, expected {files} records "
            f"of at least {num_bytes} bytes. The run does not count: check its output."
        )
    if system in ("shardwright", "two-processes") and not (out / "manifest.json").exists():
        raise RunFailedError(f"{system}: no manifest.json, so the dataset is not finished")
