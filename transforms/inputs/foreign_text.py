"""Decode text that other programs wrote: UTF-8 with or without its byte order mark, or UTF-16 with.

Any other encoding is an error, because a guess gives wrong class names without a word.
"""

from __future__ import annotations

import codecs
import io
from typing import Any

NOT_UTF8 = "not UTF-8: save it as UTF-8"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_START_BYTES = 16


def decode_text(data: bytes) -> str:
    """Return a text without its byte order mark.

    Raises:
        UnicodeError: It is in another encoding: "not UTF-8", and the fix.
    """
    try:
        _check_start(data)
        return data.decode(_codec_of(data))
    except UnicodeError as error:
        raise UnicodeError(f"{NOT_UTF8} ({error})") from error


def open_text(file: Any) -> io.TextIOWrapper:
    """Return an open file, from its start, as text without its byte order mark.

    Raises:
        UnicodeError: It is in another encoding, now or when it is read.
    """
    buffered = io.BufferedReader(file)
    start = buffered.peek(_START_BYTES)
    _check_start(start)
    return io.TextIOWrapper(buffered, _codec_of(start), newline="")


def utf8_of(data: bytes) -> bytes:
    """Return a text as UTF-8 without its byte order mark, for parsers that check UTF-8 themselves.

    Raises:
        UnicodeError: It is invalid UTF-16.
    """
    if data.startswith(_UTF16):
        return decode_text(data).encode()
    return data.removeprefix(codecs.BOM_UTF8)


def peek_text(start: bytes) -> str:
    """Return the first bytes of a file as text, to detect its format; nothing is an error."""
    return start.decode(_codec_of(start), "replace")


def _codec_of(start: bytes) -> str:
    return "utf-16" if start.startswith(_UTF16) else "utf-8-sig"


def _check_start(data: bytes) -> None:
    """Raise UnicodeError if a text is UTF-16 or UTF-32 without a mark."""
    if "\0" in peek_text(data[:_START_BYTES])[:4]:
        raise UnicodeError("it begins with NUL characters")
