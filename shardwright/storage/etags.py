"""Etags: what a store calls an object's content. Stores write them with quotes in one answer and without in another."""

from __future__ import annotations

import re

_MD5 = re.compile(r"[0-9a-f]{32}")


def plain_etag(etag: str | None) -> str:
    """An etag without its quotes, "" where there is none."""
    return (etag or "").strip('"')


def looks_like_md5(etag: str) -> bool:
    """Whether a plain etag may be the MD5 of the content: of encrypted objects it may look so and be none."""
    return _MD5.fullmatch(etag) is not None
