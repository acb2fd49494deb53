"""Checksums of objects, as their stores report them."""

from __future__ import annotations

import base64
from typing import NamedTuple


class StatedContent(NamedTuple):
    """An object's length in bytes and its checksums, as its store reports them.

    `md5` is in hexadecimal. A checksum that the store does not keep is None.
    """

    num_bytes: int
    crc32c: int | None
    md5: str | None


def read_crc32c(text: str | None) -> int | None:
    """Return the number of a checksum in base64, None for none."""
    return int.from_bytes(base64.b64decode(text), "big") if text else None
