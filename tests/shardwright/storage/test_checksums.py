"""Etags, which stores write with quotes in one answer and without in another."""

from __future__ import annotations

import pytest

from shardwright.storage.checksums import looks_like_md5, plain_etag

MD5 = "900150983cd24fb0d6963f7d28e17f72"
AZURE = "0x227D0E262ACEDA0"  # with quotes in a GET, without in a listing


@pytest.mark.parametrize(
    ("given", "plain", "is_md5"),
    [
        (f'"{MD5}"', MD5, True), (MD5, MD5, True), (f'"{MD5.upper()}"', MD5.upper(), False),
        (f'"{MD5}-12"', f"{MD5}-12", False),  # made of parts
        (f'"{AZURE}"', AZURE, False), (AZURE, AZURE, False), ('""', "", False), (None, "", False),
    ],
)  # fmt: skip
def test_etags(given: str | None, plain: str, is_md5: bool) -> None:
    assert (plain_etag(given), looks_like_md5(plain_etag(given))) == (plain, is_md5)
