"""Etags, which identify an object's content. Stores return them with and without quotes."""

from __future__ import annotations

import re

_MD5 = re.compile(r"[0-9a-f]{32}")


def plain_etag(etag: str | None) -> str:
    """Return an etag without its quotes, "" if there is none."""
    return (etag or "").strip('"')


def looks_like_md5(etag: str) -> bool:
    """Return whether a plain etag may be an MD5. Those of encrypted objects only look like one."""
    return _MD5.fullmatch(etag) is not None
