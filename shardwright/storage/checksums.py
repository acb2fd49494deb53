"""Checksums of objects, as their stores report them, and etags, which identify a content."""

from __future__ import annotations

import base64
import re

_MD5 = re.compile(r"[0-9a-f]{32}")


def read_crc32c(text: str | None) -> int | None:
    """Return the number of a checksum in base64, None for none."""
    return int.from_bytes(base64.b64decode(text), "big") if text else None


def plain_etag(etag: str | None) -> str:
    """Return an etag without its quotes, which stores return or not; "" if there is none."""
    return (etag or "").strip('"')


def looks_like_md5(etag: str) -> bool:
    """Return whether a plain etag may be an MD5. Those of encrypted objects only look like one."""
    return _MD5.fullmatch(etag) is not None
