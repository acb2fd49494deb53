"""Etags, which stores write with quotes in one answer and without in another."""

from __future__ import annotations

import pytest

from shardwright.storage.etags import looks_like_md5, plain_etag

MD5 = "900150983cd24fb0d6963f7d28e17f72"


@pytest.mark.parametrize(
    ("given", "plain", "is_md5"),
    [
        (f'"{MD5}"', MD5, True),  # S3 and GCS
        (MD5, MD5, True),
        (f'"{MD5}-12"', f"{MD5}-12", False),  # of an object made of parts
        (f'"{MD5.upper()}"', MD5.upper(), False),
        (
            '"0x227D0E262ACEDA0"',
            "0x227D0E262ACEDA0",
            False,
        ),  # Azure's GET; its listing leaves the quotes out
        ("0x227D0E262ACEDA0", "0x227D0E262ACEDA0", False),
        ('""', "", False),
        ("", "", False),
        (None, "", False),
    ],
)
def test_etags(given: str | None, plain: str, is_md5: bool) -> None:
    assert (plain_etag(given), looks_like_md5(plain_etag(given))) == (plain, is_md5)
